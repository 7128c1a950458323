"""Data-parallel training: what each way to synchronise gradients costs, and how fast the links are."""

from analysis.presets.layout import devices, layout
from analysis.presets.results import Results, nothing
from analysis.tables import Table

_STEP = (
    *("step.time", "local_step.time", "communication.exposed_time"),
    *("communication.busy_time", "communication.overlap_time", "communication.collectives"),
)
_LINKS = ("gradients.size", "all_reduce.time", "all_reduce.algorithm_bandwidth", "all_reduce.bus_bandwidth")


def variants(results: Results) -> Table:
    """A step with synchronisation and one without, and the communication that backward does not hide."""
    return _values(
        results, _STEP, "Data-parallel steps (local_step: without synchronisation; collectives: their number)"
    )


def links(results: Results) -> Table:
    """An all-reduce of all gradients by itself."""
    return _values(results, _LINKS, "An all-reduce of all gradients by itself")


def _values(results: Results, values: tuple[str, ...], title: str) -> Table:
    frame = results.of("ddp")
    stored = {f"{phase}.{metric}" for phase, metric in frame[["phase", "metric"]].drop_duplicates().to_numpy()}
    known = [value for value in values if value in stored]
    if not known:
        raise nothing("ddp")
    return layout(frame, values=known, cols=devices(frame), title=title)
