"""The answer in words: a line for each part, what explains each unit, and what to do."""

from collections.abc import Iterator

import pandas as pd

from lmsweep.analysis.acceptance.acceptance import Acceptance, AcceptedNode, UnitVerdict, bus_bandwidth
from lmsweep.analysis.acceptance.part_verdicts import PartVerdict
from lmsweep.analysis.tables.listing import Listing, Tone
from lmsweep.analysis.tables.number_format import choose_unit
from lmsweep.trials.results.metrics import Unit

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
    frame = pd.DataFrame(lines)
    keys = [*(["node"] if several else []), "unit", "part"]
    return Listing(title=title_of(acceptance), frame=frame, keys=keys, units={}, tones=TONES)


def nodes_listing(acceptance: Acceptance) -> Listing:
    """Return the nodes side by side: one line for each, with the verdict of each of its units."""
    frame = pd.DataFrame(
        [
            {"node": node.node} | {unit.unit: unit.verdict for unit in node.units} | {"slowest part": slowest_of(node)}
            for node in acceptance.nodes
        ]
    ).fillna("-")
    return Listing(title="Nodes side by side", frame=frame, keys=["node"], units={}, tones=TONES)


def line_of(part: PartVerdict) -> dict[str, str]:
    """Return the cells of a part's line."""
    low, high = part.expected_low, part.expected_high
    return {
        "part": name_of(part),
        "measured": amount(part, part.seconds),
        "expected": between(part, low, high) if low and high else "unknown",
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


def amount(part: PartVerdict, seconds: float) -> str:
    """Return a time, or the rate that it means where a part is known by its rate."""
    unit = _unit(part, seconds)
    return f"{_digits(_value(part, seconds) / unit.size)} {unit.name}"


def between(part: PartVerdict, low: float, high: float) -> str:
    """Return an interval of times without its unit, that of `amount`, the smaller number first."""
    unit = _unit(part, part.seconds)
    ends = sorted(_value(part, one) / unit.size for one in (low, high))
    return f"{_digits(ends[0])} to {_digits(ends[1])}"


def _value(part: PartVerdict, seconds: float) -> float:
    width = int(part.settings["d_model"] or 0)
    if part.value == "matmul.time":
        return 2.0 * width**3 / seconds
    if part.value == "copy.time":
        return 2.0 * ITEM_BYTES.get(str(part.settings["precision"]), 2) * width**2 / seconds
    return bus_bandwidth(part, seconds) if part.value == "collective.time" else seconds


def _unit(part: PartVerdict, seconds: float) -> Unit:
    stored = {"matmul.time": "FLOP/s", "copy.time": "B/s", "collective.time": "B/s"}.get(part.value, "s")
    return choose_unit(stored, [_value(part, seconds)])


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def share_text(share: float) -> str:
    """Return how much slower: `9 %`, or `3.8 times as slow`."""
    return f"{100 * share:.0f} %" if share < 1 else f"{1 + share:.1f} times as long"


def slowest_of(node: AcceptedNode) -> str:
    """Return the part of a node that is slowest beside what is expected, in words."""
    known = [(part.ratio or 0, unit, part) for unit in node.units for part in unit.parts if part.ratio]
    if not known:
        return "-"
    ratio, unit, part = max(known, key=lambda one: one[0])
    return f"{unit.unit} {name_of(part)} {100 * (ratio - 1):+.0f} %"


def explanations(acceptance: Acceptance) -> Iterator[str]:
    """Yield a sentence for each unit that does not simply pass: what is slow, by how much, and what explains it."""
    for where, unit in _named_units(acceptance):
        words = _slow_words([one for one in _slowest_first(unit) if one.verdict == "slow"])
        if unit.verdict == "cannot tell" and not unit.causes:
            unsure = [one for one in unit.parts if one.verdict == "cannot tell"]
            words += dict.fromkeys(f"{name_of(one)}: {one.reason}" for one in unsure if one.against)
        if said := [*words, *unit.causes]:
            yield f"{where}: {unit.verdict}; {'; '.join(said)}"


def advice(acceptance: Acceptance) -> str:
    """Return the last sentence: what to do."""
    named = _named_units(acceptance)
    slow = [where for where, unit in named if unit.verdict == "slow"]
    unsure = [where for where, unit in named if unit.verdict == "cannot tell" and unit.causes]
    if acceptance.verdict == "pass":
        what = acceptance.expected_device or "this CPU"
        return f"As fast as {what} should be. {_would_have_shown(acceptance)} Keep the page as the machine's reference."
    if slow:
        return f"Slow: {', '.join(slow)}. Send the page to the provider and ask for another machine, or a repair."
    if unsure:
        return f"Remove what disturbs {', '.join(unsure)}, and run it again."
    if all(part.against is None for _, unit in acceptance.units for part in unit.parts):
        return "Nothing to compare with yet: this acceptance is the reference of the next. Run it again later."
    return "Run it again: its own history narrows what is expected."


def _would_have_shown(acceptance: Acceptance) -> str:
    """Return the sentence about how large a slowdown would have been found."""
    found = [
        (part.would_show, name_of(part))
        for _, unit in acceptance.units
        for part in unit.parts
        if part.would_show and unit.unit != "host"
    ]
    if not found:
        return ""
    least, most = min(found), max(found)
    return f"Slowdowns from {share_text(least[0])} ({least[1]}) to {share_text(most[0])} ({most[1]}) would have shown."


def sources(acceptance: Acceptance) -> list[str]:
    """Return a sentence for each thing that parts are compared with: the number of machines, and the parts."""
    found: dict[tuple[str, int], list[str]] = {}
    for _, unit in acceptance.units:
        kinds = {part.against for part in unit.parts if part.against}
        for part in unit.parts:
            if part.against:
                what = unit.unit if len(kinds) == 1 else f"{unit.unit} {name_of(part)}"
                found.setdefault((part.against, part.machines), []).append(what)
    return [
        f"expected of {'; '.join(dict.fromkeys(what))}: {against}{_machines(machines)}"
        for (against, machines), what in found.items()
    ]


def _machines(count: int) -> str:
    return f", {count} machine{'s' * (count > 1)}" if count else ""


def telemetry(acceptance: Acceptance) -> list[str]:
    """Return a line for each GPU whose clock, power or temperature is known."""
    return [f"{where}: {words}" for where, unit in _named_units(acceptance) if (words := telemetry_words(unit))]


def telemetry_words(unit: UnitVerdict) -> str:
    """Return clock, power and temperature of a GPU during the step; empty if unknown."""
    seen = unit.telemetry
    words = [
        f"{seen['sm_clock'] / 1e9:.2f} GHz" if "sm_clock" in seen else "",
        f"{seen['power']:.0f} W" if "power" in seen else "",
        f"{seen['temperature']:.0f} degC" if "temperature" in seen else "",
    ]
    found = ", ".join(filter(None, words))
    return f"{found} during the step of large" if found else ""


def _named_units(acceptance: Acceptance) -> list[tuple[str, UnitVerdict]]:
    """Return each unit with its name, after that of its node if there are several."""
    several = len(acceptance.nodes) > 1
    return [(f"{node.node} {unit.unit}" if several else unit.unit, unit) for node, unit in acceptance.units]


def _slowest_first(unit: UnitVerdict) -> list[PartVerdict]:
    return sorted(unit.parts, key=lambda part: -(part.ratio or 0))


def _slow_words(parts: list[PartVerdict]) -> list[str]:
    """Return the words about slow parts, the slowest first: that one with its interval."""
    if not parts:
        return []
    first, *others = parts
    assert first.ratio and first.ratio_low and first.ratio_high, "a slow part was compared"
    ends = f"{100 * (first.ratio_low - 1):.0f} to {100 * (first.ratio_high - 1):.0f} %"
    words = f"{name_of(first)} takes {_percent(first)} ({ends}) longer than in {first.against}"
    return [words, *(["also " + ", ".join(f"{name_of(one)} {_percent(one)}" for one in others)] if others else [])]


def _percent(part: PartVerdict) -> str:
    return f"{100 * ((part.ratio or 1) - 1):.0f} %"
