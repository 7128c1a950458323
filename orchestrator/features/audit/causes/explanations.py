"""What makes a claim wrong, or its run slow: the causes, how often each is it, and where to look.

To add a cause, add a row to causes.csv and its hypotheses to HYPOTHESES.
"""

import csv
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from lmsweep.orchestrator.features.audit.case import Case
from lmsweep.orchestrator.features.audit.causes import wrong_numbers
from lmsweep.orchestrator.features.audit.causes.hypothesis import Hypothesis
from lmsweep.orchestrator.features.audit.causes.other_step import fewer_trained, slower


class Cause(NamedTuple):
    name: str
    prior: float
    look: str
    """What to look at to decide."""
    hypotheses: Callable[[Case], Iterable[Hypothesis]]


def _lora(case: Case) -> list[Hypothesis]:
    return fewer_trained(case, 1.7) or wrong_numbers.as_full_training(case)


HYPOTHESES: dict[str, Callable[[Case], Iterable[Hypothesis]]] = {
    "sparse peak": wrong_numbers.sparse_peak,
    "another GPU's peak": wrong_numbers.other_peak,
    "causal attention counted in full": wrong_numbers.attention_in_full,
    "recomputation counted": wrong_numbers.recomputed,
    "per node or per GPU": wrong_numbers.gpus,
    "accumulation counted once or N times": wrong_numbers.accumulation,
    "tokens counted by each rank": wrong_numbers.ranks,
    "weights of a shard or of all experts counted": wrong_numbers.other_weights,
    "padding counted": wrong_numbers.padding,
    "warm-up or compilation in the mean": wrong_numbers.warm_up,
    "asynchronous timing": wrong_numbers.asynchronous,
    "frozen weights": lambda case: fewer_trained(case, 3.0),
    "LoRA counted as full": _lora,
    "TF32 or autocast off": slower("precision"),
    "math or memory-efficient attention in place of flash": slower("attention"),
    "FlashAttention 2 on Hopper": slower("flash 2"),
    "offload": slower("offload"),
    "PCIe in place of SXM": slower("form"),
    "another GPU than stated": slower("gpu"),
    "power limit": slower("power"),
    "activation checkpointing not stated": slower("checkpointing"),
    "the host or the data decides": slower("host"),
}  # fmt: skip
"""Cause -> its hypotheses. causes.csv has how often it was the cause over the others, and where to look."""


@cache
def causes() -> tuple[Cause, ...]:
    """Return the causes of causes.csv."""
    with Path(__file__).with_name("causes.csv").open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        return tuple(Cause(row["name"], float(row["prior"]), row["look"], HYPOTHESES[row["name"]]) for row in rows)
