"""lmsweep: benchmark sweeps for language-model training.

`lmsweep.load("results")` reads a store as a pandas table; `lmsweep.analysis` has the rest of what reads results,
`lmsweep.trials` what measures, `lmsweep.orchestrator` what plans and runs sweeps.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lmsweep.trials import __version__

if TYPE_CHECKING:
    from lmsweep import analysis, orchestrator, trials
    from lmsweep.analysis import Layout, Table, default_layout, load, pivot, render

__all__ = [
    "Layout",
    "Table",
    "__version__",
    "analysis",
    "default_layout",
    "load",
    "orchestrator",
    "pivot",
    "render",
    "trials",
]


def __getattr__(name: str) -> Any:
    """Import a package, or a name of `lmsweep.analysis`, when it is first used: pandas takes longer than `--help`."""
    if name in ("analysis", "orchestrator", "trials"):
        return import_module(f"lmsweep.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'lmsweep' has no attribute {name!r}")
    return getattr(import_module("lmsweep.analysis"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
