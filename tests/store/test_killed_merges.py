"""Merges of a store's files that are killed in the middle, again and again."""

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from lmsweep.trials.store.store import Store
from tests.store.test_store import rows
from tests.support.command import PYTHONPATH

KILLS = 50
ADDED = 4
"""Trials that are added before each merge."""
# For each line that it reads, it kills a merge: after so many times the duration of the first one, while there is a
# half-written file, or once there is a merged file and others are to be deleted. It prints whether the merge had ended.
KILLER = """
import os, signal, sys, time
from pathlib import Path
from lmsweep.trials.store.store import Store

folder = Path(sys.argv[1])
store = Store(str(folder))

def fork():
    pid = os.fork()
    if not pid:
        store.compact()
        os._exit(0)
    return pid

def merged():
    return {path.name for path in (folder / "measurements").glob("compacted-*")}

def half_written():
    return [path for path in (folder / ".writing").glob("*") if path.stat().st_size]

began = time.monotonic()
os.waitpid(fork(), 0)
usual = time.monotonic() - began
for line in sys.stdin:
    before, moment = merged(), line.strip()
    began = time.monotonic()
    pid = fork()
    ended = 0
    while not ended:
        ended, _ = os.waitpid(pid, os.WNOHANG)
        try:
            if moment == "written" and half_written() or moment == "merged" and merged() - before:
                break
        except FileNotFoundError:
            continue
        if moment not in ("written", "merged") and time.monotonic() - began > float(moment) * usual:
            break
    if not ended:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    print("ended" if ended else "killed", flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_fifty_merges_that_are_killed_lose_no_row_and_the_next_one_leaves_one_file(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    seed = int(os.environ.get("SEED") or random.randrange(2**32))
    dice = random.Random(seed)
    for context in range(1, ADDED + 1):
        store.append(rows(context))
    killer = subprocess.Popen(
        [sys.executable, "-c", KILLER, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": PYTHONPATH},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert killer.stdin and killer.stdout
    left, ends = [0], Counter[str]()
    for kill in range(1, KILLS + 1):
        for context in range(kill * ADDED + 1, (kill + 1) * ADDED + 1):
            store.append(rows(context))
        moment = dice.choice(("written", "merged", f"{dice.uniform(0, 2):.3f}"))
        killer.stdin.write(f"{moment}\n")
        killer.stdin.flush()
        ends[killer.stdout.readline().strip()] += 1
        table, damage = store.read()
        pairs = [*zip(table["attempt_id"].to_pylist(), table["phase"].to_pylist(), strict=True)]
        assert damage == [] and len(pairs) == len(set(pairs)) == 2 * ADDED * (kill + 1), (
            f"SEED={seed}, {kill}, {moment}"
        )
        left.append(len(list((tmp_path / ".writing").iterdir())))
    killer.stdin.close()
    killer.wait()
    print(f"SEED={seed}: {dict(ends)}; half-written files left: {left}")
    assert ends["killed"] > KILLS / 2
    store.compact()
    assert store.read()[0].num_rows == 2 * ADDED * (KILLS + 1)
    assert store.count_fragments() == 1
    assert not list((tmp_path / ".writing").iterdir()), "half-written files of killed merges are left"
