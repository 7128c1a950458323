"""Finds the release in which something changed, by halving."""


class Bisection:
    """A search through a list of releases: the first has not changed, the last has."""

    def __init__(self, count: int) -> None:
        assert count >= 2, "two ends"
        self.low = 0
        """The last position that is known not to have changed."""
        self.high = count - 1
        """The first position that is known to have changed."""
        self.skipped: set[int] = set()
        """Positions that cannot be measured."""

    def next(self) -> int | None:
        """Return the position to measure next, the one nearest the middle; None if the change is found."""
        middle = (self.low + self.high) / 2
        left = (position for position in range(self.low + 1, self.high) if position not in self.skipped)
        return min(left, key=lambda position: abs(position - middle), default=None)

    def learn(self, position: int, has_changed: bool | None) -> None:
        """Learn a measurement; None if the release cannot be measured."""
        if has_changed is None:
            self.skipped.add(position)
        elif has_changed:
            self.high = position
        else:
            self.low = position
