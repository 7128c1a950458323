"""Writes the reference of the documentation's site from the code: commands, fields, columns, statuses and flags.

``python -m tools.reference`` prints it.
"""

import ast
import inspect
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer.main

from lmsweep.analysis.presets import presets
from lmsweep.orchestrator import cli
from lmsweep.orchestrator.commands.app import app
from lmsweep.orchestrator.feature import packaged_sweeps
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.results import environment, measurement, outcome, record
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec import config
from lmsweep.trials.spec.config import CONFIG_FIELDS
from lmsweep.trials.spec.workloads import workloads


def reference() -> str:
    """Return the page, in Markdown."""
    return "\n\n".join(
        (
            "# Reference",
            "Made from the code of this version.",
            "## Commands",
            *_commands(),
            "## Exit codes",
            _exit_codes(),
            "## Fields of a sweep",
            "Each may be an axis: [fields](fields.md) has their values, and says how they combine.",
            _table(("field", "default", "means"), _fields()),
            "## Workloads",
            _table(("workload", "measures", "reads"), _workloads()),
            "## Packaged sweeps",
            _table(("sweep", "asks"), ((f"`{n}`", load_sweep(n).description) for n in sorted(packaged_sweeps()))),
            "## Tables by name",
            _table(("preset", "question"), ((f"`{name}`", one.question) for name, one in presets().items())),
            "## Statuses",
            _table(("status", "means"), ((f"`{_value(outcome, 'Status', n)}`", w) for n, w in _status())),
            "## Flags",
            _table(("flag", "means, and what to do"), ((f"`{flag}`", flag.advice) for flag in Flag)),
            "## Columns",
            "Of the table `measurements` of a store, beside the fields of a sweep.",
            "### Result",
            _table(("column", "means"), _documented(record, "Record", leave_out=("config", "fingerprint"))),
            "### Measurement",
            _table(("column", "means"), _documented(measurement, "Measurement")),
            "### Environment",
            _table(("column", "means"), _documented(environment, "Fingerprint")),
        )
    )


def _commands() -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    for name, verb in group.commands.items():
        words, _, example = inspect.cleandoc(verb.help).partition("\b\n")
        arguments = [one for one in verb.params if one.param_type_name == "argument"]
        options = [one for one in verb.params if one.param_type_name == "option" and not one.hidden]
        rows = [(f"`{_name(one)}`", one.help or "") for one in arguments]
        rows += [(", ".join(f"`{word}`" for word in one.opts), (one.help or "") + _default(one)) for one in options]
        label, _, commands = example.strip().partition("\n")
        yield f"### lmsweep {name}"
        yield words.strip()
        yield _block(" ".join(["lmsweep", name, *map(_name, arguments), *(["[OPTIONS]"] if options else [])]))
        if rows:
            yield _table(("argument or option", "means"), rows)
        yield label
        yield _block("\n".join(line.strip() for line in commands.splitlines()))


def _name(argument: Any) -> str:
    name = argument.name.upper()
    return name if argument.required else f"[{name}]"


def _default(option: Any) -> str:
    shown = isinstance(option.default, str) and option.default and "Default" not in (option.help or "")
    return f" Default: {option.default}." if shown else ""


def _exit_codes() -> str:
    words = inspect.cleandoc(cli.main.__doc__ or "")
    return words.partition("Exit codes:\n\n")[2]


def _fields() -> Iterator[tuple[str, str, str]]:
    for name, words in _documented(config, "TrialConfig"):
        default = CONFIG_FIELDS[name.strip("`")].default
        yield name, f"`{default}`" if isinstance(default, str | int | float) else "", words


def _workloads() -> Iterator[tuple[str, str, str]]:
    for workload in workloads().values():
        found = find_spec(workload.module)
        assert found and found.origin
        words = ast.get_docstring(ast.parse(Path(found.origin).read_text("utf-8"))) or ""
        yield (
            f"`{workload.name}`",
            words.partition("\n")[0].partition(": ")[2],
            ", ".join(f"`{name}`" for name in workload.protocol) or "nothing",
        )


def _status() -> list[tuple[str, str]]:
    return [(name.strip("`"), words) for name, words in _documented(outcome, "Status")]


def _value(module: Any, kind: str, name: str) -> str:
    return str(getattr(module, kind)[name].value)


def _documented(module: Any, kind: str, leave_out: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """Return the attributes of a class with the docstrings below them; without one if the name says it all."""
    tree = ast.parse(inspect.getsource(getattr(module, kind)))
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef))
    found = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign):
            (target,) = node.targets
        if not isinstance(target, ast.Name) or target.id in leave_out:
            continue
        words = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        found.append((f"`{target.id}`", " ".join(str(words).split())))
    return found


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _block(text: str) -> str:
    return f"```\n{text.strip()}\n```"


if __name__ == "__main__":
    print(reference())
