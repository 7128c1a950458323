"""Trials: what one measurement is, how it is taken, and where its result is kept. Knows nothing of Ray."""

__version__ = "0.1.0"
