"""The answer in words: a line for each part, what explains each unit, and what to do."""

from collections import defaultdict

import pandas as pd

from lmsweep.analysis.acceptance.acceptance import Acceptance, UnitVerdict, bus_bandwidth
from lmsweep.analysis.acceptance.part_verdicts import DISTURBED, PartVerdict
from lmsweep.analysis.tables.listing import Listing, Tone
from lmsweep.analysis.tables.number_format import choose_unit

TONES: dict[str, Tone] = {"pass": "good", "slow": "bad", "cannot tell": "unclear"}
ITEM_BYTES = {"fp32": 4}


def listing_of(acceptance: Acceptance) -> Listing:
    """Return one line for each part: measured, expected, difference, verdict."""
    several = len(acceptance.nodes) > 1
    lines = [
        ({"node": node.node} if several else {}) | {"unit": unit.unit} | line_of(part)
        for node, unit in acceptance.units
        for part in unit.parts
    ]
    keys = [*(["node"] if several else []), "unit", "part"]
    frame = pd.DataFrame(lines, columns=[*keys, "measured", "expected", "time", "verdict"])
    return Listing(title=title_of(acceptance), frame=frame, keys=keys, units={}, tones=TONES)


def nodes_listing(acceptance: Acceptance) -> Listing:
    """Return the nodes side by side: one line for each, with the verdict of each of its units."""
    lines = [{"node": node.node} | {unit.unit: verdict_of(unit) for unit in node.units} for node in acceptance.nodes]
    frame = pd.DataFrame(lines).fillna("-")
    return Listing(title="Nodes side by side", frame=frame, keys=["node"], units={}, tones=TONES)


def verdict_of(unit: UnitVerdict) -> str:
    """Return the verdict of a unit; if it does not pass, with how much longer its slowest part takes."""
    most = max((part.ratio for part in unit.parts if part.verdict == unit.verdict and part.ratio), default=0.0)
    return unit.verdict + (f" [{100 * (most - 1):+.0f} %]" if unit.verdict in ("slow", "cannot tell") and most else "")


def line_of(part: PartVerdict) -> dict[str, str]:
    """Return the cells of a part's line."""
    stored = {"matmul.time": "FLOP/s", "copy.time": "B/s", "collective.time": "B/s"}.get(part.value, "s")
    unit = choose_unit(stored, [_value(part, part.seconds)])
    ends = sorted(_value(part, one) / unit.size for one in (part.expected_low, part.expected_high) if one)
    return {
        "part": name_of(part),
        "measured": f"{_digits(_value(part, part.seconds) / unit.size)} {unit.name}",
        "expected": " to ".join(map(_digits, ends)) or "unknown",
        "time": f"{100 * (part.ratio - 1):+.1f} %" if part.ratio else "",
        "verdict": part.verdict,
    }


def title_of(acceptance: Acceptance) -> str:
    what = acceptance.expected_device
    return f"As {what}: {acceptance.verdict}" if what else f"The host alone: {acceptance.verdict}"


def name_of(part: PartVerdict) -> str:
    """Return what a part is called: step of large, all-reduce of 2."""
    if part.value in ("step.time", "step.device_time", "optimizer.device_time"):
        return f"{part.part} of {part.settings['model']}"
    return f"{part.part} of {part.settings['world_size']}" if part.value == "collective.time" else part.part


def _value(part: PartVerdict, seconds: float) -> float:
    """Return the rate that a time means, where a part is known by its rate."""
    width = int(part.settings["d_model"] or 0)
    if part.value == "matmul.time":
        return 2.0 * width**3 / seconds
    if part.value == "copy.time":
        return 2.0 * ITEM_BYTES.get(str(part.settings["precision"]), 2) * width**2 / seconds
    return bus_bandwidth(part, seconds) if part.value == "collective.time" else seconds


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def explanations(acceptance: Acceptance) -> list[str]:
    """Return a sentence for the units that share one: what is slow, by how much, and what explains it."""
    found: dict[str, list[str]] = defaultdict(list)
    for node, unit in acceptance.units:
        slow = [part for part in unit.parts if part.verdict == "slow" or part.reason == DISTURBED]
        slow.sort(key=lambda part: -(part.ratio or 0))
        words = [_slow_words(*slow)] if slow else []
        if unit.verdict == "cannot tell" and not unit.causes:
            reasons: dict[str, list[str]] = defaultdict(list)
            for part in unit.parts:
                if part.verdict == "cannot tell" and part.reason != DISTURBED:
                    reasons[part.reason].append(name_of(part))
            words += [f"{reason} ({', '.join(parts)})" for reason, parts in reasons.items()]
        if said := [*words, *unit.causes]:
            found[f"{unit.verdict}; {'; '.join(said)}"].append(_where(acceptance, node.node, unit.unit))
    return [f"{', '.join(units)}: {words}" for words, units in found.items()]


