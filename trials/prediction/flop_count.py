"""FLOPs of a step with the user's own model or with adapters, counted without computing anything.

As in the closed forms for lmsweep's own model: matrix products and convolutions, two per multiply-add, attention over
all pairs of positions even with a causal mask, and nothing that is computed again.
"""

from dataclasses import replace

from lmsweep.trials.analytic.rates.operators import Operator, class_of
from lmsweep.trials.code.traceback_text import CodeError
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.spec.config import RequestError, StepFlops, TrialConfig, UnsupportedError


def count_flops(config: TrialConfig) -> StepFlops:
    """Count the FLOPs of the configuration's model. They are unknown if that needs values or custom kernels."""
    has_backward = config.mode in ("forward_backward", "train_step")
    mode = config.mode
    # An optimizer is not counted. adamw_fused may stay: a run of the same step, as for its memory, is cached.
    if mode == "train_step" and config.optimizer != "adamw_fused":
        mode = "forward_backward"
    try:
        operators = step_operators(replace(config, mode=mode, ddp="none", world_size=1, tp=1))
    except (UnsupportedError, RequestError, CodeError) as error:
        return StepFlops(reason=str(error))
    except UnpredictableError as error:
        return StepFlops(reason=f"an operation cannot run without values: {error}")
    except Exception as error:  # noqa: BLE001 - whatever the user's model raises without values is the reason
        said = str(error).strip().splitlines()
        words = f"{type(error).__name__}: {said[0] if said else ''}"
        return StepFlops(reason=f"an operation cannot run without values: {words}")
    custom = {one.name.replace("::", ".") for one in operators if "::" in one.name} - {"lmsweep.dequantize_4bit"}
    if custom:
        return StepFlops(reason=f"FLOPs of the custom operators {', '.join(sorted(custom))} are not declared")
    counts = {
        phase: sum(_flops(one) * one.count for one in operators if one.phase == phase and not one.is_again)
        for phase in ("forward", "backward")
    }
    return StepFlops(forward=counts["forward"], backward=counts["backward"] if has_backward else None)


def _flops(operator: Operator) -> int:
    """Return the FLOPs; of attention over all pairs of positions, though `operator.flops` leaves out those masked."""
    if class_of(operator) != "attention":
        return operator.flops
    query, key, value = operator.shapes[-3:]  # (batch, heads, tokens, width)
    scores = query[0] * query[1] * query[2] * key[2]
    forward = 2 * scores * (query[3] + value[3])  # a multiply-add counts as 2
    return 2 * forward if operator.phase == "backward" else forward
