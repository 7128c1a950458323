"""The program behind `lmsweep check`: reads questions as JSON, prints findings, each from a process of its own."""

import faulthandler
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from typing import IO

import torch

from lmsweep.trials.bench.run_trial import as_unsupported
from lmsweep.trials.code.finding import Finding, Question, cannot, error_words, is_lmsweeps
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.code.source import is_users_file
from lmsweep.trials.machine.processes import die_with_parent, kill_group, lead_group
from lmsweep.trials.numerics.check_findings import findings
from lmsweep.trials.spec.reference import Code

GRACE = 5.0
"""Seconds after the time limit in which a process writes down where it is."""


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    request = json.load(sys.stdin)
    code = Code(**(request["code"] | {"trusted": tuple(request["code"]["trusted"])}))
    for index, asked in enumerate(request["questions"]):
        found = answer(Question.from_json(asked), code, request["seconds"])
        print(json.dumps({"index": index, "findings": [asdict(one) for one in found]}), flush=True)


def answer(question: Question, code: Code, seconds: float) -> list[Finding]:
    """Return the findings about one reference, from a process that is killed when its time is up."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    found: list[Finding] = []
    with tempfile.TemporaryFile("w+") as stack:
        child = fork.Process(target=_examine, args=(question, code, seconds, sender, receiver.fileno(), stack))
        began = time.monotonic()
        child.start()
        sender.close()
        try:
            while receiver.poll(max(0.0, began + seconds + GRACE - time.monotonic())):
                found.append(receiver.recv())
        except EOFError:
            child.join(GRACE)
        assert child.pid is not None, "it was started"
        kill_group(child.pid)
        child.join()
        stack.seek(0)
        if child.exitcode != 0:
            took = time.monotonic() - began
            ended = _unfinished(stack.read(), child.exitcode, code, seconds if took >= seconds else None)
            if found and question.field == "step" and took >= seconds:  # it has been imported, and is what it is
                ended = replace(ended, found=f"{ended.found} on this CPU", kind="cannot")
            found.append(ended)
    return found


def _unfinished(stack: str, exit_code: int | None, code: Code, limit: float | None) -> Finding:
    frames = re.findall(r'File "(.+)", line (\d+) in (.+)', stack)
    place = next(
        (f"{os.path.relpath(file, code.folder)}:{line}: " for file, line, _ in frames if is_users_file(file, code)), ""
    )
    if limit is not None:
        return Finding(
            what="ends", found=f"{place}still running after {limit:g} s (--timeout 5m gives it longer)", kind="wrong"
        )
    how = f"signal {signal.Signals(-exit_code).name}" if exit_code and exit_code < 0 else f"exit code {exit_code}"
    return Finding(what="ends", found=f"{place}the process ended with {how}", kind="wrong")


def _examine(
    question: Question, code: Code, seconds: float, sender: Connection, inherited: int, stack: IO[str]
) -> None:
    lead_group(os.getppid(), inherited)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the user's code prints is no answer
    faulthandler.enable(stack)
    faulthandler.dump_traceback_later(seconds, exit=True, file=stack)
    torch.set_num_threads(1)  # the threads of a parent that has computed do not survive a fork
    use_code(code)
    try:
        for finding in findings(question):
            sender.send(finding)
    except Exception as raised:  # noqa: BLE001 - whatever the user's code raises is the finding
        error = as_unsupported(raised, question.config, code)
        wrong = Finding(what="works", found=error_words(error, question, code), kind="wrong")
        sender.send(cannot("works", error) if is_lmsweeps(error) else wrong)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
