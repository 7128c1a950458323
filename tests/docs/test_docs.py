"""What the documentation says can be followed: links lead somewhere, commands are the command's, code is code."""

import ast
import re
import shlex
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from lmsweep.orchestrator.cluster.ray_session import NODE_SETTINGS
from lmsweep.orchestrator.commands.app import app
from lmsweep.orchestrator.feature import packaged_sweeps
from lmsweep.orchestrator.sweep.sweep import load_sweep
from tests.support.command import GROUP, ROOT, lmsweep_here
from tests.support.product import imported_by
from tools import ADDRESSES
from tools.pictures import PICTURES
from tools.record_terminal import RECORDINGS

TOP = ("README.md", "AGENTS.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").glob("*.md"))]
LAB = sorted((ROOT / "docs" / "lab").glob("*.md"))
"""The lab notebook is append-only: its links are checked, but its commands are those of their day."""
EXTRA = {"flash_attn_interface", "datasets"}
"""Libraries of others, which need not be installed."""
HOLES = {"FILE", "SWEEP", "STORE", "FOLDER", "..."}
"""Words of a command that stand for the reader's own."""


class Snippet(NamedTuple):
    """A piece of a page, and where it begins."""

    page: str
    line: int
    text: str
    is_mention: bool = False
    """Named in a sentence, where it may lack what it would need to run."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(language: str) -> list[Snippet]:
    """The fenced blocks of all pages in this language."""
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
            found.append(Snippet(page.name, text[: match.start()].count("\n") + 1, match[1]))
    return found


def commands(page: Path) -> Iterator[Snippet]:
    """Every `lmsweep ...`: in a block, indented, or between backticks in the text."""
    text = page.read_text("utf-8")
    for number, line in enumerate(text.replace("\\\n", "  ").splitlines(), start=1):
        for command in re.findall(r"^(?:    |\$ )?(?:\.venv/bin/)?(lmsweep [^│─]*)$", line):
            yield Snippet(page.name, number, command.partition("  #")[0])
        for command in re.findall(r"`(lmsweep [^`]+)`", line):
            yield Snippet(page.name, number, command, is_mention=True)


def prose(page: Path) -> str:
    """The page without its blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that a code host gives the headings of a page."""
    headings = re.findall(r"^#+ +(.+?)\s*$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *LAB], ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        target = re.sub(ADDRESSES, "/", target) if page == PAGES[0] else target
        assert page != PAGES[0] or target.startswith(("/", "https:")), f"an index cannot follow {target}"
        if re.match(r"(https?|mailto):", target):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name.lstrip("/")).resolve() if name else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_and_folder_of_the_code_that_is_named_exists(page: Path) -> None:
    """NAME stands for a file that is added, in a folder that exists."""
    named = re.findall(
        r"`((?:trials|orchestrator|analysis|benchmarks|docs|tests|tools)/[^`\s*]*)", page.read_text("utf-8")
    )
    paths = [re.split(r"/(?:test_)?NAME", one)[0] for one in named]
    places = (ROOT, ROOT / "examples" / "student")
    assert [path for path in paths if not any((place / path).exists() for place in places)] == []


def test_the_documentation_has_at_most_18_pages_of_2000_words_and_24000_words() -> None:
    """A page is for one reader with one job: what no reader of it needs is left out, or is an entry of the lab."""
    words = {page.relative_to(ROOT).as_posix(): len(page.read_text("utf-8").split()) for page in PAGES}
    assert not {name: count for name, count in words.items() if count > 2000}
    read = {name: count for name, count in words.items() if name.startswith(("docs/", "README"))}
    assert len(read) <= 18 + 1 and sum(read.values()) <= 24_000


def test_the_lab_notebook_lists_every_entry_by_date() -> None:
    entries = [page.name for page in LAB if page.name != "README.md"]
    listed = re.findall(r"\]\((\d{4}-\d\d-\d\d-[^)]*\.md)\)", (ROOT / "docs" / "lab" / "README.md").read_text("utf-8"))
    assert sorted(listed) == entries and [name[:10] for name in listed] == sorted(name[:10] for name in listed)


@pytest.mark.parametrize("snippet", [one for page in PAGES for one in commands(page)], ids=str)
def test_every_command_has_a_verb_and_options_that_exist(snippet):
    words = shlex.split(snippet.text)[1:]
    group: Any = GROUP(app)
    whole = {name for option in group.params for name in option.opts}
    while words and words[0].startswith("-"):  # options of the whole command
        assert words.pop(0) in {*whole, "--help"}, snippet.text
    if not words or words[0].isupper():
        return
    verb = group.commands[words[0]]
    options = {name: option for option in verb.params for name in (*option.opts, *option.secondary_opts)}
    named = [word.partition("=")[0] for word in words[1:] if re.match(r"-{1,2}[a-z]", word)]
    assert not [name for name in named if name not in options and name != "--help"], snippet.text
    if not snippet.is_mention and not HOLES & {*words}:
        verb.make_context(words[0], words[1:])


def printed_tables() -> list[Snippet]:
    """Each indented `compare` with the first lines that it prints, which begin below an empty line."""
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in re.finditer(
            r"(?m)^    (lmsweep compare .*)\n\n((?:    .*: speed-up .*\n)(?:    .*\n|\n(?=    ))+)", text
        ):
            found.append(Snippet(page.name, text[: match.start()].count("\n") + 1, match[0]))
    return found


@pytest.mark.parametrize("snippet", printed_tables(), ids=str)
def test_a_table_below_a_command_is_what_the_command_prints(snippet):
    command, _, table = snippet.text.strip().partition("\n\n")
    assert textwrap.dedent(table) in lmsweep_here(*shlex.split(command)[1:])


def test_every_picture_is_drawn_by_a_script_and_its_caption_says_what_the_report_says():
    """That the report says it, `tools.pictures` checks when it draws."""
    of_benchmarks = {"verdicts"}
    assert {path.stem for path in (ROOT / "docs").glob("*.png")} == PICTURES.keys() | of_benchmarks
    assert {path.stem for path in (ROOT / "docs").glob("*.svg")} == RECORDINGS.keys()
    text = "".join(page.read_text("utf-8") for page in PAGES)
    for name, picture in PICTURES.items():
        captions = re.findall(rf"!\[([^]]*)\]\([^)]*\b{name}\.png\)", text)
        assert captions and all(picture.says.lower() in caption.lower() for caption in captions), name


def test_the_first_command_of_readme_is_short_and_prints_what_stands_below_it() -> None:
    first = next(commands(PAGES[0]))
    assert len(first.text) <= 60 and any(first.text in table.text for table in printed_tables())


@pytest.mark.parametrize("snippet", blocks("python"), ids=str)
def test_every_block_of_python_is_python_and_imports_what_there_is(snippet):
    tree = ast.parse(snippet.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and not EXTRA & imported_by([node]):
            exec(compile(ast.Module([node], []), str(snippet), "exec"), {})


@pytest.mark.parametrize("snippet", blocks("yaml"), ids=str)
def test_every_sweep_in_the_pages_is_read(snippet, tmp_path, monkeypatch):
    """Own code is that of examples/student, or made up: then a file with the names is made up, too."""
    if "grids:" not in snippet.text:
        pytest.skip("no sweep")
    folder = tmp_path / "code"
    shutil.copytree(ROOT / "examples" / "student", folder)
    for module, name in re.findall(r"\b(mine(?:\.\w+)+):(\w+)", snippet.text):
        file = folder.joinpath(*module.split(".")).with_suffix(".py")
        file.parent.mkdir(exist_ok=True)
        with file.open("a") as code:
            code.write(f"class {name}: ...\n")
    monkeypatch.chdir(folder)
    path = folder / "sweep.yaml"
    path.write_text(snippet.text)
    assert load_sweep(str(path)).trials


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_and_packaged_sweep_that_is_named_exists(page):
    text = page.read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {*re.findall(r"(?:`|^    )make ([a-z-]+)", text, flags=re.MULTILINE)} <= targets
    named = re.findall(r"lmsweep (?:run|plan) ([a-z][a-z0-9-]*)(?=[`\s])", text)
    assert {*named} <= packaged_sweeps().keys()


def test_the_script_for_slurm_sets_what_the_other_clusters_set():
    """Ray's own settings, which all its processes need."""
    shell = (ROOT / "docs" / "clusters.md").read_text("utf-8")
    assert NODE_SETTINGS.keys() | {"RAY_AUTH_MODE"} == {*re.findall(r"(RAY_\w+)=", re.search(r"export (.*)", shell)[1])}


