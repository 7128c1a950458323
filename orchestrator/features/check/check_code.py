"""The program behind `lmsweep check`: reads questions as JSON and prints findings, each question in its own process."""

import faulthandler
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from typing import IO

import torch

from lmsweep.orchestrator.features.check.check_model import check_model
from lmsweep.orchestrator.features.check.check_parts import check_attention, check_loss, check_optimizer, check_step
from lmsweep.orchestrator.features.check.check_ranks import check_in_ranks
from lmsweep.orchestrator.features.check.finding import Finding, Question, cannot, error_words, is_lmsweeps
from lmsweep.trials.analytic.memory_prediction import subject_of
from lmsweep.trials.bench.run_trial import as_unsupported
from lmsweep.trials.code.importing import load, use_code
from lmsweep.trials.code.ownership import is_users_file
from lmsweep.trials.isolation.precompile import imports_users_code
from lmsweep.trials.machine.processes import die_with_parent, kill_group, lead_group
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.spec.config import Trial, TrialConfig, UnsupportedError
from lmsweep.trials.spec.quantities import gib
from lmsweep.trials.spec.reference import HUGGING_FACE, Code

GRACE_SECONDS = 5.0
"""Seconds after the time limit in which a process writes down where it is."""


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    request = json.load(sys.stdin)
    code = Code(**(request["code"] | {"trusted": tuple(request["code"]["trusted"])}))
    for index, asked in enumerate(request["questions"]):
        asked |= {"config": TrialConfig(**asked["config"]), "workloads": tuple(asked["workloads"])}
        findings = answer(Question(**asked), code, request["seconds"])
        print(json.dumps({"index": index, "findings": [asdict(one) for one in findings]}), flush=True)


def answer(question: Question, code: Code, seconds: float) -> list[Finding]:
    """Return the findings about one reference, from a process that is killed when its time is up."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    findings: list[Finding] = []
    with tempfile.TemporaryFile("w+") as stack:
        child = fork.Process(target=_examine, args=(question, code, seconds, sender, receiver.fileno(), stack))
        began = time.monotonic()
        child.start()
        sender.close()
        try:  # until the child closes its end (EOFError), or its time is up
            while receiver.poll(max(0.0, began + seconds + GRACE_SECONDS - time.monotonic())):
                findings.append(receiver.recv())
        except EOFError:
            child.join(GRACE_SECONDS)
        assert child.pid is not None, "it was started"
        kill_group(child.pid)  # the child, if it still runs, and what it left running
        child.join()
        stack.seek(0)
        if child.exitcode != 0:
            is_late = time.monotonic() - began >= seconds
            ended = _unfinished(stack.read(), child.exitcode, code, seconds if is_late else None)
            # A step that was imported (its first finding) may only be slow on a CPU, which fails no trial.
            if findings and question.field == "step" and is_late:
                ended = replace(ended, found=f"{ended.found} on this CPU", kind="cannot")
            findings.append(ended)
    return findings


def _unfinished(stack: str, exit_code: int | None, code: Code, limit: float | None) -> Finding:
    """Return where and how a process ended that did not finish. limit: the seconds that it had, if it used them up."""
    frames = re.findall(r'File "(.+)", line (\d+) in (.+)', stack)
    of_user = [(os.path.relpath(file, code.folder), line) for file, line, _ in frames if is_users_file(file, code)]
    place = "{}:{}: ".format(*of_user[0]) if of_user else ""  # the innermost
    if limit is not None:
        return Finding(
            what="ends", found=f"{place}still running after {limit:g} s (--timeout 5m gives it longer)", kind="wrong"
        )
    how = f"signal {signal.Signals(-exit_code).name}" if exit_code and exit_code < 0 else f"exit code {exit_code}"
    return Finding(what="ends", found=f"{place}the process ended with {how}", kind="wrong")


def _examine(
    question: Question, code: Code, seconds: float, sender: Connection, inherited: int, stack: IO[str]
) -> None:
    """The child: send the findings. inherited: the parent's end of the pipe, to close. stack: for a last traceback."""
    lead_group(os.getppid(), inherited)  # it dies with the parent, and what it starts is killed with it
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # stdout is for answers; the user's code may print
    faulthandler.enable(stack)
    faulthandler.dump_traceback_later(seconds, exit=True, file=stack)
    torch.set_num_threads(1)  # the threads of a parent that has computed do not survive a fork
    use_code(code)
    try:
        for finding in findings_of(question):
            sender.send(finding)
    except Exception as raised:  # noqa: BLE001 - whatever the user's code raises is the finding
        error = as_unsupported(raised, question.config, code)
        wrong = Finding(what="works", found=error_words(error, question, code), kind="wrong")
        sender.send(cannot("works", error) if is_lmsweeps(error) else wrong)
    faulthandler.cancel_dump_traceback_later()


def findings_of(question: Question) -> Iterator[Finding]:
    """Yield the findings about one reference; of a workload of the user's, none about graphs and memory, which its own
    function decides. Raises what its code raises if no trial with it could succeed."""
    if not question.reference.startswith(HUGGING_FACE):
        began = time.monotonic()
        load(question.reference)
        yield Finding(what="imports", found=f"in {time.monotonic() - began:.1f} s")
    yield from CHECKS[question.field](question)
    if question.field == "workload":
        return
    yield _compiled_ahead(question.config)
    yield _prediction(question)


def _compiled_ahead(config: TrialConfig) -> Finding:
    """Return whether other processes may compile a trial's graph (torch.compile) before it begins. They import no code
    of the user, so if the graph contains it, each trial compiles its own."""
    if not imports_users_code(config):
        return Finding(what="compiled ahead", found="as without your code, which is in no compiled graph")
    reason = "only a trial's own process imports your code, so each trial compiles its graph itself"
    return Finding(what="compiled ahead", found=reason, kind="cannot")


def _prediction(question: Question) -> Finding:
    subject = subject_of(Trial(config=question.config, workloads=question.workloads, sweep="check"))
    if subject is None:
        reason = "a workload without a step is not predicted; its trials run without knowing whether they fit"
        return Finding(what="predicted memory", found=reason, kind="cannot")
    try:
        return Finding(what="predicted memory", found=gib(predict(question.config, subject).peak))
    except (UnpredictableError, UnsupportedError) as error:
        return Finding(what="predicted memory", found=str(error), kind="cannot")
    except Exception as error:  # noqa: BLE001 - running it on the device may succeed
        finding = cannot("predicted memory", error)
        # An assertion of the user's about shapes or state fails in the trial too. Others may be about the device.
        is_wrong = isinstance(error, AssertionError) and question.config.device_type == "cpu" and not is_lmsweeps(error)
        words = f"on tensors without values: {finding.found}"
        return replace(finding, found=words, kind="wrong" if is_wrong else finding.kind)


CHECKS: dict[str, Callable[[Question], Iterator[Finding]]] = {
    "model_code": check_model,
    "attention": check_attention,
    "optimizer": check_optimizer,
    "loss": check_loss,
    "ddp": check_in_ranks,
    "step": check_step,
    "workload": lambda _: iter(()),
}
"""Field -> the check that follows the import of its reference."""


if __name__ == "__main__":
    main()
