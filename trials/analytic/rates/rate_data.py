"""The rates that ship with lmsweep, as rows: measured operators, published products and collectives."""

from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.csv import read_csv

from lmsweep.trials.spec.words import Collective

DATA = Path(__file__).parent / "data"
Row = TypeVar("Row", bound=NamedTuple)


class PublicProduct(NamedTuple):
    device_name: str
    """As the driver reports it."""
    dtype: str
    m: int
    n: int
    k: int
    seconds: float


class FastestProduct(NamedTuple):
    """The fastest matrix product that a user saw on a GPU."""

    device_name: str
    """As the driver reports it."""
    dtype: str
    sizes: str
    """Those among which it is the fastest."""
    teraflops: float
    source: str


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


def rows_of(file: Path, kind: type[Row]) -> tuple[Row, ...]:
    """Return the rows of a file of CSV, which has a column for each field of this kind."""
    columns = read_csv(file).select(kind._fields).to_pydict()
    return tuple(kind(*row) for row in zip(*columns.values(), strict=True))


public_products = cache(partial(rows_of, DATA / "public_products.csv", PublicProduct))
fastest_products = cache(partial(rows_of, DATA / "fastest_products.csv", FastestProduct))
public_collectives = cache(partial(rows_of, DATA / "public_collectives.csv", PublicCollective))


@cache
def measured_operators() -> tuple[MeasuredOperator, ...]:
    """Return the operators that were measured by `lmsweep run operators` on the GPUs that ship."""
    file = pq.ParquetFile(DATA / "measured_operators.parquet")  # read_table imports pyarrow.dataset, for 0.2 s
    return operators_in(file.read())


def operators_in(table: pa.Table) -> tuple[MeasuredOperator, ...]:
    """Return the operators of a table; `seconds` is a number, or their mean is taken."""
    columns = table.select(MeasuredOperator._fields).to_pydict()
    columns["shapes"] = [  # a text such as 4096x1024,1024x4096
        tuple(tuple(map(int, shape.split("x"))) for shape in text.split(",")) for text in columns["shapes"]
    ]
    if pa.types.is_list(table.schema.field("seconds").type):
        columns["seconds"] = [fmean(found) for found in columns["seconds"]]
    return tuple(MeasuredOperator(*row) for row in zip(*columns.values(), strict=True))
