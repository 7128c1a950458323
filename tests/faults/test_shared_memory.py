"""Containers with little shared memory (64 MB is Docker's default), or none."""

import shlex
from pathlib import Path

import pytest

from tests.faults.test_faults import assert_each_once
from tests.support.command import COMMAND, program, write_sweep

DEVICES = "null zero random urandom full tty"
PREPARE = {
    "64 MB": "mount -t tmpfs -o size=64m tmpfs /dev/shm",
    "none": (
        f"mount -t tmpfs tmpfs /mnt && for name in {DEVICES}; do touch /mnt/$name && mount --bind /dev/$name /mnt/$name"
        "; done && ln -s /proc/self/fd /mnt/fd && mount --rbind /mnt /dev && ! ls /dev/shm"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("shared", PREPARE)
def test_a_run_needs_no_shared_memory(tmp_path: Path, shared: str):
    unshare = ["unshare", "--mount", "--propagation", "private", "bash", "-c"]
    if program(*unshare, PREPARE[shared]).returncode:
        pytest.skip("nothing can be mounted here")
    run = shlex.join([*COMMAND, "run", str(write_sweep(tmp_path)), "--store", str(tmp_path / "store"), "--no-predict"])
    done = program(*unshare, f"{PREPARE[shared]} 2> /dev/null; {run}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert_each_once(tmp_path / "store", 2)
