"""Trials side by side on the GPUs of one node: in order, on cores of their own, and no graph compiled twice."""

import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace

import psutil
import pytest

from lmsweep.orchestrator.cluster.nodes import this_machine
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.machine.cpu_affinity import Core, Gpu, cores_of, find_cores, usable_cores
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import Trial
from tests.support.command import program
from tests.support.made_up_results import TINY

COMPILED = replace(TINY, compile="block", mode="forward")


def machine(numa_nodes: int, *, physical: int, threads: int) -> list[Core]:
    """Cores numbered as Linux does: first a thread of each physical core, then the second ones."""
    found = [
        Core(number=thread * physical + core, physical=core, numa_node=core * numa_nodes // physical)
        for thread in range(threads)
        for core in range(physical)
    ]
    return sorted(found, key=lambda core: (core.numa_node, core.physical, core.number))


def gpus(*numa_nodes: int | None) -> list[Gpu]:
    return [Gpu(names=(str(i), f"GPU-{i:04}"), numa_node=node) for i, node in enumerate(numa_nodes)]


def shares(present: Sequence[Gpu], cores: Sequence[Core]) -> list[tuple[int, ...]]:
    return [cores_of([gpu.names[0]], present, cores) for gpu in present]


def test_gpus_share_the_cores_of_their_numa_node():
    cores, few = machine(2, physical=8, threads=1), machine(1, physical=2, threads=1)
    assert shares(gpus(0, 0, 1, 1), cores) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert shares(gpus(1, 0), cores) == [(4, 5, 6, 7), (0, 1, 2, 3)], "the near ones, whatever its number"
    assert shares(gpus(0, 0, 0, 1), cores) == [(0,), (1,), (2,), (4, 5, 6, 7)]
    assert shares(gpus(None, None), cores) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    nearby = [core for core in cores if core.numa_node == 0]
    assert shares(gpus(0, 1), nearby) == [(0, 1), (2, 3)], "no core of the other node may be used"
    assert shares(gpus(0, 0), machine(1, physical=4, threads=2)) == [(0, 4, 1, 5), (2, 6, 3, 7)], "threads of a core"
    assert cores_of([], gpus(0, 0), few) == (0, 1), "a trial on the CPU has all"
    assert shares(gpus(0, 0, 0), few) == [(0,), (1,), (0,)], "there are too few"


def test_the_share_of_a_gpu_is_the_same_when_it_is_the_only_one_in_use():
    """So that a trial's times do not depend on how many GPUs a sweep may use, or on their names."""
    present, cores = gpus(0, 0, 0, 0), machine(1, physical=8, threads=1)
    assert cores_of(["3"], present, cores) == cores_of(["GPU-0003"], present, cores) == (6, 7)
    assert cores_of(["0", "1"], present, cores) == (0, 1, 2, 3), "several ranks have the shares of all theirs"


def test_the_cores_found_here_are_those_this_process_may_use():
    found = find_cores()
    assert {core.number for core in found} == set(usable_cores()) == os.sched_getaffinity(0)
    assert all(core.physical <= core.number for core in found)


@pytest.mark.slow
def test_side_by_side_trials_begin_in_the_order_of_the_plan(tmp_path):
    """Long ones first: one that is left for the end holds up everything."""
    slots, count = 2, 12
    words = ("-m", "tests.support.launched_trials", tmp_path / "store", str(slots), str(count))
    done = program(sys.executable, *words)
    assert done.returncode == 0, done.stderr
    began = [int(line) for line in done.stdout.split()]
    assert sorted(began) == [*range(1, count + 1)]
    # Those that begin together may do so in any order, and the last of the plan may begin with them.
    assert all(abs(place + 1 - index) <= 2 * slots for place, index in enumerate(began) if index != count), began


@pytest.mark.slow
@pytest.mark.skipif(len(usable_cores()) < 2, reason="two slots need two cores")
def test_two_slots_compile_each_graph_once_and_measure_on_cores_of_their_own(monkeypatch, tmp_path, no_servers):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    environment = this_machine().environments["cpu"]
    configs = tuple(replace(COMPILED, context_length=length) for length in (16, 32))
    compiled: dict[int, int] = {}
    left: dict[int, int] = {}
    rows: dict[int, list[Record]] = {}
    mine = usable_cores()

    def slot(index: int) -> None:
        """Both need the same graph first."""
        with IsolatedRunner(cores=(mine[index],)) as runner:
            runner.start()
            ready.wait()
            compiled[index] = runner.precompile(configs, environment=environment, sharers=2).graphs
            measured.wait()
            left[index] = runner.precompile(configs[1:], environment=environment, sharers=2).graphs
            trial = Trial(config=configs[0], workloads=("timing",), sweep="test")
            rows[index] = [row for row in runner.run(trial, fallback=environment) if isinstance(row, Record)]

    ready, measured = threading.Barrier(3, timeout=120), threading.Barrier(3, timeout=120)
    threads = [threading.Thread(target=slot, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    ready.wait()
    servers = [one for one in psutil.Process().children() if "lmsweep.trials.isolation.server" in one.cmdline()]
    assert sorted(tuple(one.cpu_affinity()) for one in servers) == sorted((core,) for core in mine[:2])
    measured.wait()
    for thread in threads:
        thread.join()
    assert set(os.sched_getaffinity(0)) == set(mine), "this process itself stays where it was"
    assert sum(compiled.values()) + sum(left.values()) == len(configs)
    for index in (0, 1):
        found = rows[index]
        assert {row.status for row in found} == {Status.OK}
        assert {row.fingerprint.cores_used for row in found} == {1}
        assert [row.flags for row in found if (row.phase, row.metric) == ("forward", "compile_time")] == [()]
