"""Sweep files by people who have not read the documentation: each works. What else they write: wrong_sweeps.txt."""
# ruff: noqa: E501

import warnings
from pathlib import Path

import pytest

GRID = "name: s\ngrids:\n  - workloads: [timing]\n"

WORKS = {
    "a merge key": (
        "x-base: &base {model: tiny, batch_size: 2}\n" + GRID + "    fixed:\n      <<: *base\n      batch_size: 4\n",
        [{"batch_size": 4}],
    ),
    "two merged, where the first has precedence": (
        "x-a: &a {model: tiny, batch_size: 2}\nx-b: &b {batch_size: 8, precision: bf16}\n"
        + GRID
        + "    fixed: {<<: [*a, *b]}\n",
        [{"batch_size": 2, "precision": "bf16"}],
    ),
    "grids that are merged": (
        "x-g: &g\n  workloads: [timing]\n  fixed: {model: tiny}\nname: s\ngrids:\n"
        "  - <<: *g\n    axes: {batch_size: [1, 2]}\n  - <<: *g\n    axes: {precision: [bf16]}\n",
        [{"batch_size": 1}, {"batch_size": 2}, {"precision": "bf16"}],
    ),
    "JSON with a comma too many": ('{"name": "s", "grids": [{"workloads": ["timing"], "fixed": {"model": "tiny"},},]}', [{}]),
    "lines of Windows": ((GRID + "    fixed: {model: tiny}\n").replace("\n", "\r\n"), [{}]),
    "a byte order mark": ("\ufeff" + GRID + "    fixed: {model: tiny}\n", [{}]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "trials"), WORKS.values(), ids=WORKS)
def test_a_strangers_file_that_is_right_works(sweep_of, text: str, trials: list[dict[str, object]]) -> None:
    found = [trial.config for trial in sweep_of(text).trials]
    assert [{name: getattr(one, name) for name in wanted} for one, wanted in zip(found, trials, strict=True)] == trials


def test_a_number_in_quotes_is_remarked_on_where_texts_are_allowed(sweep_of) -> None:
    Path("mine.py").write_text("def make(parameters, lr): ...\n")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sweep_of(
            GRID
            + "    axes: {optimizer_args.lr: ['3e-4', 1e-3]}\n    fixed: {model: tiny, optimizer: 'mine.py:make'}\n"
        )
    assert [str(one.message) for one in said] == [
        "s.yaml:4: grids[0].axes.optimizer_args.lr[0]: '3e-4' is text, because of the quotes; for the number, write 3e-4"
    ]
