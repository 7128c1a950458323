"""What compiled blocks save for backward, predicted without computing anything, and the figures of the course."""

import pytest

from benchmarks.residuals import block_config, measured, predicted

MIB = 2**20


def test_a_compiled_block_of_the_course_saves_what_the_course_prints():
    one = predicted(block_config(width=2560, context=2048, batch=4)) / MIB
    assert round(one, 2) == 3651.31
    assert round(4 * one, 2) == 14605.25


@pytest.mark.slow  # compiles for the CPU
def test_real_compiled_blocks_save_what_is_predicted():
    shape = {"width": 64, "context": 32, "batch": 2}
    one = predicted(block_config(**shape))
    assert measured(block_config(**shape)) == one
    assert measured(block_config(**shape, layers=4)) == 4 * one
    inputs = 4 * shape["batch"] * shape["context"] * shape["width"]
    assert measured(block_config(**shape, layers=4, checkpointing="2")) == 2 * inputs
