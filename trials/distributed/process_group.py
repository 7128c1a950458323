"""Collectives: the group of a trial's ranks, the mean of tensors over it, and how fast the links between them are."""

import os
import socket
import sys
from datetime import timedelta

import psutil
import torch
import torch.distributed as dist
from torch import Tensor

from lmsweep.trials.distributed.ranks import LOOPBACK, Rank
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
"""Kind of device -> the library that joins its ranks."""


def join(rank: Rank, config: TrialConfig) -> None:
    """Makes this process a member of the ranks' group, on the GPU of its number on this machine.

    Raises UnsupportedError where there is no library for the device, or there are fewer GPUs than ranks.
    """
    device, part = config.device_type, rank.part
    if device not in BACKENDS:
        raise UnsupportedError(f"no library joins ranks on device {device}; ddp runs on {' and '.join(BACKENDS)}")
    own: torch.device | None = None
    if device == "cuda":
        if torch.cuda.device_count() < part.count:
            raise UnsupportedError(f"ranks on this machine: {part.count}; GPUs: {torch.cuda.device_count()}")
        own = torch.device("cuda", rank.local_index)
        torch.cuda.set_device(own)
    if part.host == LOOPBACK:
        interface = "lo0" if sys.platform == "darwin" else "lo"
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(variable, interface)
    else:
        # gloo would take what the host's name stands for, often the loopback; NCCL knows better.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_to(part.host))
    # The trial's own limit ends what hangs, and says where; the group's must not come first.
    timeout = timedelta(seconds=config.timeout_seconds + 60)
    store = dist.TCPStore(
        part.host,
        part.port,
        part.world_size,
        is_master=rank.listener is not None,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=rank.listener.detach() if rank.listener else None,
    )
    dist.init_process_group(
        BACKENDS[device],
        store=store,
        rank=rank.index,
        world_size=part.world_size,
        timeout=timeout,
        device_id=own,
    )


def interface_to(host: str) -> str:
    """The name of the network interface by which this machine reaches that IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing: the system only looks the way up
        own = probe.getsockname()[0]
    return next(name for name, found in psutil.net_if_addrs().items() if own in [one.address for one in found])


def leave() -> None:
    """Ends this process's membership, if it has one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def collective_library() -> str | None:
    """gloo, or nccl with its version; None where this process is no rank."""
    if not dist.is_initialized():
        return None
    backend = dist.get_backend()
    return f"nccl {'.'.join(map(str, torch.cuda.nccl.version()))}" if backend == "nccl" else str(backend)


class Mean:
    """All-reduces tensors, in place, to their mean over the ranks: `start`, wait for the work, `finish`."""

    def __init__(self) -> None:
        # gloo knows no mean.
        self._operation = dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM

    def start(self, tensor: Tensor) -> dist.Work:
        """The all-reduce under way."""
        work = dist.all_reduce(tensor, op=self._operation, async_op=True)
        assert work is not None, "this process is a member of the group"
        return work

    def finish(self, tensors: list[Tensor]) -> None:
        """What is left to do when the all-reduces of these tensors have ended."""
        if self._operation == dist.ReduceOp.SUM:
            torch._foreach_div_(tensors, dist.get_world_size())


def bus_factor(world_size: int) -> float:
    """What a link carries of an all-reduce, as a multiple of the bytes that are reduced: 2 (n - 1) / n.

    With it, bandwidths of different numbers of ranks compare (NVIDIA's nccl-tests call the product bus bandwidth).
    """
    return 2 * (world_size - 1) / world_size
