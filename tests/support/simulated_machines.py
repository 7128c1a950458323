"""Machines whose true speed is known, judged by `lmsweep accept` with simulated sets.

A machine has an effect on all its parts of a kind (`BETWEEN_MACHINES`, times `spread`), a process one on each part
(`PRIORS`). The GPU of each acceptance is slower by a share in all its parts, or in those that move bytes.
"""

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from lmsweep.orchestrator.features.accept.acceptance import NodeSeen, accept
from lmsweep.orchestrator.features.accept.accepting import predicted_phase
from lmsweep.orchestrator.features.accept.expected import Known, expected_times
from lmsweep.orchestrator.features.accept.parts import JUDGED, Cell, Judged, Process, shipped
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.analytic.datasheets import device_named
from lmsweep.trials.spec.identity import trial_id
from lmsweep.trials.statistics.variation import BETWEEN_MACHINES, PRIORS

NAME = "NVIDIA H200"
BYTES = ("copy", "update")
PARTS: tuple[tuple[Cell, Judged, int], ...] = tuple(
    (Cell(size, *key[:1], "train_step", *key[1:], "5", "20"), judged, 3 if judged.kind == "host" else 1)
    for key, judged in JUDGED.items()
    for size in (("large", "small") if key[2] == "device_time" else ("one",))
)
"""The parts of an acceptance, each with its number of processes."""


@dataclass(frozen=True, kw_only=True)
class Case:
    machines: int
    """That the shipped sets measured; 0: the kind is unknown."""
    spread: float = 1.0
    """True standard deviation of machines over that of the priors."""
    slower: float = 0.0
    """Share by which the GPU is slower."""
    parts: Collection[str] = ()
    """Slower parts; none: all."""
    nodes: int = 1
    """Of the acceptance, each with a GPU; the first is slower."""


def machine(rng: np.random.Generator, case: Case, name: str, source: str, *, slower: float = 0.0) -> list[Process]:
    """Return what a machine measures, with a true time of one second for each part."""
    kinds = {judged.kind for _, judged, _ in PARTS}
    effect = {kind: rng.normal(0, case.spread * BETWEEN_MACHINES[kind]) for kind in sorted(kinds)}
    found = []
    for cell, judged, processes in PARTS:
        is_slower = judged.unit == "GPU" and (not case.parts or judged.part in case.parts)
        for process in range(processes):
            log = effect[judged.kind] + rng.normal(0, PRIORS[judged.kind].scale)
            found.append(
                Process(
                    cell=cell,
                    judged=judged,
                    device_name=NAME,
                    machine=name,
                    node=name,
                    gpu=name,
                    source=source,
                    attempt_id=f"{name}{process}",
                    seconds=math.exp(log) * (1 + slower if is_slower else 1),
                    flags=frozenset(),
                    settings={"message_bytes": 2**28, "world_size": 2, "collective": "all_reduce"},
                )
            )
    return found


def verdicts(case: Case, runs: int, seed: int = 0) -> Counter[str]:
    """Return how often the GPU of an acceptance has each verdict; and `other`, if its links or host, or anything of
    another node, are slow."""
    rng = np.random.default_rng(seed)
    found: Counter[str] = Counter()
    for _ in range(runs):
        sets = [one for i in range(case.machines) for one in machine(rng, case, f"m{i}", f"set{i}")]
        names = [f"node{i}" for i in range(case.nodes)]
        measured = [
            one for name in names for one in machine(rng, case, name, "mine", slower=case.slower * (name == names[0]))
        ]
        nodes = [
            NodeSeen(node=name, gpus={name: "GPU 0"}, device_name=NAME if case.machines else None) for name in names
        ]
        answers = {(node.node, unit.unit): unit.verdict for node, unit in accept(measured, nodes, shipped=sets).units}
        found[answers.pop((names[0], "GPU 0"))] += 1
        found["other"] += "slow" in answers.values()
    return found


def public_verdicts(name: str, runs: int, *, slower: float = 0.0, common: bool = True) -> Counter[str]:
    """Return how often a GPU that no set knows has each verdict by public rates, if its kind is as far from them as
    their interval says: all its parts together (`common`), or each by itself."""
    rng = np.random.default_rng(0)
    device = device_named(name)
    ids = {trial_id(one.config) for one in load_sweep("accept").grids["gpu"]}
    rows = [
        one for one in shipped(ids) if one.source == "h200-accept" and one.judged.unit == "GPU" and one.gpu == "GPU-1"
    ]
    known = Known(shipped=(), history=(), peers=(), predicted=predicted_phase)
    expected = {one.cell: expected_times(one, device, known)[0] for one in rows}
    node = NodeSeen(node=rows[0].node, gpus={"GPU-1": "GPU 0"})
    found: Counter[str] = Counter()
    for _ in range(runs):
        each = rng.normal(size=len(expected))
        z = {cell: each[0 if common else place] for place, cell in enumerate(expected)}
        measured = [
            replace(one, seconds=(1 + slower) * it.seconds * math.exp(z[one.cell] * it.error))
            for one, it in ((one, expected[one.cell]) for one in rows)
        ]
        found[accept(measured, [node], device, shipped=(), predicted=predicted_phase).verdict] += 1
    return found
