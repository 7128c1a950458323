"""Datasheets of links: the bytes per second that one GPU sends to others, in its node and between nodes."""

LINKS: dict[str, float] = {
    **dict.fromkeys(("A100 SXM 40GB", "A100 SXM 80GB"), 300e9),
    **dict.fromkeys(("H100 SXM", "H200 SXM", "H20", "GH200 96GB", "GH200 144GB"), 450e9),
    **dict.fromkeys(("B200 SXM", "B300 SXM", "GB200"), 900e9),
    **dict.fromkeys(("V100 SXM 16GB", "V100 SXM 32GB"), 150e9),
}
"""Name of a device (`lmsweep.trials.analytic.datasheets`) -> B/s in one direction. NVIDIA's datasheets state the sum of
both directions of NVLink: 300, 600, 900 and 1800 GB/s. Bus bandwidths that collectives reach are lower."""

NETWORKS: dict[str, float] = {
    **dict.fromkeys(("A100 SXM 40GB", "A100 SXM 80GB"), 25e9),
    **dict.fromkeys(("H100 SXM", "H200 SXM", "B200 SXM"), 50e9),
}
"""Name of a device -> B/s in one direction between nodes, with one InfiniBand adapter per GPU: 200 Gbit/s in NVIDIA's
DGX A100 datasheet, 400 Gbit/s in those of DGX H100, H200 and B200. Other machines have less."""
