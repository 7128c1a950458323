"""Run `lmsweep accept` on a machine with a GPU as it is, and disturbed on purpose; each is named as what it is.

python -m benchmarks.accept_cases FOLDER [CASE ...]

Cases: null (twice, undisturbed), busy (half of the cores taken), shared (another process computes on GPU 0), pcie (on
several GPUs, NCCL without peer-to-peer). FOLDER gets the output, a page, the JSON of each, and
the rows of the undisturbed cases as a store.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from lmsweep.trials.machine.interpreter import command
from lmsweep.trials.store.store import Store

BURN = "while True: pass"
COMPUTE = """
import torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
print("ready", flush=True)
while True:
    a @ a
    torch.cuda.synchronize()
"""


@contextmanager
def processes(code: str, count: int, *, wait: bool = False) -> Iterator[None]:
    """Run this code in so many processes meanwhile."""
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for one in started if wait else ():
            assert one.stdout
            one.stdout.readline()
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def case(name: str, folder: Path, store: str, **variables: str) -> None:
    words = command("lmsweep.orchestrator.cli", "accept", "--store", store, "-o", str(folder / f"{name}.html"))
    began = time.monotonic()
    done = subprocess.run(words, env=os.environ | variables, capture_output=True, text=True, check=False)
    said = f"=== {name}: exit code {done.returncode}, {time.monotonic() - began:.0f} s\n{done.stdout}{done.stderr}\n"
    print(said, flush=True)
    with (folder / "accept.txt").open("a") as log:
        log.write(said)
    if name != "null":
        (folder / f"{name}.html").unlink(missing_ok=True)  # few files are carried back


def main() -> None:
    folder, wanted = Path(sys.argv[1]), sys.argv[2:] or ["null", "busy", "shared"]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as store:
        if "null" in wanted:
            case("null", folder, store)
            case("null-again", folder, store)
            kept = folder / "store" / "measurements"
            kept.mkdir(parents=True)
            pq.write_table(Store(store).read()[0], kept / "measurements.parquet", compression="zstd")
        if "busy" in wanted:
            with processes(BURN, (os.cpu_count() or 2) // 2):
                case("busy", folder, store)
        if "shared" in wanted:
            with processes(COMPUTE, 1, wait=True):
                case("shared", folder, store)
        if "pcie" in wanted:
            case("pcie", folder, store, NCCL_P2P_DISABLE="1")


if __name__ == "__main__":
    main()
