"""The hooks of MkDocs that add what the site makes from the code: its first page, the reference, and the gallery.

- `index.md` is README.md.
- `reference.md` comes from `tools.reference`.
- `gallery.md` shows a report of each reference set. A report is written again if the code of `analysis/` has changed
  since; the reports are in `build/gallery`.
- A link to a file outside docs/ leads to the repository, whose address is `repo_url`. Without an address its text
  stays, without a link. A link to a file that does not exist is an error.
"""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # mkdocs loads this file by its path

from lmsweep.analysis.reference import stores  # noqa: E402
from lmsweep.analysis.report import write_report  # noqa: E402
from tools.reference import reference  # noqa: E402

GALLERY = {
    "h100-devices": "an H100 and an H200: the same 24 training steps, which is faster and at which price",
    "h200-end-to-end": "training steps of five models on an H200, three processes each",
    "h200-attention": "attention alone: widths, contexts and implementations",
    "h200-memory": "the memory of a training step, by phase and category",
    "h200-profile": "kernels by the part of the model that launched them",
    "h200-x2-ddp": "data-parallel training on two H200",
    "h100-best-grid": "205 ways to train one small model on an H100",
    "h200-best-2.7b": "the grid of a search for the best configuration of a 2.7b model",
    "h100-fp8": "the width at which float8 becomes faster than bf16",
    "h100-packing": "documents packed into one sequence, and sliding windows",
    "h200-costs": "energy, tokens and dollars",
}
"""Reference set -> what its report shows."""
BESIDE = {"h100-devices": ["h200-devices"]}
"""Reference set -> others in the same report."""


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages and the reports that are made from the code."""
    readme = re.sub(r"\]\((?!https?:|#)(?:docs/)?([^)]*)\)", _from_readme, (ROOT / "README.md").read_text("utf-8"))
    lines = [f"- [{name}](gallery/{name}.html): {words}" for name, words in GALLERY.items()]
    gallery = (
        "# Gallery\n\nReports of the stores that ship with lmsweep, as `lmsweep report NAME` writes them. Each is one "
        "file that needs no network. [The report](report.md) explains its parts.\n\n" + "\n".join(lines) + "\n"
    )
    pages = {"index.md": readme, "reference.md": reference(), "gallery.md": gallery}
    for uri, text in pages.items():
        files.append(File.generated(config, uri, content=text))
    for name in GALLERY:
        files.append(File.generated(config, f"gallery/{name}.html", abs_src_path=str(report_of(name))))
    return files


def _from_readme(link: re.Match[str]) -> str:
    """The link as it reads within docs/, where README.md is the first page."""
    is_page = link[0].startswith("](docs/")
    return f"]({link[1]})" if is_page else f"](../{link[1]})"


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Lead links to files outside docs/ to the repository. Raises PluginError if there is no such file."""

    def leads_to(link: re.Match[str]) -> str:
        path = (ROOT / "docs" / page.file.src_uri).parent.joinpath(link[2]).resolve()
        if path.is_relative_to(ROOT / "docs") and path.exists():
            return link[0]
        if not path.exists():
            raise PluginError(f"{page.file.src_uri}: there is no {link[2]}")
        if not config.repo_url:
            return f"`{link[1].strip('`')}`"
        kind = "tree" if path.is_dir() else "blob"
        return f"[{link[1]}]({config.repo_url.rstrip('/')}/{kind}/main/{path.relative_to(ROOT)})"

    return re.sub(r"\[([^\]]*)\]\((\.\./[^)#]*)[^)]*\)", leads_to, markdown)


def report_of(name: str) -> Path:
    """Return the report of a reference set, written if it is older than the code that writes it."""
    path = ROOT / "build" / "gallery" / f"{name}.html"
    newest = max(file.stat().st_mtime for file in (ROOT / "analysis").rglob("*") if file.is_file())
    if not path.exists() or path.stat().st_mtime < newest:
        path.parent.mkdir(parents=True, exist_ok=True)
        assert name in stores(), f"there is no reference set {name}"
        write_report(name, path, BESIDE.get(name, []))
    return path
