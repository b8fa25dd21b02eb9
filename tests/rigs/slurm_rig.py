"""A real Slurm on this host for tests: munge, a controller, four nodes; accounting and REST where they are wanted.

Each `slurmd` lives in a process namespace of its own, so that a node can die with everything that runs on it. All of it
listens on loopback and is in one folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from components import require, require_root
from live import until

TOOLS = ("slurmctld", "slurmd", "sbatch", "squeue", "munged")
NODES = ("n1", "n2", "n3", "n4")
GPUS = 2  # of each node
_NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


@dataclass
class SlurmRig:
    """See the contract of rigs; `start` first. Two partitions over the same nodes: `high` takes from `low`."""

    accounting: bool = False
    rest: bool = False
    name: str = "slurm"
    pool: str = "low"
    folder: Path = Path()
    env: dict[str, str] = field(default_factory=dict)
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _short: tempfile.TemporaryDirectory[str] | None = None

    @property
    def config(self) -> str:
        return f"""\
[engines.slurm]
python = "{sys.executable}"
look_every = 0.5
nodes_every = 2.0
claim_within = "20s"
switch = "rack"
"""

    @property
    def rest_config(self) -> str:
        return f'{self.config}rest = "unix:{self.folder}/run/rest.sock"\n'

    def start(self, folder: Path) -> None:
        """`folder` is not used for sockets: their paths may have at most 107 characters."""
        require_root("start a Slurm")
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        require("Slurm", not missing, "Install it: apt-get install slurm-wlm munge.")
        self._short = tempfile.TemporaryDirectory(prefix="muster-slurm-", ignore_cleanup_errors=True)
        self.folder = Path(self._short.name)
        for name in ("run", "state", "log", "dev", *(f"spool/{node}" for node in NODES)):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        self.env = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self._configure()
        self._start_munge()
        if self.accounting:
            self._start_accounting()
        self.start_controller()
        for node in NODES:
            self._start_node(node)
        self.restore()
        if self.rest:
            self._start_rest()

    def close(self) -> None:
        """Newest first; nothing of it is left."""
        for name in reversed(list(self._daemons)):
            self._end(name)
        if self._short is not None:
            self._short.cleanup()

    def kill_node(self, node: str) -> None:
        """With its process namespace goes all that ran there."""
        process = self._daemons.pop(node)
        process.kill()
        process.wait()

    def restore(self) -> None:
        for node in NODES:
            if node not in self._daemons:
                self._start_node(node)
        for node in NODES:
            until(lambda node=node: self._up(node), f"{node} to be up")

    def records(self) -> str:
        """What users and administrators can see, and what lies in Slurm's own folders."""
        shown = [self.tool("scontrol", "show", "job", "-d"), self.tool("squeue", "-a", "-t", "all", "-O", "ALL")]
        for job in self.tool("squeue", "-h", "-t", "all", "-o", "%A").split():
            script = subprocess.run(
                ["scontrol", "write", "batch_script", job, "-"], env=self._env(), capture_output=True
            )
            shown.append(script.stdout.decode())
        if self.accounting:
            shown.append(self.tool("sacct", "-a", "-P", "-o", "ALL"))
        for place in ("state", "spool", "log"):
            for path in (self.folder / place).rglob("*"):
                if path.is_file():
                    shown.append(path.read_bytes().decode(errors="replace"))
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                shown.append(process.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
        return "\n".join(shown)

    def cancel_outside(self, job: str) -> None:
        self.tool("scancel", self.slurm_id(job))

    # --- for the tests of Slurm alone --------------------------------------------------------------------------------
    def slurm_id(self, job: str) -> str:
        """The newest Slurm job of a job of Muster's, waiting for it to be there."""
        return until(lambda: self._slurm_id(job), f"a Slurm job of {job}")

    def tool(self, *command: str) -> str:
        done = subprocess.run(command, env=self._env(), capture_output=True, text=True, timeout=180.0)
        assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}: {done.stderr}"
        return done.stdout

    def start_controller(self) -> None:
        self._daemon("slurmctld", "slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
        until(self._answers, "slurmctld to answer")

    def stop_controller(self) -> None:
        self._end("slurmctld")

    def _slurm_id(self, job: str) -> str:
        found = []
        for line in self.tool("squeue", "-h", "-r", "-t", "all", "-o", "%A|%K|%k").splitlines():
            number, index, comment = line.split("|", 2)
            words = comment.split(":")
            if words[0] != "muster":
                continue
            if words[2] == job:
                found.append(int(number))
            elif words[2] == "array":
                lines = self._table(words[3]).read_text().splitlines()
                if any(line.startswith(f"{index} attempts/{job}/") for line in lines):
                    found.append(int(number))
        return str(max(found)) if found else ""

    def _table(self, tag: str) -> Path:
        command = self.tool("scontrol", "show", "job", "-o")
        roots = {word.partition("=")[2] for word in command.split() if word.startswith("WorkDir=")}
        return next(path for root in roots if (path := Path(root) / "arrays" / tag).exists())

    def _env(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SBATCH", "SQUEUE"))}
        return {**kept, **self.env}

    def _up(self, node: str) -> bool:
        state = self.tool("scontrol", "show", "node", node).partition("State=")[2].split()[0]
        if "DOWN" in state or "DRAIN" in state:
            subprocess.run(
                ["scontrol", "update", f"NodeName={node}", "State=RESUME"], env=self._env(), capture_output=True
            )
        return state in ("IDLE", "MIXED", "ALLOCATED")

    def _answers(self) -> bool:
        done = subprocess.run(["scontrol", "ping"], env=self._env(), capture_output=True, text=True, timeout=120.0)
        return " is UP" in done.stdout

    def _start_munge(self) -> None:
        run = self.folder / "run"
        (run / "key").touch(0o600)
        (run / "key").write_bytes(os.urandom(1024))
        files = {"key-file": run / "key", "socket": run / "munge.sock", "pid-file": run / "munged.pid"}
        files |= {"log-file": self.folder / "log/munged.log", "seed-file": run / "seed"}
        self._daemon("munged", "munged", "--foreground", "--force", *(f"--{key}={at}" for key, at in files.items()))
        until((run / "munge.sock").exists, "munged to listen")

    def _start_node(self, node: str) -> None:
        """A shell is its namespace's first process: it buries what is left of others."""
        inside = ["bash", "-c", '"$@" & wait $!', "_", "slurmd", "-D", "-N", node, "-f", self.env["SLURM_CONF"]]
        self._daemon(node, *_NAMESPACE, *inside)

    def _start_accounting(self) -> None:
        data = self.folder / "mysql"
        socket_path = self.folder / "run/mysql.sock"
        user = "mysql"
        for place in (data, self.folder / "run"):
            place.mkdir(exist_ok=True)
        shutil.chown(data, user)
        (self.folder / "run").chmod(0o777)
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", f"--user={user}",
             "--auth-root-authentication-method=normal"],
            check=True, capture_output=True,
        )  # fmt: skip
        self._daemon(
            "mariadbd", "mariadbd", "--no-defaults", f"--datadir={data}", f"--user={user}", "--skip-networking",
            f"--socket={socket_path}", f"--pid-file={data}/pid", "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-size=32M", "--innodb-lock-wait-timeout=900",
        )  # fmt: skip
        until(socket_path.exists, "MariaDB to listen")
        self.env["MYSQL_UNIX_PORT"] = str(socket_path)
        self._daemon("slurmdbd", "slurmdbd", "-D")
        until(lambda: self._can("sacctmgr", "-n", "show", "cluster"), "slurmdbd to answer")
        for words in (
            ("add", "cluster", "rig"),
            ("add", "account", "lab"),
            ("add", "user", "root", "account=lab", "adminlevel=admin"),
        ):
            self.tool("sacctmgr", "-i", *words)

    def _start_rest(self) -> None:
        """It refuses to be root unless it is told that this is meant; jobs are of the user who asks."""
        path = self.folder / "run/rest.sock"
        self.env["SLURMRESTD_SECURITY"] = "disable_user_check"
        plugins = "openapi/v0.0.38,openapi/dbv0.0.38" if self.accounting else "openapi/v0.0.38"
        self._daemon(
            "slurmrestd", "slurmrestd", "-f", self.env["SLURM_CONF"], "-a", "rest_auth/local", "-s", plugins,
            f"unix:{path}",
        )  # fmt: skip
        until(path.exists, "slurmrestd to listen")

    def _can(self, *command: str) -> bool:
        return subprocess.run(command, env=self._env(), capture_output=True, timeout=120.0).returncode == 0

    def _daemon(self, name: str, *command: str) -> None:
        with (self.folder / f"log/{name}.out").open("ab") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self._env(), cwd="/"
            )
        self._daemons[name] = process

    def _end(self, name: str) -> None:
        process = self._daemons.pop(name)
        process.send_signal(signal.SIGKILL if name in NODES else signal.SIGTERM)
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _configure(self) -> None:
        for device in range(GPUS):
            os.mknod(self.folder / f"dev/gpu{device}", 0o20666, os.makedev(1, 3))  # as good as /dev/null
        (self.folder / "slurm.conf").write_text(_slurm_conf(self))
        devices = self.folder / f"dev/gpu[0-{GPUS - 1}]"
        (self.folder / "gres.conf").write_text(f"NodeName=n[1-4] Name=gpu Type=h100 File={devices}\n")
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        (self.folder / "topology.conf").write_text(
            "SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\nSwitchName=spine Switches=leaf[1-2]\n"
        )
        if self.accounting:
            path = self.folder / "slurmdbd.conf"
            path.touch(0o600)
            path.write_text(_slurmdbd_conf(self))


