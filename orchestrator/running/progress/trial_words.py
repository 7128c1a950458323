"""Says in a few words what a trial is and how it ended, and what a plan will run."""

import json
import re
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from lmsweep.orchestrator.planning.plan import Action, Plan, PlannedTrial, grouped
from lmsweep.orchestrator.planning.plan_estimate import PlanEstimate
from lmsweep.orchestrator.terminal import format_seconds
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.outcome import Flag, Status, error_line, short_line
from lmsweep.trials.results.record import Record
from lmsweep.trials.results.roles import Role, fields_with, varying_fields
from lmsweep.trials.spec.config import ARGUMENTS, TrialConfig
from lmsweep.trials.spec.quantities import count_of, gib
from lmsweep.trials.spec.reference import REFERENCES, short_name, short_names

SHORT_ID = 8
"""Digits of a trial's identifier in messages; `lmsweep trial --id` takes as few."""

MOST_SKIPPED: dict[Action, int] = {"stored": 40, "predicted_oom": 3, "unsupported": 40}
"""Most lines about trials that will not run, by action. The reasons of predicted_oom differ in the peak alone."""

DOMINANT = 0.5
"""Share of a plan's time from which the kind of device that takes it is worth leaving out."""

SET_DEVICE = "--set device={}".format

_LIMITS = fields_with(Role.LIMIT)
_PROTOCOL = (*fields_with(Role.PROTOCOL), *_LIMITS)
"""Fields that say how a trial is measured, and not what it is."""

# Tried to allocate 2 GiB. GPU 0 has a total capacity of 9 GiB of which 1 GiB is free. ... 8 GiB is allocated by PyTorch
_AMOUNT = r"\d[\d.]* ?\w+"
_ON_GPU = re.compile(
    rf"Tried to allocate (?P<asked>{_AMOUNT})\..* total capac\w+ of (?P<whole>{_AMOUNT}) of which (?P<free>{_AMOUNT}) "
    rf"(is|are) free.* (?P<held>{_AMOUNT}) is allocated by PyTorch",
    re.DOTALL,
)
_ON_HOST = re.compile(r"can't allocate memory: you tried to allocate (?P<asked>\d+) bytes")
"""PyTorch's messages when memory runs out, on a GPU and on the host."""


def plan_summary(plan: Plan, estimate: PlanEstimate, command: Callable[[str], str] = SET_DEVICE) -> str:
    """Return how many trials will run, for how long, and why others not. command: devices -> how to run those alone."""
    words: dict[Action, str] = {"stored": "stored", "predicted_oom": "will not fit", "unsupported": "unsupported"}
    counts = _counts(plan)
    others = "".join(f"; {counts[action]} {said}" for action, said in words.items() if counts[action])
    to_run = f"{counts['run']} to run{_of_these(plan)}{_in_all(estimate)}{others}"
    whole = count_of(counts.total(), "trial")
    lines = [f"{plan.sweep}: {whole}, {to_run}{_to_leave_out(plan, estimate, command)}"]
    names = descriptions(plan.trials) if plan.count("predicted_oom") else {}
    for ruled_out, most in MOST_SKIPPED.items():
        skipped = (one for one in plan.trials if one.action == ruled_out)
        by_reason = sorted(grouped(skipped, lambda one: one.reason), key=len, reverse=True)
        for trials in by_reason[:most]:
            more = f", and {len(trials) - 1} more" if len(trials) > 1 else ""
            which = f"; trial {names[trials[0].index]}{more}" if ruled_out == "predicted_oom" else ""
            lines.append(f"  {_count(trials)} {ruled_out}: {trials[0].reason}{which}")
        if rest := sum(map(_count, by_reason[most:])):
            lines.append(f"  {rest} more {ruled_out}; lmsweep plan --format json lists their reasons")
    return "\n".join(lines)


def _counts(plan: Plan) -> Counter[Action]:
    """Return how many processes each action is about. Of a trial that runs, the plan lists only what is not stored, in
    order: if of three processes it lists the third, one will run, and two are stored."""
    counts: Counter[Action] = Counter()
    first: dict[tuple[str, Fingerprint], int] = {}  # trial that runs -> its first process to run
    for one in plan.trials:
        counts[one.action] += _count([one])
        if one.action == "run":
            first.setdefault((one.trial_id, one.environment), one.process)
    counts["stored"] += sum(process - 1 for process in first.values())
    return counts


