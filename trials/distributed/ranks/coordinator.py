"""Keeps the ranks of a trial in step: rank 0 names a function, every rank calls it, rank 0 gathers the results."""

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import torch.distributed as dist

Local = TypeVar("Local")
Result = TypeVar("Result")
Given = ParamSpec("Given")


class Team(Generic[Local]):
    """All ranks of a trial, each with its own object. Only rank 0 decides, so that ranks cannot diverge."""

    def __init__(self, local: Local) -> None:
        self._local = local
        # Calls travel over gloo, so that they do not add to the traffic that is measured.
        self._group = dist.new_group(backend="gloo")

    def all(
        self,
        function: Callable[Concatenate[Local, Given], Result],
        /,
        *arguments: Given.args,
        **named: Given.kwargs,
    ) -> list[Result]:
        """Call a function or method in every rank, on that rank's object; return the results by rank. Rank 0 only."""
        dist.broadcast_object_list([(function, arguments, named)], src=0, group=self._group)
        results: list[Any] = [None] * dist.get_world_size()
        dist.gather_object(self._call(function, *arguments, **named), results, dst=0, group=self._group)
        return results

    def _call(self, function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        if "." in function.__qualname__:  # a method, which the class of this rank's object may override
            function = getattr(type(self._local), function.__name__)
        return function(self._local, *arguments, **named)

    def release(self) -> None:
        """End `follow` in the other ranks."""
        dist.broadcast_object_list([None], src=0, group=self._group)

    def follow(self) -> None:
        """Call what rank 0 names, until it releases the team."""
        while True:
            received: list[Any] = [None]
            dist.broadcast_object_list(received, src=0, group=self._group)
            if received[0] is None:
                return
            function, arguments, named = received[0]
            dist.gather_object(self._call(function, *arguments, **named), dst=0, group=self._group)
