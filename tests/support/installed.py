"""Packages that add a record to lmsweep: put where a package manager puts them; those that CONTRIBUTING.md shows."""

import re
from pathlib import Path

from tests.support.command import PYTHONPATH, ROOT


def shown(group: str) -> str:
    """The module that CONTRIBUTING.md shows, before the entry point of this group."""
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition(f'entry-points."{group}"]')[0]
    return re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)[-1]


def install(folder: Path, group: str, name: str, module: str, names: str = "record") -> str:
    """Puts the module into the folder as a package manager would; the PYTHONPATH under which it is installed."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / f"{name}.py").write_text(module)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}:{names}\n")
    return f"{folder}:{PYTHONPATH}"
