"""One message reports all that is wrong in a sweep file, with file, line, key and the nearest word."""

import re
from pathlib import Path

import pytest

from lmsweep.orchestrator.feature import packaged_sweeps
from lmsweep.orchestrator.sweep.sweep import AS_IN, load_sweep
from tests.support.sweeps import FIELDS, OR_OTHER, PRECISIONS, WORKLOADS, error_of

GRID_ERRORS = {
    "an axis and a fixed field beside the workloads": (
        "precision: [fp32, bf16]\nseq_len: 16\nmodel: tiny\ncontxt_length: [8]",
        "4: grids[0].precision: is an axis; move it below axes",
        "5: grids[0].seq_len: is a field, context_length here; move it below fixed, or with several values below axes",
        "6: grids[0].model: is a field; move it below fixed, or with several values below axes",
        "7: grids[0].contxt_length: is an axis, context_length here; move it below axes",
    ),
    "unknown model": (
        "axes:\n  model:\n    - tiny\n    - meduim",
        f"7: grids[0].axes.model: 'meduim' is not a model; did you mean medium? ({OR_OTHER})",
    ),
    "unknown and missing dimension": (
        "fixed: {model: {d_model: 8, d_f: 8, num_layers: 1, num_heads: 2}}",
        "4: grids[0].fixed.model: d_ff is missing",
        "4: grids[0].fixed.model.d_f: unknown dimension; did you mean d_ff? (one of: d_model, d_ff, num_layers, ",
    ),
    "a dimension of a wrong type in a list of models": (
        "axes: {model: [tiny, {d_model: 8, d_ff: 8.5, num_layers: '1', num_heads: 0}]}",
        "4: grids[0].axes.model[1].d_ff: 8.5 is not a whole number",
        "4: grids[0].axes.model[1].num_layers: '1' is not a whole number; write 1, without quotes",
        "4: grids[0].axes.model[1].num_heads: num_heads is 0; it must be at least 1",
    ),
    "illegal word": (
        "axes: {precision: [fp32, bf61]}\nfixed: {model: tiny, attention: null}",
        f"4: grids[0].axes.precision: 'bf61' is not a precision; did you mean bf16? {PRECISIONS}",
        "5: grids[0].fixed.attention: null is not an attention (one of: naive, ",
    ),
    "no number": (
        "fixed: {model: tiny, batch_size: true, context_length: 9223372036854775808, timeout_seconds: 1e999}",
        "4: grids[0].fixed.context_length: context_length is 9223372036854775808; it must be less than 2**63",
        "4: grids[0].fixed.batch_size: true is not a whole number",
        "4: grids[0].fixed.timeout_seconds: inf is not a number",
    ),
    "a number out of its limits, at its own line": (
        "axes:\n  warmup_steps:\n    - 5\n    - -1\nfixed: {model: tiny}",
        "7: grids[0].axes.warmup_steps: warmup_steps is -1; it must be 0 or more",
    ),
    "a device of another name": (
        "axes: {device: [gpu, 'cuda:0']}\nfixed: {model: tiny}",
        "4: grids[0].axes.device: 'gpu' is not a device; did you mean cuda? (one of: cpu, mps, xpu, cuda, ",
        "4: grids[0].axes.device: cuda:0 is PyTorch's name of a single GPU; write cuda (each trial gets",
    ),
    "a list for one value": (
        "fixed: {model: tiny, mode: [forward]}\nexclude: [{batch_size: [1, 2]}]",
        "4: grids[0].fixed.mode: is a list; give a single value here, or move it to axes",
        "5: grids[0].exclude[0].batch_size: is a list; give a single value here, or move it to axes",
    ),
    "an axis without values": (
        "axes: {model: [tiny], batch_size: [], precision: }",
        "4: grids[0].axes.batch_size: is empty; give at least one",
        "4: grids[0].axes.precision: is empty; give at least one",
    ),
    "ranges that are none": (
        "axes:\n  batch_size: [2, 4..1, 0..4, 3..10]\n  context_length:\n    - 64..128\n    - 1..6+2\n    - -1\n"
        "fixed: {model: tiny}",
        "5: grids[0].axes.batch_size: the range 4..1 must start at 1 or more and must not fall",
        "5: grids[0].axes.batch_size: the range 0..4 must start at 1 or more and must not fall",
        "5: grids[0].axes.batch_size: the range 3..10 doubles and does not reach 10 from 3; to add a step, write",
        "8: grids[0].axes.context_length: the range 1..6+2 does not reach 6; the step must divide 5",
        "9: grids[0].axes.context_length: context_length is -1; it must be at least 1",
    ),
    "what varies together in unequal numbers": (
        "zip: {model: [tiny, small], batch_size: [1]}",
        "4: grids[0].zip: fields that vary together need equally many values: model has 2, batch_size has 1",
    ),
    "what varies together and alone": (
        "axes: {model: [tiny]}\nzip: {model: [small]}",
        "5: grids[0].zip.model: is already an axis of this grid",
    ),
    "no axes": (
        "axes: {}\nfixed: {model: tiny}",
        "4: grids[0].axes: is empty; give at least one axis, or remove it",
    ),
    "rows that are none": (
        "fixed: {model: tiny}\nexclude: {precision: fp32}\ninclude: [fp32]",
        "5: grids[0].exclude: a mapping is not a list",
        "6: grids[0].include[0]: 'fp32' is not a mapping of keys to values",
    ),
    "everything excluded": (
        "axes: {model: [tiny], batch_size: [1, 2]}\nexclude: [{batch_size: 1}, {d_model: 128}]",
        "3: grids[0]: every combination is excluded",
    ),
    "nothing to exclude from": (
        "fixed: {model: tiny}\ninclude: [{batch_size: 1}]\nexclude: [{batch_size: 1}]",
        "6: grids[0].exclude: excludes nothing: this grid has no axes, and exclude does not apply to include",
    ),
    "no model": (
        "axes: {precision: [fp32, bf16]}",
        "3: grids[0]: the workload timing needs a model, and d_model, d_ff, num_layers, num_heads are not given",
    ),
    "combinations that cannot be": (
        "axes: {model: [tiny, small], num_heads: [7, 128], precision: [fp32, bf16]}",
        "3: grids[0]: num_heads 7 does not divide d_model 128",
        "3: grids[0]: d_model 128 / num_heads 128 is odd; rotary embeddings need an even head dimension",
        "3: grids[0]: num_heads 7 does not divide d_model 768",
    ),
    "too many combinations": (
        f"axes: {{model: [tiny], batch_size: {list(range(1, 1002))}, context_length: {list(range(1, 1001))}}}",
        "1: 1001000 combinations are too many; the limit is 250000. Fewer values per axis, zip",
    ),
    "a key twice": (
        "fixed:\n  model: tiny\n  batch_size: 1\n  model: small",
        "7: grids[0].fixed.model: the key is given twice, first on line 5",
    ),
    "a key that is no word": (
        "fixed: {model: tiny, [1, 2]: 3, 7: 1, \"a\\nb\": 1}",
        "4: grids[0].fixed: a key must be a single word, not a list or a mapping",
        f"4: grids[0].fixed.7: unknown field {FIELDS}",
        "4: grids[0].fixed.'a\\nb': unknown field",
    ),
}  # fmt: skip


