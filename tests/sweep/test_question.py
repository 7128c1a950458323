"""What a sweep asks: in its file, in its rows, and never in its identifiers."""

import json
import re
from pathlib import Path

from lmsweep.orchestrator.feature import packaged_sweeps
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.results.record import Attempt
from lmsweep.trials.spec.identity import trial_id
from tests.support.made_up_results import LAPTOP

GRID = "grids:\n  - workloads: [timing]\n    axes: {precision: [fp32, bf16]}\n    fixed: {device: cpu, model: tiny}\n"
ASKED = """question:
  ask: Is bf16 faster?
  compare: [precision]
  baseline: {precision: fp32}
  where: {workload: timing, causal: true}
"""


def sweep(tmp_path: Path, question: str) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\n{question}{GRID}")
    return str(path)


def test_a_question_reaches_the_rows_and_no_identifier(tmp_path: Path) -> None:
    asked, plain = (load_sweep(sweep(tmp_path, text)).trials for text in (ASKED, ""))
    assert [trial_id(one.config) for one in asked] == [trial_id(one.config) for one in plain]
    row = Attempt.begin(asked[0]).failure("timing", "oom", "why", LAPTOP)
    assert json.loads(str(row.question)) == {
        "ask": "Is bf16 faster?",
        "compare": ["precision"],
        "baseline": {"precision": "fp32"},
        "where": {"workload": "timing", "causal": "true"},
    }
    assert plain[0].question is None


def test_every_packaged_sweep_asks_one() -> None:
    question = re.compile(r"""^question:\n  ask: .*\?["']?$""", re.MULTILINE)
    assert [name for name, text in packaged_sweeps().items() if not question.search(text)] == []
