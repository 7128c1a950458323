"""Running a plan: every trial's rows go to the store as they come, and in the end it is known where the time went."""

import time
from collections import Counter
from dataclasses import dataclass, field

from orchestrator.delivery import Delivery
from orchestrator.launch import launch, start_ray, stop_ray
from orchestrator.plan import Action, Plan, PlannedTrial
from orchestrator.progress import RunProgress
from orchestrator.resources import Node
from trials.attempt import Attempt
from trials.record import Record
from trials.spec import Status
from trials.store import Store

COMPACT_FROM = 32
"""Files from which a finished run merges them: opening one costs as much as reading thousands of rows."""

FORESEEN: dict[Action, Status] = {"unsupported": Status.UNSUPPORTED, "predicted_oom": Status.PREDICTED_OOM}
"""What planning already knows of a trial -> the status of its rows."""

PURPOSES = ("setup", "compile", "warmup", "measured")


@dataclass(kw_only=True)
class Account:
    """What a run has done and where its time went."""

    began: float
    """time.monotonic() at the command's start."""
    slots: int
    """Trials that could run side by side."""
    statuses: Counter[str] = field(default_factory=Counter)
    """How many workloads ended with each status."""
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PURPOSES, 0.0))
    """Seconds by purpose; compile is what is compiled ahead or in the trial."""

    def add(self, rows: list[Record]) -> None:
        self.statuses.update({row.workload: row.status for row in rows}.values())
        for row in rows:
            if row.phase == "trial" and row.unit == "s" and row.samples:
                purpose = str(row.metric).removesuffix("_time").removeprefix("pre")
                self.seconds[purpose] += sum(row.samples)

    def shares(self) -> dict[str, float]:
        """Seconds by purpose, summed over the slots; what no trial accounts for is idle."""
        whole = (time.monotonic() - self.began) * self.slots
        return self.seconds | {"idle": max(0.0, whole - sum(self.seconds.values()))}


def run_plan(
    plan: Plan, store: Store, nodes: list[Node], address: str | None, progress: RunProgress, account: Account
) -> None:
    """Runs what the plan says is to be run, and records what it says cannot be. Raises KeyboardInterrupt on Ctrl-C,
    with everything that had ended in the store.
    """

    def kept(planned: PlannedTrial, records: list[Record]) -> None:
        account.add(records)
        progress.ended(planned, records)

    for planned in plan.trials:
        if planned.action in FORESEEN:
            keep_foreseen(planned, store, account)
    if not plan.to_run:
        return
    start_ray(address, cpus=nodes[0].cpus, gpus=nodes[0].gpus)
    delivery = Delivery(store, kept)
    try:
        launch(plan.to_run, on_start=progress.started, on_rows=delivery.put)
    finally:
        stop_ray()
        delivery.close()
        if store.count_fragments() >= COMPACT_FROM:
            store.compact()


def keep_foreseen(planned: PlannedTrial, store: Store, account: Account) -> None:
    """Records why the trial does not run."""
    attempt = Attempt.begin(planned.trial)
    assert planned.reason is not None, "a trial that does not run has a reason"
    status = FORESEEN[planned.action]
    rows = [attempt.failure(name, status, planned.reason, planned.environment) for name in planned.trial.workloads]
    store.append(rows)
    account.add(rows)


def count_slots(plan: Plan, nodes: list[Node]) -> int:
    """The most of the plan's trials that can run side by side: on a node one for every `world_size` of its GPUs, and
    one on its CPU.
    """
    configs = [planned.trial.config for planned in plan.to_run]
    ranks = [config.world_size for config in configs if config.device_type == "cuda"]
    on_gpus = sum(node.gpus // min(ranks) for node in nodes if node.started) if ranks else 0
    on_cpus = [one.placement.slots for one in plan.to_run if one.placement and one.trial.config.device_type != "cuda"]
    return max([on_gpus, *on_cpus, 1])
