"""A file system that answers nothing, as a network share does whose server is gone: `python hanging_folder.py FOLDER`.

It is FUSE without a server. Whoever asks it waits, until this process ends.
"""

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def hangs(folder: Path) -> Iterator[None]:
    """Inside, the folder hangs."""
    with subprocess.Popen([sys.executable, __file__, str(folder)], stdout=-1, stderr=-1, text=True) as process:
        try:
            if process.stdout.readline() != "hangs\n":
                pytest.skip(f"a file system cannot be mounted here: {process.stderr.read().splitlines()[-1]}")
            yield
        finally:
            process.kill()
            process.wait()
            subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)


if __name__ == "__main__":
    kernel = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    if kernel.mount(b"hangs", sys.argv[1].encode(), b"fuse", 0, options.encode()):
        sys.exit(os.strerror(ctypes.get_errno()))
    print("hangs", flush=True)
    time.sleep(1000)
