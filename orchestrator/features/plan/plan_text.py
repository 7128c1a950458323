"""Writes a plan, or the largest sizes that fit, as text."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice

import pandas as pd

from lmsweep.analysis.data.columns import NO_VALUE, label
from lmsweep.analysis.tables.listing import Listing, Tone
from lmsweep.analysis.tables.pivot import CONDITIONS, READ_BY_SOME, USUAL, keys_read
from lmsweep.orchestrator.cluster.nodes import Refusal
from lmsweep.orchestrator.features.plan.fleet import WORTH, Fleet, fleet_of
from lmsweep.orchestrator.features.plan.plan_output import between, peak_of
from lmsweep.orchestrator.planning.largest_fit import Frontier
from lmsweep.orchestrator.planning.memory_budget import OTHERS_NEED
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.planning.plan import Plan, PlannedTrial
from lmsweep.orchestrator.planning.plan_estimate import PlanEstimate
from lmsweep.orchestrator.planning.step_estimate import StepEstimate, StepEstimates
from lmsweep.orchestrator.predicting.varied_times import padding_of
from lmsweep.orchestrator.running.progress.trial_words import SET_DEVICE, SHORT_ID, plan_summary, short_values
from lmsweep.orchestrator.software import is_made
from lmsweep.orchestrator.terminal import format_seconds
from lmsweep.trials.analytic.memory_bounds import Bounds
from lmsweep.trials.analytic.memory_prediction import Prediction
from lmsweep.trials.analytic.prediction_question import ManySteps
from lmsweep.trials.analytic.prices import Price
from lmsweep.trials.analytic.rates.intervals import peak_of_others
from lmsweep.trials.lengths.recompiling import recompiles
from lmsweep.trials.results.environment import is_absent
from lmsweep.trials.results.roles import FIELDS, Role, fields_with, varying_fields
from lmsweep.trials.spec.quantities import gib, ms

MOST_ROWS = 60
"""Most trials in the table; --all and --format json list all."""
LENGTHS = ("padding", "recompiles", "out of memory")
"""The columns of trials whose batches differ by their lengths."""
MOST_REASONS = 3
"""Most reasons given for unknown values; --format json has all."""
MOST_FLEETS = 3
"""Most trials with several ranks whose rates and dollars are printed, the cheapest; --format json has all."""
LEAST_EXPOSED = 1e-6
"""Seconds of communication below which a part of a step counts as hidden."""
TONES: dict[str, Tone] = {"stored": "neutral", "predicted_oom": "unclear", "unsupported": "unclear"}


@dataclass(frozen=True)
class PlanText:
    """A plan, and what is expected of its trials."""

    plan: Plan
    estimate: PlanEstimate
    predictions: Predictions | None = None
    steps: StepEstimates | None = None
    command: Callable[[str], str] = SET_DEVICE
    """From devices to the command for the trials on these alone."""
    prices: Sequence[Price] = ()
    trainer: str | None = None

    @property
    def _by_others(self) -> str:
        """Return the heading of the step's time in public training stacks, or in the trainer that was named."""
        return f"by {self.trainer or 'other trainers'}"

    def listing(self, *, all: bool = False) -> Listing:
        """Return the summary, a table of the trials, and the reasons for unknown values."""
        trials = self.plan.trials if all else self._first()
        frame, keys = self._frame(trials)
        return Listing(
            title=plan_summary(self.plan, self.estimate, self.command),
            frame=frame,
            keys=keys,
            units={},
            tones=TONES,
            conditions=self._conditions(trials),
            notes=list(filter(None, self._notes(trials, None if all else MOST_FLEETS))),
        )

    def _conditions(self, trials: Sequence[PlannedTrial]) -> dict[str, str]:
        """Return the fields that decide time and memory and are not columns, because all trials have the same value."""
        configs = [one.trial.config for one in trials]
        read = {key for one in trials for name in one.trial.workloads for key in keys_read(name)}
        unread = {*READ_BY_SOME} - read  # fields that none of these workloads reads
        left_out = {*fields_with(Role.PROTOCOL), *unread, *varying_fields(configs)}
        names = [name for name in CONDITIONS if name in FIELDS and name not in left_out]
        found = {name: label(getattr(configs[0], name)) for name in names}
        devices = {one.environment.device_name for one in trials if not is_absent(one.environment.device_name)}
        machine = {"device_name": devices.pop()} if len(devices) == 1 else {}
        return machine | {name: text for name, text in found.items() if text not in (NO_VALUE, USUAL.get(name))}

    def _first(self) -> list[PlannedTrial]:
        """Return the trials for a short table: those that run, then what else could run here, in their order."""
        there = [one for one in self.plan.trials if not is_absent(one.environment.device_name)]
        possible = [one for one in there if one.action != "unsupported"] or self.plan.trials
        chosen = sorted(possible, key=lambda one: one.action != "run")[:MOST_ROWS]
        return sorted(chosen, key=lambda one: one.index)  # as in the plan

    def _notes(self, trials: Sequence[PlannedTrial], most_fleets: int | None) -> list[str]:
        """Return how many trials the table leaves out, why values are unknown, what a run installs; some are empty."""
        left = len(self.plan.trials) - len(trials)
        times = [f"time ?: {one.reason}" for one in self.estimate.trials.values() if one.reason]
        steps = [self.steps.of(planned) for planned in trials] if self.steps else []
        known = [one for one in steps if isinstance(one, StepEstimate)]
        return [
            f"... and {left} more; --all lists them, --format json has more" if left > 0 else "",
            *self._memory_notes(trials),
            *_first_reasons(times),
            *_first_reasons(f"step: {one.source}" for one in known),
            *_first_reasons(f"step ?: {one.reason}" for one in steps if isinstance(one, Refusal)),
            *self._fleets(most_fleets),
            *_first_reasons(one.advice for one in known if one.advice),
            self._software(),
            _library(trials),
            self._compiling(),
        ]

    def _memory_notes(self, trials: Sequence[PlannedTrial]) -> list[str]:
        memory = [peak_of(planned, self.predictions) for planned in trials]
        notes = _first_reasons(f"peak memory ?: {one.reason}" for one in memory if isinstance(one, Refusal))
        on_gpu = any(one.trial.config.device_type == "cuda" for one in trials)
        if on_gpu and any(isinstance(one, Prediction) for one in memory):
            notes.insert(0, OTHERS_NEED.format(peak_of_others(100)))  # in percent
        return notes

    def _compiling(self) -> str:
        """Return how long graphs compile on a host that is not here; empty for one that is, or without graphs."""
        cores, seconds = self.estimate.assumed_cores, self.estimate.compiling
        if not cores or not seconds:
            return ""
        return f"compiling: about {format_seconds(seconds)} on {cores} cores for each GPU, as that host is not known"

    def _fleets(self, most: int | None) -> list[str]:
        """Return a line for each of the `most` cheapest trials of several ranks: communication, throughput, price. The
        last line says how many more there are."""
        found: dict[str, tuple[PlannedTrial, StepEstimate, Fleet]] = {}
        for one in self.plan.trials:
            step = self.steps.of(one) if self.steps else None
            if isinstance(step, StepEstimate) and (fleet := fleet_of(one, step, self.prices)):
                found.setdefault(one.trial_id, (one, step, fleet))
        cheapest = sorted(found.values(), key=lambda one: _dearness(one[0], one[2]))[:most]
        left = len(found) - len(cheapest)
        dearer = "dearer" if any(fleet.dollars for _, _, fleet in cheapest) else "slower for each GPU"
        more = [f"{left} more with several ranks: {dearer}, or will not fit; --format json has all"]
        return [_of_ranks(*one) for one in cheapest] + (more if left else [])

    def _software(self) -> str:
        wanted = self.plan.software
        if not wanted:
            return ""
        missing = [software for software in wanted if not is_made(software)]
        words = f"a run installs {', '.join(missing)} first" if missing else "their environments are ready"
        return f"software: {words}; peak memory is predicted with the installed torch"

    def _frame(self, trials: Sequence[PlannedTrial]) -> tuple[pd.DataFrame, list[str]]:
        """Return a row of words for each trial, and the columns that identify it. Columns that say the same of all
        trials are left out."""
        varying = varying_fields([planned.trial.config for planned in trials])
        names = [name for name in varying if name not in fields_with(Role.LIMIT)]
        repeated = ["process"] if any(planned.trial.config.processes > 1 for planned in trials) else []
        lengths = LENGTHS if any(one.trial.config.varies for one in trials) else ()
        has_step = self.steps and any(isinstance(self.steps.of(one), StepEstimate) for one in trials)
        stepping = ["step", self._by_others] if has_step else []
        short = short_values([one.trial.config for one in trials])
        rows = []
        for one in trials:
            values = [(name, getattr(one.trial.config, name)) for name in names]
            row = [short.get(name, {}).get(value, label(value)) for name, value in values]
            row += [_process_text(one) for _ in repeated]
            row += [one.trial_id[:SHORT_ID], self._peak_text(one)]
            row += self._lengths_text(one) if lengths else ()
            row += [self._step_text(one, name) for name in stepping]
            rows.append([*row, self._seconds_text(one), one.action])
        keys = [*names, *repeated, "trial"]
        columns = [*keys, "peak memory", *lengths, *stepping, "time", "action"]
        return pd.DataFrame(rows, columns=columns, dtype=object), keys

    def _peak_text(self, planned: PlannedTrial) -> str:
        peak = peak_of(planned, self.predictions)
        if isinstance(peak, Bounds):
            return between(peak)
        return gib(peak.peak) if isinstance(peak, Prediction) else "?"

    def _lengths_text(self, planned: PlannedTrial) -> tuple[str, str, str]:
        """Return the share of padding, how often code is compiled again, and how often memory runs out."""
        config = planned.trial.config
        if not config.varies:
            return "-", "-", "-"
        many_steps = self.predictions.many_steps(planned.trial, planned.environment) if self.predictions else None
        return f"{padding_of(config):.0%}", label(recompiles(config)), _out_of_memory_text(many_steps)

    def _step_text(self, planned: PlannedTrial, column: str) -> str:
        step = self.steps.of(planned) if self.steps else None
        if isinstance(step, StepEstimate):
            times = step.others if column != "step" else (step.seconds, *step.between)
            return "{} ms ({} to {})".format(*map(ms, times))
        return "?" if isinstance(step, Refusal) else "-"

    def _seconds_text(self, planned: PlannedTrial) -> str:
        estimate = self.estimate.trials.get(planned.index)
        if estimate is None:
            return "-"
        return "?" if estimate.reason else format_seconds(estimate.seconds)


