"""lmsweep: benchmark sweeps for language-model training.

`lmsweep.load("results")` reads a store as a pandas table; `lmsweep.analysis` has the rest of what reads results,
`lmsweep.trials` what measures, `lmsweep.orchestrator` what plans and runs sweeps.
"""

from typing import TYPE_CHECKING, Any

from lmsweep.trials import __version__

if TYPE_CHECKING:
    from lmsweep.analysis import Layout, Table, default_layout, load, pivot, render

__all__ = ["Layout", "Table", "__version__", "default_layout", "load", "pivot", "render"]


def __getattr__(name: str) -> Any:
    """What `lmsweep.analysis` offers, imported when first asked for: pandas takes longer than `lmsweep --help`."""
    if name not in __all__:
        raise AttributeError(f"module 'lmsweep' has no attribute {name!r}")
    from lmsweep import analysis

    return getattr(analysis, name)
