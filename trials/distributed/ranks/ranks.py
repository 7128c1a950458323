"""The ranks of a trial: starting their processes, and ending all of them when one fails.

The process that starts them only watches. It touches no device, so that it may fork. When one rank dies or fails, it
ends the others, which would otherwise wait for that rank forever.
"""

import multiprocessing
import os
import secrets
import signal
import socket
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, SpawnContext
from pathlib import Path
from typing import Literal

from lmsweep.trials.machine.cpu_affinity import share_of
from lmsweep.trials.machine.processes import die_with_parent, exit_words, pin, sender
from lmsweep.trials.machine.scratch import scratch_folder
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record, Row
from lmsweep.trials.spec.config import TrialConfig

Start = Literal["fork", "spawn"]
"""fork is much faster than spawn, but needs a process that has neither touched a device nor computed anything."""

LOOPBACK = "127.0.0.1"
"""Address at which the ranks of one host meet; unreachable from other hosts."""

FAREWELL_SECONDS = 20.0
"""How long ranks may take to exit once rank 0 has sent the result."""
BLAME_SECONDS = 2.0
"""How long to wait, when a rank fails, for another whose death may have caused the failure."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """The ranks of a trial on one host, and the address at which they meet the others."""

    first: int
    """Index of the first of these ranks."""
    count: int
    world_size: int
    host: str = LOOPBACK
    """Address at which ranks listen for others."""
    port: int = 0
    """TCP port of rank 0 at that address; 0 if all ranks are on one host: then they meet in a folder."""
    key: bytes = field(repr=False)
    """A secret of this trial's ranks. They unpickle what they receive, so each must prove that it knows the secret."""


def parts_of(config: TrialConfig, host: str = LOOPBACK, port: int = 0) -> list[Part]:
    """The trial's ranks, divided by host."""
    count, key = config.ranks_per_node, secrets.token_bytes(32)
    return [
        Part(first=node * count, count=count, world_size=config.world_size, host=host, port=port, key=key)
        for node in range(config.nodes)
    ]


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One process of a trial."""

    index: int
    """Global rank, from 0; rank 0 leads."""
    part: Part
    """The ranks on the same host, including this one."""
    folder: Path | None
    """The folder with the sockets of the ranks of one host, for its owner alone; None with several hosts."""
    listener: socket.socket | None
    """In rank 0 of several hosts."""
    cores: tuple[int, ...]
    """Logical cores reserved for this rank."""
    trial_cores: int
    """Number of logical cores of all ranks on this host."""

    @property
    def local_index(self) -> int:
        """Index among the ranks on this host, from 0."""
        return self.index - self.part.first


class RankDiedError(Exception):
    """A rank died without reporting an error: the trial is `lost`."""


Emit = Callable[[list[Row]], object]
Body = Callable[[Rank, Emit], bool]
"""What a rank runs: it emits the rows of the result (in rank 0) or of its failure, and returns whether it succeeded."""


class RankProcess:
    def __init__(self, context: ForkContext | SpawnContext, body: Body, rank: Rank) -> None:
        self.rank = rank
        self.connection, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_main, args=(body, rank, theirs, os.getpid()))
        self.process.start()
        theirs.close()

    def check_alive(self) -> None:
        """Raise RankDiedError if the process has exited with an error."""
        if self.process.exitcode:
            rank = self.rank
            raise RankDiedError(f"rank {rank.index} of {rank.part.world_size} {exit_words(self.process.exitcode)}")


def run_ranks(part: Part, body: Body, *, cores: tuple[int, ...], start: Start) -> list[Row]:
    """Run the ranks of this host; return the rows of rank 0, or those of the first rank that fails. Without rank 0 on
    this host and without a failure there are no rows. Each rank gets an equal share of `cores`; with fewer cores than
    ranks, ranks share them. No rank outlives this call or this process. Raises RankDiedError if a rank dies."""
    context: ForkContext | SpawnContext
    context = multiprocessing.get_context("fork") if start == "fork" else multiprocessing.get_context("spawn")
    ranks: list[RankProcess] = []
    with nullcontext() if part.port else scratch_folder() as folder:
        try:
            leads_hosts = part.port and part.first == 0
            with socket.create_server((part.host, part.port)) if leads_hosts else nullcontext() as listener:
                for local_index in range(part.count):
                    rank = Rank(
                        index=part.first + local_index,
                        part=part,
                        folder=folder,
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
    """Wait until all ranks have ended or one has failed; return the result's or the failure's rows."""
    running = {one.connection: one for one in ranks}
    rows: list[Row] = []
    while running:
        ready = wait(list(running), FAREWELL_SECONDS if rows else None)
        if not ready:  # the caller kills ranks that do not exit
            return rows
        for connection in ready:
            assert isinstance(connection, Connection), "only connections are waited for"
            try:
                message: list[Row] = connection.recv()
            except EOFError:
                ended = running.pop(connection)
                ended.process.join()
                if not rows:  # once the result is there, it does not matter how a rank ends
                    ended.check_alive()
                continue
            if has_failed(message):
                _blame([one for one in running.values() if one.connection is not connection])
                return message
            rows = message
    return rows


def has_failed(rows: list[Row]) -> bool:
    last = rows[-1] if rows else None
    return isinstance(last, Record) and last.status != Status.OK


def _blame(others: list[RankProcess]) -> None:
    """Raise RankDiedError if one of these has died: then that death caused the failure of the first."""
    ready = wait([one.process.sentinel for one in others], BLAME_SECONDS)
    for one in others:
        if one.process.sentinel in ready:
            one.process.join(1.0)  # the sentinel is ready a moment before the exit code
        one.check_alive()


def _main(body: Body, rank: Rank, connection: Connection, parent_pid: int) -> None:
    die_with_parent(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the process that watches
    pin(rank.cores)
    if not body(rank, sender(connection)):
        # If this rank exited now, its connections would close, and the failures of the others would hide its own.
        while True:
            signal.pause()
