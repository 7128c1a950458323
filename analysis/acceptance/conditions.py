"""What a machine says about itself beside its times."""

from typing import NamedTuple


class Condition(NamedTuple):
    """What slows a unit of a node, seen before anything was measured."""

    unit: str
    """GPU 0, host, links."""
    says: str
    disturbs: bool = False
    """Whether it passes: the unit is faster without it. Otherwise it explains why the unit is slow."""