def _slow_words(first: PartVerdict, *others: PartVerdict) -> str:
    """Return the words about slow parts, the slowest first: that one with its interval."""
    assert first.ratio and first.ratio_low and first.ratio_high, "a slow part was compared"
    words = f"{name_of(first)} takes {100 * (first.ratio - 1):.0f} % ("
    words += f"{100 * (first.ratio_low - 1):.0f} to {100 * (first.ratio_high - 1):.0f} %) longer than {first.against}"
    also = ", ".join(f"{name_of(one)} {100 * ((one.ratio or 1) - 1):.0f} %" for one in others)
    return f"{words}; also {also}" if also else words


def _where(acceptance: Acceptance, node: str, unit: str) -> str:
    return f"{node} {unit}" if len(acceptance.nodes) > 1 else unit


def advice(acceptance: Acceptance) -> str:
    """Return the last sentence: the verdict, and what to do."""
    named = [(_where(acceptance, node.node, unit.unit), unit) for node, unit in acceptance.units]
    slow = [where for where, unit in named if unit.verdict == "slow"]
    unsure = [(where, unit.causes[0]) for where, unit in named if unit.verdict == "cannot tell" and unit.causes]
    parts = [part for _, unit in named for part in unit.parts]
    if slow:
        return f"Slow: {', '.join(slow)}. Send the page to the provider and ask for another machine, or a repair."
    if acceptance.verdict == "pass":
        shown = [
            (part.would_show, name_of(part))
            for _, unit in named
            if unit.unit != "host"
            for part in unit.parts
            if part.would_show
        ]
        least, most = (
            (f"{100 * share:.0f} % ({name})" for share, name in (min(shown), max(shown))) if shown else ("", "")
        )
        found = f" A slowdown would have shown from {least} to {most}." if shown else ""
        return f"Pass: as fast as {acceptance.expected_device or 'this CPU'} should be.{found}"
    if unsure:
        units, causes = (dict.fromkeys(words) for words in zip(*unsure, strict=True))
        return f"Cannot tell about {', '.join(units)}: {', '.join(causes)}. Remove the cause and run it again."
    if all(part.verdict == "not judged" for part in parts):
        return "Nothing to compare with yet: this acceptance is the reference of the next. Run it again later."
    return "Cannot tell: what is known of such machines is not enough. Run it again: its own history helps."


def compared_with(acceptance: Acceptance) -> list[str]:
    """Return a line for each kind of unit and what its parts are compared with, with the number of machines."""
    found: dict[tuple[str, str], list[PartVerdict]] = defaultdict(list)
    for _, unit in acceptance.units:
        for part in unit.parts:
            found[unit.unit.partition(" ")[0], part.against or f"not judged, {part.reason}"].append(part)
    lines = []
    for (kind, against), parts in found.items():
        names = dict.fromkeys(part.part for part in parts) if len([one for one in found if one[0] == kind]) > 1 else ()
        few, many = min(part.machines for part in parts), max(part.machines for part in parts)
        noun = "earlier process" if "history" in against else "GPU" if kind == "GPU" else "machine"
        count = f"{few} to {many}" if few < many else f"{few}"
        plural = ("es" if noun.endswith("s") else "s") * (many > 1)
        lines.append(
            f"{kind} {', '.join(names)}".rstrip() + f": {against}" + (f", {count} {noun}{plural}" if many else "")
        )
    return lines


def telemetry(acceptance: Acceptance) -> list[str]:
    """Return a line about the clock, power and temperature of the GPUs during a step; none if unknown."""
    names = {"sm_clock": (1e9, ".2f", "GHz"), "power": (1, ".0f", "W"), "temperature": (1, ".0f", "degC")}
    found = []
    for node, unit in acceptance.units:
        seen = [
            f"{unit.telemetry[key] / by:{how}} {si}" for key, (by, how, si) in names.items() if key in unit.telemetry
        ]
        found += [f"{_where(acceptance, node.node, unit.unit)} {' '.join(seen)}"] if seen else []
    return [f"During the step of large: {', '.join(found)}"] if found else []
