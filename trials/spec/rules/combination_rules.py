"""Which combinations no machine runs: known before anything is built or reserved.

What only PyTorch or the user's code knows is left to the trial.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.rules.device_rules import Capabilities, builds_step, why_not_on
from lmsweep.trials.spec.rules.step_rules import of_adapter, of_attention, of_compilation, of_loss, of_step
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS
from lmsweep.trials.spec.workloads import Workload, workload_named, workloads


def why_not(config: TrialConfig, workload: str) -> str | None:
    """Return the first reason why no machine runs this workload with this configuration; None if some may."""
    record = workload_named(workload)
    if workload == "precision":  # it computes gradients in every mode
        config = replace(config, mode="forward_backward")
    if config.device_type != "cuda":  # GPUs of CUDA differ: only the device that runs it can say
        without_gpu = Capabilities(f"device: {config.device_type}")
        if reason := why_not_on(config, workload, without_gpu):
            return reason
    of_parts = (of_attention, of_compilation, _of_capture, of_step, of_adapter, of_loss)
    of_step_rules = of_parts if builds_step(config, record) else ()
    rules = (_of_one_field, _of_workload, _of_lengths, *record.rules, *of_step_rules)
    return next((reason for rule in rules for reason in rule(config, record)), None)


def _of_one_field(c: TrialConfig, w: Workload) -> Iterator[str]:
    readers = {"ddp": ("reshard", "gather", "shards"), "collectives": ("collective", "message_bytes")}
    for name, fields in readers.items():
        for field in fields:
            if w.name != name and not c.is_default(field):
                yield f"{field} {getattr(c, field)} has no effect in the workload {w.name}; it is for {name}"
    if c.adapter != "none" and (w.needs != "model" or c.step):
        yield f"adapter {c.adapter} has no effect {f'with step {c.step}' if c.step else f'in the workload {w.name}'}"
    for field in ("compile", "compile_mode", "dynamic_shapes", "capture", "model_code", "blocks"):
        if c.step and w.takes_own_step and not c.is_default(field):
            yield f"{field} has no effect with step {c.step}, which brings all of its own code"


def _of_workload(c: TrialConfig, w: Workload) -> Iterator[str]:
    if w.has_ranks and c.device_type not in ("cpu", "cuda"):
        yield (
            f"ranks on {c.device_type} are not measured, because collectives are found by the names that gloo and "
            f"nccl give them; {w.name} runs on cpu and cuda"
        )
    if not w.has_ranks and (c.world_size > 1 or c.ddp != "none"):
        yield f"{w.name} runs in one process; world_size and ddp are for {_names(lambda one: one.has_ranks)}"
    if c.capture != "none" and not w.captures:
        yield f"{w.name} measures no captured step; capture is for {_names(lambda one: one.captures)}"
    if c.accumulate > 1 and not w.accumulates:
        counting = _names(lambda one: one.accumulates)
        yield f"{w.name} looks into a step with one batch; accumulate is for {counting}"
    if c.step and not w.takes_own_step:
        timing = _names(lambda one: one.takes_own_step)
        yield f"{w.name} looks into the model, and of the step {c.step} only its phases are known; {timing} measure it"
    if c.memory_budget is not None and (w.has_ranks or w.holds != "model"):
        budgeted = _names(lambda one: one.holds == "model" and not one.has_ranks)
        yield f"{w.name} does not keep a step within memory_budget; {budgeted} do"
    if c.allocator != "default" and c.device_type != "cuda":
        yield f"allocator {c.allocator} is one of CUDA's allocator, which device {c.device_type} does not have"


def _of_lengths(c: TrialConfig, w: Workload) -> Iterator[str]:
    if c.batching != "token_budget" and c.batch_tokens is not None:
        yield f"batch_tokens {c.batch_tokens} has no effect with batching: {c.batching}; it is for token_budget"
    for name in ("batching", "seed"):
        if c.lengths is None and not c.is_default(name):
            yield f"{name}: {getattr(c, name)} has no effect without lengths, which say how long documents are"
    if c.document_length is not None and c.batching != "packed":
        yield f"lengths {c.lengths} is a mean of packed documents; it needs batching: packed, not {c.batching}"
    if not c.varies:
        return
    if not w.varies:
        yield f"{w.name} measures batches of one shape; lengths are for {_names(lambda one: one.varies)}"
    if c.step:
        yield f"lengths {c.lengths} have no effect with step {c.step}, which brings its own batches"
    if c.tp > 1:
        yield f"tp {c.tp} divides the tokens of rows that are as long as each other; lengths make them differ"
    if w.name == "ddp" and (is_reference(c.ddp) or is_reference(c.optimizer)):
        yield "your own wrapper or optimizer is measured with batches of one shape; lengths make them differ"
    if not c.causal and c.batching != "packed":
        yield "with causal: false, documents attend to their padding; use batching: packed"
    if c.capture != "none":
        yield "capture: step replays one batch; lengths make each step's batch another"
    if c.memory_budget is not None:
        yield "memory_budget is met for batches of one shape; lengths make them differ"
    if c.precision in FLOAT8_PRECISIONS and c.batching != "packed":
        yield f"{c.precision} needs a number of tokens that 16 divides; with lengths, only batching: packed has it"


def _of_capture(c: TrialConfig, w: Workload) -> Iterator[str]:
    if c.capture == "none" or not w.captures:
        return
    if c.device_type != "cuda":
        yield f"capture: step records CUDA graphs, which device {c.device_type} does not have"
    if c.records_cuda_graphs:
        yield f"compile_mode {c.compile_mode} records CUDA graphs of its own; use capture without it"
    if c.accumulate > 1:
        yield "capture: step captures each phase once; with accumulate a phase runs once per micro-batch"
    optimizer = OPTIMIZERS.get(c.optimizer)
    if c.mode == "train_step" and not (optimizer and optimizer.capturable):
        yield f"capture: step needs a capturable optimizer, and {c.optimizer} is none; use AdamW"
    if PRECISIONS[c.precision].scales_gradients and c.mode == "train_step" and not (optimizer and optimizer.is_fused):
        yield (
            f"with precision {c.precision} and optimizer {c.optimizer}, the host waits in each step for the result of "
            "the gradient scaler, which a CUDA graph cannot record; adamw_fused reads it on the device"
        )


def _names(has: Callable[[Workload], object]) -> str:
    return ", ".join(name for name, workload in workloads().items() if has(workload))
