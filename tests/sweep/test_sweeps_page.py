"""docs/sweeps.md and docs/fields.md are right."""

from pathlib import Path
from typing import get_args, get_type_hints

from lmsweep.orchestrator.feature import packaged_sweeps
from lmsweep.orchestrator.features.catalogue.listed import QUESTIONS
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.spec.config import ARGUMENTS, CONFIG_FIELDS, TrialConfig
from lmsweep.trials.spec.config import WORDS as WORDS_OF
from lmsweep.trials.spec.model_sizes import SIZES
from tests.support.sweeps import error_of


def test_the_page_about_fields_lists_every_field_with_its_values_and_default():
    page = (Path(__file__).parents[2] / "docs" / "fields.md").read_text("utf-8")
    rows = {row[1].strip().strip("`"): row for row in (line.split("|") for line in page.splitlines()) if len(row) == 6}
    hints = get_type_hints(TrialConfig)
    for name, field in CONFIG_FIELDS.items():
        if name in ("model_code", *ARGUMENTS.values()):
            continue  # parts of a model, an attention, ...
        assert name in rows, f"docs/fields.md has no row for {name}"
        words = WORDS_OF.get(name) or (word for word in get_args(hints[name]) if isinstance(word, str))
        words = [*SIZES] if name == "model" else [*words]
        assert [word for word in words if f"`{word}`" not in rows[name][2]] == []
        if field.default not in (None, 0):
            written = str(field.default).lower() if isinstance(field.default, bool) else field.default
            assert rows[name][3].strip() == f"`{written}`"


def test_the_page_says_how_many_trials_each_packaged_sweep_has_and_its_example_is_right(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text("utf-8")
    for name in packaged_sweeps():
        assert f"| `{name}` | {len(load_sweep(name).trials)} |" in page
    (tmp_path / "example.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    assert len(load_sweep(str(tmp_path / "example.yaml")).trials) == 23
    (tmp_path / "mine.yaml").write_text(
        "name: s\ngrids:\n  - workloads: [timing]\n    axes:\n      precision: [bf61]\n"
    )
    assert error_of(load_sweep, str(tmp_path / "mine.yaml")).removeprefix(f"{tmp_path}/") in page


def test_each_packaged_sweep_answers_one_question():
    assert sorted(name for names in QUESTIONS.values() for name in names) == sorted(packaged_sweeps())
