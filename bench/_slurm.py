"""A real Slurm controller over thousands of nodes that are not there: it allocates for real and launches nothing.

The nodes are of Slurm's cloud kind and stay powered down, so a job that gets them is allocated and then waits for ever
for them to boot. One more node can join that is real (a `slurmd`), because only a real node tells the controller that a
job is over, and that message is what wakes the scheduler. All of it is in one folder, on loopback, with its own munge.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

PACKAGES = ["slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge"]
PARTITION = "main"
MAX_ARRAY, MAX_JOBS = 100_001, 250_000
CPUS, CPUS_ASKED = 64, 8  # of a node, and of a gang on each node
CLIENTS = 4  # submit at the same time
STARTED = re.compile(r"\[(\S+)\] sched(/backfill: _start_job: Started|: Allocate) JobId=(\S+)")
FREED = re.compile(r"\[(\S+)\] debug: +completed epilog for jobid")


@dataclass(frozen=True)
class Start:
    """A job that the controller gave its nodes, at a time in seconds since 1970 (to the millisecond)."""

    job: str
    at: float
    backfill: bool


@dataclass(frozen=True)
class Cycle:
    """The last cycle of one of the two schedulers, in milliseconds, and how many cycles it has had since the reset."""

    count: int
    last_ms: float
    depth: int  # job records looked at
    queue: int  # job records waiting; a whole array counts as one


@dataclass
class SlurmController:
    folder: Path
    nodes: int
    gpus: int = 8
    rack: int = 32  # nodes under one leaf switch
    scheduler: str = "bf_interval=30"  # SchedulerParameters; this one is what Slurm takes without any
    _daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)  # munged, slurmctld, slurmd

    def __enter__(self) -> Self:
        install()
        for name in ("run", "state", "spool", "log", "dev"):
            (self.folder / name).mkdir(parents=True)
        _write_configuration(self)
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def close_queue(self) -> None:
        """Jobs may be submitted and nothing starts."""
        self._tool("scontrol", "update", f"PartitionName={PARTITION}", "State=DOWN")

    def open_queue(self) -> None:
        self._tool("scontrol", "update", f"PartitionName={PARTITION}", "State=UP")

    def submit_array(self, count: int, nodes: int, gpus: int, minutes: int = 60) -> str:
        """The id of an array of that many gangs, or of a single gang."""
        array = [f"--array=1-{count}"] if count > 1 else []
        shape = [f"--nodes={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={CPUS_ASKED}", f"--gres=gpu:{gpus}"]
        rest = [f"--time={minutes}", "--output=/dev/null", "--chdir=/", "--wrap=exec sleep 86400"]
        return self._tool("sbatch", "--parsable", *array, *shape, *rest).strip()

    def submit_many(self, arrays: Iterable[tuple[int, int, int, int]]) -> list[str]:
        """Ids, in order, of arrays given as (count, nodes, gpus, minutes); some clients submit at the same time."""
        with ThreadPoolExecutor(CLIENTS) as pool:
            return list(pool.map(lambda array: self.submit_array(*array), arrays))

    def cancel(self, *jobs: str) -> None:
        """For jobs of the real node: the end of another is told to nodes that never answer, and messages pile up."""
        self._tool("scancel", *jobs)

    def running(self) -> list[str]:
        """Jobs that hold nodes."""
        return self._tool("squeue", "--noheader", "--format=%i", "--states=configuring,running").split()

    def pending(self) -> list[str]:
        """Waiting job records: an array that waits is one."""
        return self._tool("squeue", "--noheader", "--format=%i", "--states=pending").split()

    def join_real_node(self) -> None:
        """Kept out until it is needed: with one node up and the others not, Slurm tries a gang on each kind in turn."""
        self._daemon("slurmd", "-D", "-N", "real", "-f", str(self.folder / "slurm.conf"))
        wait_until(
            lambda: "State=IDLE " in self._tool("scontrol", "show", "node", "real"), "the real node is idle", 30.0
        )
        self._tool("scontrol", "update", f"PartitionName={PARTITION}", f"Nodes=real,n[1-{self.nodes}]")

    def on_real_node(self) -> list[str]:
        return self._tool("squeue", "--noheader", "--format=%i", "--nodelist=real", "--states=running").split()

    def mark(self) -> int:
        return (self.folder / "log/slurmctld.log").stat().st_size

    def starts(self, mark: int = 0) -> list[Start]:
        """What the controller logged as allocated since a mark, in order: asking it instead would slow it down."""
        with (self.folder / "log/slurmctld.log").open("rb") as log:
            log.seek(mark)
            text = log.read().decode(errors="replace")
        return [Start(m[3], _seconds(m[1]), m[2].startswith("/")) for m in STARTED.finditer(text)]

    def wait_for_starts(self, mark: int, count: int, seconds: float) -> list[Start]:
        wait_until(lambda: len(self.starts(mark)) >= count, f"{count} jobs have their nodes", seconds)
        return self.starts(mark)

    def last_freed(self) -> float:
        """When the real node was last done with a job, just before it told the controller."""
        return _seconds(FREED.findall((self.folder / "log/slurmd.log").read_text(errors="replace"))[-1])

    def cpu_seconds(self) -> float:
        """What the controller has spent of the processor."""
        fields = Path(f"/proc/{self._daemons[1].pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def reset(self) -> None:
        self._tool("sdiag", "--reset")

    def sdiag(self) -> tuple[Cycle, Cycle]:
        """The main scheduler's and the backfill scheduler's last cycle."""
        main, _, backfill = self._tool("sdiag").partition("Backfilling stats")
        main = main.partition("Main schedule statistics")[2]
        return _cycle(main, "Mean depth cycle"), _cycle(backfill, "Last depth cycle")

    def version(self) -> str:
        return self._tool("sinfo", "--version").strip()

    def _start(self) -> None:
        run, conf = self.folder / "run", self.folder / "slurm.conf"
        files = {"key-file": run / "key", "socket": run / "munge.sock", "pid-file": run / "munged.pid"}
        files |= {"log-file": self.folder / "log/munged.log", "seed-file": run / "seed"}
        self._daemon("munged", "--foreground", "--force", *(f"--{key}={value}" for key, value in files.items()))
        wait_until((run / "munge.sock").exists, "munged listens", 10.0)
        self._daemon("slurmctld", "-D", "-c", "-f", str(conf))
        wait_until(self._answers, "slurmctld answers", 30.0)

    def _stop(self) -> None:
        """The jobs of the real node first: what runs there outlives its `slurmd`."""
        try:
            if len(self._daemons) == 3:
                self.close_queue()
                self._tool("scancel", "--nodelist=real")
                steps = self.folder / "spool/real"
                wait_until(lambda: not list(steps.glob("real_*.*")), "the real node runs nothing", 30.0)
        finally:
            while self._daemons:
                _end(self._daemons.pop())

    def _daemon(self, *command: str) -> None:
        with (self.folder / f"log/{command[0]}.out").open("wb") as out:
            self._daemons.append(subprocess.Popen(command, stdout=out, stderr=out, env=self._env(), cwd="/"))

    def _env(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SBATCH", "SQUEUE"))}
        return {**kept, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def _tool(self, *command: str) -> str:
        done = subprocess.run(command, env=self._env(), capture_output=True, text=True, timeout=120.0)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def _answers(self) -> bool:
        done = subprocess.run(["scontrol", "ping"], env=self._env(), capture_output=True, text=True, timeout=60.0)
        return " is UP" in done.stdout


def unavailable() -> str:
    """Why a Slurm controller can't be had here; "" when it can."""
    return "" if os.geteuid() == 0 else "its controller and munge need root; run bench/sched_slurm.py as root."