def test_every_test_that_the_page_about_failures_names_exists():
    """In the last column of its tables of events: the name of a file of tests, and parts of the names of its tests."""
    page = (ROOT / "docs" / "failures.md").read_text("utf-8")
    missing = []
    tables = re.findall(r"^\|.*\| test \|\n\|[-|]+\n((?:\|.*\n?)+)", page, flags=re.MULTILINE)
    assert len(tables) >= 5
    for row in "".join(tables).splitlines():
        named = re.findall(r"(\w+): (`[^:]*`)", row.split("|")[-2])
        assert named, row
        for stem, parts in named:
            (path,) = (ROOT / "tests").rglob(f"test_{stem}.py")
            tests = re.findall(r"^ *def (test_\w+)", path.read_text("utf-8"), flags=re.MULTILINE)
            missing += [part for part in re.findall(r"`(\w+)`", parts) if not any(part in name for name in tests)]
    assert not missing


def test_the_workflow_runs_what_ci_runs_the_lowest_pytorch_and_the_wheel():
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert re.findall(r"^(?:exec )?make (.*)$", script, flags=re.MULTILINE) == ["test"]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yaml").read_text("utf-8"))
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert commands == ["bash .ci/run", "make test-lowest-torch", "make wheel"]


def test_every_path_that_make_and_the_hooks_name_exists():
    for name in ("Makefile", ".pre-commit-config.yaml"):
        paths = re.findall(r"\b(?:tests|benchmarks)/[\w/.]+", (ROOT / name).read_text("utf-8"))
        assert paths and [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yaml")), ids=lambda path: path.stem
)
def test_an_issue_template_asks_for_the_command_and_the_machine(path):
    form = yaml.safe_load(path.read_text("utf-8"))
    assert form["name"] and form["description"]
    asked = {field["id"] for field in form["body"] if field.get("validations", {}).get("required")}
    assert {"command", "doctor"} <= asked
