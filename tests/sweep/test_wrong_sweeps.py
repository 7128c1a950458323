"""One message reports all that is wrong in a sweep file, with file, line, key and the nearest word."""

import re
from pathlib import Path

import pytest

from lmsweep.orchestrator.feature import packaged_sweeps
from lmsweep.orchestrator.sweep.sweep import EXAMPLE, load_sweep
from tests.support.sweeps import FIELDS, OR_OTHER, PRECISIONS, WORKLOADS, cases, error_of

LISTS = {"$FIELDS": FIELDS, "$OR_OTHER": OR_OTHER, "$PRECISIONS": PRECISIONS, "$WORKLOADS": WORKLOADS}


CASES: dict[str, tuple[str | bytes, list[str]]] = {
    **cases("wrong_sweeps.txt"),
    "a tab": ("name:\n\tx", ["2: not valid YAML: a tab; indent lines with spaces"]),
    "a control character": ("name: s\n\x07", ["2: not valid YAML: the character U+0007 is not allowed"]),
    "not UTF-8": (b"name: s\nx: \xff", ["2: not UTF-8 text"]),
}
AS_ELSEWHERE = ("empty", "nothing of what it needs", "a grid at the top", "the file of another tool", "TOML", "no grid")
"""Wrong as a whole: the answer shows a right one."""


@pytest.mark.parametrize("wrong", CASES)
def test_a_wrong_file_is_refused_with_file_line_key_and_what_to_write(sweep_of, wrong):
    text, answers = CASES[wrong]
    message = error_of(sweep_of, text)
    assert message.endswith(EXAMPLE) == (wrong in AS_ELSEWHERE)
    lines = re.findall(r"^s\.yaml:(.*)", message, re.MULTILINE)
    assert len(lines) == len(answers), message
    for line, answer in zip(lines, answers, strict=True):
        for name, words in LISTS.items():
            answer = answer.replace(name, words)
        assert line.startswith(answer)


def test_of_very_many_mistakes_the_first_fifty_are_listed(grid_of):
    lines = error_of(grid_of, f"axes: {{batch_size: {[-n for n in range(120)]}}}").splitlines()
    assert len(lines) == 51
    assert lines[-1] == "s.yaml: and 70 more"


def test_a_sweep_that_is_not_there_is_answered_with_the_packaged_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packaged = f"(packaged: {', '.join(packaged_sweeps())})"
    Path("does-it-pay.yaml").touch()
    for name, said in {
        "qiuck": f"qiuck is neither a file nor the name of a packaged sweep; did you mean quick? {packaged}",
        "mine/zzz.yaml": "there is no sweep file mine/zzz.yaml",
        "doesitpay.yaml": "there is no sweep file doesitpay.yaml; did you mean does-it-pay.yaml?",
        "quick.yaml": "there is no sweep file quick.yaml; did you mean quick?",
        ".": "cannot read the sweep file .: Is a directory",
    }.items():
        assert error_of(load_sweep, name) == said