_PORTS: dict[str, list[int]] = {}


def _slurm_conf(rig: SlurmRig) -> str:
    folder, host = rig.folder, socket.gethostname()
    controller, database, *nodes = _free_ports(2 + len(NODES))
    _PORTS[str(folder)] = [database]
    accounting = "AccountingStorageType=accounting_storage/none"
    if rig.accounting:
        accounting = f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={database}
AccountingStoragePass={folder}/run/munge.sock
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos
PriorityWeightQOS=1000"""
    lines = "\n".join(
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=16 RealMemory=64000 "
        f"Gres=gpu:h100:{GPUS} Feature=fast State=UNKNOWN"
        for node, port in zip(NODES, nodes, strict=True)
    )
    return f"""\
ClusterName=rig
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/run/munge.sock,cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdTimeout=4
SlurmctldTimeout=5
MessageTimeout=5
InactiveLimit=0
KillWait=5
UnkillableStepTimeout=10
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0,default_queue_depth=1000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PriorityType=priority/multifactor
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
JobRequeue=1
SlurmdParameters=config_overrides
GresTypes=gpu
{accounting}
TopologyPlugin=topology/tree
{lines}
PartitionName=low  Nodes=n[1-4] Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=10 MaxTime=INFINITE State=UP
PartitionName=high Nodes=n[1-4] PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
PartitionName=short Nodes=n[1-4] PriorityTier=1 PreemptMode=OFF DefaultTime=1 MaxTime=1 State=UP
"""


def _slurmdbd_conf(rig: SlurmRig) -> str:
    return f"""\
AuthType=auth/munge
AuthInfo={rig.folder}/run/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={_PORTS[str(rig.folder)][0]}
SlurmUser=root
LogFile={rig.folder}/log/slurmdbd.log
PidFile={rig.folder}/run/slurmdbd.pid
CommitDelay=0
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
"""


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
