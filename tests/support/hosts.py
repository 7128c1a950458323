"""Small hosts made of one Linux machine, on which a cluster can be tried: each has a network, processes, a name, a
home, a /tmp and an sshd of its own, and sees the rest of the machine's files.

They are namespaces, joined by a bridge that reaches nothing else. What `why_not` says must be None.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import psutil

PROGRAMS = ("sshd", "ssh-keygen", "ssh", "rsync", "ip", "unshare", "setpriv", "mount")
SSHD = "/usr/sbin/sshd"
OPTIONS = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")


def why_not() -> str | None:
    """Why there can be no hosts here, if so. Installs the programs where apt-get can."""
    if sys.platform != "linux":
        return "namespaces are Linux's"
    if os.geteuid() != 0:
        return "only root can make networks and hosts"
    if missing() and shutil.which("apt-get"):
        packages = ["openssh-server", "openssh-client", "rsync", "iproute2", "util-linux"]
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
            subprocess.run(["apt-get", "--quiet", *command], env=environment, capture_output=True, check=False)
    if missing():
        return f"these programs are missing: {', '.join(missing())}"
    trial = "ip link add lmprobe type bridge && ip link del lmprobe && mount --make-rprivate /"
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--uts", "--fork", "sh", "-c", trial],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"namespaces are not allowed here: {tried.stderr.strip()}" if tried.returncode else None


def missing() -> list[str]:
    return [name for name in PROGRAMS if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")]


class Hosts:
    """Started when the context opens, ended with everything that runs on them when it closes."""

    def __init__(self, folder: Path, profiles: list[str], *, keep: list[Path]) -> None:
        """`profiles` has lines of shell for each host's profile; `keep` are folders that hosts see even where they lie
        in a home or in /tmp.
        """
        self._folder = folder
        self._profiles = profiles
        self._keep = [path.resolve() for path in keep]
        self._tag = f"lm{os.getpid() % 100_000}"
        self._subnet = f"10.{64 + os.getpid() % 64}.{os.getpid() // 64 % 256}"
        self._inits: list[subprocess.Popen[bytes]] = []
        self._group: Path | None = None
        self.addresses = [f"{self._subnet}.{10 + index}" for index in range(len(profiles))]
        self.key = folder / "key"

    def home(self, index: int) -> Path:
        """The home of root on a host, as this machine sees it."""
        return self._folder / f"host{index}" / "home"

    def name(self, index: int) -> str:
        """What a host calls itself."""
        return f"{self._tag}-{index}"

    def start(self, index: int, command: str) -> subprocess.Popen[str]:
        """Starts a command there."""
        ssh = ["ssh", *OPTIONS, "-o", "ConnectTimeout=5", "-i", self.key, f"root@{self.addresses[index]}", command]
        return subprocess.Popen(
            ssh, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ssh(self, index: int, command: str, *, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Runs a command there to its end."""
        process = self.start(index, command)
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def cut(self, index: int) -> None:
        """Takes a host's link down: nothing reaches it and nothing comes from it, and nobody is notified."""
        _run("ip", "link", "set", self._link(index), "down")

    def join(self, index: int) -> None:
        """Takes the link up again."""
        _run("ip", "link", "set", self._link(index), "up")

    def limit(self, index: int, cores: float) -> None:
        """Gives all processes of a host so much CPU time by a control group, which the host can see."""
        top, there = Path("/sys/fs/cgroup"), "/sys/fs/cgroup"
        quota, mounting = f"{int(cores * 100_000)}", [f"mount -t cgroup2 lm {there}"]
        if (top / "cgroup.controllers").exists():
            (top / "cgroup.subtree_control").write_text("+cpu")
            file, quota = "cpu.max", f"{quota} 100000"
        else:
            top, file = top / "cpu", "cpu.cfs_quota_us"
            mounting = [f"mount -t tmpfs lm {there}", f"mkdir {there}/cpu", f"mount -t cgroup -o cpu lm {there}/cpu"]
        self._group = top / self.name(index)
        self._group.mkdir()
        (self._group / file).write_text(quota)
        init = psutil.Process(self._inits[index].pid)
        for one in (init, *init.children(recursive=True), *self.processes(index)):
            with contextlib.suppress(OSError):  # it has ended
                (self._group / "cgroup.procs").write_text(str(one.pid))
        done = self.ssh(index, " && ".join(mounting))
        assert done.returncode == 0, done.stderr

    def pin(self, index: int, core: int) -> None:
        """Lets the processes of a host, and those that they start, run on one core."""
        for one in self.processes(index):
            _run("taskset", "-acp", str(core), str(one.pid), check=False)

    def processes(self, *indices: int) -> list[psutil.Process]:
        """What runs on these hosts, on all of them if none is named, apart from what makes them hosts."""
        inits = [self._inits[index] for index in indices] or self._inits
        spaces = {os.readlink(f"/proc/{pid}/ns/net") for one in inits for pid in _children(one.pid)}
        found = []
        for one in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.NoSuchProcess):  # it has ended
                if os.readlink(f"/proc/{one.pid}/ns/net") in spaces:
                    command = " ".join(one.cmdline())
                    if command and not command.startswith(("ip ", "unshare ", "bash -c set -e", "sshd: ", SSHD)):
                        found.append(one)
        return found

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:  # whatever ended the start, Ctrl-C too: no process of it may stay
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for init in self._inits:
            init.kill()
            init.wait()
        for index in range(len(self._profiles)):
            _run("ip", "netns", "delete", self.name(index), check=False)
            _run("ip", "link", "delete", self._link(index), check=False)
        _run("ip", "link", "delete", self._tag, check=False)
        if self._group:
            self._group.rmdir()

    def _link(self, index: int) -> str:
        """The end of the host's link that this machine holds."""
        return f"{self._tag}v{index}"

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for name in ("key", "hostkey"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._folder / name))
        Path("/run/sshd").mkdir(exist_ok=True)
        _run("ip", "link", "add", self._tag, "type", "bridge")
        _run("ip", "address", "add", f"{self._subnet}.1/24", "dev", self._tag)
        _run("ip", "link", "set", self._tag, "up")
        for index, profile in enumerate(self._profiles):
            self._connect(index)
            self._prepare_home(index, profile)
            self._inits.append(self._start_init(index))
        for index in range(len(self._profiles)):
            self._wait_for(index)

    def _connect(self, index: int) -> None:
        space, outer = self.name(index), self._link(index)
        _run("ip", "netns", "add", space)
        _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
        _run("ip", "link", "set", outer, "master", self._tag, "up")
        _run("ip", "-netns", space, "address", "add", f"{self.addresses[index]}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _run("ip", "-netns", space, "link", "set", device, "up")

    def _prepare_home(self, index: int, profile: str) -> None:
        ssh = self.home(index) / ".ssh"
        ssh.mkdir(parents=True, mode=0o700)
        shutil.copy(self._folder / "key.pub", ssh / "authorized_keys")
        shutil.copy(self._folder / "hostkey", ssh / "hostkey")
        for name in (".bashrc", ".bash_profile"):
            (self.home(index) / name).write_text(f"{profile}\n")

    def _start_init(self, index: int) -> subprocess.Popen[bytes]:
        """The first process of a host; all others end with it."""
        there, home = self.home(index).parent, Path("~root").expanduser()
        script = ["set -e", "mount --make-rprivate /", f"hostname {self.name(index)}"]
        for target, source in ((home, there / "home"), (Path("/tmp"), there / "tmp")):
            source.mkdir(exist_ok=True)
            for path in self._keep:
                if path.is_relative_to(target):
                    again = source / path.relative_to(target)
                    script += [f"mkdir -p {again}", f"mount --bind {path} {again}"]
            # /tmp last: the folder of the hosts may lie in it.
            script.append(f"mount --rbind {source} {target}")
        # The shell stays: the first process of a host has to take note of the end of those that lost their parent.
        script.append(
            f"{SSHD} -D -e -f /dev/null -o ListenAddress={self.addresses[index]} -o HostKey={home}/.ssh/hostkey "
            "-o PidFile=none -o StrictModes=no -o PermitRootLogin=prohibit-password -o UsePAM=no & wait"
        )
        inside = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc", "bash", "-c"]
        with (there / "sshd.log").open("wb") as log:
            return subprocess.Popen(
                # Should this process be killed, they end too.
                ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.name(index), *inside, "\n".join(script)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait_for(self, index: int) -> None:
        deadline = time.monotonic() + 20
        while self.ssh(index, "true").returncode:
            if time.monotonic() > deadline or self._inits[index].poll() is not None:
                log = (self.home(index).parent / "sshd.log").read_text()
                raise RuntimeError(f"host {index} does not answer: {log}")
            time.sleep(0.1)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _run(*command: str, check: bool = True) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
