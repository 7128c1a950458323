"""What each run on this machine was asked, in a file of the cache folder, and how much of it has a result."""

import hashlib
import json
import os
import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, suppress
from pathlib import Path
from typing import NamedTuple

from lmsweep.orchestrator.plan_request import How, What, Where, resume_command
from lmsweep.trials.machine.scratch import cache_folder
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError


class Count(NamedTuple):
    have: int
    """Trials with a result. A trial that asks for several processes counts once for each."""
    planned: int


def keep(what: What, where: Where, how: How) -> None:
    """Keep the request. A cache folder that cannot be written is no reason not to run."""
    request = {
        "command": resume_command("run", what, where, how),
        "folder": str(Path.cwd()),
        "what": {"sweep": what.sweep}
        | {name: [*getattr(what, name)] for name in ("grids", "overrides", "trusted")}
        | {"code": what.code, "shard": what.shard},
    }
    text = json.dumps(request)
    with suppress(OSError, RequestError):
        folder = _folder_of(where.store)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{_digest(text)}.json").write_text(text, "utf-8")


def lines_about(store: str) -> Iterator[str]:
    """Yield a line for each run into this store of whose trials some, not all, have a result.

    A run without any result yet stays for the next call. One that is complete is forgotten, and so is one that can no
    longer be read or takes too long to expand.
    """
    place = _absolute(store)
    try:
        kept = sorted(_folder_of(store).glob("*.json"))
    except (OSError, RequestError):
        return
    for path in kept:
        try:
            request = json.loads(path.read_text("utf-8"))
            # Code, lengths and the sweep file itself are named from the folder of the run.
            with chdir(request["folder"]):
                what = What(**request["what"])
                count = _count(what, place)
        except (OSError, RequestError, ValueError, KeyError, TypeError):  # the sweep file is gone, or a newer version's
            count = None
        if count and 0 < count.have < count.planned:
            there = request["folder"]
            first = "" if Path.cwd() == Path(there) else f"cd {shlex.quote(there)} && "
            words = f"{what.sweep}: {count.have} of {count.planned} trials have a result"
            yield f"{words}. Unless it still runs, to resume: {first}{request['command']}"
        elif count is None or count.have:  # all of them, else it would have a line
            with suppress(OSError):
                path.unlink()


def _count(what: What, store: str) -> Count | None:
    """Return how many of the trials have a result; None of a sweep that takes too long to expand."""
    from lmsweep.orchestrator.sweep.ranges import shard
    from lmsweep.orchestrator.sweep.sweep import parse_overrides, read_sweep
    from lmsweep.trials.spec.identity import trial_id
    from lmsweep.trials.store.store import Store

    overrides = parse_overrides([*what.overrides])
    written = read_sweep(what.sweep, overrides, code=what.code, trusted=what.trusted, grids=what.grids)
    if written.is_large:
        return None
    trials = written.expanded().trials
    trials = trials[shard(what.shard)] if what.shard else trials
    planned = {trial_id(one.config): one.config.processes for one in trials}
    final = [status.value for status in Status if status.is_final]
    rows = Store(store).rows(["trial_id", "attempt_id"], status=final, trial_id=[*planned])
    measured = Counter(trial for trial, _ in {(row["trial_id"], row["attempt_id"]) for row in rows})
    ruled_out = {row["trial_id"] for row in rows if row["status"] != Status.OK}  # no other process would run
    have = [count if trial in ruled_out else min(count, measured[trial]) for trial, count in planned.items()]
    return Count(sum(have), sum(planned.values()))


def _folder_of(store: str) -> Path:
    return cache_folder() / "unfinished" / _digest(_absolute(store))


def _absolute(store: str) -> str:
    return store if "://" in store else str(Path(store).resolve())


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]
