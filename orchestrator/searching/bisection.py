"""Finds the release in which something changed, by halving: which release to measure next, and between which it is."""


class Bisection:
    """A list of releases of which the first has not changed and the last has."""

    def __init__(self, count: int) -> None:
        """count: the number of releases, at least 2; they are known by their positions."""
        assert count >= 2, "two ends"
        self.low = 0
        """The last position that is known not to have changed."""
        self.high = count - 1
        """The first position that is known to have changed."""
        self.skipped: set[int] = set()
        """Positions that cannot be measured."""

    @property
    def between(self) -> list[int]:
        """The positions that may hold the change and can be measured."""
        return [position for position in range(self.low + 1, self.high) if position not in self.skipped]

    def next(self) -> int | None:
        """Return the position to measure next, the one nearest the middle; None if the change is found."""
        middle = (self.low + self.high) / 2
        return min(self.between, key=lambda position: abs(position - middle), default=None)

    def learn(self, position: int, has_changed: bool | None) -> None:
        """Take note of a measurement; None if there is none."""
        if has_changed is None:
            self.skipped.add(position)
        elif has_changed:
            self.high = position
        else:
            self.low = position
