"""`lmsweep sweeps` reads no sweep: its catalogue ships. To accept a change: UPDATE_GOLDEN=1 pytest FILE."""

import json
from collections import Counter

from lmsweep.orchestrator.feature import packaged_sweeps
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.machine.cpu_affinity import usable_cores
from tests.support.command import ROOT, lmsweep_here
from tests.support.golden_files import check_golden


def test_the_catalogue_says_of_each_sweep_what_reading_it_says() -> None:
    catalogue = {}
    for name in sorted(packaged_sweeps()):
        sweep = load_sweep(name)
        kinds = Counter((one.config.device_type, one.config.nodes, one.config.world_size) for one in sweep.trials)
        trials = [
            {"device": device, "nodes": nodes, "processes": processes, "count": count}
            for (device, nodes, processes), count in sorted(kinds.items())
        ]
        catalogue[name] = {"description": sweep.description, "trials": trials}
    text = json.dumps(catalogue, indent=1, ensure_ascii=False)
    check_golden(f"{text}\n", ROOT / "orchestrator" / "features" / "catalogue" / "catalogue.json")


def test_the_json_has_each_sweep_with_the_number_of_its_trials_that_can_run_here() -> None:
    listed = {one["name"]: one for one in json.loads(lmsweep_here("sweeps", "--format", "json"))["sweeps"]}
    assert listed.keys() == packaged_sweeps().keys()
    trials = load_sweep("quick").trials
    assert listed["quick"]["trials"] == len(trials) and listed["quick"]["fewest_gpus"] == 0
    assert listed["quick"]["run_here"] == sum(one.config.world_size <= len(usable_cores()) for one in trials)
    assert listed["fsdp"]["fewest_gpus"] == min(one.config.world_size for one in load_sweep("fsdp").trials)
