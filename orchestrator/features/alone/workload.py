"""The records of the workloads `attention` and `loss`, and which combinations no machine runs in them."""

from collections.abc import Iterator

from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.rules.step_rules import of_attention, of_loss
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS
from lmsweep.trials.spec.workloads import STEPS, Workload


def of_attention_alone(c: TrialConfig, _: Workload) -> Iterator[str]:
    if c.compilation.each_block:
        yield "attention alone has no block to compile; compile: model compiles the attention"
    if c.precision in FLOAT8_PRECISIONS:
        yield "attention alone has no linear layers, which are what float8 is for; use bf16"
    if PRECISIONS[c.precision].weights != "float32":
        yield "attention alone has no weights; with precision: bf16 its tensors are bfloat16"
    if c.cold_l2 and c.device_type != "cuda":
        yield "cold_l2 needs device: cuda; the caches of other devices cannot be emptied"


def of_loss_alone(c: TrialConfig, _: Workload) -> Iterator[str]:
    if c.compile != "none":
        yield "the loss alone has no block to compile; loss: compiled compiles the loss"
    if c.precision in FLOAT8_PRECISIONS:
        yield "float8 is for the linear layers of blocks; the head is in bf16"


records = (
    Workload(
        name="attention",
        module=f"{__package__}.attention_alone",
        needs="width",
        protocol=("mode", *STEPS, "cold_l2"),
        holds="attention",
        autocasts=False,
        may_follow=True,
        preloads=True,
        rules=(of_attention, of_attention_alone),
    ),
    Workload(
        name="loss",
        module=f"{__package__}.loss_alone",
        needs="width",
        protocol=STEPS,
        autocasts=False,
        rules=(of_loss, of_loss_alone),
    ),
)
