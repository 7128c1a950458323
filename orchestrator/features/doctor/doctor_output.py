"""What the doctor finds, as records: what `doctor --format json` prints."""

from dataclasses import dataclass
from typing import ClassVar, Literal

State = Literal["ok", "warning", "fails"]


@dataclass(frozen=True)
class Found:
    """The result of one check."""

    check: str
    finding: str
    state: State = "ok"
    """fails: the node says that it has GPUs which trials there could not use."""
    advice: str | None = None
    """null if it is ok."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    node: str | None
    """Its address; null for this machine."""
    findings: list[Found]


@dataclass(frozen=True, kw_only=True)
class DoctorOutput:
    __pydantic_config__: ClassVar = {"use_attribute_docstrings": True}
    nodes: list[Examined]


def unless(is_fine: bool, check: str, finding: str, advice: str) -> Found:
    """Return what was found: a warning with this advice, unless it is fine."""
    return Found(check, finding) if is_fine else Found(check, finding, "warning", advice)
