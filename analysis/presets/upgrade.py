"""The preset `upgrade`: what another release of the software brings, cell by cell."""

from dataclasses import replace

import pandas as pd

from lmsweep.analysis.comparison.compare import Comparison, compare
from lmsweep.analysis.data.code_states import latest_code
from lmsweep.analysis.data.columns import is_null, natural_ranks
from lmsweep.analysis.data.load import of_present_devices
from lmsweep.analysis.data.process_variation import known_variation
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.data.selection import select
from lmsweep.analysis.tables.listing import Listing
from lmsweep.trials.spec.config import RequestError


def upgrade(results: Results) -> Listing:
    """Each other software, else each other version of torch, against the oldest: times, ratio and verdict."""
    every = latest_code(of_present_devices(results.attempts, results.where), results.where)
    frame = select(every, results.where)
    key = "software" if frame["software"].notna().any() else "torch_version"
    first = frame.drop_duplicates(key)
    order = natural_ranks(first, "torch_version") * len(first) + natural_ranks(first, key)
    first = first.iloc[order.argsort(kind="stable")]
    names = {row[key]: _name(row, key) for _, row in first.iterrows()}
    if len(names) < 2:
        raise RequestError(
            f"the store has results with one software only ({', '.join(names.values())}); a sweep with "
            "`software: [installed, {torch: 2.12.0}]` measures others"
        )
    (oldest, before), *others = names.items()
    known = known_variation(every)
    baseline = _with(frame, key, oldest)
    found = {
        after: compare(baseline, _with(frame, key, one), between={key: (before, after)}, variation=known)
        for one, after in others
    }
    return _together(found, before)


def _name(row: pd.Series, key: str) -> str:
    return f"installed (torch {row['torch_version']})" if is_null(row[key]) else str(row[key])


def _with(frame: pd.DataFrame, key: str, value: object) -> pd.DataFrame:
    return frame[frame[key].isna() if is_null(value) else frame[key].isin([value])]


def _together(found: dict[str, Comparison], before: str) -> Listing:
    listings = {name: one.listing() for name, one in found.items()}
    widest = max(listings.values(), key=lambda one: len(one.keys))
    frames = []
    for name, one in listings.items():
        lacking = {key: one.conditions.get(key) for key in widest.keys if key not in one.frame}
        frames.append(one.frame.assign(**lacking, software=name))
    columns = list(dict.fromkeys(column for frame in frames for column in frame))
    keys = [*widest.keys[:-1], "software", widest.keys[-1]] if len(listings) > 1 else widest.keys
    whole = pd.concat([frame.reindex(columns=columns) for frame in frames], ignore_index=True)
    rest = [column for column in columns if column not in (*keys, "software")]
    several = len(listings) > 1
    summaries = [f"{name}: {one.summary}" if several else one.summary for name, one in found.items() if one.summary]
    notes: dict[str, list[str]] = {}
    for name, one in listings.items():
        for note in one.notes:
            notes.setdefault(note, []).append(name)
    units = {name: unit for one in listings.values() for name, unit in one.units.items()}
    what = "each release" if several else next(iter(found))
    return replace(
        widest,
        title="\n".join([f"{what} (contrast) against {before} (baseline): ratio and 95 % interval", *summaries]),
        frame=whole[[*keys, *rest]],
        keys=keys,
        units=units,
        notes=[note if len(names) == len(listings) else f"{', '.join(names)}: {note}" for note, names in notes.items()],
    )