def check(message: str, answers: list[str]) -> None:
    """The message has these lines, each with its line of the file, its key and what to write."""
    lines = re.findall(r"^s\.yaml:(.*)", message, re.MULTILINE)
    assert len(lines) == len(answers), message
    for line, answer in zip(lines, answers, strict=True):
        assert line.startswith(answer)


@pytest.mark.parametrize("wrong", GRID_ERRORS)
def test_a_wrong_grid_is_refused_with_file_line_key_and_the_nearest_word(grid_of, wrong):
    text, *answers = GRID_ERRORS[wrong]
    check(error_of(grid_of, text), answers)


# What other tools have


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("seq_len: 512", "context_length"),
        ("dtype: bf16", "precision"),
        ("n_head: 4", "num_heads"),
    ],
)
def test_a_field_of_another_name_elsewhere_gets_ours_once_and_no_list(grid_of, theirs, ours):
    name = theirs.split(":")[0]
    assert error_of(grid_of, f"fixed: {{model: tiny, {theirs}}}\ninclude:\n  - {{{theirs}}}") == (
        f"s.yaml:4: grids[0].fixed.{name}: unknown field; it is called {ours} here (and on line 6)"
    )


def test_a_value_of_another_name_elsewhere_gets_ours(grid_of):
    assert "'adamw' is not an optimizer; did you mean adamw_fused?" in error_of(
        grid_of, "fixed: {model: tiny, optimizer: adamw}"
    )
    assert "true is not a compile; did you mean block?" in error_of(grid_of, "fixed: {model: tiny, compile: true}")


def test_the_axes_of_another_tool_get_ours(grid_of):
    for name in ("parameters", "matrix"):
        assert error_of(grid_of, f"{name}: {{batch_size: [1]}}\nfixed: {{model: tiny}}") == (
            f"s.yaml:4: grids[0].{name}: unknown key; it is called axes here"
        )
    assert error_of(grid_of, "axes: {model: {values: [tiny]}}") == (
        "s.yaml:4: grids[0].axes.model: is a mapping; write just the list of values, in brackets"
    )


# What is wrong in a file

