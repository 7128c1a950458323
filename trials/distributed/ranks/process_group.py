"""The process group of a trial's ranks: joining and leaving it, and averaging tensors over it."""

import os
import socket
import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lmsweep.trials.distributed.ranks.ranks import LOOPBACK, Rank
from lmsweep.trials.machine.torch_private import foreach_divide
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
"""Device type -> backend of torch.distributed."""


class StrangerError(Exception):
    """A process that is no rank of the trial has connected to one."""


def join(rank: Rank, config: TrialConfig) -> None:
    """Make this process a rank of the process group; on CUDA, on the GPU of its index on this host. Raises
    UnsupportedError if there are fewer GPUs than ranks."""
    device, part = config.device_type, rank.part
    own: torch.device | None = None
    if device == "cuda":
        if torch.cuda.device_count() < part.count:
            raise UnsupportedError(
                f"{part.count} ranks need as many GPUs on this host, not {torch.cuda.device_count()}"
            )
        own = torch.device("cuda", rank.local_index)
        torch.cuda.set_device(own)
    if part.host == LOOPBACK:
        interface = "lo0" if sys.platform == "darwin" else "lo"
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ[variable] = interface  # whatever is set for clusters: others must not reach these ports
    else:
        # gloo would resolve the host's own name, often to the loopback interface; NCCL finds the right one itself.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_to(part.host))
    # The trial's own timeout ends a hanging rank and reports its stack; the group's must not come first.
    timeout = timedelta(seconds=config.timeout_seconds + 60)
    dist.init_process_group(
        BACKENDS[device],
        store=_store(rank, timeout),
        rank=rank.index,
        world_size=part.world_size,
        timeout=timeout,
        device_id=own,
    )
    if rank.folder:  # all ranks are on this host, so that any other process is none of them
        refuse_others()


def _store(rank: Rank, timeout: timedelta) -> Any:
    """What the ranks write to find each other: on one host a file that only its user may write, else a server."""
    part = rank.part
    if rank.folder:
        store = dist.FileStore(str(rank.folder / "store"), part.world_size)  # type: ignore[attr-defined]
        store.set_timeout(timeout)
        return store
    return dist.TCPStore(  # type: ignore[attr-defined]  # not exported explicitly
        part.host,
        part.port,
        part.world_size,
        is_master=rank.listener is not None,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=rank.listener.detach() if rank.listener else None,
    )


def refuse_others() -> None:
    """Raise StrangerError if a process other than a rank of this host is connected to this one.

    gloo takes any connection to its port for the next rank's. NCCL asks for a secret, which the ranks' store has.
    """
    own = psutil.Process().net_connections("tcp")
    listening = {one.laddr.port for one in own if one.status == psutil.CONN_LISTEN}
    accepted_from = {one.raddr for one in own if one.raddr and one.laddr.port in listening}
    ranks = psutil.Process(os.getppid()).children()
    ends_of_ranks = {one.laddr for rank in ranks for one in rank.net_connections("tcp")}
    if accepted_from - ends_of_ranks:
        raise StrangerError("a process that is no rank of this trial is connected to one; run the trial again")


def interface_to(host: str) -> str:
    """The name of the network interface through which this host reaches that IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing; the system only chooses a route
        own = probe.getsockname()[0]
    return next(name for name, found in psutil.net_if_addrs().items() if own in [one.address for one in found])


def leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def collective_library() -> str | None:
    """`gloo`, or `nccl` with its version; None if this process is not a rank."""
    if not dist.is_initialized():
        return None
    backend = dist.get_backend()
    return f"nccl {'.'.join(map(str, torch.cuda.nccl.version()))}" if backend == "nccl" else str(backend)


class Mean:
    """All-reduce tensors in place to their mean over the ranks: `start`, wait for the work, `finish`."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        """`group`: the ranks; None for all."""
        self._group = group
        # gloo has no average: `finish` divides the sum.
        self._operation = dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM

    def start(self, tensor: Tensor) -> dist.Work:
        work: dist.Work | None = dist.all_reduce(tensor, op=self._operation, group=self._group, async_op=True)
        assert work is not None, "this process is in the group"
        return work

    def finish(self, tensors: list[Tensor]) -> None:
        """Complete the mean of tensors whose all-reduces have ended."""
        if self._operation == dist.ReduceOp.SUM:
            foreach_divide(tensors, dist.get_world_size(self._group))


class Synchronizer:
    """A way to average gradients over the ranks, attached to one model. This one leaves each rank its own."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        """The module to call in forward."""

    def local(self) -> AbstractContextManager[None]:
        """A context without synchronization: each rank keeps its own gradients."""
        return nullcontext()

    def hold(self) -> AbstractContextManager[None]:
        """A context for the micro-batches before the last, whose gradients are not synchronized yet."""
        return self.local()

    def finish(self) -> None:
        """Complete the synchronization after backward: start what has not started, wait for what has."""
