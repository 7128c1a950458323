"""The answer in words: a line for each part, what explains each unit, and what to do."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from lmsweep.analysis.tables.listing import Listing, Tone
from lmsweep.analysis.tables.number_format import choose_unit
from lmsweep.orchestrator.features.accept.acceptance import Acceptance, UnitVerdict, bus_bandwidth
from lmsweep.orchestrator.features.accept.part_verdicts import DISTURBED, PartVerdict

TONES: dict[str, Tone] = {"pass": "good", "slow": "bad", "cannot tell": "unclear"}
ITEM_BYTES = {"fp32": 4}
"""Precision -> bytes of an element of a copy; 2 of all others."""
RATES = {"matmul.time": "FLOP/s", "copy.time": "B/s", "collective.time": "B/s"}
"""Values that are shown as a rate."""
MOST_SHOWN = 2.0
"""Largest ratio that is printed for a disturbed part: a larger one says how busy the machine was, not how slow."""
TELEMETRY = {"sm_clock": (1e9, ".2f", "GHz"), "power": (1, ".0f", "W"), "temperature": (1, ".0f", "degC")}
"""Metric -> the size of the unit in which it is shown, its format, and the unit."""


def paragraphs(acceptance: Acceptance) -> list[str | Listing]:
    """Return the whole answer, the advice last. Of several nodes, only the parts that do not pass are listed."""
    parts = listing_of(acceptance)
    tables = [parts] if len(acceptance.nodes) == 1 else [nodes_listing(acceptance)]
    rest = parts.frame[parts.frame["verdict"] != "pass"]
    if len(acceptance.nodes) > 1 and len(rest):
        tables.append(replace(parts, frame=rest.reset_index(drop=True), title=f"{parts.title}; what does not pass:"))
    about = "\n".join(["Compared with", *compared_with(acceptance), *telemetry(acceptance)])
    return [*tables, *explanations(acceptance), about, advice(acceptance)]


def listing_of(acceptance: Acceptance) -> Listing:
    """Return one line for each part: measured, expected, difference, verdict."""
    lines = [
        {"node": node.node, "unit": unit.unit} | line_of(part) for node, unit in acceptance.units for part in unit.parts
    ]
    keys = [*(["node"] if len(acceptance.nodes) > 1 else []), "unit", "part"]
    frame = pd.DataFrame(lines, columns=[*keys, "measured", "expected", "time", "verdict"])
    return Listing(title=title_of(acceptance), frame=frame, keys=keys, units={}, tones=TONES)


def nodes_listing(acceptance: Acceptance) -> Listing:
    """Return one line for each node, with the verdict of its GPUs, links and host. If its GPUs differ, those that do
    not pass are named."""
    lines = []
    for node in acceptance.nodes:
        units: dict[str, list[UnitVerdict]] = defaultdict(list)
        for unit in node.units:
            units[unit.unit.partition(" ")[0]].append(unit)  # GPU of `GPU 3`
        lines.append({"node": node.node} | {kind: _verdict_of_all(of_kind) for kind, of_kind in units.items()})
    frame = pd.DataFrame(lines).fillna("-")
    return Listing(title="Nodes side by side", frame=frame, keys=["node"], units={}, tones=TONES)


def _verdict_of_all(units: Sequence[UnitVerdict]) -> str:
    if len(units) == 1:
        return verdict_of(units[0])
    if {unit.verdict for unit in units} == {"pass"}:
        return f"pass [{len(units)} GPUs]"
    return ", ".join(f"{unit.unit} {verdict_of(unit)}" for unit in units if unit.verdict != "pass")


def verdict_of(unit: UnitVerdict) -> str:
    """Return the verdict of a unit; if it does not pass, with how much longer its slowest part takes."""
    alike = [part for part in unit.parts if part.verdict == unit.verdict and part.ratio]
    most = max(alike, key=lambda part: part.ratio or 0.0, default=None)
    return unit.verdict + (f" [{change_of(most, 0)}]" if unit.verdict in ("slow", "cannot tell") and most else "")


def is_beyond(part: PartVerdict) -> bool:
    return part.reason == DISTURBED and (part.ratio or 0.0) > MOST_SHOWN


def change_of(part: PartVerdict, digits: int = 1) -> str:
    """Return how much longer a part took than expected, `+12.3 %`; empty if nothing is expected."""
    if is_beyond(part):
        return f"> {100 * (MOST_SHOWN - 1):+.0f} %"
    return f"{100 * (part.ratio - 1):+.{digits}f} %" if part.ratio else ""


def line_of(part: PartVerdict) -> dict[str, str]:
    """Return the cells of a part's line. Public rates have a star."""
    measured = _value(part, part.seconds)
    ends = sorted(_value(part, end) for end in part.expected_between or ())  # the longest time is the lowest rate
    unit = choose_unit(RATES.get(part.value, "s"), [measured])
    is_public = bool(ends) and not part.machines
    expected = " to ".join(_three_digits(end / unit.size) for end in ends) or "unknown"
    return {
        "part": name_of(part),
        "measured": f"{_three_digits(measured / unit.size)} {unit.name}",
        "expected": expected + (" *" if is_public else ""),
        "time": change_of(part),
        "verdict": part.verdict,
    }


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"  # 1234, not 1.23e+03


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


def explanations(acceptance: Acceptance) -> list[str]:
    """Return sentences: what is slow, by how much, and what explains it. Units with the same words share a sentence."""
    units_by_words: dict[str, list[str]] = defaultdict(list)
    for where, unit in _named(acceptance):
        if said := [*_words_of_parts(unit), *unit.causes]:
            units_by_words[f"{unit.verdict}; {'; '.join(said)}"].append(where)
    return [f"{', '.join(units)}: {words}" for words, units in units_by_words.items()]


