"""What tests of sweep files share: the values of their rows, what an error says, and lists of possible values."""

from pathlib import Path
from typing import get_args

import pytest

from lmsweep.orchestrator.sweep.sweep import Sweep
from lmsweep.trials.spec.config import CONFIG_FIELDS, RequestError
from lmsweep.trials.spec.words import Precision
from lmsweep.trials.spec.workloads import workloads

PRECISIONS = f"(one of: {', '.join(get_args(Precision))})"
OR_OTHER = "or a mapping of its dimensions, or your own as package.module:name"
WORKLOADS = f"(one of: {', '.join(workloads())}), or your own as package.module:measure"
PARTS_OF_OTHERS = (
    "model_code",
    "model_args",
    "step_args",
    "attention_args",
    "optimizer_args",
    "ddp_args",
    "adapter_args",
)
FIELDS = f"(one of: {', '.join(name for name in CONFIG_FIELDS if name not in PARTS_OF_OTHERS)})"


def cases(name: str) -> dict[str, tuple[str, list[str]]]:
    """Title -> a sweep file in a text file of tests/sweep, and the lines below it, which begin with `>> ` there."""
    _, *parts = (Path(__file__).parents[1] / "sweep" / name).read_text("utf-8").split("## ")
    found = {}
    for part in parts:
        title, *lines = part.splitlines()
        text = "".join(f"{line}\n" for line in lines if line and not line.startswith(">> "))
        found[title] = text, [line.removeprefix(">> ") for line in lines if line.startswith(">> ")]
    return found


def values(sweep: Sweep, *names: str) -> list[tuple]:
    return [tuple(getattr(trial.config, name) for name in names) for trial in sweep.trials]


def error_of(load, *arguments, **overrides) -> str:
    with pytest.raises(RequestError) as caught:
        load(*arguments, **overrides)
    return str(caught.value)
