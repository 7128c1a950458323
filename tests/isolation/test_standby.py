"""Trial servers that start before their workers."""

import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from lmsweep.orchestrator.api import make_planned
from lmsweep.orchestrator.cluster.ray_session import start_standby
from lmsweep.orchestrator.plan_request import How, What, Where
from lmsweep.trials.isolation.server_process import MODULE, ServerProcess
from lmsweep.trials.isolation.standby import Standby, visible_gpus
from lmsweep.trials.machine.cpu_affinity import Gpu
from lmsweep.trials.spec.config import RequestError
from tests.support.command import program, write_sweep
from tests.support.made_up_results import config

pytestmark = pytest.mark.usefixtures("no_servers")  # tests count processes


def servers(parent: int) -> list[psutil.Process]:
    return [one for one in psutil.Process(parent).children() if MODULE in one.cmdline()]


def test_gpus_are_named_as_the_environment_names_those_that_may_be_used(monkeypatch):
    gpus = [Gpu(names=(str(i), f"GPU-{i:04}"), numa_node=None) for i in range(4)]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus(gpus) == ["0", "1", "2", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0003,1")
    assert visible_gpus(gpus) == ["GPU-0003", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus(gpus) == []


def test_a_slot_never_takes_the_server_of_other_gpus():
    standby = Standby()
    with ExitStack() as stack:
        for name in ("11", "0", "0,1", "1,0", "GPU-1", "cpu"):
            one = stack.enter_context(socket.socket(socket.AF_UNIX))
            one.bind(str(standby.folder / f"{name}.4194305"))
            one.listen(1)
        for slot in ("1", "*", "?", "0,1,2", "GPU-11", "MIG-GPU-1/0/0", ""):
            assert ServerProcess.take(standby.folder, slot) is None, slot
    standby.close()


def test_none_is_started_for_other_software_or_several_gpus():
    trials = [config("tiny", device="cpu", software="torch==2.12.0"), config("tiny", device="cuda", world_size=2)]
    standby = start_standby(trials)
    assert not servers(os.getpid()) and not list(standby.folder.glob("*.*[0-9]"))
    standby.close()


def test_an_error_while_planning_ends_what_was_started(tmp_path: Path):
    sweep, store = str(write_sweep(tmp_path, device="cpu")), str(tmp_path / "store")
    where = Where(store=store, cluster_file="mine.yaml")
    with pytest.raises(RequestError, match="also give the cluster's --address"):
        make_planned(What(sweep), where, How(predict=False), will_run=True)
    assert not servers(os.getpid())


PRELOADED = """
import multiprocessing, os, sys
import torch
from lmsweep.trials.isolation.server import preload
from lmsweep.trials.machine.gpu.nvml import why_no_nvml
class Notes:
    asked = []
    def find_spec(self, name, path, target=None):
        if name == "torch._inductor.compile_fx":
            self.asked.append(os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"))
def child():
    sys.exit(torch.cuda._is_in_bad_fork())
sys.meta_path.insert(0, Notes())
if "cuda" in sys.argv:
    torch.backends.cuda.is_built = lambda: True
preload(compiles=True)
may_import = not torch.backends.cuda.is_built() or why_no_nvml() is None
assert Notes.asked == ["1"] * may_import, Notes.asked
assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
assert process.exitcode == 0
"""


@pytest.mark.slow
@pytest.mark.parametrize("build", ["cuda", "as it is"])
def test_children_can_use_cuda_because_nvml_is_asked_while_the_compiler_is_imported(build):
    # What is asked is seen with every build of PyTorch; that no child is spoiled, only with one for CUDA.
    done = program(sys.executable, "-c", PRELOADED, build)
    assert done.returncode == 0, done.stderr


def test_where_the_path_is_too_long_for_a_socket_none_is_started(monkeypatch, tmp_path):
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    standby = Standby.start(gpus=False, cpu=True, compiles=False)
    assert not servers(os.getpid()) and not list(standby.folder.glob("cpu.*"))
    standby.close()
