"""Reads a trainer's log: which trainer wrote it, what it ran, and the numbers of its later steps."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import prod
from statistics import median
from typing import NamedTuple

from lmsweep.trials.spec.errors import RequestError
from lmsweep.trials.spec.model_sizes import DIMENSIONS

NUMBER = r"([\d,]+(?:\.\d+)?(?:e[+-]?\d+)?)"
WARM_UP, FIRST = 0.3, 10
"""Share of the steps at the beginning that do not count, and at most how many: they compile and fill caches."""
MOST_LINES, WIDEST = 14, 160
"""Lines that are shown, and characters of each."""
PARTS = (*DIMENSIONS, "vocab_size")
"""Dimensions that name a log's model."""
HELPERS = {"mesh", "trained", "runtime", "tokens_seen", "steps_per_second", "micro_batch_tokens", "rank_tokens"}
HELPERS |= {"world_size", "packing", *PARTS}
"""What a log says that is no field of a claim, but from which one follows."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Trainer(NamedTuple):
    """A trainer, by trainers.toml."""

    name: str
    known_by: re.Pattern[str]
    settings: Mapping[str, re.Pattern[str]]
    """Field of a claim, or of HELPERS -> pattern of a line, whose group is the value."""
    steps: Mapping[str, re.Pattern[str]]
    """The same for what each step prints."""
    says: Sequence[tuple[re.Pattern[str], str, str]]
    """Pattern of a line, the field that it is about, and the value."""
    note: str | None


class ReadLog(NamedTuple):
    """What a log says."""

    trainer: Trainer
    texts: dict[str, str]
    """Field of a claim -> what is written for it."""
    lines: tuple[str, ...]
    """The lines that were read."""


@cache
def trainers() -> tuple[Trainer, ...]:
    """Return the trainers whose logs are known, the most particular first."""
    whole = tomllib.loads((files(__package__) / "trainers.toml").read_text("utf-8"))
    known = []
    for trainer in whole["trainer"]:
        shared = whole["like"].get(trainer.get("like"), {})  # lines that several trainers print
        settings = shared.get("settings", {}) | trainer.get("settings", {})
        known.append(
            Trainer(
                name=trainer["name"],
                known_by=_pattern(trainer["known_by"]),
                settings={name: _pattern(text) for name, text in settings.items()},
                steps={name: _pattern(text) for name, text in trainer.get("steps", {}).items()},
                says=[_statement(**line) for line in [*shared.get("says", []), *trainer.get("says", [])]],
                note=trainer.get("note"),
            )
        )
    return tuple(known)


def _statement(line: str, **stated: str) -> tuple[re.Pattern[str], str, str]:
    """Return a row of `Trainer.says`, in the file `{line = PATTERN, FIELD = VALUE}`."""
    ((name, value),) = stated.items()
    return _pattern(line), name, value


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace("<number>", NUMBER))


def read_log(text: str, where: str) -> ReadLog:
    """Return what a log says. Raises RequestError if no known trainer wrote it."""
    lines = [line for line in re.split(r"[\r\n]+", _COLOURS.sub("", text)) if line.strip()]
    trainer = next((one for one in trainers() if any(one.known_by.search(line) for line in lines)), None)
    if trainer is None:
        names = ", ".join(one.name for one in trainers())
        raise RequestError(f"{where}: no line is known of a trainer's log ({names}); options or a CSV say a claim, too")
    used: dict[int, str] = {}  # number of a line that was read -> the line
    stated = _settings(trainer, lines, used) | _steps(trainer, lines, used)
    shown = [line.strip()[:WIDEST] for _, line in sorted(used.items())]
    if len(shown) > MOST_LINES:
        shown = [*shown[: MOST_LINES // 2], f"({len(shown) - MOST_LINES} more)", *shown[-(MOST_LINES // 2) :]]
    return ReadLog(trainer, _as_claim(stated, trainer), tuple(shown))


def _settings(trainer: Trainer, lines: Sequence[str], used: dict[int, str]) -> dict[str, str]:
    """Return what the log says of the run, by field; the last line counts. Lines that were read are added to `used`."""
    stated: dict[str, str] = {}
    for number, line in enumerate(lines):
        for name, pattern in trainer.settings.items():
            if match := pattern.search(line):
                stated[name] = match[1].rstrip(",. ")
                used[number] = line
        for pattern, name, value in trainer.says:
            if pattern.search(line):
                stated[name] = value
                used.setdefault(number, line)
    return stated


def _steps(trainer: Trainer, lines: Sequence[str], used: dict[int, str]) -> dict[str, str]:
    """Return the medians of what the later steps print. `used` gets the first and the last of their lines."""
    medians: dict[str, str] = {}
    for name, pattern in trainer.steps.items():
        matches = [(number, match) for number, line in enumerate(lines) if (match := pattern.search(line))]
        values = [(number, float(match[1].replace(",", ""))) for number, match in matches]
        later = values[min(FIRST, int(WARM_UP * len(values))) :]
        if later:
            medians[name] = repr(median(value for _, value in later))
            used.update({number: lines[number] for number in (later[0][0], later[-1][0])})
    return medians


def _as_claim(stated: dict[str, str], trainer: Trainer) -> dict[str, str]:
    """Return the fields of a claim. Other units are converted, and HELPERS are combined into fields."""
    numbers = {name: float(text.replace(",", "")) for name, text in stated.items() if re.fullmatch(NUMBER, text)}
    ranks = _ranks(stated, numbers)
    if "gpus_kind" in stated:
        stated["gpus"] = f"{ranks or 1}x{stated.pop('gpus_kind')}"
    elif ranks:
        stated["n_gpus"] = str(ranks)
    if "step_milliseconds" in stated:
        stated["step_seconds"] = repr(float(stated.pop("step_milliseconds")) / 1e3)
    if numbers.get("steps_per_second") and "step_seconds" not in stated:
        stated["step_seconds"] = repr(1 / numbers["steps_per_second"])
    if trainer.name.startswith("Lightning"):  # its iterations are micro-batches
        stated.pop("global_batch", None)
    if numbers.get("tokens_seen") and numbers.get("runtime") and "tokens_per_second" not in stated:
        stated["tokens_per_second"] = repr(numbers["tokens_seen"] / numbers["runtime"])
    if "tokens_per_second" in stated:  # a rate from samples and the context would count padding, too
        stated.pop("samples_per_second", None)
    if model := _model(stated):
        stated["model"] = model
    # A number that is 0 was not measured.
    return {name: text for name, text in stated.items() if name not in HELPERS and text.strip("0.%")}


def _ranks(stated: Mapping[str, str], numbers: Mapping[str, float]) -> int | None:
    """Return the number of GPUs, by the first of four ways in which logs say it; None if none does."""
    if "world_size" in numbers:
        return int(numbers["world_size"])
    if "mesh" in stated:
        return prod(int(size) for size in re.findall(r"\d+", stated["mesh"]))
    if numbers.get("micro_batch_tokens") and numbers.get("rank_tokens"):
        return round(numbers["micro_batch_tokens"] / numbers["rank_tokens"])  # the former are those of all ranks
    if {"global_batch", "batch"} <= numbers.keys():
        return max(1, round(numbers["global_batch"] / numbers["batch"] / numbers.get("accumulate", 1)))
    return None


def _model(stated: Mapping[str, str]) -> str | None:
    """Return a name made of the dimensions that the log states."""
    named = {name: stated[name].replace(",", "") for name in PARTS if name in stated}
    if not {"d_model", "num_layers", "num_heads"} <= named.keys():
        return None
    width = int(named["d_model"])
    name = f"d{width}-f{named.get('d_ff', 4 * width)}-l{named['num_layers']}-h{named['num_heads']}"
    # Megatron prints 1 for attention without groups.
    if (kv := named.get("num_kv_heads")) and kv not in ("1", named["num_heads"]):
        name += f"-kv{kv}"
    # A log without a width of the feed-forward layer is of a model like GPT-2: four times the model's, with GELU.
    is_gelu = named.get("feed_forward") == "gelu" or "d_ff" not in named
    name += "-gelu" if is_gelu else ""
    return f"{name}-v{named['vocab_size']}" if "vocab_size" in named else name
