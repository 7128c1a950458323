"""What `lmsweep check` asks about the user's code, and what it finds."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from lmsweep.trials.spec.config import TrialConfig

Kind = Literal["fine", "cannot", "wrong"]
"""fine; cannot: something that lmsweep cannot do with this code, and why; wrong: no trial with it can succeed."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """Does the code that one field of a configuration refers to work?"""

    field: str
    """The configuration field with the reference: model_code, attention, optimizer, loss, ddp or step; or workload,
    which is then the only one of `workloads`.
    """
    config: TrialConfig
    """A configuration with it."""
    workloads: tuple[str, ...]
    """What is measured on that configuration."""

    @property
    def reference(self) -> str:
        """The reference itself."""
        return self.workloads[0] if self.field == "workload" else str(getattr(self.config, self.field))

    def as_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return asdict(self)

    @staticmethod
    def from_json(found: dict[str, Any]) -> "Question":
        """Return the question that `as_json` wrote."""
        config = TrialConfig(**found["config"])
        return Question(field=found["field"], config=config, workloads=tuple(found["workloads"]))


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    what: str
    found: str
    kind: Kind = "fine"