def _words_of_parts(unit: UnitVerdict) -> list[str]:
    slow = [part for part in unit.parts if part.verdict == "slow" or part.reason == DISTURBED]
    words = [_slow_words(*sorted(slow, key=lambda part: -(part.ratio or 0)))] if slow else []
    if unit.verdict != "cannot tell" or unit.causes:  # a cause says why; else the parts' reasons do
        return words
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for part in unit.parts:
        if part.verdict == "cannot tell" and part.reason != DISTURBED:
            names_by_reason[part.reason].append(name_of(part))
    return [*words, *(f"{reason} ({', '.join(names)})" for reason, names in names_by_reason.items())]


def _slow_words(first: PartVerdict, *others: PartVerdict) -> str:
    """Return the words about slow parts, the slowest first. Only the first has its interval."""
    assert first.ratio and first.ratio_between, "what is slow, is slower than something"
    low, high = (100 * (end - 1) for end in first.ratio_between)
    longer = f"{100 * (first.ratio - 1):.0f} % ({low:.0f} to {high:.0f} %) longer than"
    words = f"{name_of(first)} takes {'more than twice as long as' if is_beyond(first) else longer} {first.against}"
    also = ", ".join(f"{name_of(one)} {change_of(one, 0).replace('+', '')}" for one in others)
    return f"{words}; also {also}" if also else words


def _named(acceptance: Acceptance) -> list[tuple[str, UnitVerdict]]:
    """Return the units with their names, on several nodes with those of the nodes."""
    several = len(acceptance.nodes) > 1
    return [(f"{node.node} {unit.unit}" if several else unit.unit, unit) for node, unit in acceptance.units]


def advice(acceptance: Acceptance) -> str:
    """Return the last sentence: the verdict, and what to do."""
    named = _named(acceptance)
    slow = [where for where, unit in named if unit.verdict == "slow"]
    unsure = [(where, unit.causes[0]) for where, unit in named if unit.verdict == "cannot tell" and unit.causes]
    if slow:
        return f"Slow: {', '.join(slow)}. Send the page to the provider and ask for another machine, or a repair."
    if acceptance.verdict == "pass":
        return _passed(acceptance)
    if unsure:
        units = dict.fromkeys(where for where, _ in unsure)
        causes = dict.fromkeys(cause for _, cause in unsure)
        return f"Cannot tell about {', '.join(units)}: {', '.join(causes)}. Remove the cause and run it again."
    if all(part.verdict == "not judged" for _, unit in named for part in unit.parts):
        causes = dict.fromkeys(cause for _, unit in named if unit.parts for cause in unit.causes)
        if causes:
            busy = f"and this acceptance may be no reference for the next: {', '.join(causes)}"
            return f"Nothing to compare with yet, {busy}. Remove the cause and run it again."
        return "Nothing to compare with yet. Run it again: an undisturbed acceptance is the reference of the next."
    return "Cannot tell: what is known of such machines is not enough. Run it again: its own history helps."


def _passed(acceptance: Acceptance) -> str:
    """Return how many parts were judged, and the slowdowns from which the most and the least sensitive would show."""
    every = [(unit.unit.partition(" ")[0], part) for _, unit in acceptance.units for part in unit.parts]
    not_judged = [f"{kind} {part.part}" for kind, part in every if part.verdict == "not judged"]
    judged = f"{len(every) - len(not_judged)} of {len(every)} parts"
    by = f", by {judged} ({', '.join(dict.fromkeys(not_judged))}: not judged)" if not_judged else ""
    sensitivity = _sensitivity([part for kind, part in every if kind != "host"])
    return f"Pass: as fast as {acceptance.expected_device or 'this CPU'} should be{by}.{sensitivity}"


def _sensitivity(parts: Sequence[PartVerdict]) -> str:
    shown = sorted((part.would_show, name_of(part)) for part in parts if part.would_show)
    ends = " to ".join(f"{100 * share:.0f} % ({name})" for share, name in (shown[:1] + shown[-1:]))
    return f" A slowdown would have shown from {ends}." if shown else ""


def compared_with(acceptance: Acceptance) -> list[str]:
    """Return a line for each kind of unit (GPU, links, host) and each source of its expected times, with the number n
    of machines or earlier times that it is from."""
    parts_by_source: dict[tuple[str, str], list[PartVerdict]] = defaultdict(list)
    for _, unit in acceptance.units:
        for part in unit.parts:
            parts_by_source[unit.unit.partition(" ")[0], part.against or f"not judged, {part.reason}"].append(part)
    lines = []
    for (kind, against), parts in parts_by_source.items():
        several = sum(other == kind for other, _ in parts_by_source) > 1
        names = ", ".join(dict.fromkeys(part.part for part in parts)) if several else ""
        machines = sorted(part.machines for part in parts)
        fewest, most = machines[0], machines[-1]
        number = f"{fewest} to {most}" if fewest < most else f"{most}"
        count = f", n = {number}" if most else ""
        star = "* " if parts[0].against and not most else ""  # expected by public rates, of no machines
        lines.append(f"{star}{kind} {names}".rstrip() + f": {against}{count}")
    return lines


def telemetry(acceptance: Acceptance) -> list[str]:
    """Return a line about the clock, power and temperature of the GPUs during a step; none if unknown."""
    lines = []
    for where, unit in _named(acceptance):
        seen = [(*TELEMETRY[metric], value) for metric, value in unit.telemetry.items()]
        texts = [f"{value / size:{form}} {unit_name}" for size, form, unit_name, value in seen]
        if texts:
            lines.append(" ".join([where, *texts]))
    return [f"During the step of large: {', '.join(lines)}"] if lines else []
