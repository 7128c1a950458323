"""How the operands of an operator lie in memory, and which of them are the same."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lmsweep.trials.analytic.rates.operators import Operator
from lmsweep.trials.machine.torch_private import storage_key_of
from lmsweep.trials.prediction.without_device.fused_kernels import Seen, fused
from lmsweep.trials.prediction.without_device.moved_bytes import moved_bytes
from lmsweep.trials.prediction.without_device.operator_log import OperatorLog, layout_of
from tests.support.whole_steps import five_layers as small

pytestmark = pytest.mark.usefixtures("one_core")

X, COLUMN, ROW = torch.zeros(8, 384), torch.zeros(8, 1), torch.zeros(384)
HEADS = torch.zeros(2, 8, 4, 16)


@pytest.mark.parametrize(
    ("name", "operands", "layout"),
    [
        ("add", (X, X), ""),
        ("add", (X.t(), X.t()), ""),
        ("mul", (X, torch.tensor(2.0)), ""),
        ("add", (X, torch.zeros(384, 8).t()), "transposed"),
        ("add", (HEADS.transpose(1, 2), torch.zeros(2, 4, 8, 16)), "strided"),
        ("add", (HEADS.transpose(1, 2), HEADS.transpose(1, 2)), ""),
        ("mul", (X, COLUMN), "strided"),
        ("mul", (ROW, X), "strided"),
        ("div", (COLUMN.expand(8, 384), 2.0), "strided"),
        ("neg", (HEADS[..., 8:],), "strided"),
        ("neg", (HEADS[..., ::2],), "strided"),
        ("mul", (X, X.bfloat16()), "cast"),
        ("mul", (X.bfloat16(), ROW), "strided_cast"),
        ("where", (X > 0, X, X), ""),
        ("where", (X > 0, torch.zeros(384, 8).t(), torch.zeros(384, 8).t().bfloat16()), "transposed"),
        ("relu", (HEADS.transpose(1, 2),), ""),
        ("mm", (X, torch.zeros(8, 384).t()), "nt"),
    ],
)
def test_an_operator_states_how_its_operands_lie(name: str, operands: tuple[Any, ...], layout: str) -> None:
    assert layout_of(name, operands, getattr(torch, name)(*operands)) == layout


def test_a_sum_of_few_columns_has_a_layout_and_those_of_rows_and_of_many_columns_have_none() -> None:
    of_heads = torch.zeros(64, 16)
    for operand, dimension, layout in ((of_heads, 0, "columns"), (of_heads, 1, ""), (X, 0, ""), (X, 1, "")):
        assert layout_of("sum", (operand, dimension), operand.sum(dimension, keepdim=True)) == layout


def test_the_number_of_a_freed_storage_means_another_one_afterwards() -> None:
    log = OperatorLog(small())
    log.begin("forward")
    operand, result = torch.ones(4), torch.ones(4)
    for _ in range(2):
        log.operated(torch.ops.aten.relu.default, (operand,), result)
    log.freed(storage_key_of(operand.untyped_storage()))
    log.operated(torch.ops.aten.relu.default, (operand,), result)
    before, same, after = (one.read for one in log.seen)
    assert before == same != after, "kernels would fuse over a value that is gone"


def test_a_compiler_casts_a_value_once_and_takes_no_other_operator_for_a_cast() -> None:
    value, first, second = (((number, 0), 4) for number in range(3))
    cast = Operator(name="_to_copy", shapes=((2,),), dtype="bfloat16", bytes=12, flops=0, phase="forward", module="")
    to_cast, again = Seen(cast, "", (value,), (first,)), Seen(cast, "", (value,), (second,))
    halves = Seen(replace(cast, name="split_copy"), "", (value,), (first, ((3, 0), 4)))
    use = Seen(replace(cast, name="exp"), "", (second,), ())
    once, apart = (fused((one, again, use), lambda _: True, across_layers=True)[0].bytes for one in (to_cast, halves))
    assert (once, apart) == (4, 12), "bytes read, and those of both halves, which are written"


@pytest.mark.parametrize(("rows", "written"), [(8, 8), (1000, 64)])
def test_what_several_rows_are_added_to_is_read_and_written_once(rows: int, written: int) -> None:
    into, places, values = torch.zeros(rows, 4), torch.zeros(64, dtype=torch.int64), torch.zeros(64, 4)
    moved = moved_bytes("index_add_", (0,), (into, 0, places, values), into)
    assert moved is not None and moved.bytes == (64 + 2 * written) * 16