def _count(trials: Iterable[PlannedTrial]) -> int:
    """Return how many processes these are: a stored trial stands for all of its own, any other for one."""
    return sum(one.trial.config.processes if one.action == "stored" else 1 for one in trials)


def _of_these(plan: Plan) -> str:
    """Return ` (4 different, each in up to 3 processes)`; empty if each runs in one."""
    counts = Counter(planned.trial_id for planned in plan.to_run).values()
    fewest, most = min(counts, default=1), max(counts, default=1)
    each = f"each in {'up to ' if fewest < most else ''}{most} processes"
    return f" ({len(counts)} different, {each})" if most > 1 else ""


def _in_all(estimate: PlanEstimate) -> str:
    """Return such as `, in about 5 min (4 min to 7 min), 2.00 dollars`; with a limit `, in about 5 min, at most 1 h` or
    `, in at most 1 h; all would take about 3 h`; without an estimate `, in unknown time`."""
    if not estimate.trials:
        return ""
    devices = _by_device(estimate)
    most = f"at most {format_seconds(estimate.at_most).replace('.0 s', ' s')}" if estimate.at_most else ""
    if estimate.seconds is None:
        return f", in {most or 'unknown time'}{devices}"
    about = f"about {format_seconds(estimate.seconds)}"
    if estimate.at_most and estimate.seconds > estimate.at_most:
        return f", in {most}; all would take {about}{devices}"
    between = f" ({' to '.join(map(format_seconds, estimate.between))})" if estimate.between else ""
    limit_or_range = f", {most}" if most else between
    without = f", without {count_of(estimate.without, 'trial')} of unknown time" if estimate.without else ""
    return f", in {about}{limit_or_range}{_dollars_text(estimate)}{without}{devices}"


def _by_device(estimate: PlanEstimate) -> str:
    devices = estimate.devices
    times = ("unknown time" if one.seconds is None else f"about {format_seconds(one.seconds)}" for one in devices)
    words = (f"{one.trials} on {one.name} in {time}" for one, time in zip(devices, times, strict=True))
    return f": {', '.join(words)}" if len(devices) > 1 else ""


def _to_leave_out(plan: Plan, estimate: PlanEstimate, command: Callable[[str], str]) -> str:
    """Return the command without the kind of device that takes most of the time, or unknown time."""
    seconds: Counter[str] = Counter()
    for one in estimate.devices:
        seconds[one.kind] += one.seconds or 0.0  # type: ignore[assignment] # seconds
    unknown = {one.kind for one in estimate.devices if one.seconds is None}
    slow = unknown or {kind for kind, one in seconds.items() if one > DOMINANT * seconds.total()}
    kept = dict.fromkeys(one.trial.config.device for one in plan.to_run if one.trial.config.device_type not in slow)
    return f"; to leave out {' and '.join(sorted(slow))}: {command(','.join(kept))}" if slow and kept else ""


def _dollars_text(estimate: PlanEstimate) -> str:
    if estimate.dollars is None:
        return ""
    if estimate.unpriced:
        return f", at least {estimate.dollars:.2f} dollars (no price for {', '.join(estimate.unpriced)})"
    return f", {estimate.dollars:.2f} dollars"


def descriptions(trials: Iterable[PlannedTrial]) -> dict[int, str]:
    """Return how each trial differs from the others of its grid, by index.

    A trial in two grids counts in both. trials: all of a plan, so that one of them has the same name wherever it is
    mentioned. A text has the fields that vary in the grid; if it is not the only one, those that vary among the trials
    with this text; if it is empty, the model; if it is still not the only one, also fields of how trials are measured.
    """
    listed = list(trials)
    workloads = {planned.index: "+".join(map(short_name, planned.trial.workloads)) for planned in listed}
    several = len(set(workloads.values())) > 1
    short = short_values([planned.trial.config for planned in listed])
    texts: dict[int, str] = {}
    for one in listed:
        names = [name for name in one.trial.varying if name not in _PROTOCOL]
        texts[one.index] = describe(one.trial.config, names, short)

    def tell_apart(texts: Mapping[int, str], ignored: Collection[str]) -> dict[int, str]:
        """Return the texts; those that are equal, each with the fields in which their trials differ."""
        longer = dict(texts)
        for alike in grouped(listed, lambda planned: (workloads[planned.index], texts[planned.index])):
            varying = varying_fields(one.trial.config for one in alike) if len(alike) > 1 else []
            names = [name for name in varying if name not in ignored]
            for one in alike:
                words = (texts[one.index], describe(one.trial.config, names, short))
                longer[one.index] = ", ".join(filter(None, words))
        return longer

    texts = tell_apart(texts, ignored=_PROTOCOL)
    texts = {one.index: texts[one.index] or one.trial.config.model or "trial" for one in listed}
    texts = tell_apart(texts, ignored=_LIMITS)  # the other fields of the protocol may differ
    for one in listed:
        if one.trial.config.processes > 1 and one.action == "run":
            texts[one.index] += f", process {one.process} of {one.trial.config.processes}"
    return {index: f"{workloads[index]}: {text}" for index, text in texts.items()} if several else texts


