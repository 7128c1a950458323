"""What `doctor --format json` prints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from lmsweep.orchestrator.features.doctor.machine_checks import Finding

State = Literal["ok", "warning", "fails"]


@dataclass(frozen=True, kw_only=True)
class Found:
    check: str
    finding: str
    state: State
    """fails: the node says that it has GPUs which trials there could not use."""
    advice: str | None
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


def doctor_output(nodes: Mapping[str, Sequence[Finding]]) -> DoctorOutput:
    """Return what was found on the nodes, by address; this machine has none."""
    return DoctorOutput(
        nodes=[
            Examined(
                node=name or None,
                findings=[
                    Found(check=one.check, finding=one.found, state=state_of(one), advice=one.advice or None)
                    for one in findings
                ],
            )
            for name, findings in nodes.items()
        ]
    )


def state_of(one: Finding) -> State:
    return "fails" if one.fails else "warning" if one.advice else "ok"
