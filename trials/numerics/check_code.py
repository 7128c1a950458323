"""The program behind `lmsweep check`: does the user's code import, build and compute what it should?

``python -m lmsweep.trials.numerics.check_code PID`` reads a request from standard input, as JSON: the code folder, the
questions, and the seconds that one may take. It prints one line for each question: its index and the findings, as JSON.
Nothing is measured. Each question has a process of its own, so that code which hangs or crashes ends only its own
answer. The program exits when its parent, the process PID, does.
"""

import faulthandler
import inspect
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from multiprocessing.connection import Connection
from typing import IO, cast

import torch
import torch.distributed
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from lmsweep.trials.analytic.memory_prediction import subject_of
from lmsweep.trials.code.calling import arguments_of, call
from lmsweep.trials.code.finding import Finding, Question
from lmsweep.trials.code.importing import code_in_use, load, use_code
from lmsweep.trials.code.source import is_users_file, line_of
from lmsweep.trials.code.traceback_text import user_line
from lmsweep.trials.isolation.precompile import imports_own_code
from lmsweep.trials.machine.processes import die_with_parent, kill_group, lead_own_group
from lmsweep.trials.model.loss import loss_for
from lmsweep.trials.model.optimizer import LEARNING_RATE, make_optimizer
from lmsweep.trials.model.own_model import blocks_of, build_own_model, check_devices, logits_of
from lmsweep.trials.numerics.attention_error import compare_attention
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.trial_graph import UnpredictableError
from lmsweep.trials.spec.config import RequestError, Trial, TrialConfig, UnsupportedError
from lmsweep.trials.spec.quantities import gib
from lmsweep.trials.spec.reference import HUGGING_FACE, Code

GRACE = 5.0
"""Seconds after the time limit in which a process writes down where it is."""

SMALL_TOKENS = 128
"""Most tokens of an input that is computed on the CPU."""

SMALL_PARAMETERS = 50_000_000
"""Most parameters of a model that is also run on the CPU: 200 MB of weights."""

SHARDED = ("optimizer_cls", "optimizer_class")
"""A parameter of such a name makes an optimizer one whose state is sharded over the ranks."""


def main() -> None:
    """Answer the request on standard input."""
    die_with_parent(int(sys.argv[1]))
    request = json.load(sys.stdin)
    code = Code(**(request["code"] | {"trusted": tuple(request["code"]["trusted"])}))
    for index, asked in enumerate(request["questions"]):
        findings = answer(Question.from_json(asked), code, request["seconds"])
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
        try:
            while receiver.poll(max(0.0, began + seconds + GRACE - time.monotonic())):
                findings.append(receiver.recv())
        except EOFError:
            child.join(GRACE)
        assert child.pid is not None, "it was started"
        kill_group(child.pid)
        child.join()
        stack.seek(0)
        if child.exitcode != 0:
            took = time.monotonic() - began
            findings.append(_unfinished(stack.read(), child.exitcode, code, seconds if took >= seconds else None))
    return findings


def _unfinished(stack: str, exit_code: int | None, code: Code, limit: float | None) -> Finding:
    """Return how a process ended that did not answer; `limit` is the time limit in seconds if that ended it."""
    frames = re.findall(r'File "(.+)", line (\d+) in (.+)', stack)
    place = next(
        (f"{os.path.relpath(file, code.folder)}:{line}: " for file, line, _ in frames if is_users_file(file, code)), ""
    )
    if limit is not None:
        return Finding(what="ends", found=f"{place}still running after {limit:g} s", kind="wrong")
    how = f"signal {signal.Signals(-exit_code).name}" if exit_code and exit_code < 0 else f"exit code {exit_code}"
    return Finding(what="ends", found=f"{place}the process ended with {how}", kind="wrong")


def _examine(
    question: Question, code: Code, seconds: float, sender: Connection, inherited: int, stack: IO[str]
) -> None:
    """Send the findings about one reference, in a process of its own."""
    lead_own_group(os.getppid(), inherited)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the user's code prints is no answer
    faulthandler.enable(stack)
    faulthandler.dump_traceback_later(seconds, exit=True, file=stack)
    torch.set_num_threads(1)  # the threads of a parent that has computed do not survive a fork
    use_code(code)
    try:
        for finding in _findings(question):
            sender.send(finding)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises is the finding
        sender.send(Finding(what="works", found=_words(error, question, code), kind="wrong"))
    faulthandler.cancel_dump_traceback_later()


