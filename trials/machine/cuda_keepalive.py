"""NVIDIA's driver, kept ready for one trial's process after the other.

As long as some process has initialised the driver for a GPU, the next one does so in 8 ms rather than 96, and ends in
47 rather than 86 (one NVIDIA H200). The driver serves the processes of all GPUs of a machine one after the other, so
this limits how many trials side by side are worth having. Run as a script this is such a process: it makes no context,
holds no memory of the GPU, and is not among those that NVML lists as running on it.
"""

import ctypes
import subprocess
import sys


class ReadyCudaDriver:
    """A process that has the driver initialised for the GPUs that are visible here, until it is closed or its owner
    dies. Where there is no such driver it ends at once, and nothing is lost but time.
    """

    def __init__(self) -> None:
        from lmsweep.trials.machine.interpreter import (  # not for the process itself, which is a script
            environment,
            script,
        )

        self._process = subprocess.Popen(
            script(__file__), stdin=subprocess.PIPE, env=environment(), start_new_session=True
        )

    def close(self) -> None:
        """Ends it, whatever it does."""
        with self._process:
            self._process.kill()


def main() -> None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    if driver.cuInit(0) == 0:
        sys.stdin.read()  # until the other end is closed


if __name__ == "__main__":
    main()
