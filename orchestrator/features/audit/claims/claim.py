"""A claim: what somebody says that a training run is, and the numbers that they give for it."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

from lmsweep.orchestrator.cluster.planned_nodes import USUAL_GPUS
from lmsweep.orchestrator.features.audit.claims.models import Model, model_named
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
    """What it is a claim of, for the reader: a line of a table, a log."""
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

    def __post_init__(self) -> None:
        for name in ("nodes", "context", "batch", "accumulate", "global_batch", "tp", "pp", "cp", "ep"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RequestError(f"--{name.replace('_', '-')} is {value}; it must be at least 1")
        for name in NUMBERS:
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e18:
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
    def shape(self) -> Model:
        return model_named(self.model) if self.model else NO_MODEL

    @property
    def node_gpus(self) -> int:
        """Return the GPUs of a node."""
        return self.count // self.nodes if self.nodes else min(self.count, USUAL_GPUS)

    @property
    def data_ranks(self) -> int:
        """Return the GPUs that have data of their own."""
        return max(1, self.count // ((self.tp or 1) * (self.pp or 1) * (self.cp or 1)))

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
        """Return the options without which nothing can be said."""
        needed = [name for name in ("model", "gpus") if getattr(self, name) is None]
        if self.has_rate and self.step_seconds and self.step_tokens and not (self.mfu or self.tflops or self.hfu):
            needed = needed[self.model is None :]  # its numbers can contradict each other
        if all(getattr(self, name) is None for name in NUMBERS if name != "tokens_per_step"):
            needed.append("tokens/s (or --step-time, --mfu, --tflops)")
        elif self.gpus and self.step_seconds and self.step_tokens is None and not self.has_rate:
            needed.append("batch (the tokens of a step)")
        if self.context is None and self.tokens_per_second is None and self.tokens_per_second_per_gpu is None:
            needed.append("context")
        return needed

    @property
    def has_rate(self) -> bool:
        return any((self.tokens_per_second, self.tokens_per_second_per_gpu, self.samples_per_second, self.mfu,
                    self.tflops, self.hfu))  # fmt: skip


NO_MODEL = Model(name="the model, which is not stated,", parameters=1)
NUMBERS = ("tokens_per_second", "tokens_per_second_per_gpu", "samples_per_second", "step_seconds", "tokens_per_step",
           "tflops", "mfu", "hfu")  # fmt: skip
"""What a claim may be of."""
_COUNTS = {one.name for one in fields(Claim) if one.type == "int | None" or one.type == int | None}
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12, "p": 1e15}
_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}
COLUMNS: dict[str, str] = {
    **{one.name: one.name for one in fields(Claim)},
    **dict.fromkeys(("tokens/s", "tok/s", "tokens/sec", "throughput", "throughput_total"), "tokens_per_second"),
    **dict.fromkeys(
        ("tokens/s/gpu", "tok/s/gpu", "tokens/sec/gpu", "throughput_per_gpu", "tgs", "tps"), "tokens_per_second_per_gpu"
    ),
    **dict.fromkeys(("samples/s", "samples/sec", "sequences/s", "train_samples_per_second"), "samples_per_second"),
    **dict.fromkeys(("step_time", "s/step", "seconds/step", "iteration_time", "s/it", "ms/step"), "step_seconds"),
    **dict.fromkeys(("tflop/s", "tflops/gpu", "tflop/s/gpu", "model_rate_per_gpu"), "tflops"),
    **dict.fromkeys(("gpu", "device", "hardware"), "gpus"),
    **dict.fromkeys(("seq_len", "sequence_length", "context_length", "seqlen", "max_seq_length"), "context"),
    **dict.fromkeys(("micro_batch", "micro_batch_size", "batch_size", "per_device_train_batch_size"), "batch"),
    **dict.fromkeys(("gradient_accumulation_steps", "grad_accum"), "accumulate"),
    **dict.fromkeys(("gbs", "global_batch_size"), "global_batch"),
    **dict.fromkeys(("dtype", "mixed_precision"), "precision"),
    **dict.fromkeys(("source", "claim", "row", "what"), "name"),
    "tokens/step": "tokens_per_step",
    "activation_checkpointing": "checkpointing",
    "parallelism": "parallel",
    "peak_flops": "peak",
}
"""Column of a table, in small letters with `_` for a space -> the field. `n_gpus` multiplies the GPUs."""


def claim_of(texts: Mapping[str, str | None], where: str = "") -> Claim:
    """Return the claim that named texts make: options of the command, or columns of a table. Raises RequestError."""
    values: dict[str, Any] = {}
    number = ""
    for title, text in texts.items():
        key = re.sub(r"\s+", "_", title.strip().lower())
        if text is None or not text.strip():
            continue
        if key in ("n_gpus", "num_gpus", "gpu_count"):
            number = text.strip()
        elif key not in COLUMNS:
            raise RequestError(f"{where}no claim has a column {title}{choices(key, COLUMNS)}")
        else:
            values[COLUMNS[key]] = _value(COLUMNS[key], text.strip(), key, where)
    if number and "gpus" in values and counted(values["gpus"])[0] == 1:
        values["gpus"] = f"{number}x{values['gpus']}"
    return Claim(**values)


def _value(name: str, text: str, key: str, where: str) -> Any:
    if name in _COUNTS:
        amount = _number(text, where, key)
        if amount != int(amount):
            raise RequestError(f"{where}{key} {text}: write a whole number")
        return int(amount)
    if name == "step_seconds":
        found = re.fullmatch(r"([\d.,eE+-]+)\s*([a-zµ]*)", text)
        unit = "ms" if key == "ms/step" else found[2].replace("µ", "u") if found else ""
        if not found or unit not in _SECONDS:
            raise RequestError(f"{where}{key} {text}: write a time, such as 1.2s or 350ms")
        return _number(found[1], where, key) * _SECONDS[unit]
    if name in ("mfu", "hfu"):
        amount = _number(text.rstrip("% "), where, key)
        return amount / 100 if "%" in text or amount > 1.5 else amount
    if name == "tflops":
        return _number(text.lower().removesuffix("flop/s").removesuffix("t"), where, key) * 1e12
    if name == "peak":
        amount = _number(text.lower().removesuffix("flop/s"), where, key)
        return amount * 1e12 if amount < 1e6 else amount
    if name in NUMBERS or name == "length":
        return _number(text, where, key)
    return text.lower() if name in ("precision", "attention", "method", "convention", "parallel") else text


def _number(text: str, where: str, key: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)\s*([kmbgtp]?)", text.replace(",", "").strip().lower())
    if not found:
        raise RequestError(f"{where}{key} {text}: write a number, such as 58000 or 58k")
    return float(found[1]) * _SCALES[found[2]]


def devices_of(text: str) -> tuple[int, Device]:
    """Return how many GPUs of which kind a text means: `8xH100`, `A100-SXM4-80GB`, `NVIDIA H100 80GB HBM3`. Raises
    RequestError."""
    count, name = counted(text)
    if found := find_device(name) or device_named(name):
        return count, found
    plain = re.sub(r"\(.*\)|\b(NVIDIA|AMD|Tesla|GeForce|DGX)\b", " ", re.sub(r"[-_]", " ", name), flags=re.IGNORECASE)
    plain = re.sub(
        r"\b(\d+) ?G(i?B)?\b", r"\1GB", re.sub(r"SXM\d", "SXM", plain, flags=re.IGNORECASE), flags=re.IGNORECASE
    )
    for words in (plain, re.sub(r"\b\d+GB\b|\bHBM\w*", " ", plain)):
        with suppress(RequestError):
            return count, devices_meant(" ".join(words.split()), "--gpus")[0]
    return count, devices_meant(name, "--gpus")[0]
