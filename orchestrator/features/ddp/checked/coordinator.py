"""Keeps the ranks of a trial in step: rank 0 names a function, every rank calls it, rank 0 gathers the results."""

from collections.abc import Callable, Iterable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import torch
import torch.distributed as dist

from lmsweep.trials.distributed.ranks.ranks import Rank
from lmsweep.trials.machine.gpu.accelerator import synchronize
from lmsweep.trials.machine.torch_private import default_store

Local_co = TypeVar("Local_co", covariant=True)
Result = TypeVar("Result")
Found = TypeVar("Found")
Given = ParamSpec("Given")

ADDRESS = "lmsweep/leader"
"""The key of the store under which rank 0 leaves its port."""


class Team(Generic[Local_co]):
    """All ranks of a trial, each with its own object. Only rank 0 decides, so that ranks cannot diverge."""

    def __init__(self, local: Local_co, rank: Rank) -> None:
        """Connect the others with rank 0; the process group must exist.

        Calls have connections outside the process group, so they do not add to the measured traffic. What arrives is
        unpickled, so both ends must prove that they know the trial's key.
        """
        self._local = local
        self._leads = rank.index == 0
        if self._leads:
            self._connections = _followers(rank)
        else:
            port = int(default_store().get(ADDRESS))
            leader = Client((rank.part.host, port), authkey=rank.part.key)
            leader.send(rank.index)
            self._connections = [leader]

    def all(
        self, function: Callable[Concatenate[Local_co, Given], Result], /, *arguments: Given.args, **named: Given.kwargs
    ) -> list[Result]:
        """Call a function or method in every rank, on that rank's object; return the results by rank. Rank 0 only."""
        for follower in self._connections:
            follower.send((function, arguments, named))
        first = self._call(function, *arguments, **named)
        return [first, *(follower.recv() for follower in self._connections)]

    def _call(self, function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        if "." in function.__qualname__:  # a method, which the class of this rank's object may override
            function = getattr(type(self._local), function.__name__)
        return function(self._local, *arguments, **named)

    def led(self, lead: Callable[["Team[Local_co]"], Iterable[Found]]) -> Iterator[Found]:
        """Yield in rank 0 what `lead` of this team yields, then release the others. These follow until then, and yield
        nothing."""
        if not self._leads:
            self.follow()
            return
        yield from lead(self)
        self.release()

    def release(self) -> None:
        """End `follow` in the other ranks."""
        for follower in self._connections:
            follower.send(None)

    def follow(self) -> None:
        """Call what rank 0 names, until it releases the team."""
        (leader,) = self._connections
        while (received := leader.recv()) is not None:
            function, arguments, named = received
            leader.send(self._call(function, *arguments, **named))


def _followers(rank: Rank) -> list[Connection]:
    """Wait for the other ranks; return the connections to them in order of rank."""
    part, found = rank.part, dict[int, Connection]()
    with Listener((part.host, 0), backlog=part.world_size, authkey=part.key) as listener:
        default_store().set(ADDRESS, str(listener.address[1]))
        while len(found) < part.world_size - 1:
            try:
                one = listener.accept()
            except (AuthenticationError, EOFError, OSError):  # the connection is not from a rank
                continue
            found[one.recv()] = one
        default_store().delete_key(ADDRESS)  # the next team has another port
    return [found[index] for index in sorted(found)]


class AlignedRank:
    """What every rank of a team can do, whatever it measures: it waits for the others."""

    def __init__(self, device_type: str) -> None:
        self.device_type = device_type
        self.token = torch.zeros(1, device=device_type)

    def align(self) -> None:
        """Wait until the devices of all ranks are idle."""
        dist.all_reduce(self.token)
        synchronize(self.device_type)
