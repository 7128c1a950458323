"""Sweep files by people who have not read the documentation: each works, or is answered with what to write."""
# ruff: noqa: E501

import re
import warnings
from pathlib import Path

import pytest

from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.spec.config import RequestError

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

ANSWERED = {
    "a merge of no mapping": (
        GRID + "    fixed:\n      <<: 3\n      model: tiny\n",
        ["5: grids[0].fixed: << merges mappings; write <<: *anchor, or <<: [*one, *other]"],
    ),
    "a merge with itself": (GRID + "    fixed: &f\n      <<: *f\n      model: tiny\n", ["5: << merges a mapping with itself"]),
    "a home of anchors under a name of its own": (
        "defaults: &d {model: tiny}\n" + GRID + "    fixed: {<<: *d}\n",
        ["1: defaults: unknown key; begin its name with x- if it only holds anchors (one of: name, description, question, budget,"],
    ),
    "numbers in quotes": (
        GRID + "    axes: {batch_size: ['1', \"2\"]}\n    fixed: {model: tiny, context_length: \"1024\", timeout_seconds: '6e1'}\n",
        [
            "4: grids[0].axes.batch_size: '1' is not a whole number; write 1, without quotes",
            "4: grids[0].axes.batch_size: '2' is not a whole number; write 2, without quotes",
            "5: grids[0].fixed.context_length: '1024' is not a whole number; write 1024, without quotes",
            "5: grids[0].fixed.timeout_seconds: '6e1' is not a number; write 6e1, without quotes",
        ],
    ),
    "a range with a dash": (
        GRID + "    axes: {batch_size: [1-8], context_length: 64-256}\n    fixed: {model: tiny, warmup_steps: 1..4}\n",
        [
            "4: grids[0].axes.batch_size: '1-8' is not a whole number; a range is written 1..8 (each value twice the one before) or 1..8+1",
            "4: grids[0].axes.context_length: '64-256' is a single value; a range is written 64..256 (",
            "5: grids[0].fixed.warmup_steps: '1..4' is not a whole number or auto; several values are an axis; move it below axes",
        ],
    ),
    "a range without an end": (
        GRID + "    axes: {batch_size: [1..]}\n    fixed: {model: tiny}\n",
        ["4: grids[0].axes.batch_size: '1..' is not a whole number; a range has two ends, as in 1..8"],
    ),
    "units": (
        GRID + "    fixed: {model: tiny, context_length: 4k, vocab_size: '50,257', max_seconds: 5m, batch_size: 2**3}\n",
        [
            "4: grids[0].fixed.batch_size: '2**3' is not a whole number; write 8",
            "4: grids[0].fixed.context_length: '4k' is not a whole number; write the digits, 4096 or 4000",
            "4: grids[0].fixed.max_seconds: '5m' is not a number; write the seconds, 300",
            "4: grids[0].fixed.vocab_size: '50,257' is not a whole number; write 50257",
        ],
    ),
    "GPUs by their names": (
        GRID + "    axes: {device: [H100, A100-80GB, RTX 4090, nvidia]}\n    fixed: {model: tiny}\n",
        [
            "4: grids[0].axes.device: 'H100' is not a device; write cuda for the GPU of this machine, or cuda:H100 on a cluster",
            "4: grids[0].axes.device: 'A100-80GB' is not a device; write cuda for the GPU of this machine, or cuda:A100 on",
            "4: grids[0].axes.device: 'RTX 4090' is not a device; write cuda for the GPU of this machine, or cuda:RTX4090 on",
            "4: grids[0].axes.device: 'nvidia' is not a device; did you mean cuda?",
        ],
    ),
    "words for true and false": (
        GRID + "    fixed: {model: tiny, causal: yes, cold_l2: Off}\n",
        [
            "4: grids[0].fixed.causal: 'yes' is not true or false; write true",
            "4: grids[0].fixed.cold_l2: 'Off' is not true or false; write false",
        ],
    ),
    "variables": (
        GRID + "    fixed:\n      model: tiny\n      batch_size: ${BATCH}\n",
        ["6: grids[0].fixed.batch_size: '${BATCH}' is not a whole number; variables are not replaced; write the value, or give it in the command: --set batch_size=VALUE"],
    ),
    "a fixed field that follows another": (
        GRID + "    axes: {context_length: [32, 64]}\n    fixed:\n      model: tiny\n      precision: $PRECISION\n      batch_size: '{{ context_length }}'\n",
        [
            "8: grids[0].fixed.batch_size: '{{ context_length }}' is not a whole number; variables are not replaced; fields that vary together are lists of the same length below zip: zip: {context_length: [...], batch_size: [...]}",
            "7: grids[0].fixed.precision: '$PRECISION' is not a value; variables are not replaced; write the value, or give it in the command: --set precision=VALUE",
        ],
    ),
    "functions of other tools": (
        GRID + "    axes:\n      batch_size: choice(1, 2, 4)\n      context_length: range(32, 256, 32)\n      precision: tune.grid_search([fp32, bf16])\n    fixed: {model: tiny}\n",
        [
            "5: grids[0].axes.batch_size: 'choice(1, 2, 4)' is a single value; write [1, 2, 4]",
            "6: grids[0].axes.context_length: 'range(32, 256, 32)' is a single value; write 32..224+32",
            "7: grids[0].axes.precision: 'tune.grid_search([fp32, bf16])' is a single value; write [fp32, bf16]",
        ],
    ),
    "variables in braces": (
        GRID + "    fixed: {model: tiny, batch_size: ${BATCH}}\n",
        ["4: not valid YAML: variables are not replaced; write the value, or give it in the command: --set FIELD=VALUE"],
    ),
    "lists without brackets": (
        GRID + "    axes:\n      batch_size: 1, 2, 4\n      precision: (fp32 bf16)\n    fixed: {model: tiny}\n",
        [
            "5: grids[0].axes.batch_size: '1, 2, 4' is a single value; write [1, 2, 4]",
            "6: grids[0].axes.precision: '(fp32 bf16)' is a single value; write [fp32, bf16]",
        ],
    ),
    "one argument for a list of them": (
        GRID + "    axes: {optimizer_args.lr: 3}\n    fixed: {model: tiny}\n",
        ["4: grids[0].axes.optimizer_args.lr: 3 is a single value; write a list in brackets, or move it to fixed"],
    ),
    "lists of lists": (
        GRID + "    axes: {batch_size: [[1, 2], [4]]}\n    fixed: {model: tiny}\n",
        ["4: grids[0].axes.batch_size: a list is not a whole number; write one list without a list in it"],
    ),
    "the least and the most": (
        GRID + "    axes: {batch_size: {min: 1, max: 8}}\n    fixed: {model: tiny}\n",
        ["4: grids[0].axes.batch_size: a mapping is a single value; write the list of values in brackets, or of whole numbers a range"],
    ),
    "octal and exponents": (
        GRID + "    fixed: {model: tiny, batch_size: 010, context_length: 1e3}\n",
        [
            "4: grids[0].fixed.batch_size: 10.0 is not a whole number; write 10",
            "4: grids[0].fixed.context_length: 1000.0 is not a whole number; write 1000",
        ],
    ),
    "a budget without a unit": ("name: s\nbudget: 10\n" + GRID[8:] + "    fixed: {model: tiny}\n", ["2: budget: 10 is not a time; write one such as 30m or 2h"]),
    "no colon": (GRID + "    fixed:\n      model tiny\n      batch_size: 4\n", ["5: not valid YAML: a colon is missing; write model: tiny"]),
    "no space after the colon": (
        GRID + "    fixed:\n      model:tiny\n",
        ["4: grids[0].fixed: 'model:tiny' is not a mapping of keys to values; write a colon and a space after each key, as in model: tiny"],
    ),
    "a quote that stays open": (GRID + '    fixed: {model: "tiny, batch_size: 4}\n', ["4: not valid YAML: a quote is opened and not closed"]),
    "a bracket that stays open": (
        GRID + "    axes: {batch_size: [1, 2}\n    fixed: {model: tiny}\n",
        ["4: not valid YAML: the bracket [ is not closed, or a comma is missing after an item"],
    ),
    "comments of JSON": ('{\n  // mine\n  "name": "s", "grids": []}', ["2: not valid YAML: a comment begins with #"]),
    "a model of another name": (GRID + "    fixed: {model: Qwen/Qwen3-0.6B}\n", ["4: grids[0].fixed.model: 'Qwen/Qwen3-0.6B' is not a model; did you mean qwen3-0.6b?"]),
}  # fmt: skip


