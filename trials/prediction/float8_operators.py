"""The operators of a step in float8, from those of the same step in bfloat16."""

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from lmsweep.trials.analytic.rates.operators import Operator, Operators
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.precisions import PRECISIONS

FLOAT8 = "float8_e4m3fn"
EAGER_CAST = (
    ("abs", "bfloat16", 4),
    ("amax", "bfloat16", 2),
    ("_to_copy", "bfloat16", 6),
    ("mul", "float32", 8),
    ("clamp", "float32", 8),
    ("_to_copy", "float32", 5),
)
"""Operators with which torchao finds the scale of an operand and rounds it in eager code, their type, and bytes per
element (`amax_to_scale` and `to_fp8_saturated`)."""


def in_float8(operators: Iterable[Operator], config: TrialConfig) -> Operators:
    """Return the operators with the products of the layers' linear parts in float8, as torchao's recipe has them.
    Compiled code finds the scale of an operand where it makes it, and reads it once to round it."""
    keeps_weight_gradients = PRECISIONS[config.precision].float8_recipe == "rowwise_with_gw_hp"
    tokens = config.micro_batch_size * config.context_length
    found = []
    for one in operators:
        inner = one.shapes[0][1] if one.name == "mm" and one.shapes else 0
        is_weight_gradient = one.phase == "backward" and not one.is_again and inner == tokens
        if one.name != "mm" or ".*" not in one.module or (keeps_weight_gradients and is_weight_gradient):
            found.append(one)
            continue
        elements = sum(prod(shape) for shape in one.shapes)
        result = one.bytes - 2 * elements
        cast = replace(one, flops=0, shapes=one.shapes[:1])
        if config.compiles:
            found.append(replace(cast, name="fused", bytes=3 * elements))
        else:
            found += (
                replace(cast, name=name, dtype=dtype, bytes=moved * elements) for name, dtype, moved in EAGER_CAST
            )
        found.append(replace(one, name="_scaled_mm", dtype=FLOAT8, bytes=elements + result))
    return tuple(found)