def install() -> None:
    """Slurm and munge from the distribution, unless they are here already."""
    if why := unavailable():
        raise SystemExit(f"bench/_slurm.py: {why}")
    if all(shutil.which(name) for name in ("slurmctld", "slurmd", "sbatch", "munged")):
        return
    if not shutil.which("apt-get"):
        raise SystemExit(f"bench/_slurm.py: no Slurm and no apt-get here; install {' '.join(PACKAGES)} yourself.")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *PACKAGES]):
        subprocess.run(["apt-get", "--quiet", *command], env=env, check=True, stdout=subprocess.DEVNULL, timeout=600.0)


def wait_until(condition: Callable[[], object], what: str, seconds: float, every: float = 0.05) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s until {what}, and it did not come")
        time.sleep(every)


def _write_configuration(slurm: SlurmController) -> None:
    folder = slurm.folder
    for device in range(slurm.gpus):
        os.mknod(
            folder / f"dev/gpu{device}", 0o20666, os.makedev(1, 3)
        )  # as good as /dev/null, and a device of our own
    key = folder / "run/key"
    key.touch(0o600)
    key.write_bytes(os.urandom(1024))
    (folder / "slurm.conf").write_text(_slurm_conf(slurm))
    devices = folder / f"dev/gpu[0-{slurm.gpus - 1}]"
    (folder / "gres.conf").write_text(f"NodeName=real,n[1-{slurm.nodes}] Name=gpu File={devices}\n")
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    firsts = range(1, slurm.nodes + 1, slurm.rack)
    leaves = [
        f"SwitchName=leaf{number} Nodes=n[{first}-{min(first + slurm.rack - 1, slurm.nodes)}]"
        for number, first in enumerate(firsts, 1)
    ]
    tree = ["SwitchName=leaf0 Nodes=real", *leaves, f"SwitchName=spine Switches=leaf[0-{len(leaves)}]", ""]
    (folder / "topology.conf").write_text("\n".join(tree))


def _slurm_conf(slurm: SlurmController) -> str:
    """Without slurmdbd the multifactor plugin refuses the fair-share and age weights and keeps the others."""
    folder, host = slurm.folder, socket.gethostname()
    controller, real, nobody = _free_ports(3)
    shape = f"Sockets=2 CoresPerSocket={CPUS // 2} RealMemory=256000 Gres=gpu:{slurm.gpus}"
    return f"""\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/run/munge.sock
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.log
LogTimeFormat=iso8601_ms
SlurmdDebug=debug2
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
SlurmdTimeout=0
MessageTimeout=100
InactiveLimit=0
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=INFINITE
ResumeTimeout=36000
PrivateData=cloud
MaxArraySize={MAX_ARRAY}
MaxJobCount={MAX_JOBS}
SchedulerType=sched/backfill
SchedulerParameters={slurm.scheduler}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
TopologyPlugin=topology/tree
PriorityType=priority/multifactor
PriorityWeightPartition=1000
AccountingStorageType=accounting_storage/none
GresTypes=gpu
NodeName=real NodeHostname={host} NodeAddr=127.0.0.1 Port={real} {shape} State=UNKNOWN
NodeName=n[1-{slurm.nodes}] NodeAddr=127.0.0.1 Port={nobody} {shape} State=CLOUD
PartitionName={PARTITION} Nodes=n[1-{slurm.nodes}] Default=YES MaxTime=INFINITE State=UP
"""


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(10.0)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _cycle(section: str, depth: str) -> Cycle:
    figures = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in section.splitlines())}
    return Cycle(
        int(figures["Total cycles"]),
        int(figures["Last cycle"]) / 1000,
        int(figures.get(depth, 0)),
        int(figures["Last queue length"]),
    )


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