def _findings(question: Question) -> Iterator[Finding]:
    if not question.reference.startswith(HUGGING_FACE):
        began = time.monotonic()
        load(question.reference)
        yield Finding(what="imports", found=f"in {time.monotonic() - began:.1f} s")
    yield from CHECKS[question.field](question)
    yield _compiled_ahead(question.config)
    yield _prediction(question)


def _check_model(question: Question) -> Iterator[Finding]:
    config = question.config
    try:
        model = build_own_model(config, device="meta", dtype=torch.float32)
    except Exception as error:
        if not _is_about_meta(error):
            raise
        yield _cannot("on meta tensors", error, question)
        return
    count = sum(parameter.numel() for parameter in model.parameters())
    yield Finding(what="parameters", found=f"{count:,}")
    yield _layers(model, config.blocks)
    shape = (config.batch_size, config.context_length)
    tokens = torch.zeros(shape, dtype=torch.long, device="meta")
    try:
        with FlopCounterMode(display=False) as counter:
            logits = logits_of(model(tokens), shape, question.reference)
    except Exception as error:
        if config.device_type == "cpu" and not _is_about_meta(error):  # a kernel for CUDA need not know meta tensors
            raise
        yield _cannot("forward on meta tensors", error, question)
    else:
        flops = counter.get_total_flops()
        yield Finding(what="logits", found=f"{tuple(logits.shape)}")
        yield Finding(what="FLOPs of forward", found=f"{flops / 1e9:.4g} GFLOP, by torch.utils.flop_counter")
    if count <= SMALL_PARAMETERS:
        yield _forward_here(question)
    else:
        yield Finding(what="forward on this CPU", found="not tried: too large", kind="cannot")


def _is_about_meta(error: Exception) -> bool:
    """Whether an error says that meta tensors, which have no values, cannot do what real ones may."""
    return "meta" in str(error).lower()


def _layers(model: nn.Module, path: str | None) -> Finding:
    blocks = blocks_of(model, path)
    if not blocks:
        advice = "no list of equal layers; name it by blocks, for compile: block and checkpointing"
        return Finding(what="repeated layers", found=advice, kind="cannot")
    place = next((name for name, module in model.named_modules() if [*module.children()] == blocks), path or "?")
    return Finding(what="repeated layers", found=f"{len(blocks)} x {type(blocks[0]).__name__} at {place}")


def _forward_here(question: Question) -> Finding:
    """Run the model once on the CPU: its values and devices, which meta tensors do not tell."""
    config = question.config
    model = build_own_model(config, device="cpu", dtype=torch.float32)
    shape = (1, min(config.context_length, SMALL_TOKENS))
    try:
        logits = logits_of(model(torch.randint(config.vocab_size, shape)), shape, question.reference)
    except Exception as error:
        if config.device_type == "cpu":
            raise
        return _cannot("forward on this CPU", error, question)
    check_devices(model, "cpu", question.reference)
    if not logits.isfinite().all():
        return Finding(what="forward on this CPU", found="its logits are not finite", kind="wrong")
    return Finding(what="forward on this CPU", found=f"finite logits {tuple(logits.shape)}")


def _compiled_ahead(config: TrialConfig) -> Finding:
    """Whether graphs are compiled side by side before the trials run."""
    if not imports_own_code(config):
        return Finding(what="compiled ahead", found="as without your code, which is in no compiled graph")
    reason = "no: only a trial's own process imports your code, so each trial compiles its graph itself"
    return Finding(what="compiled ahead", found=reason, kind="cannot")


def _prediction(question: Question) -> Finding:
    subject = subject_of(Trial(config=question.config, workloads=question.workloads, sweep="check"))
    if subject is None:
        words = "a step, an attention or a wrapper of your own is not predicted"
        reason = f"no: {words}; its trials run without knowing whether they fit"
        return Finding(what="predicted memory", found=reason, kind="cannot")
    try:
        return Finding(what="predicted memory", found=gib(predict(question.config, subject).peak))
    except (UnpredictableError, UnsupportedError) as error:
        return Finding(what="predicted memory", found=str(error), kind="cannot")
    except Exception as error:  # noqa: BLE001 - running it on the device may succeed
        return _cannot("predicted memory", error, question)


def _check_attention(question: Question) -> Iterator[Finding]:
    config = question.config
    small = replace(config, device="cpu", context_length=min(config.context_length, SMALL_TOKENS))
    gradients = "attention" in question.workloads or config.mode != "forward"
    try:
        errors = list(compare_attention(small, torch.float32, gradients=gradients))
    except (RequestError, UnsupportedError):
        raise
    except Exception as error:
        if config.device_type == "cpu":
            raise
        yield _cannot("against float64", error, question)
        return
    for one in errors:
        limit = f", but rounding to float32 explains at most {one.tolerance:.1e}" if one.disagrees else ""
        yield Finding(
            what=f"relative error of {one.of}",
            found=f"{one.error:.1e}{limit}",
            kind="wrong" if one.disagrees else "fine",
        )


