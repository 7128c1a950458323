"""What `sweeps` lists: one line per packaged sweep, from the catalogue that ships.

`catalogue.json` spares reading every sweep. It has the description of each, and its trials, grouped by need: `count`
trials on `nodes` nodes, each of `processes` processes with a `device` of their own. A test writes it, and fails if it
differs from the sweeps.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, ClassVar

from lmsweep.orchestrator.feature import packaged_sweeps

QUESTIONS: dict[str, tuple[str, ...]] = {
    "Does it work here, and how fast is this machine?": (
        "quick",
        "local-gpu",
        "devices",
        "ceiling",
        "accept",
        "operators",
        "full",
    ),
    "What makes a step faster?": (
        "compile",
        "optimizers",
        "losses",
        "shapes",
        "packing",
        "lengths",
        "lengths-cpu",
        "attention",
        "attention-2026",
    ),
    "What do number formats bring?": ("precision", "fp8"),
    "Does it fit, and where does the time go?": ("memory", "profile", "energy"),
    "What does fine-tuning take?": ("finetuning", "finetuning-fsdp"),
    "What do several GPUs bring?": ("ddp", "fsdp", "collectives"),
    "How far can a number be trusted?": ("noise", "noise-cpu", "warmup"),
    "A course": ("cs336-2026", "cs336-2026-tiny", "cs336-2025"),
}
"""Question -> the packaged sweeps that answer it. Each sweep answers one."""


@dataclass(frozen=True, kw_only=True)
class ListedSweep:
    name: str
    question: str
    description: str
    trials: int
    run_here: int | None
    """How many of them could run on this machine; null where lmsweep is installed only to read stores."""
    fewest_gpus: int
    """GPUs without which none of them runs."""

    @property
    def words(self) -> str:
        gpus = f"{self.fewest_gpus} GPU{'s' * (self.fewest_gpus > 1)}" if self.fewest_gpus else "more cores"
        words = {None: "none run here", self.trials: "all run here", 0: f"needs {gpus}"}
        here = words.get(self.run_here, f"{self.run_here} run here")
        return f"{self.trials:>3} trials, {here:<{len('none run here')}}  {self.description}"


@dataclass(frozen=True, kw_only=True)
class SweepsOutput:
    __pydantic_config__: ClassVar = {"use_attribute_docstrings": True}
    sweeps: list[ListedSweep]


def listed_sweeps() -> list[ListedSweep]:
    """Return the packaged sweeps that are there, in the order of QUESTIONS."""
    catalogue: dict[str, Any] = json.loads((files(__package__) / "catalogue.json").read_text("utf-8"))
    there, places = packaged_sweeps(), _places()
    return [
        _listed(name, question, places, **catalogue[name])
        for question, names in QUESTIONS.items()
        for name in names
        if name in there
    ]


def _listed(
    name: str, question: str, places: dict[str, int] | None, *, description: str, trials: list[dict[str, Any]]
) -> ListedSweep:
    able = [one for one in trials if one["nodes"] == 1 and one["processes"] <= (places or {}).get(one["device"], 0)]
    return ListedSweep(
        name=name,
        question=question,
        description=description,
        trials=sum(one["count"] for one in trials),
        run_here=sum(one["count"] for one in able) if places is not None else None,
        fewest_gpus=min(one["processes"] if one["device"] == "cuda" else 0 for one in trials),
    )


def _places() -> dict[str, int] | None:
    """Return how many processes of one trial can each have a device here, by device type; None if lmsweep is installed
    only to read stores.
    """
    from lmsweep.trials.machine.cpu_affinity import find_gpus, usable_cores

    try:
        return {"cpu": len(usable_cores()), "cuda": len(find_gpus())}
    except ModuleNotFoundError:  # lmsweep is installed to read, so nothing runs here
        return None
