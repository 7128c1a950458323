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
"""Share of the steps that do not count, and how many at most: compilation and caches are in them."""
MOST_LINES, WIDEST = 14, 160
"""Lines that are shown, and characters of each."""
PARTS = (*DIMENSIONS, "vocab_size")
HELPERS = {"mesh", "trained", "runtime", "tokens_seen", "steps_per_second", "micro_batch_tokens", "rank_tokens"}
HELPERS |= {"world_size", "packing", *PARTS}
"""What a log says from which fields of a claim follow, and that is none itself."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Trainer(NamedTuple):
    """A trainer, by trainers.toml."""

    name: str
    known_by: re.Pattern[str]
    settings: Mapping[str, re.Pattern[str]]
    says: Sequence[tuple[re.Pattern[str], str, str]]
    """Pattern of a line, the field that it is about, and the value."""
    steps: Mapping[str, re.Pattern[str]]
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
    found = []
    for one in whole["trainer"]:
        like = whole["like"].get(one.get("like"), {})
        settings = like.get("settings", {}) | one.get("settings", {})
        says = [*like.get("says", []), *one.get("says", [])]
        pairs = [(line["line"], *next(item for item in line.items() if item[0] != "line")) for line in says]
        found.append(
            Trainer(
                name=one["name"],
                known_by=_pattern(one["known_by"]),
                settings={name: _pattern(text) for name, text in settings.items()},
                says=[(_pattern(line), name, value) for line, name, value in pairs],
                steps={name: _pattern(text) for name, text in one.get("steps", {}).items()},
                note=one.get("note"),
            )
        )
    return tuple(found)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace("<number>", NUMBER))


def read_log(text: str, where: str) -> ReadLog:
    """Return what a log says. Raises RequestError if no known trainer wrote it."""
    lines = [line for line in re.split(r"[\r\n]+", _COLOURS.sub("", text)) if line.strip()]
    trainer = next((one for one in trainers() if any(one.known_by.search(line) for line in lines)), None)
    if trainer is None:
        names = ", ".join(one.name for one in trainers())
        raise RequestError(f"{where}: no line is known of a trainer's log ({names}); options or a CSV say a claim, too")
    used: dict[int, str] = {}
    found = _settings(trainer, lines, used) | _steps(trainer, lines, used)
    shown = [line.strip()[:WIDEST] for _, line in sorted(used.items())]
    if len(shown) > MOST_LINES:
        shown = [*shown[: MOST_LINES // 2], f"({len(shown) - MOST_LINES} more)", *shown[-MOST_LINES // 2 :]]
    return ReadLog(trainer, _as_claim(found, trainer), tuple(shown))


def _settings(trainer: Trainer, lines: Sequence[str], used: dict[int, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(lines):
        for name, pattern in trainer.settings.items():
            if match := pattern.search(line):
                found[name] = match[1].rstrip(",. ")
                used[number] = line
        for pattern, name, value in trainer.says:
            if pattern.search(line):
                found[name] = value
                used.setdefault(number, line)
    return found


def _steps(trainer: Trainer, lines: Sequence[str], used: dict[int, str]) -> dict[str, str]:
    """Return the medians of what the later steps print."""
    found: dict[str, str] = {}
    for name, pattern in trainer.steps.items():
        matches = [(number, match) for number, line in enumerate(lines) if (match := pattern.search(line))]
        values = [(number, float(match[1].replace(",", ""))) for number, match in matches]
        later = values[min(FIRST, int(WARM_UP * len(values))) :]
        if later:
            found[name] = repr(median(value for _, value in later))
            used |= {number: lines[number] for number in (later[0][0], later[-1][0])}
    return found


def _as_claim(found: dict[str, str], trainer: Trainer) -> dict[str, str]:
    """Return the fields of a claim: what the log has in other units or in parts is put together."""
    numbers = {name: float(text.replace(",", "")) for name, text in found.items() if re.fullmatch(NUMBER, text)}
    ranks = _ranks(found, numbers)
    if "gpus_kind" in found:
        found["gpus"] = f"{ranks or 1}x{found.pop('gpus_kind')}"
    elif ranks:
        found["n_gpus"] = str(ranks)
    if "step_milliseconds" in found:
        found["step_seconds"] = repr(float(found.pop("step_milliseconds")) / 1e3)
    if numbers.get("steps_per_second") and "step_seconds" not in found:
        found["step_seconds"] = repr(1 / numbers["steps_per_second"])
    if trainer.name.startswith("Lightning"):  # its iterations are micro-batches
        found.pop("global_batch", None)
    if numbers.get("tokens_seen") and numbers.get("runtime") and "tokens_per_second" not in found:
        found["tokens_per_second"] = repr(numbers["tokens_seen"] / numbers["runtime"])
    if "tokens_per_second" in found:
        found.pop("samples_per_second", None)
    if numbers.get("mfu", 0) > 1.5:
        found["mfu"] += "%"
    if model := _model(found):
        found["model"] = model
    return {name: text for name, text in found.items() if name not in HELPERS and text.strip("0.%")}


def _ranks(found: Mapping[str, str], numbers: Mapping[str, float]) -> int | None:
    if "world_size" in numbers:
        return int(numbers["world_size"])
    if "mesh" in found:
        return prod(int(size) for size in re.findall(r"\d+", found["mesh"]))
    if numbers.get("micro_batch_tokens") and numbers.get("rank_tokens"):
        return round(numbers["micro_batch_tokens"] / numbers["rank_tokens"])
    if {"global_batch", "batch"} <= numbers.keys():
        return max(1, round(numbers["global_batch"] / numbers["batch"] / numbers.get("accumulate", 1)))
    return None


def _model(found: Mapping[str, str]) -> str | None:
    """Return a name made of the dimensions that the log states."""
    stated = {name: found[name].replace(",", "") for name in PARTS if name in found}
    if not {"d_model", "num_layers", "num_heads"} <= stated.keys():
        return None
    width = int(stated["d_model"])
    name = f"d{width}-f{stated.get('d_ff', 4 * width)}-l{stated['num_layers']}-h{stated['num_heads']}"
    if (kv := stated.get("num_kv_heads")) and kv not in ("1", stated["num_heads"]):
        name += f"-kv{kv}"
    is_gelu = stated.get("feed_forward") == "gelu" or "d_ff" not in stated
    return name + "-gelu" * is_gelu + (f"-v{stated['vocab_size']}" if "vocab_size" in stated else "")
