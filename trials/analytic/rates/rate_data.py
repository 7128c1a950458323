"""The rates that ship with lmsweep, as rows: measured operators, published products and collectives."""

import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq

from lmsweep.trials.spec.words import Collective

DATA = Path(__file__).parent / "data"


class PublicProduct(NamedTuple):
    device_name: str
    """As the driver reports it."""
    dtype: str
    m: int
    n: int
    k: int
    seconds: float


class PublicCollective(NamedTuple):
    device_name: str
    ranks: int
    kind: Collective
    bytes: int
    """As nccl-tests counts them."""
    seconds: float


class MeasuredOperator(NamedTuple):
    """A row of the table `operator_times`, without its trial."""

    device_name: str
    kind: str
    name: str
    form: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    bytes: int
    flops: int
    is_causal: bool
    is_cold: bool
    seconds: float


@cache
def public_products() -> tuple[PublicProduct, ...]:
    return tuple(
        PublicProduct(
            row["device_name"], row["dtype"], int(row["m"]), int(row["n"]), int(row["k"]), float(row["seconds"])
        )
        for row in _rows("public_products.csv")
    )


@cache
def public_collectives() -> tuple[PublicCollective, ...]:
    return tuple(
        PublicCollective(
            row["device_name"],
            int(row["ranks"]),
            cast(Collective, row["kind"]),
            int(row["bytes"]),
            float(row["seconds"]),
        )
        for row in _rows("public_collectives.csv")
    )


@cache
def measured_operators() -> tuple[MeasuredOperator, ...]:
    """Return the operators that were measured by `lmsweep run operators` on the GPUs that ship."""
    file = pq.ParquetFile(DATA / "measured_operators.parquet")  # read_table imports pyarrow.dataset, for 0.2 s
    return operators_in(file.read())


def operators_in(table: pa.Table) -> tuple[MeasuredOperator, ...]:
    """Return the operators of a table; `seconds` is a number, or their mean is taken."""
    columns = table.select(MeasuredOperator._fields).to_pydict()
    columns["shapes"] = [shapes_of(text) for text in columns["shapes"]]
    if pa.types.is_list(table.schema.field("seconds").type):
        columns["seconds"] = [fmean(found) for found in columns["seconds"]]
    return tuple(MeasuredOperator(*row) for row in zip(*columns.values(), strict=True))


def shapes_of(text: str) -> tuple[tuple[int, ...], ...]:
    """Return the shapes that a text like 4096x1024,1024x4096 states."""
    return tuple(tuple(int(size) for size in shape.split("x")) for shape in text.split(","))


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        yield from csv.DictReader(file)
