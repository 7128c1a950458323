"""What `run` prints at its end: the results as a table, where the time went, what was found, and the next command."""

import math
import shlex
import time
from collections import Counter
from collections.abc import Sequence

import pandas as pd
import psutil

import lmsweep
from lmsweep.orchestrator.commands.show_table import show_parts
from lmsweep.orchestrator.feature import registered
from lmsweep.orchestrator.plan_request import How
from lmsweep.orchestrator.planning.plan import Plan, PlannedTrial
from lmsweep.orchestrator.planning.plan_estimate import START_SECONDS
from lmsweep.orchestrator.running.progress.trial_words import SHORT_ID
from lmsweep.orchestrator.running.run_plan import Account, Run
from lmsweep.orchestrator.sweep.ranges import seconds_of
from lmsweep.orchestrator.terminal import continuing, format_seconds, say
from lmsweep.trials.results.environment import is_absent
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.identity import measurement_id
from lmsweep.trials.spec.quantities import count_of
from lmsweep.trials.store.store import Store

MOST_ROWS = 40
"""Rows of the longest table that a run prints; `lmsweep table` prints longer ones."""

MOST_LEFT_OUT = 3
"""Maximum number of left-out trials that are listed; if there are more, only their number is printed."""

BUSY_LOAD = 1.5
"""Processes for each core above which a machine is named as the likely reason why nothing could begin."""


def show_summary(
    plan: Plan, store: Store, account: Account, *, trial_command: str | None, again: str = "", left: str = ""
) -> None:
    """Print the results of this sweep, their flags, the account of the run, what was found, and the next command.

    trial_command: repeats a trial here if an identifier is appended; None on a cluster. again: repeats the run. left:
    what `what_is_left` returned.
    """
    from lmsweep.analysis import load
    from lmsweep.analysis.data.pooled_rows import pool
    from lmsweep.analysis.metrics.status import busy_words

    stored = rows = pd.DataFrame(columns=["status"])
    parts: list[str] = []
    with continuing("what is stored"):
        stored = load(store, pooled=False) if store.exists() else stored
        rows = _of_plan(plan, stored) if len(stored) else stored
    with continuing("the table of the results"):
        parts += _show_results(_of_plan(plan, pool(stored)), trial_command, left) if len(rows) else []
    parts.append("\n".join(_account_words(plan, account)))
    if (rows["status"] != Status.UNSUPPORTED.value).any():
        quoted = shlex.quote(store.location)
        words = [f"results are in {store.location}; to see them: lmsweep table {quoted}"]
        following = f"next, in a browser: lmsweep report {quoted}"
        with continuing("what the results say"):
            busy = busy_words(rows)
            following = f"next, once it is quiet: {again} --fresh" if busy and again else following
            if "findings" in registered("functions"):
                words += ["", *lmsweep.findings(rows, stored, busy)]
        parts.append("\n".join([*words, left or following]))
    elif left:
        parts.append(left)
    say("\n\n".join(part for part in parts if part))


def _account_words(plan: Plan, account: Account) -> list[str]:
    words = [where_the_time_went(account)] if sum(account.seconds.values()) else []
    # Trials that the plan has ruled out did not run: their action, unsupported or predicted_oom, is also their status.
    if ended := account.statuses - Counter(one.action for one in plan.trials for _ in one.trial.workloads):
        failed = sorted((-count, status) for status, count in ended.items() if status != Status.OK)
        counts = [f"{ended[Status.OK]} of {ended.total()} measurements succeeded"]
        words.append(", ".join([*counts, *(f"{-count} ended as {status}" for count, status in failed)]))
    if lost := account.lost_nodes:
        words.append(f"{lost} of {account.nodes} nodes {'was' if lost == 1 else 'were'} lost")
    return words


