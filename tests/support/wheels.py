"""Wheels that a test writes: small packages of several releases, and stand-ins for other releases of torch."""

import zipfile
from pathlib import Path

import torch

SHIM = f"""
import pathlib
__file__ = {torch.__file__!r}
__path__ = [str(pathlib.Path(__file__).parent)]
exec(compile(pathlib.Path(__file__).read_text(), __file__, "exec"))
__version__ = {{version!r}}
"""
"""The installed torch under another version: a release that differs in nothing else."""


def write_wheel(folder: Path, name: str, version: str, code: str) -> None:
    """Writes a wheel of one module."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)


def write_torch(folder: Path, version: str) -> None:
    """Writes a wheel with the installed torch under another version."""
    write_wheel(folder, "torch", version, SHIM.format(version=version))
