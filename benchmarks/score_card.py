"""The score card of predicted time and memory: published and measured figures against predictions, and how often the
intervals held.

    python -m benchmarks.score_card [FOLDER [GROUP ...]] [--every 4]

FOLDER is ../shared/data. Predicts the cells of these groups (of all; score_cells.GROUPS names them), replaces their
rows of trials/analytic/rates/data/residuals.csv, from which predictions take their intervals, and prints what
docs/validation.md shows; without FOLDER it prints the tables again. An interval is held against the cells of a source,
and of a GPU, that it was not learned from. A cell that `plan` refuses, or whose source is doubted, is listed apart.
"""

import argparse
import csv
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

from tabulate import tabulate

from benchmarks.score_cells import GROUPS, Cell, cells_in
from lmsweep.trials.analytic.datasheets import device_named
from lmsweep.trials.analytic.rates.intervals import (
    INTERVAL_DEVIATIONS,
    RAN_BY_OTHERS,
    RESIDUALS_FILE,
    Residual,
    factor_to_cover,
    known_residuals,
    learned,
    others,
    peak_of_others,
    spread_for,
    spread_of_others,
    spread_that_covers,
    unseen,
)
from lmsweep.trials.analytic.rates.rate_set import rates_of

CONSUMER = re.compile("RTX|L4")
"""The beginning of the names of cards that are no data centre's, or have GDDR."""
Answer = tuple[float, bool | None]
"""A relative error, and whether the interval held; None if there is no interval."""
Left = Literal["source", "device"]
"""What an interval is learned without."""


def held(one: Residual, residuals: Sequence[Residual], wider: float, left: Left = "source") -> tuple[float, bool]:
    """Return the relative error of a prediction, and whether its interval held, learned without the cell's source or
    device; NaN if there is no other."""
    spread = learned(one.level, residuals, one.device, lambda other: getattr(other, left) != getattr(one, left))
    if spread is None:
        return math.nan, False
    factor, deviation = spread
    distance = abs(one.log_ratio - math.log(factor))
    return factor / math.exp(one.log_ratio) - 1, distance <= INTERVAL_DEVIATIONS * wider * deviation * (1 + 1e-9)


def by_device(residuals: Sequence[Residual]) -> None:
    """Print a line for each GPU and level: errors and intervals, learned without the source, and without the GPU."""
    groups: dict[tuple[str, str], list[Residual]] = defaultdict(list)
    for one in residuals:
        groups[one.device, one.level].append(one)
    lines = []
    for (device, level), group in sorted(groups.items()):
        wider = factor_to_cover(level, residuals, device)
        raw = median(math.exp(-one.log_ratio) - 1 for one in group)
        line: list[object] = [device, level, len(group), f"{raw:+.0%}"]
        for left in get_args(Left):
            answers = [held(one, residuals, wider, left) for one in group]
            errors = [abs(error) for error, _ in answers if not math.isnan(error)]
            if not errors:
                line += [None] * 3
                continue
            within, kept = sum(one < 0.25 for one in errors), sum(one for _, one in answers)
            line += [f"{median(errors):.1%}", f"{within / len(errors):.0%}", f"{kept / len(answers):.0%}"]
        lines.append(line)
    columns = ("median", "within 25 %", "interval held")
    headers = ["GPU", "level", "cells", "operators", *columns, *(f"{one}, without this GPU" for one in columns)]
    print(tabulate(lines, headers=headers, tablefmt="github", missingval="-"))


def widths(residuals: Sequence[Residual]) -> None:
    """Print for each level and GPU the factor over the operators, and how wide the interval is."""
    for level, device in sorted({(one.level, one.device) for one in residuals}):
        spread = learned(level, residuals, device)
        assert spread is not None
        width = math.exp(INTERVAL_DEVIATIONS * factor_to_cover(level, residuals, device) * spread.deviation)
        print(f"{level}, {device}: times {spread.factor:.2f}, interval a factor of {width:.2f} each way")


