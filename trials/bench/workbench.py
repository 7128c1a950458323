"""The workbench of a trial: what its workloads share, such as the device, the training step and the accounted time."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

import torch

from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.bench.fingerprint import fingerprint, present_devices
from lmsweep.trials.code.digest import code_digest
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.distributed.ranks.process_group import collective_library, join
from lmsweep.trials.distributed.ranks.ranks import Rank
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.gpu.accelerator import counts_memory, device_module, synchronize, why_absent
from lmsweep.trials.machine.live_phase import report_phase
from lmsweep.trials.machine.torch_private import clear_cublas_workspaces, graph_settings, set_allocator
from lmsweep.trials.model.compiler import reset_compiler
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.attention_functions import kernel_chosen
from lmsweep.trials.model.transformer.attention_support import check_attention
from lmsweep.trials.model.users.users_step import UsersStep
from lmsweep.trials.profiling.events import DeviceEvent
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.config import StepFlops, TrialConfig, UnsupportedError
from lmsweep.trials.spec.identity import trial_id
from lmsweep.trials.spec.reference import Code
from lmsweep.trials.spec.rules.combination_rules import why_not
from lmsweep.trials.spec.ways.allocators import ALLOCATORS
from lmsweep.trials.spec.workloads import workload_named


class Workbench:
    def __init__(
        self,
        config: TrialConfig,
        *,
        requested_at: float,
        rank: Rank | None = None,
        code: Code | None = None,
        references: tuple[str, ...] = (),
        flops: StepFlops | None = None,
        keeps_traces: bool = True,
    ) -> None:
        """Prepare the device; set-up time counts from `requested_at`. Raises UnsupportedError if it is absent."""
        self.config = config
        self.code = code
        self.flops = flops
        """FLOPs of the user's own model, if planning has counted them."""
        self._code_digest = code_digest(references or config.references, code)
        if code:
            use_code(code)
        self.repeated_layers: str | None = None
        """Path and number of the repeated layers of the user's own model; None until it is built, or if it has none."""
        self.keeps_traces = keeps_traces
        self.traced: list[list[DeviceEvent]] = []
        """Kernels of each step that `timing` has traced."""
        self.rank = rank
        self.seconds = {"setup": 0.0, "compile": 0.0, "warmup": 0.0, "measured": 0.0}
        self._since = requested_at
        if config.device_type not in present_devices():
            chosen = f"; its software is {config.software}" if config.software else ""
            raise UnsupportedError(f"{why_absent(config.device_type)}{chosen}")
        if config.allocator != "default":
            set_allocator(ALLOCATORS[config.allocator])
        torch.set_num_threads(len(rank.cores) if rank else len(usable_cores()))
        if rank:
            join(rank, config)
        if config.device_type == "cpu":
            # torch.manual_seed inspects its callers' source because of GPUs, which takes as long as a short trial.
            torch.default_generator.manual_seed(0)
        else:
            torch.manual_seed(0)
        self.math_mode = set_math_mode(config.precision, config.device_type)

    @cached_property
    def step(self) -> TrainingStep:
        """The model with everything a training step needs. Raises UnsupportedError if it cannot run here."""
        if reason := why_not(self.config, "timing"):  # not checked before if the workload is the user's own
            raise UnsupportedError(reason)
        check_attention(self.config, self.math_mode.operand_dtype, gradients=self.config.mode != "forward")
        if self.config.memory_budget is not None:
            graph_settings().activation_memory_budget = self.saved_share  # the rest is recomputed
        step = TrainingStep(self.config, self.math_mode)
        self.repeated_layers = step.repeated_layers
        return step

    @cached_property
    def saved_share(self) -> float:
        """The share of activations that blocks save within `memory_budget`. Raises UnsupportedError if none does."""
        from lmsweep.trials.prediction.activation_budget import share_within  # slow to import

        return share_within(self.config)

    @cached_property
    def iteration(self) -> TrainingStep | UsersStep:
        """What is timed: `step`, or the user's own training step."""
        return UsersStep(self.config, self.math_mode) if self.config.step else self.step

    @property
    def datasheet(self) -> Device | None:
        found = fingerprint(self.config.device_type)
        return find_device(found.device_name, found.device_memory)

    def fingerprint(self, workload: str) -> Fingerprint:
        """Return the trial's environment, with the arithmetic that is in force in this workload."""
        mode = self.math_mode if workload_named(workload).autocasts else self.math_mode.without_autocast()
        return replace(
            fingerprint(self.config.device_type, trial_cores=self.rank.trial_cores if self.rank else None),
            autocast_dtype=str(mode.autocast_dtype).removeprefix("torch.") if mode.autocast_dtype else None,
            parameter_dtype=str(mode.parameter_dtype).removeprefix("torch."),
            collective_library=collective_library(),
            code_digest=self._code_digest,
            code_revision=self.code.revision if self.code else None,
            code_dirty=self.code.dirty if self.code else None,
        )

    @contextmanager
    def account(self, what: str) -> Iterator[None]:
        """Add the time inside the context to `seconds[what]`, and the time since the last account to set-up."""
        self.seconds["setup"] += self._lap()
        if self.rank is None or self.rank.index == 0:
            report_phase(trial_id(self.config), what)
        try:
            yield
            synchronize(self.config.device_type)
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + self._lap()

    @property
    def seconds_so_far(self) -> float:
        return sum(self.seconds.values())

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Disable garbage collection and select the attention kernel."""
        gc.collect()
        gc.disable()
        try:
            with kernel_chosen(self.config.attention):
                yield
        finally:
            gc.enable()

    def clear(self) -> bool:
        """Free the device and forget compiled code. Return whether the allocator is as it was before the trial."""
        for name in ("step", "iteration"):
            self.__dict__.pop(name, None)
        reset_compiler()
        gc.collect()
        if not counts_memory(self.config.device_type):
            return True
        synchronize(self.config.device_type)
        if self.config.device_type == "cuda":
            clear_cublas_workspaces()
        device = device_module(self.config.device_type)
        device.empty_cache()
        return bool(device.memory_allocated() == 0 and self.config.allocator == "default")

    def _lap(self) -> float:
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        return seconds
