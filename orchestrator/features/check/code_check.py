"""Asks the process that imports the user's code whether it works, and lays out its findings."""

import json
from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import NamedTuple

from lmsweep.orchestrator.features.check.finding import Finding, Question, line_of
from lmsweep.orchestrator.planning.prediction_process import start_without_gpu
from lmsweep.trials.code.missing_packages import install_words, missing_packages
from lmsweep.trials.code.source import find_source
from lmsweep.trials.machine.processes import kill_group
from lmsweep.trials.results.roles import MODEL, arguments_for
from lmsweep.trials.spec.config import RequestError, Trial
from lmsweep.trials.spec.reference import HUGGING_FACE, REFERENCES, Code, is_reference, parse_reference

FIELDS = {name: arguments_for(name) for name in REFERENCES} | {
    "model_code": MODEL,
    "attention": (*arguments_for("attention"), "causal", "num_heads"),
}
"""Each field that may hold a reference -> the other fields that its check depends on."""


class Answer(NamedTuple):
    """The findings about one reference. It is wrong if trials with it would fail."""

    question: Question
    findings: tuple[Finding, ...]
    is_wrong: bool


def questions(trials: Sequence[Trial]) -> list[Question]:
    """Return one question for each distinct reference of the trials: about the trial with the longest context, or for a
    workload about the first.

    A reference is asked again for other values of the fields that its check depends on.
    """
    asked: dict[tuple[object, ...], Question] = {}
    for trial in trials:
        for text in (name for name in trial.workloads if is_reference(name)):
            asked.setdefault(("workload", text), Question(field="workload", config=trial.config, workloads=(text,)))
        for field, conditions in FIELDS.items():
            text = getattr(trial.config, field)
            if text is not None and is_reference(text):
                key = (field, text, *(getattr(trial.config, name) for name in conditions))
                before = asked.get(key)
                if before is None or before.config.context_length < trial.config.context_length:
                    asked[key] = Question(field=field, config=trial.config, workloads=trial.workloads)
    return list(asked.values())


def answers(asked: Sequence[Question], code: Code, seconds: float) -> Iterator[Answer]:
    """Yield the answers of a process without a GPU; `seconds` limits each. Raises RequestError if it fails."""
    request = json.dumps({"code": code, "questions": asked, "seconds": seconds}, default=vars)
    process = start_without_gpu("lmsweep.orchestrator.features.check.check_code", request)
    count = 0
    try:
        assert process.stdout is not None, "it is a pipe"
        for line in process.stdout:
            answer = json.loads(line)
            findings = tuple(Finding(**one) for one in answer["findings"])
            yield Answer(asked[answer["index"]], findings, any(one.kind == "wrong" for one in findings))
            count += 1
        if process.wait() or count < len(asked):
            raise RequestError("the process that checks the code failed (see above)")
    finally:
        kill_group(process.pid)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def missing_from(asked: Sequence[Question], code: Code) -> str:
    """Return which imported packages are not installed, with the command that installs them; '' if none."""
    texts = [one.reference for one in asked if not one.reference.startswith(HUGGING_FACE)]
    files = [path for text in texts if (path := find_source(parse_reference(text), code))]
    return install_words(missing_packages(files, code), code)


def as_text(answer: Answer, code: Code, columns: int | None = None) -> str:
    """Return the reference, its place, and each finding, errors first; wrapped to `columns`."""
    question = answer.question
    field = "model" if question.field == "model_code" else question.field
    place = None if question.reference.startswith(HUGGING_FACE) else line_of(question.reference, code)
    args = getattr(question.config, f"{field}_args", None)
    size = f" {question.config.model}" if field == "model" else ""
    heading = f"{field}{size}: {question.reference}{f' {args}' if args else ''}{f'  ({place})' if place else ''}"
    wrong = [one.found for one in answer.findings if one.kind == "wrong"]
    others = [one for one in answer.findings if one.kind != "wrong"]
    width = max((len(one.what) for one in others), default=0)
    lines = [f"  {one.what:<{width}}  {'' if one.kind == 'fine' else 'no: '}{one.found}" for one in others]
    if columns:
        indent = " " * (width + 4)
        lines = [fill(line, columns, subsequent_indent=indent, break_long_words=False) for line in lines]
    return "\n".join([heading, *wrong, *lines])