def card(residuals: Sequence[Residual]) -> None:
    """Print by kind, GPU and source how far the middle of each interval is, and how often it held without the source:
    as this loop runs a step, and as other trainers do; and how far the roofline is."""
    with RESIDUALS_FILE.open(newline="") as file:
        rooflines = [float(row["roofline"]) if row["roofline"] else None for row in csv.DictReader(file)]
    without, among_all = others(False), others(True)
    peaks = [one._replace(device="") for one in residuals if one.level == "memory"]
    groups: dict[tuple[str, str, str], list[list[Answer | None]]] = defaultdict(list)
    for one, roofline in zip(residuals, rooflines, strict=True):
        if one.level in RAN_BY_OTHERS:
            level = {"others": _known(one.device), "run here": "measured", "PCIe": "ranks", "TP": "ranks"}.get(
                one.level, one.level
            )
            mine = _answer(one._replace(level=level), residuals)
            among = among_all if "MoE" in one.kind else without
            answers = [mine, _answer(one._replace(level="others"), among, spread_for_level(one.device, level))]
        elif one.level == "memory":
            answers = [(math.expm1(-one.log_ratio), None), _answer(one._replace(device=""), peaks)]
        else:
            continue
        answers.append(None if roofline is None else (math.expm1(-roofline), None))
        for key in ((one.kind, one.device, one.source), (one.kind, one.device, "all"), (one.kind, "all", "all")):
            groups[key].append(answers)
        if CONSUMER.match(one.device) and one.level != "memory":
            groups["consumer cards", "all", "all"].append(answers)
    lines = []
    for key, group in sorted(groups.items()):
        line: list[object] = [*key, len(group)]
        for answers in zip(*group, strict=True):
            known = [one for one in answers if one]
            held = [kept for _, kept in known if kept is not None]
            kept = f"{sum(held)} of {len(held)}" if held else None
            line += [f"{median(abs(error) for error, _ in known):.1%}", kept] if known else [None, None]
        lines.append(line[:-1])
    headers = ["kind", "GPU", "source", "cells", "this loop", "held", "other trainers", "held", "roofline"]
    print(tabulate(lines, headers=headers, tablefmt="github", missingval="-"))
    for device in sorted({one.device for one in without}):
        spread = spread_of_others(device)
        print(f"other trainers on {device}: times {spread.factor:.2f}, a factor of {spread.width:.2f} each way")
    print("memory of other trainers, in % of the predicted peak: {} ({} to {})".format(*peak_of_others(100)))


def _answer(one: Residual, among: Sequence[Residual], least: float = 0.0) -> Answer | None:
    """Return the error of the middle, and whether the interval held, learned without the source of the cell; None
    without another source. least: the deviation that its own is at least."""
    spread = unseen(one, among)
    if spread is None:
        return None
    if one.level in ("others", "memory"):
        wide = _covering(one.device, tuple(among)).deviation
    else:
        wide = spread.deviation * _wider(one.level, one.device, tuple(among))
    distance = math.log(spread.factor) - one.log_ratio
    return math.expm1(distance), abs(distance) <= INTERVAL_DEVIATIONS * max(wide, least) * (1 + 1e-9)


_wider = cache(lambda level, device, among: factor_to_cover(level, among, device))
_covering = cache(lambda device, among: spread_that_covers(among, device))


@cache
def _known(device: str) -> str:
    """Return what is known of the products of a GPU in 16 bits."""
    sheet = device_named(device)
    assert sheet is not None
    return rates_of(sheet).level()


def spread_for_level(device: str, level: str) -> float:
    """Return the deviation of the first interval, which the second is at least as wide as."""
    ranks = 8 if level in ("ranks", "tuned stacks") else 1
    return spread_for(device, "measured" if ranks > 1 or level == "sizes assumed" else level, ranks).deviation


def _row(group: str, cell: Cell) -> dict[str, Any]:
    roofline = round(math.log(cell.published / cell.roofline), 4) if cell.roofline else None
    return {"group": group, **cell.residual._asdict(), "roofline": roofline, "what": cell.what}


def predict_again(folder: Path, groups: Sequence[str], every: int) -> None:
    """Predict the cells of these groups, and replace their rows of the file."""
    with ProcessPoolExecutor(mp_context=get_context("spawn"), max_tasks_per_child=1) as processes:
        running = {name: processes.submit(cells_in, name, folder, every) for name in groups}
        found = {name: future.result() for name, future in running.items()}
    with RESIDUALS_FILE.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["group"] not in groups]
    rows += [_row(name, one) for name, cells in found.items() for one in cells]
    with RESIDUALS_FILE.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: [*GROUPS].index(str(row["group"]))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("groups", nargs="*", metavar="group", help=", ".join(GROUPS))
    parser.add_argument("--every", type=int, default=4, help="of the steps of the shipped sets")
    asked = parser.parse_args()
    if unknown := {*asked.groups} - {*GROUPS}:
        parser.error(f"{', '.join(unknown)}: no such group; there are {', '.join(GROUPS)}")
    if asked.folder:
        predict_again(asked.folder, asked.groups or [*GROUPS], asked.every)
    known_residuals.cache_clear()  # predictions have read the file as it was
    card(known_residuals())
    by_device(known_residuals())
    widths(known_residuals())


if __name__ == "__main__":
    main()
