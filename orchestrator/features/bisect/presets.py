"""The table of releases: each other software against the oldest."""

from dataclasses import replace

import pandas as pd

from lmsweep.analysis.comparison.compare import Comparison, compare
from lmsweep.analysis.data.code_states import latest_code
from lmsweep.analysis.data.columns import is_null, natural_ranks
from lmsweep.analysis.data.load import of_present_devices
from lmsweep.analysis.data.process_variation import known_variation
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.data.selection import select
from lmsweep.analysis.presets import Preset
from lmsweep.analysis.tables.listing import Listing
from lmsweep.trials.spec.config import RequestError


def upgrade(results: Results) -> Listing:
    """Compare every software with the oldest, or every version of torch if no result names its software."""
    every = latest_code(of_present_devices(results.attempts, results.where), results.where)
    frame = select(every, results.where)
    key = "software" if frame["software"].notna().any() else "torch_version"
    first = frame.drop_duplicates(key)
    # Sort by torch's version, and within it by software: ranks are below the number of rows, so one number holds both.
    order = natural_ranks(first, "torch_version") * len(first) + natural_ranks(first, key)
    first = first.iloc[order.argsort(kind="stable")]
    named = [(row[key], _software_name(row, key)) for _, row in first.iterrows()]  # null: what is installed
    if len(named) < 2:
        raise RequestError(
            f"the store has results with one software only ({', '.join(name for _, name in named)}); a sweep with "
            "`software: [installed, {torch: 2.12.0}]` measures others"
        )
    (oldest, oldest_name), *others = named
    baseline, variation = _with(frame, key, oldest), known_variation(every)
    releases = {}
    for other, name in others:
        sides = {key: (oldest_name, name)}
        releases[name] = compare(baseline, _with(frame, key, other), between=sides, variation=variation)
    return _together(releases, oldest_name)


def _software_name(row: pd.Series, key: str) -> str:
    return f"installed (torch {row['torch_version']})" if is_null(row[key]) else str(row[key])


def _with(frame: pd.DataFrame, key: str, value: object) -> pd.DataFrame:
    return frame[frame[key].isna() if is_null(value) else frame[key].isin([value])]


def _together(releases: dict[str, Comparison], before: str) -> Listing:
    """Return the lines of all comparisons, one release after the other, in the columns of `Comparison.listing`."""
    listings = {name: comparison.listing() for name, comparison in releases.items()}
    (first, listing), *others = listings.items()
    summaries = {name: comparison.summary for name, comparison in releases.items() if comparison.summary}
    if others:
        what, listing = "each release", _merged(listings)
        lines = [f"{name}: {summary}" for name, summary in summaries.items()]
    else:
        what, lines = first, [*summaries.values()]
    title = f"{what} (contrast) against {before} (baseline): ratio and 95 % interval"
    return replace(listing, title="\n".join([title, *lines]))


def _merged(listings: dict[str, Listing]) -> Listing:
    """Return the lines of several releases in one listing: `software` is a key, too, just before `value`, which is the
    last key of each."""
    widest = max(listings.values(), key=lambda listing: len(listing.keys))
    keys = [*widest.keys[:-1], "software", widest.keys[-1]]
    frames = []
    for name, listing in listings.items():
        # A key that has one value in this release is a condition there; beside other releases it must be a column.
        constant = {key: listing.conditions.get(key) for key in widest.keys if key not in listing.frame}
        frames.append(listing.frame.assign(**constant, software=name))
    # In the order of their first appearance. A frame that lacks one gets it empty.
    other_columns = dict.fromkeys(column for frame in frames for column in frame if column not in keys)
    notes: dict[str, list[str]] = {}
    for name, listing in listings.items():
        for note in listing.notes:
            notes.setdefault(note, []).append(name)
    return replace(
        widest,
        frame=pd.concat([frame.reindex(columns=[*keys, *other_columns]) for frame in frames], ignore_index=True),
        keys=keys,
        units={name: unit for listing in listings.values() for name, unit in listing.units.items()},
        notes=[note if len(names) == len(listings) else f"{', '.join(names)}: {note}" for note, names in notes.items()],
    )


GROUPS = {
    "How long does a step take?": {
        "upgrade": Preset(upgrade, "What does another release of torch, or of other software, bring?"),
    }
}
