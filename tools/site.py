"""The hooks of MkDocs that add what the site makes from the code: its first page, the reference, and the gallery.

- `index.md` is README.md.
- `reference.md` comes from `tools.reference`.
- `gallery.md` shows the headline and the first chart of each reference set, and leads to its report. They are in
  `build/gallery`, and are written again if the code of `analysis/` has changed since.
- A link to a file outside docs/ leads to the repository, whose address is `repo_url`. Without an address its text
  stays, without a link. A link to a file that does not exist is an error.
"""

import re
import sys
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # mkdocs loads this file by its path

from lmsweep.analysis.reference import stores  # noqa: E402
from lmsweep.orchestrator.features.report.chart_files import drawn_charts  # noqa: E402
from lmsweep.orchestrator.features.report.content import content_of  # noqa: E402
from lmsweep.orchestrator.features.report.page import page_with  # noqa: E402
from tools import ADDRESSES  # noqa: E402
from tools.reference import reference  # noqa: E402

BESIDE = {"h100-devices": ["h200-devices"]}
"""Reference set -> others in the same report."""


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages and the reports that are made from the code."""
    readme = re.sub(rf"\]\((?:{ADDRESSES})([^)]*)\)", _from_readme, (ROOT / "README.md").read_text("utf-8"))
    cards = [_card(name, *report_of(name)) for name in stores()]
    gallery = (
        "# Gallery\n\nWhat the stores that ship with lmsweep say. A name leads to its report, as `lmsweep report` "
        "writes: one file that needs no network. [The report](report.md) explains its parts.\n\n"
        + "\n".join(cards)
        + "\n"
    )
    pages = {"index.md": readme, "reference.md": reference(), "gallery.md": gallery}
    for uri, text in pages.items():
        files.append(File.generated(config, uri, content=text))
    for name in stores():
        for path in report_of(name)[:2]:
            if path.exists():
                files.append(File.generated(config, f"gallery/{path.name}", abs_src_path=str(path)))
    return files


def _from_readme(link: re.Match[str]) -> str:
    """The link as it reads within docs/, where README.md is the first page."""
    return f"]({link[1].removeprefix('docs/')})" if link[1].startswith("docs/") else f"](../{link[1]})"


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Lead links to files outside docs/ to the repository. Raises PluginError if there is no such file.

    The search leaves the lab notebook out: a reader asks what holds today.
    """
    if page.file.src_uri.startswith("lab/"):
        page.meta["search"] = {"exclude": True}

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


def on_post_build(*, config: Any) -> None:
    """Let the search find W&B, which the index writes as HTML."""
    index = Path(config.site_dir, "search", "search_index.json")
    index.write_text(re.sub(r"(?<=\w)&amp;(?=\w)", "&", index.read_text("utf-8")), "utf-8")


def report_of(name: str) -> tuple[Path, Path, Path]:
    """Return the report of a reference set, its first chart and its headline, written if older than the code's files.

    Without a chart the second file is not there.
    """
    page, chart, headline = (ROOT / "build" / "gallery" / f"{name}.{kind}" for kind in ("html", "svg", "txt"))
    newest = max(file.stat().st_mtime for file in (ROOT / "analysis").rglob("*") if file.is_file())
    if not headline.exists() or headline.stat().st_mtime < newest:
        page.parent.mkdir(parents=True, exist_ok=True)
        content = content_of(name, BESIDE.get(name, []))
        page.write_text("".join(page_with(content)), "utf-8")
        for _, drawn in islice(drawn_charts(content), 1):
            chart.write_bytes(drawn)
        headline.write_text(content.headline, "utf-8")
    return page, chart, headline


def _card(name: str, page: Path, chart: Path, headline: Path) -> str:
    """A line of the gallery: HTML, because Markdown has no width of a picture."""
    address = page.name
    picture = f'<img src="{chart.name}" alt="" loading="lazy" width="280">' if chart.exists() else ""
    words = escape(headline.read_text("utf-8"))
    return f'<p class="card"><a href="{address}">{picture}<br>{name}</a><br>{words}.</p>'
