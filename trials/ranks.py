"""Ranks: the processes that work on one trial together, and what becomes of them.

The process that starts them only watches. It touches no device, so that it may fork; when one rank dies or fails, it
ends the others, which would wait for that one for ever.
"""

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

from trials.cores import share_of
from trials.processes import die_with_parent, pin
from trials.record import Record, Row
from trials.spec import Status

Start = Literal["fork", "spawn"]
"""fork takes a fraction of the time, and needs a process that has touched no device and computed nothing."""

LOOPBACK = "127.0.0.1"
"""Where the ranks of one machine meet: nobody else can reach it."""

FAREWELL_SECONDS = 20.0
"""How long ranks may take to end once the result is there."""
BLAME_SECONDS = 0.5
"""How long to look, when a rank fails, for another that died and took the connection of the first along."""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One of the processes: where it stands, and where they meet."""

    index: int
    """From 0, which leads."""
    world_size: int
    """How many there are."""
    host: str
    """Address at which rank 0 listens."""
    port: int
    """TCP port there."""
    listener: socket.socket | None
    """The socket bound to it, for rank 0; None for the others."""
    cores: tuple[int, ...]
    """Logical cores that are its own."""


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
            raise RankDiedError(f"rank {self.rank.index} of {self.rank.world_size} {exit_words(self.process.exitcode)}")


def run_ranks(world_size: int, body: Body, *, cores: tuple[int, ...], start: Start) -> list[Row]:
    """The rows that rank 0 of `world_size` processes emits, or those of the first rank that fails.

    Each has an equal share of `cores`; fewer than ranks are shared. None of them outlives this call, or this process.
    Raises RankDiedError where one dies.
    """
    context = multiprocessing.get_context(start)
    ranks: list[RankProcess] = []
    try:
        with socket.create_server((LOOPBACK, 0)) as listener:
            port = listener.getsockname()[1]
            for index in range(world_size):
                rank = Rank(
                    index=index,
                    world_size=world_size,
                    host=LOOPBACK,
                    port=port,
                    listener=listener if index == 0 else None,
                    cores=share_of(cores, index, world_size),
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
    """Whether these are the rows of a workload that did not end ok."""
    last = rows[-1]
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