def _of_plan(plan: Plan, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the plan's trials in the present state of the code."""
    wanted = {measurement_id(one.trial.config, name) for one in plan.trials for name in one.trial.workloads}
    states = {one.environment.code_digest for one in plan.trials}  # other results are of earlier states of the code
    is_of_state = frame["code_digest"].isna() | frame["code_digest"].isin(states)
    return frame[frame["measurement_id"].isin(wanted) & is_of_state].reset_index(drop=True)


def what_is_left(run: Run, how: How, resume: str) -> str:
    """Return which trials did not fit into the time or were cut at its end, and the command that resumes."""
    planned, gate = run.planned, run.gate
    budget = how.budget or (planned.limit.budget and "the sweep's time")
    limit = " and ".join(f"{word} {end}" for word, end in (("into", budget), ("before", how.until)) if end)
    load = psutil.getloadavg()[0] / (psutil.cpu_count() or 1)
    is_busy = load > BUSY_LOAD and not run.account.statuses and run.address is None  # no trial began here
    words = [f"this machine is busy, with {load:.0f} processes for each core"] if is_busy else []
    words += [f"{_which(gate.cut, run)} cut at the end of the time"] if gate.cut else []
    words += [f"{_which(gate.kept_out, run)} did not fit {limit}"] if gate.kept_out else []
    known = [one for one in (*gate.cut, *gate.kept_out) if run.estimate.trials[one.index].reason is None]
    seconds = run.eta.needed(known)
    takes = f"{'more than' if gate.cut else 'about'} {format_seconds(seconds)} of measuring is left: " if known else ""
    of_sweep = seconds_of(planned.limit.budget) if planned.limit.budget and not how.budget else 0.0
    # The sweep's own time was too short. Suggest twice that, or twice what is left: estimates may be too low.
    more = f" --budget {math.ceil(2 * max(START_SECONDS + seconds, of_sweep) / 60)}m" if of_sweep else ""
    return f"{takes}{'; '.join(words)}. To resume: {resume}{more}"


def _which(trials: Sequence[PlannedTrial], run: Run) -> str:
    """Return the number of these trials and, if they are few, which they are."""
    count, names = count_of(len(trials), "trial"), "; ".join(run.progress.name_of(planned.index) for planned in trials)
    return f"{count} ({names})" if len(trials) <= MOST_LEFT_OUT else count


def where_the_time_went(account: Account) -> str:
    """Return the run's wall time, and the trials' seconds by purpose (setup, ...), summed over trials side by side."""
    words = ", ".join(f"{name} {format_seconds(s)}" for name, s in account.seconds.items() if s)
    slots = f" on {account.slots} slots" if account.slots > 1 else ""
    return f"took {format_seconds(time.monotonic() - account.began)}{slots}: {words}"


def _show_results(frame: pd.DataFrame, trial_command: str | None, left: str) -> list[str]:
    """Print the table, if it is not too long, and return the sentences below it."""
    from lmsweep.analysis.metrics.status import flag_counts
    from lmsweep.analysis.tables.pivot import pivot
    from lmsweep.analysis.tables.text_table import MORE_ON_FLAGS, flag_lines

    if (frame["status"] == Status.UNSUPPORTED.value).all():
        none = "None of these trials can run here. `lmsweep doctor` shows what can; `lmsweep run quick` needs no GPU."
        return [] if left else [none]
    frame = frame[~frame["device_name"].map(is_absent)]  # the plan's summary lists the others
    table = pivot(frame)
    parts = []
    if len(table) <= MOST_ROWS:
        show_parts([table], pages=False)
        say("")
    elif lines := flag_lines(flag_counts(frame)):
        parts.append("\n".join([*lines, MORE_ON_FLAGS]))
    failed = frame.loc[frame["status"] == Status.ERROR.value, "trial_id"]
    if trial_command and len(failed):
        which = "the failed trial" if failed.nunique() == 1 else "the first failed trial"
        parts.append(f"repeat {which} here, with its traceback: {trial_command} {failed.iloc[0][:SHORT_ID]}")
    return parts
