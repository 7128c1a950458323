"""The records of the workloads `collectives` and `ddp`."""

from lmsweep.orchestrator.features.ddp.rank_rules import of_collectives, of_ddp
from lmsweep.trials.spec.workloads import STEPS, Workload

records = (
    Workload(
        name="collectives",
        module=f"{__package__}.collective_times",
        needs="nothing",
        protocol=STEPS,
        has_ranks=True,
        autocasts=False,
        rules=(of_collectives,),
    ),
    Workload(
        name="ddp",
        module=f"{__package__}.rank_steps",
        protocol=("mode", *STEPS, "batches"),
        holds="model",
        varies=True,
        has_ranks=True,
        accumulates=True,
        preloads=True,
        runs_per_step=2,  # with synchronization and without
        rules=(of_ddp,),
    ),
)
