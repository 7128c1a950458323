"""A reason in place of an answer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """Returned where there is no answer: no node can hold a trial, or its memory is not predicted."""

    reason: str
    """Why, in words for a user."""
