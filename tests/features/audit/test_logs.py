"""Logs: each trainer is known by its lines, and what they say is the claim."""

import json
from pathlib import Path

import pytest

import lmsweep
from lmsweep.orchestrator.features.audit.claims.read_claim import claim_of
from lmsweep.orchestrator.features.audit.logs.read_log import read_log, trainers
from lmsweep.trials.spec.errors import RequestError

LOGS = Path(__file__).parent / "logs"

READ: dict[str, dict[str, object]] = json.loads((LOGS / "claims.json").read_text())
"""File -> what a reader of it would write down. TRL's is of SFTTrainer of TRL 1.16 on an H100; those of a CPU are
twenty steps of a tiny model with torchtitan 0.2.2, Composer 0.32, and Lightning 2.6 with either bar.
"""


def test_a_log_says_what_its_lines_say() -> None:
    for name, values in READ.items():
        texts = read_log((LOGS / f"{name}.log").read_text(), name).texts
        claim = claim_of({"gpus": "H100"} | texts)
        for field, value in values.items():
            found = getattr(claim, field)
            assert found == value or found == pytest.approx(value, rel=1e-3), (name, field, found)


def test_every_trainer_of_the_table_has_a_log_here() -> None:
    known = {read_log(path.read_text(), path.name).trainer.name for path in LOGS.glob("*.log")}
    assert known == {one.name for one in trainers()}


def test_the_lines_that_were_read_are_shown_and_the_first_steps_do_not_count() -> None:
    log = read_log((LOGS / "torchtitan.log").read_text(), "torchtitan.log")
    assert any("tps: 6,666" in line for line in log.lines)
    assert not any("tps: 483" in line for line in log.lines)


def test_a_text_that_no_trainer_wrote_is_refused_with_the_names_of_those_that_are_known() -> None:
    with pytest.raises(RequestError, match=r"^notes\.txt: no line is known of a trainer's log \(torchtitan, nanochat"):
        read_log("a quiet day\n", "notes.txt")


def test_a_log_beside_options_is_one_claim(tmp_path: Path) -> None:
    (found,) = lmsweep.audit(LOGS / "axolotl.log", gpus="RTX 4090", model="8B")
    assert found.name and "axolotl" in found.name
    assert found.rates == {"tokens/s": 4 * 770}
    assert any("770.0" in line for line in found.read) and json.dumps(found.read)