def _first_reasons(reasons: Iterable[str]) -> list[str]:
    return [*islice(dict.fromkeys(reasons), MOST_REASONS)]


def _library(trials: Sequence[PlannedTrial]) -> str:
    """Return which version of transformers builds the models. Others may differ much: Granite's Mamba layers take 17
    times as long with 5.17 as with 5.24, and T5 needs a third more memory."""
    if not any(one.trial.config.is_hugging_face for one in trials) or not find_spec("transformers"):
        return ""
    return f"hf: models as transformers {version('transformers')}, installed here, builds them; others may differ much"


def _of_ranks(planned: PlannedTrial, step: StepEstimate, fleet: Fleet) -> str:
    """Return what communication adds to a step of several ranks, their throughput, and how many are worth their price:
    GPUs beyond `fleet.worth` are not; where no limit was found, all up to `fleet.most` are."""
    exposed = ", ".join(f"{name} {ms(part)} ms" for name, part in step.parts.items() if part >= LEAST_EXPOSED)
    dollars = f", ${fleet.dollars:,.0f} per 10⁹ tokens" if fleet.dollars else ""
    config, gain = planned.trial.config, ""
    if fleet.worth:
        gain = f"; GPUs beyond {fleet.worth} bring less than {WORTH:.0%} of the rate of the first"
    elif fleet.most > config.world_size:
        node = ", one node," if config.nodes == 1 else ""
        gain = f"; GPUs up to {fleet.most}{node} bring at least {WORTH:.0%} of the rate of the first"
    return (
        f"{planned.trial_id[:SHORT_ID]}: exposed {exposed or 'nothing'}; {fleet.tokens_per_second:,.0f} "
        f"tokens/s{dollars}{gain}"
    )