VALID = "name: s\ngrids:\n  - workloads: [timing]\n    fixed: {model: tiny}\n"
FILE_ERRORS: dict[str, tuple[str | bytes, ...]] = {
    "empty": ("", "1: the file is empty; the keys of a sweep are name, description, question, budget, code, grids"),
    "nothing of what it needs": ("description: x", "1: name is missing", "1: grids is missing"),
    "a grid at the top": (
        "name: s\naxes: {model: [tiny]}\nbatch_size: 4\nseq_len: 8",
        "1: grids is missing",
        "2: axes: belongs in a grid",
        "3: batch_size: belongs in a grid",
        "4: seq_len: belongs in a grid",
    ),
    "the file of another tool": (
        "name: s\nparameters:\n  seq_len: {values: [1, 2]}",
        "1: grids is missing",
        "2: parameters: unknown key; it is called grids here",
    ),
    "TOML": ("name = 's'\n[axes]\nbatch_size = [1]", "1: this is TOML"),
    "no grid": ("name: s\ngrids: []", "2: grids: is empty; give at least one"),
    "a grid without workloads": ("name: s\ngrids:\n  - fixed: {model: tiny}", "3: grids[0]: workloads is missing"),
    "one workload": (
        VALID.replace("[timing]", "timing"),
        "3: grids[0].workloads: 'timing' is not a list; write [timing]",
    ),
    "unknown workloads": (
        VALID.replace("[timing]", "[timng, 1]"),
        f"3: grids[0].workloads: 'timng' is not a workload; did you mean timing? {WORKLOADS}",
        f"3: grids[0].workloads: 1 is not a workload {WORKLOADS}",
    ),
    "a workload that needs a width": (
        "name: s\ngrids:\n  - workloads: [noop]",
        "3: grids[0]: the workload noop needs d_model or a model, and d_model is not given; give d_model or model",
    ),
    "unknown key": (VALID + "grid: 1", "5: grid: unknown key; did you mean grids? (one of: name, "),
    "a blank name": (VALID.replace("name: s", "name: ' '"), "1: name: ' ' is not a name; give one line of text"),
    "a line that is indented less than its neighbour": (
        "name: s\ngrids:\n  - name: g\n   workloads: [timing]",
        "4: not valid YAML: the indentation does not match that of the lines above",
    ),
    "a tab": ("name:\n\tx", "2: not valid YAML: a tab; indent lines with spaces"),
    "two documents": (VALID + "---\n" + VALID, "5: not valid YAML: expected a single document in the stream, but"),
    "a control character": ("name: s\n\x07", "2: not valid YAML: the character U+0007 is not allowed"),
    "not UTF-8": (b"name: s\nx: \xff", "2: not UTF-8 text"),
}  # fmt: skip
AS_ELSEWHERE = ("empty", "nothing of what it needs", "a grid at the top", "the file of another tool", "TOML", "no grid")
"""Wrong as a whole: the answer shows a right one."""


@pytest.mark.parametrize("wrong", FILE_ERRORS)
def test_a_wrong_file_is_refused_with_file_line_and_key(sweep_of, wrong):
    text, *answers = FILE_ERRORS[wrong]
    message = error_of(sweep_of, text)
    assert message.endswith(AS_IN) == (wrong in AS_ELSEWHERE)
    check(message, answers)


def test_everything_that_is_wrong_is_reported_at_once_in_the_order_of_the_file(sweep_of):
    text = """name: 1
grids:
  - workloads: [timing]
    axes: {precision: [bf61], batch_size: [0]}
  - workloads: [timing]
    fixed: {model: small, num_heads: 7}
  - workloads: [timing]
    fixed: {model: smal}
  - workloads: [timing]
    axes: {precision: [fp32]}
    fixed: {precision: fp32}
grids: 3
"""
    assert re.findall(r"^s.yaml:(\d+): ([\w.\[\]]+)", error_of(sweep_of, text), re.MULTILINE) == [
        ("1", "name"),
        ("4", "grids[0].axes.batch_size"),
        ("4", "grids[0].axes.precision"),
        ("5", "grids[1]"),
        ("8", "grids[2].fixed.model"),
        ("9", "grids[3]"),
        ("11", "grids[3].fixed.precision"),
        ("12", "grids"),
    ]


def test_of_very_many_mistakes_the_first_fifty_are_listed(grid_of):
    lines = error_of(grid_of, f"axes: {{batch_size: {[-n for n in range(120)]}}}").splitlines()
    assert len(lines) == 51
    assert lines[-1] == "s.yaml: and 70 more"


def test_a_sweep_that_is_not_there_is_answered_with_the_packaged_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packaged = f"(packaged: {', '.join(packaged_sweeps())})"
    assert error_of(load_sweep, "qiuck") == (
        f"qiuck is neither a file nor the name of a packaged sweep; did you mean quick? {packaged}"
    )
    assert error_of(load_sweep, "mine/zzz.yaml") == "there is no sweep file mine/zzz.yaml"
    Path("does-it-pay.yaml").touch()
    said = error_of(load_sweep, "doesitpay.yaml")
    assert said == "there is no sweep file doesitpay.yaml; did you mean does-it-pay.yaml?"
    assert error_of(load_sweep, "quick.yaml") == "there is no sweep file quick.yaml; did you mean quick?"
    assert error_of(load_sweep, ".") == "cannot read the sweep file .: Is a directory"
