"""Reads a claim from texts: options of the command, or columns of a table."""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from lmsweep.orchestrator.features.audit.claims.stated_claim import NUMBERS, Claim
from lmsweep.orchestrator.planning.memory_budget import counted
from lmsweep.trials.spec.errors import RequestError
from lmsweep.trials.spec.quantities import context_of
from lmsweep.trials.spec.suggestions import choices

MOST_SHARE = 1.5
"""An MFU above it is in per cent, even without the sign. A share a little above 1 is wrong, but may be claimed."""
_COUNTS = {one.name for one in fields(Claim) if one.type == int | None}
"""Fields that are whole numbers."""
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12, "p": 1e15}
_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}
_ALIASES = {
    "tokens_per_second": "tokens/s tok/s tokens/sec throughput throughput_total",
    "tokens_per_second_per_gpu": "tokens/s/gpu tok/s/gpu tokens/sec/gpu throughput_per_gpu tgs tps",
    "samples_per_second": "samples/s samples/sec sequences/s train_samples_per_second",
    "step_seconds": "step_time s/step seconds/step iteration_time s/it ms/step",
    "tokens_per_step": "tokens/step",
    "tflops": "tflop/s tflops/gpu tflop/s/gpu model_rate_per_gpu",
    "gpus": "gpu device hardware",
    "context": "seq_len sequence_length context_length seqlen max_seq_length",
    "batch": "micro_batch micro_batch_size batch_size per_device_train_batch_size",
    "accumulate": "gradient_accumulation_steps grad_accum",
    "global_batch": "gbs global_batch_size",
    "precision": "dtype mixed_precision",
    "checkpointing": "activation_checkpointing",
    "parallel": "parallelism",
    "peak": "peak_flops",
    "name": "source claim row what",
}
COLUMNS = {one.name: one.name for one in fields(Claim)} | {
    alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()
}
"""Column of a table, in small letters with `_` for a space or a hyphen -> the field of Claim."""


def claim_of(texts: Mapping[str, str | None], where: str = "") -> Claim:
    """Return the claim of these texts, by option of the command or by column of a table. Raises RequestError. where:
    file and line, for messages."""
    values: dict[str, Any] = {}
    number = ""  # of GPUs, in a column beside their kind
    for title, text in texts.items():
        key = re.sub(r"[\s-]+", "_", title.strip().lower())
        if text is None or not text.strip():
            continue
        if key in ("n_gpus", "num_gpus", "gpu_count"):
            number = text.strip()
        elif key not in COLUMNS:
            raise RequestError(f"{where}no claim has a column {title or 'without a name'}{choices(key, COLUMNS)}")
        else:
            values[COLUMNS[key]] = _value(COLUMNS[key], text.strip(), key, where)
    if number and "gpus" in values:
        count, _ = counted(values["gpus"])
        if count == 1:  # `8xH100` says its number itself
            values["gpus"] = f"{number}x{values['gpus']}"
    return Claim(**values)


def _value(name: str, text: str, key: str, where: str) -> Any:
    """Return the value of the field `name`, in the units of Claim. key: the column, which may name a unit."""
    if name == "context":
        if (tokens := context_of(text)) is None:
            raise RequestError(f"{where}{key} {text}: write the tokens of a sequence, such as 8192 or 8k")
        return tokens
    if name in _COUNTS:
        amount = _number(text, where, key)
        if amount != int(amount):
            raise RequestError(f"{where}{key} {text}: write a whole number")
        return int(amount)
    if name == "step_seconds":
        time = re.fullmatch(r"([\d.,eE+-]+)\s*([a-zµ]*)", text)
        unit = "ms" if key == "ms/step" else time[2].replace("µ", "u") if time else ""
        if not time or unit not in _SECONDS:
            raise RequestError(f"{where}{key} {text}: write a time, such as 1.2s or 350ms")
        return _number(time[1], where, key) * _SECONDS[unit]
    if name in ("mfu", "hfu"):
        amount = _number(text.rstrip("% "), where, key)
        return amount / 100 if "%" in text or amount > MOST_SHARE else amount
    if name == "tflops":
        return _number(text.lower().removesuffix("flop/s").removesuffix("t"), where, key) * 1e12
    if name == "peak":
        amount = _number(text.lower().removesuffix("flop/s"), where, key)
        return amount * 1e12 if amount < 1e6 else amount  # a small number is in TFLOP/s
    if name in NUMBERS or name == "length":
        return _number(text, where, key)
    return text.lower() if name in ("precision", "attention", "method", "convention", "parallel") else text


def _number(text: str, where: str, key: str) -> float:
    number = re.fullmatch(r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)\s*([kmbgtp]?)", text.replace(",", "").strip().lower())
    if not number:
        raise RequestError(f"{where}{key} {text}: write a number, such as 58000 or 58k")
    return float(number[1]) * _SCALES[number[2]]
