"""The process that nsys profiles: `nsys_target.py CONFIG OUT`.

CONFIG is the trial's configuration as JSON. The trial's process keeps it locked; this process exits when it is
unlocked. OUT gets, as JSON, why the step is unsupported, or null.
"""

import fcntl
import json
import os
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from lmsweep.orchestrator.features.explain.profiled_steps import ready_steps
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.model.annotations import ranges_on
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError


def main(config: TrialConfig) -> None:
    """Warm up, then run the steps between cudaProfilerStart and cudaProfilerStop, with an NVTX range per operator."""
    bench = Workbench(config, requested_at=time.monotonic())
    on_cuda = config.device_type == "cuda"
    with bench.quiet():
        run_steps = ready_steps(bench)
        captured: AbstractContextManager[Any] = torch.cuda.profiler.profile() if on_cuda else nullcontext()
        with captured, torch.autograd.profiler.emit_nvtx(enabled=on_cuda), ranges_on():
            run_steps()


def die_when_free(lock: Path) -> None:
    """End this process, from a sleeping thread, as soon as the lock on this file is free: its holder has died."""

    def watch() -> None:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    die_when_free(Path(sys.argv[1]))
    unsupported = None
    try:
        main(TrialConfig(**json.loads(Path(sys.argv[1]).read_text())))
    except UnsupportedError as error:
        unsupported = str(error)
    Path(sys.argv[2]).write_text(json.dumps({"unsupported": unsupported}))