def _check_optimizer(question: Question) -> Iterator[Finding]:
    config, model = question.config, nn.Linear(8, 8)
    before = model.weight.detach().clone()
    function = cast(Callable[..., torch.optim.Optimizer], load(config.optimizer))
    if inner := next((name for name in inspect.signature(function).parameters if name in SHARDED), None):
        _join_group_of_one()
        offered = {inner: torch.optim.AdamW, "lr": LEARNING_RATE}
        own = call(
            partial(function, model.parameters()), offered, arguments_of(config.optimizer_args), config.optimizer
        )
        optimizer = cast(torch.optim.Optimizer, own)
        yield Finding(what="sharded", found=f"it takes {inner}; with one rank it holds all of the state")
    else:
        optimizer = make_optimizer(model, config)
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    if torch.equal(before, model.weight):
        yield Finding(what="one step", found="changed no weight of a linear layer", kind="wrong")
    else:
        yield Finding(what="one step", found="changed the weights of a linear layer")


def _check_loss(question: Question) -> Iterator[Finding]:
    vocabulary = question.config.vocab_size
    targets = torch.randint(vocabulary, (2, 8))
    chosen = loss_for(question.config)
    if chosen.takes_hidden:
        hidden, weight = torch.randn(2, 8, 16, requires_grad=True), torch.randn(vocabulary, 16)
        loss = chosen.function(hidden, weight, targets)
    else:
        loss = chosen.function(torch.randn(2, 8, vocabulary, requires_grad=True), targets)
    if not isinstance(loss, Tensor) or loss.dim() or not loss.isfinite():
        yield Finding(what="value", found=f"{loss}; a loss is a finite scalar tensor", kind="wrong")
        return
    loss.backward()
    yield Finding(what="value", found=f"{loss.item():.3g} for random logits of {vocabulary} tokens, with a gradient")


def _join_group_of_one() -> None:
    """Make this process the only rank of a group, which ends with the process."""
    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)


def _check_wrapper(question: Question) -> Iterator[Finding]:
    _join_group_of_one()
    config, function = question.config, cast(Callable[..., nn.Module], load(question.config.ddp))
    wrap = partial(function, nn.Linear(8, 8))
    wrapped = cast(nn.Module, call(wrap, {"bucket_size_mb": 25.0}, arguments_of(config.ddp_args), config.ddp))
    wrapped(torch.ones(2, 8)).sum().backward()
    finish = getattr(wrapped, "finish_gradient_synchronization", None)
    if finish is not None:
        finish()
    yield Finding(what="one rank", found="forward and backward of a linear layer, wrapped")
    words = "is called after backward" if finish else "it has none: gradients must be equal when backward ends"
    yield Finding(what="finish_gradient_synchronization", found=words)


def _only_imports(question: Question) -> Iterator[Finding]:
    return iter(())


CHECKS: dict[str, Callable[[Question], Iterator[Finding]]] = {
    "model_code": _check_model,
    "attention": _check_attention,
    "optimizer": _check_optimizer,
    "loss": _check_loss,
    "ddp": _check_wrapper,
    "step": _only_imports,
}
"""Field -> what is looked at after its reference has been imported."""


def _cannot(what: str, error: Exception, question: Question) -> Finding:
    return Finding(what=what, found=_words(error, question, code_in_use()), kind="cannot")


def _words(error: BaseException, question: Question, code: Code) -> str:
    """Return the error with the user's file and line first: where it was raised, else what the reference names."""
    said = str(error).strip() or "no message"
    if re.match(r"[^\s:]+\.py:\d+: ", said):
        return said
    cause: BaseException | None = error
    while cause is not None:
        if line := user_line(cause, code):
            return line
        cause = cause.__cause__
    kind = "" if isinstance(error, RequestError | UnsupportedError) else f"{type(error).__name__}: "
    if question.reference.startswith(HUGGING_FACE):
        return f"{kind}{said}"
    if kind and not isinstance(error, ValueError | TypeError):
        traceback.print_exception(error)
    place = line_of(question.reference, code)
    return f"{place}: {kind}{said}" if place else f"{kind}{said}"


if __name__ == "__main__":
    main()
