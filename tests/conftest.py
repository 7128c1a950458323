"""What every test file may ask for."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lmsweep.trials.code.importing import CodeFinder
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.processes import pinned
from tests.support.turns import turn

if TYPE_CHECKING:
    from lmsweep.trials.isolation.client import IsolatedRunner
    from lmsweep.trials.results.environment import Fingerprint
    from lmsweep.trials.spec.reference import Code
    from tests.support.made_up_results import Attempts

with suppress(ImportError):  # before Python's own distutils, which Inductor then takes for a mistake
    import setuptools  # noqa: F401

# Before NumPy is imported. With several threads, products of small matrices take ten times as much of the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Lets SIGINT reach the commands that tests start: a shell without job control has what it starts in the background
    ignore it.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Computes on one thread, whatever a trial in this process has set before: where several workers share the cores,
    tiny products on several threads wait for one another far longer than they compute.
    """
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Where workers of xdist share a GPU, lets a test that times or fills it run alone, and wait before it begins."""
    torch = sys.modules.get("torch")
    if not (torch and torch.cuda.is_available()):
        return (yield)
    with turn(alone=item.get_closest_marker("alone_on_gpu") is not None):
        return (yield)


@pytest.fixture(scope="module", autouse=True)
def nothing_of_other_files() -> None:
    """Frees the trials of the file of what was imported and left before: their collections would visit all objects, and
    code that ran beneath a dispatch mode, Dynamo would never capture.
    """
    gc.collect()
    gc.freeze()
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()


@pytest.fixture(scope="module")
def one_core() -> Iterator[None]:
    """Runs the tests of the file, and the trials that they start, on one core: another one for each worker of xdist.

    A trial takes a thread for each core that it may use. On cores that are busy with another worker's trial, the
    threads of a tiny step wait for one another longer than they compute.
    """
    cores = usable_cores()
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    with pinned((cores[worker % len(cores)],)):
        yield


@pytest.fixture
def attempts(tmp_path: Path) -> "Attempts":
    """A store of made-up results."""
    from tests.support.made_up_results import Attempts

    return Attempts(tmp_path / "results")


@pytest.fixture(scope="session")
def servers() -> "Iterator[dict[tuple[int, ...], IsolatedRunner]]":
    """Cores -> what runs trials there."""
    found: dict[tuple[int, ...], IsolatedRunner] = {}
    yield found
    for one in found.values():
        one.close()


@pytest.fixture(scope="module")
def runner(servers: "dict[tuple[int, ...], IsolatedRunner]") -> "IsolatedRunner":
    """A server of trials, which all files share: to start one takes as long as twenty of their trials."""
    from lmsweep.trials.isolation.client import IsolatedRunner

    return servers.setdefault(tuple(usable_cores()), IsolatedRunner())


@pytest.fixture(scope="module")
def no_servers(servers: "dict[tuple[int, ...], IsolatedRunner]") -> None:
    """This process has no server of trials left. The next trial starts one."""
    for one in servers.values():
        one.close()


@pytest.fixture(scope="module")
def warm() -> Iterator[None]:
    """The functions of lmsweep start their programs from one process that has imported PyTorch."""
    from tests.support.warm_process import warm_programs

    with warm_programs():
        yield


@pytest.fixture(scope="module")
def environment() -> "Fingerprint":
    from lmsweep.trials.bench.fingerprint import fingerprint

    return fingerprint("cpu")


@pytest.fixture
def forget_code() -> Iterator[None]:
    """This process may import code from another folder. A process of a trial has one folder of code."""

    def forget() -> None:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, CodeFinder)]
        for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
            del sys.modules[name]

    forget()
    yield
    forget()


@pytest.fixture
def mine(tmp_path: Path, forget_code: None) -> "Callable[[str], Code]":
    """Writes a user's `mine.py`, lets this process import from its folder, and returns that."""
    from lmsweep.trials.code.digest import code_folder
    from lmsweep.trials.code.importing import use_code

    def write(source: str) -> "Code":
        (tmp_path / "mine.py").write_text(source)
        code = code_folder(str(tmp_path))
        use_code(code)
        return code

    return write


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which pip installs, and nothing else; the cache is empty, and there is no uv."""
    from tests.support.command import PYTHONPATH
    from tests.support.wheels import write_wheel  # imports torch

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    for version in ("1.0", "2.0"):
        write_wheel(tmp_path / "wheels", "speedy", version, f"SIZE = {1000 * float(version)}\n")
    return tmp_path / "wheels"
