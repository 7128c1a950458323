"""docs/fields.md is right."""

import json
import re
from pathlib import Path
from typing import get_args, get_type_hints

from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.spec.config import ARGUMENTS, CONFIG_FIELDS, TrialConfig
from lmsweep.trials.spec.config import WORDS as WORDS_OF
from lmsweep.trials.spec.model_sizes import SIZES
from tests.support.sweeps import error_of

PAGE = (Path(__file__).parents[2] / "docs" / "fields.md").read_text("utf-8")


def test_the_page_about_fields_lists_every_field_with_its_values_the_default_first():
    rows = {
        name: row[2].strip()
        for row in (line.split("|") for line in PAGE.splitlines())
        if len(row) == 5
        for name in re.findall(r"`(\w+)`", row[1])
    }
    hints = get_type_hints(TrialConfig)
    for name, field in CONFIG_FIELDS.items():
        if name in ("model_code", *ARGUMENTS.values()):
            continue  # parts of a model, an attention, ...
        assert name in rows, f"docs/fields.md has no row for {name}"
        words = WORDS_OF.get(name) or (word for word in get_args(hints[name]) if isinstance(word, str))
        words = [*SIZES] if name == "model" else [*words]
        assert [word for word in words if f"`{word}`" not in rows[name]] == []
        if field.default not in (None, 0):
            written = str(field.default).lower() if isinstance(field.default, bool) else field.default
            assert rows[name].startswith(f"`{written}`"), name


def test_the_example_of_the_page_has_as_many_trials_and_its_mistake_is_answered_as_it_says(tmp_path):
    (tmp_path / "example.yaml").write_text(PAGE.split("```yaml\n")[1].split("```")[0])
    assert f"{len(load_sweep(str(tmp_path / 'example.yaml')).trials)} trials" in PAGE
    (tmp_path / "mine.yaml").write_text(
        "name: s\ngrids:\n  - workloads: [timing]\n    axes:\n      precision: [bf61]\n"
    )
    assert error_of(load_sweep, str(tmp_path / "mine.yaml")).removeprefix(f"{tmp_path}/") in PAGE


def test_the_question_of_the_page_is_read(tmp_path):
    example, question, *_ = (part.split("```")[0] for part in PAGE.split("```yaml\n")[1:])
    (tmp_path / "example.yaml").write_text(example + question)
    asked = json.loads(str(load_sweep(str(tmp_path / "example.yaml")).trials[0].question))
    assert asked["ask"].endswith("?") and "," in asked["ask"] and asked["compare"] == ["compile"]
