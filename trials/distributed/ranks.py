"""Ranks: the processes that work on one trial together, and what becomes of them.

The process that starts them only watches. It touches no device, so that it may fork; when one rank dies or fails, it
ends the others, which would wait for that one for ever.
"""

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

from lmsweep.trials.machine.cpu_affinity import share_of
from lmsweep.trials.machine.processes import die_with_parent, pin
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record, Row
from lmsweep.trials.spec.config import TrialConfig

Start = Literal["fork", "spawn"]
"""fork takes a fraction of the time, and needs a process that has touched no device and computed nothing."""

LOOPBACK = "127.0.0.1"
"""Where the ranks of one machine meet: nobody else can reach it."""

FAREWELL_SECONDS = 20.0
"""How long ranks may take to end once the result is there."""
BLAME_SECONDS = 0.5
"""How long to look, when a rank fails, for another that died and took the connection of the first along."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """The ranks of a trial that are on one machine, and where they meet all others."""

    first: int
    """The index of the first of them."""
    count: int
    world_size: int
    """How many ranks the whole trial has."""
    host: str = LOOPBACK
    """Address at which rank 0 listens."""
    port: int = 0
    """TCP port there; 0 for any that is free, which only ranks of the same machine get to know."""


def parts_of(config: TrialConfig, host: str = LOOPBACK, port: int = 0) -> list[Part]:
    """The trial's ranks, machine by machine."""
    count = config.ranks_per_node
    return [
        Part(first=node * count, count=count, world_size=config.world_size, host=host, port=port)
        for node in range(config.nodes)
    ]


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One of the processes."""

    index: int
    """From 0, which leads."""
    part: Part
    """It and its neighbours on this machine."""
    listener: socket.socket | None
    """The socket bound to it, for rank 0; None for the others."""
    cores: tuple[int, ...]
    """Logical cores that are its own."""
    trial_cores: int
    """How many logical cores it and its neighbours have together."""

    @property
    def local_index(self) -> int:
        """Its number on this machine, from 0."""
        return self.index - self.part.first


class RankDiedError(Exception):
    """A rank ended without a word. The status of the trial is `lost`."""


Emit = Callable[[list[Row]], object]
Body = Callable[[Rank, Emit], bool]
"""What a rank does: emits the rows of the result (rank 0) or of its failure, and returns whether all went well."""


class RankProcess:
    """A started rank and the pipe from it."""

    def __init__(self, context: Any, body: Body, rank: Rank) -> None:
        self.rank = rank
        self.connection: Connection
        self.connection, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_main, args=(body, rank, theirs, os.getpid()))
        self.process.start()
        theirs.close()

    def check_alive(self) -> None:
        """Raises RankDiedError where it has ended, and not by itself."""
        if self.process.exitcode:
            rank = self.rank
            raise RankDiedError(f"rank {rank.index} of {rank.part.world_size} {exit_words(self.process.exitcode)}")


def run_ranks(part: Part, body: Body, *, cores: tuple[int, ...], start: Start) -> list[Row]:
    """The rows that rank 0 emits, none where it is on another machine, or those of the first rank here that fails.

    Each has an equal share of `cores`; fewer than ranks are shared. None of them outlives this call, or this process.
    Raises RankDiedError where one dies.
    """
    context = multiprocessing.get_context(start)
    ranks: list[RankProcess] = []
    try:
        with socket.create_server((part.host, part.port)) if part.first == 0 else nullcontext() as listener:
            if listener:
                part = replace(part, port=listener.getsockname()[1])
            for local_index in range(part.count):
                rank = Rank(
                    index=part.first + local_index,
                    part=part,
                    listener=listener if part.first + local_index == 0 else None,
                    cores=share_of(cores, local_index, part.count),
                    trial_cores=len(cores),
                )
                ranks.append(RankProcess(context, body, rank))
        return _watch(ranks)
    finally:
        for one in ranks:
            one.process.kill()
        for one in ranks:
            one.process.join()


def _watch(ranks: list[RankProcess]) -> list[Row]:
    running = {one.connection: one for one in ranks}
    rows: list[Row] = []
    while running:
        ready = wait(list(running), FAREWELL_SECONDS if rows else None)
        if not ready:
            return rows
        for connection in ready:
            assert isinstance(connection, Connection), "only connections were waited for"
            try:
                message: list[Row] = connection.recv()
            except EOFError:
                ended = running.pop(connection)
                ended.process.join()
                if not rows:
                    ended.check_alive()
                continue
            if has_failed(message):
                _blame([one for one in running.values() if one.connection is not connection])
                return message
            rows = message
    return rows


def has_failed(rows: list[Row]) -> bool:
    """Whether these are the rows of a workload that did not end ok. Of one that did, only rank 0 has any."""
    last = rows[-1] if rows else None
    return isinstance(last, Record) and last.status != Status.OK


def _blame(others: list[RankProcess]) -> None:
    """Raises RankDiedError where one of these has died: then the failure of the first only follows from it."""
    ready = wait([one.process.sentinel for one in others], BLAME_SECONDS)
    for one in others:
        if one.process.sentinel in ready:
            one.process.join(1.0)  # the sentinel closes a moment before the exit code can be read
        one.check_alive()


def _main(body: Body, rank: Rank, connection: Connection, parent_pid: int) -> None:
    die_with_parent(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that watches
    pin(rank.cores)
    if not body(rank, connection.send):
        # The others would fail too if its connections closed now, and hide what went wrong first.
        while True:
            signal.pause()


def exit_words(exitcode: int) -> str:
    """How a process ended, from its exit code."""
    return f"was ended by {signal.Signals(-exitcode).name}" if exitcode < 0 else f"exited with code {exitcode}"
