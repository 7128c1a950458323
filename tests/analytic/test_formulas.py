"""The closed forms against PyTorch's own count of FLOPs, and against the tensors that are really in memory."""

import contextlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from lmsweep import analysis
from lmsweep.trials.analytic import formulas
from lmsweep.trials.analytic.datasheets import find_device, peak_flops
from lmsweep.trials.analytic.formulas import forward_flops, recomputed_flops
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.attention_functions import ATTENTION
from lmsweep.trials.prediction.without_device.cuda_autocast import cuda_autocast
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES
from lmsweep.trials.spec.ways.checkpointings import checkpointing_of
from lmsweep.trials.timing.validity_flags import exceeds_peak, least_forward_flops, least_recomputed_flops
from tests.support.made_up_results import H200, Attempts, config
from tests.support.whole_steps import flops_by_phase

pytestmark = pytest.mark.usefixtures("one_core")

ODD = {"d_model": 48, "d_ff": 80, "num_layers": 3, "num_heads": 4}
ODD |= {"vocab_size": 97, "context_length": 13, "batch_size": 3}
TINY = asdict(SIZES["tiny"]) | {"vocab_size": 10_000, "context_length": 64, "batch_size": 4}


def bytes_kept(step: TrainingStep) -> int:
    """Bytes of the storages that autograd keeps after forward and loss; those of weights and tables do not count."""
    resident = {t.untyped_storage()._cdata for t in [*step.model.parameters(), *step.model.buffers()]}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in resident:
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        step.forward()
    return sum(storage.nbytes() for storage in kept.values())


def test_flops_of_attention_alone_are_what_pytorch_counts() -> None:
    batch_size, heads, context_length, d_head = 3, 4, 32, 16
    q, k, v = (torch.empty(batch_size, heads, context_length, d_head, device="meta").requires_grad_() for _ in "qkv")
    with FlopCounterMode(display=False) as forward:
        output = ATTENTION["naive"](q, k, v)
    with FlopCounterMode(display=False) as backward:
        output.sum().backward()
    shape = {"d_model": heads * d_head, "context_length": context_length, "batch_size": batch_size}
    assert formulas.attention_flops(phase="forward", **shape) == forward.get_total_flops()
    assert formulas.attention_flops(phase="backward", **shape) == backward.get_total_flops()


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_bytes_kept_for_backward_are_exactly_the_closed_form(device: str, autocast: bool) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    for sizes in (ODD, TINY):
        config = TrialConfig(**sizes, precision="bf16" if autocast else "fp32", mode="train_forward", device=device)
        with cuda_autocast() if device == "cpu" else contextlib.nullcontext():
            kept = bytes_kept(TrainingStep(config, MATH_MODES[config.precision]))
        terms = {name: sizes[name] for name in ODD}
        assert kept == formulas.saved_bytes(autocast=autocast, **terms)


SMALL = TrialConfig(
    d_model=16, d_ff=48, num_layers=7, num_heads=2, vocab_size=50, context_length=8, batch_size=2,
    mode="forward_backward",
)  # fmt: skip
SHAPES = [{}, pytest.param({"feed_forward": "gelu", "num_experts": 4, "active_experts": 2}, marks=pytest.mark.slow)]


def flops_of_backward(settings: TrialConfig) -> int:
    return flops_by_phase(TrainingStep(settings, MATH_MODES["fp32"]))[1]


@pytest.mark.parametrize("checkpointing", ["block", "3", "nested", "selective"])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_backward_computes_again_is_what_pytorch_counts(checkpointing: str, shape: dict[str, Any]) -> None:
    settings = replace(SMALL, **shape)
    counted = flops_of_backward(replace(settings, checkpointing=checkpointing)) - flops_of_backward(settings)
    terms = settings.size.terms
    blocks = forward_flops(**terms, vocab_size=0, context_length=8, batch_size=2)
    again = checkpointing_of(checkpointing).recomputed(7)
    assert counted == recomputed_flops(again, terms, block=blocks / 7, tokens=16, compiled=0)


def test_hfu_counts_what_is_computed_again_and_mfu_does_not(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "results")
    times = {"forward.time": (0.1,), "backward.time": (0.2,), "step.time": (0.3,)}
    for checkpointing in ("none", "block"):
        attempts.ok(config(device="cuda", mode="forward_backward", checkpointing=checkpointing), times)
    frame = analysis.load(attempts.store).set_index(["checkpointing", "phase"])
    plain, checkpointed = frame.loc["none"], frame.loc["block"]
    assert (plain["hfu"] == plain["mfu"]).all() and (checkpointed["mfu"] == plain["mfu"]).all()
    assert checkpointed.loc["forward", "hfu"] == plain.loc["forward", "mfu"]
    # Backward is twice forward; one more forward of the blocks, less their last products and the head.
    share = checkpointed.loc["backward", "hfu"] / plain.loc["backward", "mfu"]
    assert 1.3 < share < 1.5
    more = checkpointed.loc["step", "hfu"] * 0.3 - plain.loc["step", "hfu"] * 0.3
    assert more == pytest.approx(checkpointed.loc["backward", "hfu"] * 0.2 - plain.loc["backward", "hfu"] * 0.2)


def test_what_is_computed_again_takes_time_too() -> None:
    gpu = find_device(H200.device_name, None)
    big = config("large", device="cuda", precision="bf16", mode="forward_backward", context_length=1024)
    peak = peak_flops(gpu, "bf16")
    needed = 3 * least_forward_flops(big) / peak
    again = replace(big, checkpointing="block")
    assert not exceeds_peak(big, "step", 1.01 * needed, gpu) and exceeds_peak(again, "step", 1.01 * needed, gpu)
    with_both = needed + least_recomputed_flops(again) / peak
    assert not exceeds_peak(again, "step", 1.01 * with_both, gpu)
    assert not exceeds_peak(again, "forward", 1.01 * least_forward_flops(again) / peak, gpu)