def short_values(configs: Sequence[TrialConfig]) -> dict[str, dict[object, str]]:
    """Return shorter texts for values by field: the names of references, and arguments only where they differ."""
    found: dict[str, dict[object, str]] = {
        name: dict(short_names(getattr(config, name) for config in configs)) for name in REFERENCES
    }
    for name in ARGUMENTS.values():
        by_text = {text: json.loads(text) for config in configs if (text := getattr(config, name))}
        first, *others = [*by_text.values()] or [{}]
        is_same = {key: all(one.get(key) == value for one in others) for key, value in first.items()}
        found[name] = {
            text: ", ".join(f"{key} {value}" for key, value in one.items() if not others or not is_same.get(key))
            for text, one in by_text.items()
        }
    return found


def describe(config: TrialConfig, names: Sequence[str], short: Mapping[str, Mapping[object, str]] | None = None) -> str:
    """Return these fields, where they have a value, as `name value, name value`. short: what `short_values` returns."""
    words = []
    for name in names:
        if (value := getattr(config, name)) is not None:
            text = (short or {}).get(name, {}).get(value, value)
            # The short text of arguments names each of them, and is empty if they are all the same.
            words.append(text if short and name in ARGUMENTS.values() else f"{name} {text}")
    return ", ".join(filter(None, words))


def outcome(rows: list[Record]) -> str:
    """Return a trial's status and error, or its median times."""
    failures = [row for row in rows if row.status != Status.OK]
    if failures:
        if failures[0].status == Status.TIMEOUT:  # its error ends with a stack trace
            place, hung, _ = (failures[0].error or "").partition(": killed here")
            where = f" at {place}" if hung else ""
            return f"timeout after {format_seconds(failures[0].config.timeout_seconds)}{where}"
        if failures[0].status == Status.OOM:
            return f"oom: {in_short(failures[0].error or '')}"
        reason = error_line(failures[0].error or "")
        return f"{failures[0].status}: {reason}" if reason else str(failures[0].status)
    times = {row.phase: _median(row.samples) for row in rows if row.metric == "time" and row.samples}
    if "step" in times and rows[0].workload != "attention":  # attention alone: forward and backward
        words = f"{format_seconds(times['step'])} per step"
    else:
        each = (f"{phase} {format_seconds(seconds)}" for phase, seconds in times.items() if phase != "step")
        words = ", ".join(each) or "ok"
    flags = {flag for row in rows for flag in row.flags}
    worked = [row.samples for row in rows if (row.phase, row.metric) == ("step", "device_time") and row.samples]
    if Flag.HOST_BOUND in flags and worked and times.get("step"):
        words += f", GPU idle for {1 - _median(worked[0]) / times['step']:.0%} of it"
    words += ", disagrees with float64" if Flag.DISAGREES in flags else ""
    return words + (", on a busy machine" if Flag.BUSY_HOST in flags else "")


def _median(samples: Sequence[float]) -> float:
    """Return the median; `statistics.median` adds the middle two, which may be too large together."""
    return statistics.median_low(samples) / 2 + statistics.median_high(samples) / 2


def in_short(error: str) -> str:
    """Return `requested 2.00 GiB with 71.30 GiB allocated; ...`, or the first line of an unknown message."""
    if found := _ON_GPU.search(error):
        return (
            f"requested {found['asked']} with {found['held']} allocated; {found['free']} of {found['whole']} were free"
        )
    if found := _ON_HOST.search(error):
        return f"requested {gib(int(found['asked']))}, which this machine could not provide"
    return short_line((error.strip().splitlines() or ["no message"])[0])
