"""The tables of profiles, by name."""

from lmsweep.analysis.presets import Preset
from lmsweep.orchestrator.features.explain import profile_tables as profile

GROUPS = {
    "Where does the time of a step go?": {
        "kernels": Preset(
            profile.longest_kernels_by_phase,
            "Which kernel takes the most time in forward, backward and optimizer, and how often does it run?",
        ),
        "kernels-by-range": Preset(
            profile.longest_kernels_by_range,
            "How is the time of a step divided among the parts of the model, and which kernel dominates each?",
        ),
        "kernels-all": Preset(profile.every_kernel, "How much time does each kernel take in each range?"),
        "operators": Preset(profile.operators, "How much time does each PyTorch operator take in a step?"),
        "matmul-share": Preset(
            profile.matmul_share, "What share of the kernel time are matrix products, by phase and in total?"
        ),
        "softmax-matmul": Preset(
            profile.softmax_against_matmul,
            "How do time and FLOPs of attention's softmax compare with those of its matrix products?",
        ),
        "profile-time": Preset(
            profile.profiled_against_timed,
            "Does the kernel time of the profiled step agree with the timed step and the GPU's busy time?",
        ),
    },
}
