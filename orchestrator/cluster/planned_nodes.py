"""The nodes that a plan assumes: `--for 64xH100 --nodes 8 --network 400Gb`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lmsweep.trials.analytic.datasheets import NETWORKS, Device
from lmsweep.trials.analytic.rates.rate_set import Network
from lmsweep.trials.spec.config import RequestError, Trial
from lmsweep.trials.spec.workloads import workload_named

USUAL_GPUS = 8
"""GPUs of a node, unless `--nodes` says otherwise."""

NAMED_NETWORKS: dict[str, tuple[float, str]] = {
    "ndr": (50e9, "InfiniBand NDR, 400 Gb/s for each GPU (NVIDIA DGX H100)"),
    "hdr": (25e9, "InfiniBand HDR, 200 Gb/s for each GPU (NVIDIA DGX A100)"),
    "xdr": (100e9, "InfiniBand XDR, 800 Gb/s for each GPU (NVIDIA DGX B300)"),
    "roce": (50e9, "RoCE, 400 Gb/s for each GPU (as Meta's and Oracle's clusters of H100)"),
    "efa-p4d": (6.25e9, "AWS EFA of p4d, 400 Gb/s for eight GPUs"),
    "efa-p5": (50e9, "AWS EFA of p5, 3200 Gb/s for eight GPUs"),
    "efa-p5en": (50e9, "AWS EFA of p5en, 3200 Gb/s for eight GPUs"),
}
"""Name -> B/s of one GPU in one direction, and what it is, by the vendors' pages."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many GPUs a plan has, and on how many nodes."""

    nodes: int
    gpus: int
    """Number of GPUs of each node."""
    network: Network | None
    """None on one node."""


def layout_of(count: int, device: Device | None, *, nodes: str | None, network: str | None) -> Layout:
    """Return the nodes of `count` GPUs. Raises RequestError if they do not fill nodes, or the network is unknown."""
    if nodes is not None and not re.fullmatch(r"[1-9]\d{0,4}", nodes):
        raise RequestError(f"--nodes {nodes}: write a number of nodes, such as 8")
    number = int(nodes) if nodes else -(-count // USUAL_GPUS)  # rounded up
    if nodes is None and count > USUAL_GPUS and count % USUAL_GPUS:
        raise RequestError(
            f"--for with {count} GPUs: they do not fill nodes of {USUAL_GPUS}; --nodes says how many nodes"
        )
    if count % number:
        raise RequestError(f"--nodes {number} does not divide the {count} GPUs of --for")
    if number == 1 and network is not None:
        raise RequestError(f"--network {network} has no effect on one node; --nodes gives their number")
    gpus = count // number
    return Layout(nodes=number, gpus=gpus, network=_network(network, device, gpus=gpus) if number > 1 else None)


def spread(trials: Sequence[Trial], layout: Layout) -> tuple[Trial, ...]:
    """Return the trials without the kind of GPU that they name. On several nodes, those with ranks get a rank on each
    GPU. Raises RequestError if tp times shards of no trial divides these ranks."""
    anywhere = (replace(one, config=replace(one.config, device=one.config.device_type)) for one in trials)
    trials, ranks = tuple(dict.fromkeys(anywhere)), layout.nodes * layout.gpus
    if layout.nodes == 1:
        return trials
    ranked = [one for one in trials if any(workload_named(name).has_ranks for name in one.workloads)]
    if ranked and all(ranks % (one.config.tp * (one.config.shards or 1)) for one in ranked):
        mesh = ranked[0].config
        raise RequestError(
            f"--for with {ranks} GPUs: tp {mesh.tp} times shards {mesh.shards or 1} does not divide them"
        )
    spread_out = {one: replace(one, config=replace(one.config, world_size=ranks, nodes=layout.nodes)) for one in ranked}
    return tuple(dict.fromkeys(spread_out.get(one, one) for one in trials))


def _network(text: str | None, device: Device | None, *, gpus: int) -> Network:
    choices = f"400Gb (for each GPU, in one direction) or one of: {', '.join(NAMED_NETWORKS)}"
    if text is None:
        if device is None or device.name not in NETWORKS:
            raise RequestError(f"the network between nodes is not known; --network gives it: {choices}")
        rate = NETWORKS[device.name]
        source = f"the usual adapters of {device.name}, {8 * rate / 1e9:g} Gb/s for each GPU"
    elif text.lower() in NAMED_NETWORKS:
        rate, source = NAMED_NETWORKS[text.lower()]
    else:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(Gb|GB)(?:/s|ps)?", text.strip())
        if not found or float(found[1]) == 0:
            raise RequestError(f"--network {text}: no such network; give {choices}")
        rate = float(found[1]) * 1e9 / (8 if found[2] == "Gb" else 1)
        source = f"the network that was given, {text} for each GPU"
    return Network(gpus=gpus, bytes_per_second=rate, source=source)
