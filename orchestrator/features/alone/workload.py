"""The records of the workloads `attention` and `loss`."""

from lmsweep.trials.spec.workloads import STEPS, Workload

records = (
    Workload(
        name="attention",
        module=f"{__package__}.attention_alone",
        needs="width",
        protocol=("mode", *STEPS, "cold_l2"),
        holds="attention",
        autocasts=False,
        may_follow=True,
        preloads=True,
    ),
    Workload(name="loss", module=f"{__package__}.loss_alone", needs="width", protocol=STEPS, autocasts=False),
)
