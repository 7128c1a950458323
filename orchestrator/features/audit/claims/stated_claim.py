"""A claim: what somebody says that a training run is, and the numbers that they give for it."""

import re
from contextlib import suppress
from dataclasses import dataclass

from lmsweep.orchestrator.cluster.planned_nodes import USUAL_GPUS
from lmsweep.orchestrator.features.audit.claims.models import Model, model_meant
from lmsweep.orchestrator.planning.memory_budget import counted, devices_meant
from lmsweep.trials.analytic.datasheets import Device, device_named, find_device
from lmsweep.trials.spec.errors import RequestError
from lmsweep.trials.spec.suggestions import choices

METHODS = ("full", "lora", "dora", "qlora", "frozen")
CONVENTIONS = ("6n", "full", "causal", "hardware")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim. What is None is not stated."""

    name: str | None = None
    """Where the claim is from, for the reader: a line of a table, a log."""
    model: str | None = None
    gpus: str | None = None
    """`8xH100`, or the name that the driver reports."""
    nodes: int | None = None
    context: int | None = None
    batch: int | None = None
    """Sequences of a GPU in a micro-batch."""
    accumulate: int | None = None
    global_batch: int | None = None
    """Sequences of a step on all GPUs."""
    precision: str | None = None
    attention: str | None = None
    compile: str | None = None
    checkpointing: str | None = None
    method: str | None = None
    offload: str | None = None
    parallel: str | None = None
    """How GPUs share the model: fsdp, ddp, zero1, zero2, zero3."""
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    ep: int | None = None
    length: float | None = None
    """Mean tokens of a sequence that are no padding."""
    convention: str | None = None
    """How its MFU counts attention: 6n (not at all), full, causal, hardware (with what is computed again)."""
    peak: float | None = None
    """FLOP/s of a GPU by which its MFU divides."""
    tokens_per_second: float | None = None
    """Of all GPUs."""
    tokens_per_second_per_gpu: float | None = None
    samples_per_second: float | None = None
    step_seconds: float | None = None
    tokens_per_step: float | None = None
    """Of all GPUs."""
    tflops: float | None = None
    """FLOP/s of a GPU, as the claim counts them."""
    mfu: float | None = None
    """As a share of the peak."""
    hfu: float | None = None
    """The same with what is computed again."""

    def __post_init__(self) -> None:
        for name in ("nodes", "context", "batch", "accumulate", "global_batch", "tp", "pp", "cp", "ep"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RequestError(f"--{name.replace('_', '-')} is {value}; it must be at least 1")
        for name in NUMBERS:
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e18:  # so large that products of two are numbers, too
                raise RequestError(f"{name.replace('_', ' ')} is {value:g}; it must be a number above 0")
        for name, words in (("method", METHODS), ("convention", CONVENTIONS)):
            if (word := getattr(self, name)) and word not in words:
                raise RequestError(f"--{name} {word}: no such {name}{choices(word, words)}")

    @property
    def device(self) -> Device:
        return devices_of(self.gpus or "")[1]

    @property
    def count(self) -> int:
        return devices_of(self.gpus or "")[0]

    @property
    def words(self) -> str | None:
        """Return what it is a claim of, as it was read: `llama-3.1-8b on 8 H100 SXM, 8,192 tokens of context`."""
        model = self.shape.name if self.model else None
        gpus = f"{self.count} {self.device.name}" if self.gpus else None
        context = f"{self.context:,} tokens of context" if self.context else None
        return ", ".join(filter(None, [" on ".join(filter(None, [model, gpus])), context])) or None

    @property
    def shape(self) -> Model:
        return model_meant(self.model) if self.model else NO_MODEL

    def check_names(self) -> None:
        """Raise RequestError if its model or its GPU is unknown."""
        if self.model:
            model_meant(self.model)
        if self.gpus:
            devices_of(self.gpus)

    @property
    def node_gpus(self) -> int:
        return self.count // self.nodes if self.nodes else min(self.count, USUAL_GPUS)

    @property
    def data_ranks(self) -> int:
        """Return how many groups of GPUs have different data. Ranks that share experts (ep) have different data."""
        return max(1, self.count // ((self.tp or 1) * (self.pp or 1) * (self.cp or 1)))

    @property
    def is_split(self) -> bool:
        """Return whether ranks share layers, sequences or experts, which is not predicted."""
        return max(self.tp or 1, self.pp or 1, self.cp or 1, self.ep or 1) > 1

    @property
    def is_selective(self) -> bool:
        """Return whether checkpointing computes only some operators again."""
        return (self.checkpointing or "").lower().startswith("selective")

    @property
    def counts_by(self) -> str | None:
        """Return the convention by which it counts FLOPs, if it says which: an HFU counts what is computed again."""
        return self.convention or ("hardware" if self.hfu and not self.mfu else None)

    @property
    def micro_batches(self) -> int:
        """Return the micro-batches of a step, 1 if nothing says."""
        if self.accumulate is None and self.global_batch and self.batch:
            return max(1, round(self.global_batch / (self.batch * self.data_ranks)))
        return self.accumulate or 1

    @property
    def step_tokens(self) -> float | None:
        """Return the tokens of a step on all GPUs, as the claim states them."""
        if self.tokens_per_step:
            return self.tokens_per_step
        if not self.context or not self.gpus:
            return None
        if self.global_batch:
            return float(self.global_batch * self.context)
        return float(self.batch * self.micro_batches * self.data_ranks * self.context) if self.batch else None

    def missing(self) -> list[str]:
        """Return the options without which no verdict is possible: model, GPUs, a number, the context, and the tokens
        of a step if only its time is stated."""
        states_rate = self.tokens_per_second or self.tokens_per_second_per_gpu
        states_tokens = states_rate or self.samples_per_second
        states_flops = self.mfu or self.hfu or self.tflops
        # Without the model, a rate of tokens and a step time can still contradict each other.
        can_contradict = states_tokens and self.step_seconds and self.step_tokens and not states_flops
        needed = []
        if self.model is None and not can_contradict:
            needed.append("model")
        if self.gpus is None:
            needed.append("gpus")
        if not (states_tokens or states_flops or self.step_seconds):
            needed.append("tokens/s (or --step-time, --mfu, --tflops)")
        elif self.gpus and self.step_tokens is None and not (states_tokens or states_flops):
            needed.append("batch (the tokens of a step)")
        if self.context is None and not states_rate:  # a rate of samples, FLOPs or a time imply no tokens without it
            needed.append("context")
        return needed


NO_MODEL = Model(name="the model, which is not stated,", parameters=1)  # numbers alone are compared: any model does
NUMBERS = ("tokens_per_second", "tokens_per_second_per_gpu", "samples_per_second", "step_seconds", "tokens_per_step",
           "tflops", "mfu", "hfu")  # fmt: skip
"""Fields that state how fast a run is, or the size of its step."""


def devices_of(text: str) -> tuple[int, Device]:
    """Return number and kind of the GPUs that a text means: `8xH100`, `A100-SXM4-80GB`. Raises RequestError."""
    if text.strip().isdecimal():
        raise RequestError(f"--gpus {text}: what GPU? Write {text.strip()}xH100")
    count, name = counted(text)
    if device := find_device(name) or device_named(name):
        return count, device
    # Names of drivers and clouds: without the vendor, `SXM4` as `SXM`, `80 GiB` as `80GB`.
    plain = re.sub(r"[-_]", " ", name)
    for pattern, instead in (
        (r"\(.*\)|\b(NVIDIA|AMD|Tesla|GeForce|DGX)\b", " "),
        (r"SXM\d", "SXM"),
        (r"\b(\d+) ?G(i?B)?\b", r"\1GB"),
    ):
        plain = re.sub(pattern, instead, plain, flags=re.IGNORECASE)
    without_memory = re.sub(r"\b\d+GB\b|\bHBM\w*", " ", plain)
    for words in (plain, without_memory):
        with suppress(RequestError):
            return count, devices_meant(" ".join(words.split()), "--gpus")[0]
    return count, devices_meant(name, "--gpus")[0]  # raises with the name as it was given
