"""A process that keeps NVIDIA's driver initialised between the processes of trials.

While some process has initialised the driver for a GPU, the next one initialises it in 8 ms instead of 96 ms and shuts
it down in 47 ms instead of 86 ms (one NVIDIA H200). The driver serves the processes of all GPUs of a machine one after
the other, so this time limits how many trials are worth running side by side.

Run as a script, this module is such a process. It creates no CUDA context, holds no GPU memory, and does not appear in
NVML's list of processes on the GPU.
"""

import ctypes
import subprocess
import sys


class ReadyCudaDriver:
    """A process that keeps the driver initialised until it is closed or its owner dies; without a driver it ends."""

    def __init__(self) -> None:
        # Imported here because the script itself must not import lmsweep.
        from lmsweep.trials.machine.interpreter import environment, script

        self._process = subprocess.Popen(
            script(__file__), stdin=subprocess.PIPE, env=environment(), start_new_session=True
        )

    def close(self) -> None:
        with self._process:
            self._process.kill()


def main() -> None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    if driver.cuInit(0) == 0:
        sys.stdin.read()


if __name__ == "__main__":
    main()