@pytest.fixture
def sweep_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("s.yaml")


@pytest.mark.parametrize(("text", "trials"), WORKS.values(), ids=WORKS)
def test_a_strangers_file_that_is_right_works(sweep_file: Path, text: str, trials: list[dict[str, object]]) -> None:
    sweep_file.write_bytes(text.encode())
    found = [trial.config for trial in load_sweep("s.yaml").trials]
    assert [{name: getattr(one, name) for name in wanted} for one, wanted in zip(found, trials, strict=True)] == trials


@pytest.mark.parametrize(("text", "answers"), ANSWERED.values(), ids=ANSWERED)
def test_a_strangers_file_that_is_wrong_is_answered_with_all_of_it_where_and_what_to_write(
    sweep_file: Path, text: str, answers: list[str]
) -> None:
    sweep_file.write_bytes(text.encode())
    with pytest.raises(RequestError) as caught:
        load_sweep("s.yaml")
    lines = sorted(re.findall(r"^s\.yaml:(.*)", str(caught.value), re.MULTILINE))
    assert len(lines) == len(answers), lines
    for line, answer in zip(lines, sorted(answers), strict=True):
        assert line.startswith(answer)


def test_a_number_in_quotes_is_remarked_on_where_texts_are_allowed(sweep_file: Path) -> None:
    sweep_file.write_text(
        GRID + "    axes: {optimizer_args.lr: ['3e-4', 1e-3]}\n    fixed: {model: tiny, optimizer: 'mine.py:make'}\n"
    )
    Path("mine.py").write_text("def make(parameters, lr): ...\n")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        load_sweep("s.yaml")
    assert [str(one.message) for one in said] == [
        "s.yaml:4: grids[0].axes.optimizer_args.lr[0]: '3e-4' is text, because of the quotes; for the number, write 3e-4"
    ]
