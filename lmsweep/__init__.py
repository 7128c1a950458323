"""lmsweep: benchmark sweeps for language-model training.

What the commands do, as functions:
    plan, run        what a sweep would run; run it. They need PyTorch and Ray.
    load             a store as a pandas table
    table, compare   what the commands of these names print; `render` prints either

`pivot` lays out any pandas table. `analysis` has the rest of what reads results. Features add
`best`, `fits`, `accept`, `audit`, `explain`, what these commands show; `report` and `charts` write a store's page or
charts; `findings` are the lines about rows of `load` that end a run.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lmsweep.trials import __version__

if TYPE_CHECKING:
    from lmsweep import analysis, orchestrator, trials
    from lmsweep.analysis import Table, load, pivot, render
    from lmsweep.analysis.api import compare, table
    from lmsweep.orchestrator.api import plan, run
    from lmsweep.orchestrator.features.accept.accepting import accepted as accept  # noqa: F401
    from lmsweep.orchestrator.features.audit.claims.models import model_settings as model_settings
    from lmsweep.orchestrator.features.audit.claims.models import named_model as named_model
    from lmsweep.orchestrator.features.audit.sources import audit as audit
    from lmsweep.orchestrator.features.beside.environment_diff import environment_diff as environment_diff
    from lmsweep.orchestrator.features.beside.pairs import paired as paired
    from lmsweep.orchestrator.features.beside.side_by_side import beside as beside
    from lmsweep.orchestrator.features.best.cells.fronts import fronts as fronts
    from lmsweep.orchestrator.features.best.stored_answers import best as best
    from lmsweep.orchestrator.features.doctor.machine_checks import machine_findings as machine_findings
    from lmsweep.orchestrator.features.explain.explanation import explain as explain
    from lmsweep.orchestrator.features.explain.explanation import explain_steps as explain_steps
    from lmsweep.orchestrator.features.fits.predicted_fits import fits as fits
    from lmsweep.orchestrator.features.limits.ceiling import time_phases as time_phases
    from lmsweep.orchestrator.features.limits.cost import cost as cost
    from lmsweep.orchestrator.features.limits.presets import sizes_that_fit as sizes_that_fit
    from lmsweep.orchestrator.features.limits.roofline import roofline as roofline
    from lmsweep.orchestrator.features.limits.scaling import scaling as scaling
    from lmsweep.orchestrator.features.report.answers.store_answers import findings as findings
    from lmsweep.orchestrator.features.report.chart_files import write_charts as charts  # noqa: F401
    from lmsweep.orchestrator.features.report.page import write_report as report  # noqa: F401
    from lmsweep.orchestrator.features.report.sharing.shared_folder import share as share
    from lmsweep.orchestrator.features.trackers.sending import track as track
    from lmsweep.orchestrator.features.trackers.summaries import summaries as summaries

__all__ = ["Table", "__version__", "analysis", "compare", "load"]
__all__ += ["orchestrator", "pivot", "plan", "render", "run", "table", "trials"]

_ELSEWHERE = {
    "compare": ("lmsweep.analysis.api", "compare"),
    "plan": ("lmsweep.orchestrator.api", "plan"),
    "run": ("lmsweep.orchestrator.api", "run"),
    "table": ("lmsweep.analysis.api", "table"),
}
"""Name -> the module and its name there; the others are names of `lmsweep.analysis`."""


def __getattr__(name: str) -> Any:
    """Import a package or a function, those of features too, when first used: pandas takes longer than `--help`."""
    if name in ("analysis", "orchestrator", "trials"):
        return import_module(f"lmsweep.{name}")
    if name in __all__:
        module, there = _ELSEWHERE.get(name, ("lmsweep.analysis", name))
        return getattr(import_module(module), there)
    search_path = sys.path.copy()  # the packages of features take the current folder off it
    try:
        if not name.startswith("_") and name in _of_features():
            from pkgutil import resolve_name  # here, as `--help` needs none

            return resolve_name(_of_features()[name])
    finally:
        sys.path[:] = search_path
    raise AttributeError(f"module 'lmsweep' has no attribute {name!r}")


def _of_features() -> dict[str, str]:
    from lmsweep.orchestrator.feature import registered

    return registered("functions", __all__)


def __dir__() -> list[str]:
    return sorted({*__all__, *_of_features()})
