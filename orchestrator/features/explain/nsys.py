"""Profile steps with NVIDIA's nsys, in a process of their own, and read its reports as events. Imports no torch.

PyTorch's operators appear as the NVTX ranges of `torch.autograd.profiler.emit_nvtx`: `aten::mm, seq = 12, op_id = 345`.
"""

import csv
import fcntl
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from lmsweep.orchestrator.features.explain.attribution import RANGES, STEP
from lmsweep.trials.machine.interpreter import command, environment
from lmsweep.trials.machine.scratch import scratch_folder
from lmsweep.trials.profiling.events import DeviceEvent, HostEvent, Trace
from lmsweep.trials.profiling.find_nsys import find_nsys
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError

REPORTS = ("cuda_gpu_trace", "cuda_api_trace", "nvtx_pushpop_trace")
"""Reports of `nsys stats`: the work on the device, the driver calls that launched it, and the ranges around them."""

_OPERATOR = re.compile(r"(?P<name>.*?)(, seq = (?P<sequence>\d+))?(, op_id = \d+)?(, (sizes|input_op_ids) = .*)?")
"""A range of emit_nvtx. `sequence` connects an operator of backward with that of forward."""
_DERIVATIVE = re.compile(r"(autograd::engine::evaluate_function: )?\w+Backwards?\d*")
_ANNOTATIONS = (*RANGES, STEP)


def profile_with_nsys(config: TrialConfig) -> Trace:
    """Run the profiled steps of this configuration under nsys in a process of its own, and read its trace. Raises
    UnsupportedError if this host lacks nsys or cannot run the configuration, and RuntimeError with the end of the
    output if the process or nsys fails."""
    try:
        nsys = find_nsys()
    except RequestError as error:
        raise UnsupportedError(str(error)) from None
    with scratch_folder() as folder:
        report, outcome = folder / "report.nsys-rep", folder / "outcome.json"
        (folder / "config.json").write_text(json.dumps(asdict(config)))
        steps = command("lmsweep.orchestrator.features.explain.nsys_target", str(folder / "config.json"), str(outcome))
        with (folder / "config.json").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # if this process dies, the lock is free, and the profiled process exits
            printed = _run(profile_command(nsys, report, config.device_type, steps))
        if not outcome.exists():
            raise RuntimeError(f"the process that nsys started did not finish\n{printed}")
        if reason := json.loads(outcome.read_text())["unsupported"]:
            raise UnsupportedError(reason)
        if not report.exists():
            raise RuntimeError(f"nsys wrote no report\n{printed}")
        _run(stats_command(nsys, report, folder / "stats"))
        hosts, devices = read_reports(folder / "stats")
        return Trace(hosts=hosts, devices=devices, file=report.read_bytes(), file_name=report.name)


def profile_command(nsys: str, report: Path, device_type: str, command: list[str]) -> list[str]:
    """The command that runs `command` under nsys; on CUDA it records from cudaProfilerStart to cudaProfilerStop."""
    captured = ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"] if device_type == "cuda" else []
    return [
        *(nsys, "profile", f"--output={report.with_suffix('')}", "--force-overwrite=true"),
        *("--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node"),
        *captured,
        *command,
    ]


def stats_command(nsys: str, report: Path, base: Path) -> list[str]:
    """The command that writes each of REPORTS to `base`_NAME.csv, in nanoseconds."""
    reports = [f"--report={name}" for name in REPORTS]
    return [nsys, "stats", "--force-export=true", "--format=csv", *reports, f"--output={base}", str(report)]


def read_reports(base: Path) -> tuple[list[HostEvent], list[DeviceEvent]]:
    """Events of the host and of the device, from the files of `stats_command`; an empty report has no file."""
    gpu, api, nvtx = (list(_read(base.with_name(f"{base.name}_{name}.csv"))) for name in REPORTS)
    ranges = [(row["name"].removeprefix(":"), int(row["tid"]), _span(row)) for row in nvtx]  # DOMAIN:NAME
    main = next((thread for name, thread, _ in ranges if name == STEP), 0)
    hosts = [_range_event(name, thread, span, main) for name, thread, span in ranges]
    for row in api:
        hosts.append(HostEvent(row["name"], int(row["tid"]), *_span(row), call=int(row["corrid"])))
    return hosts, [_device_event(row) for row in gpu]


def _range_event(label: str, thread: int, span: tuple[int, int], main: int) -> HostEvent:
    match = _OPERATOR.fullmatch(label)
    assert match, "the pattern matches any text"
    name, sequence = match["name"], match["sequence"]
    is_annotation = name in _ANNOTATIONS or name.startswith(("Torch-Compiled Region", "Optimizer."))
    # nsys does not report the thread that created an autograd node: it is the one that runs the profiled step.
    forward_thread = main if _DERIVATIVE.fullmatch(name) and sequence else 0
    number = -1 if sequence is None else int(sequence)
    return HostEvent(name, thread, *span, is_annotation=is_annotation, sequence=number, forward_thread=forward_thread)


def _device_event(row: dict[str, str]) -> DeviceEvent:
    grid, block = (" ".join(row[f"{kind}{axis}"] for axis in "xyz").strip() or None for kind in ("grd", "blk"))
    return DeviceEvent(row["name"], *_span(row), call=int(row["corrid"]), grid=grid, block=block)


def _span(row: dict[str, str]) -> tuple[int, int]:
    start = int(row["start (ns)"])
    return start, start + int(row["duration (ns)"])


def _read(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a report, by column name in lower case, since versions of nsys differ in case."""
    if not path.exists():
        return
    with path.open(newline="") as file:
        header: list[str] = []  # notes of nsys come before the header
        for line in csv.reader(line for line in file if line.strip()):
            if header:
                yield dict(zip(header, line, strict=True))
            elif "Start (ns)" in line:
                header = [name.lower() for name in line]


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=environment(),
    )
    printed = done.stdout[-4000:].strip()
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:2])} exited with code {done.returncode}\n{printed}")
    return printed
