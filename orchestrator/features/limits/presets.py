"""The tables of limits and costs, by name."""

from lmsweep.analysis.presets import Preset
from lmsweep.orchestrator.features.limits import limits_tables as limits

GROUPS = {
    "What is possible, and what does it cost?": {
        "roofline": Preset(
            limits.roofline_table, "How close does a step come to the limits of its device?", counts_flops=True
        ),
        "scaling": Preset(
            limits.scaling_table, "How does the time of a step grow with context length and model?", counts_flops=True
        ),
        "scaling-limits": Preset(
            limits.scaling_limits_table, "From how many ranks on does communication take longer than computation?"
        ),
        "sharding": Preset(
            limits.sharding_table, "How much memory do ZeRO-1 and FSDP save on each rank, at each moment of a step?"
        ),
        "frontier": Preset(
            limits.frontier_table, "What is the largest context length and batch size that fits in memory?"
        ),
        "break-even": Preset(limits.break_even_table, "After how many steps has compiling paid?"),
        "cost": Preset(limits.cost_table, "What do a million tokens cost in dollars and joules?"),
    },
}