def _dearness(planned: PlannedTrial, fleet: Fleet) -> tuple[bool, bool, float]:
    """Return the key that sorts the cheapest first: trials that run, then those with a price; among these by dollars,
    or else by the GPU time of a token."""
    will_run = planned.action in ("run", "stored")
    return not will_run, not fleet.dollars, fleet.dollars or planned.trial.config.world_size / fleet.tokens_per_second


def _out_of_memory_text(many: ManySteps | None) -> str:
    """Return how often memory runs out in simulated runs of many steps."""
    if many is None:
        return "?"
    if not many.failed:
        return f"0 of {many.runs} runs of {many.steps:,} steps"
    often = f"{many.failed / many.runs:.0%} of runs, {many.failed_steps:.3g} of {many.steps:,} steps"
    return f"{often}, first in step {many.first_failed}"


def _process_text(planned: PlannedTrial) -> str:
    if planned.action == "run":
        return f"{planned.process} of {planned.trial.config.processes}"
    return str(planned.trial.config.processes) if planned.action == "stored" else "-"


def frontier_listing(frontiers: list[Frontier]) -> Listing:
    """Return the largest value of one dimension that fits, by everything else that varies."""
    dimension = frontiers[0].dimension
    sizes = {one.dimension for one in frontiers}
    names = [name for name in varying_fields([one.config for one in frontiers]) if name not in sizes]
    rows = [[*(getattr(one.config, name) for name in names), one.device_name, _largest_text(one)] for one in frontiers]
    budgets = dict.fromkeys(one.budget_words for one in frontiers)
    return Listing(
        title=f"The largest {dimension} that fits, as predicted",
        frame=pd.DataFrame(rows, columns=[*names, "device", f"largest {dimension}"], dtype=object),
        keys=[*names, "device"],
        units={},
        notes=[
            *dict.fromkeys(one.words for one in frontiers if one.words),
            *(f"fits: predicted peak of at most {words}" for words in budgets),
        ],
    )


def _largest_text(one: Frontier) -> str:
    if one.largest is None:
        return f"? ({one.reason})"
    if one.possible != one.largest:  # larger sizes may fit, too
        return f"{one.largest} to {one.possible}"
    return str(one.largest) if one.largest else "none fits"
