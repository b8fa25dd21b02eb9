"""The Slurm client for the command line tools: `sbatch`, `squeue`, `scancel`, `scontrol` and `sacct`."""

from __future__ import annotations

import calendar
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from muster.core.errors import EngineError
from muster.engines.slurm.model import (
    Cluster,
    JobRow,
    MachineRow,
    PartitionRow,
    PastRow,
    SlurmBusy,
    SlurmRefused,
    Submission,
    count_gpus,
    expand,
    tres,
)

PATIENCE: Final = 60.0  # seconds that a tool may take
CANCEL_PATIENCE: Final = 8.0
IDS_AT_ONCE: Final = 500  # job ids on one command line
_ROW: Final = "JobArrayID", "JobID", "State", "RestartCnt", "StartTime", "NumNodes", "NodeList", "Reason", "Comment"
_SPLIT: Final = "\x1f"  # occurs in nothing that Slurm prints
_PAST: Final = "JobID,State,NodeList,Start,End,ElapsedRaw,AllocTRES,Comment"
# Error messages of `sbatch` when Slurm is unreachable or overloaded and the job is not at fault.
_LATER: Final = re.compile(
    r"timed out|Unable to contact|connect failure|temporarily|Connection refused|Zero Bytes|communication|"
    r"in standby|Protocol authentication|Unable to establish|Transport",
    re.IGNORECASE,
)
_BUSY: Final = re.compile(r"Max\w*Submit\w*Limit|MaxJobCount|submit limit|too many", re.IGNORECASE)
_GONE: Final = re.compile(r"Invalid job id|already completing|not pending|Job/step already|no jobs", re.IGNORECASE)
_FIELD: Final = re.compile(r"(?:^| )([A-Za-z/_]+)=")


class Slow(EngineError):
    """A tool took too long."""


@dataclass(frozen=True, slots=True)
class Tools:
    """`folder`: where the tools are, "" for the PATH. `environment`: what the tools, and so the jobs, inherit."""

    environment: Mapping[str, str]
    folder: str = ""

    def describe(self) -> Cluster:
        config = {
            key.strip(): value.strip()
            for key, _, value in (line.partition("=") for line in self.call("scontrol", "show", "config").splitlines())
        }
        version = config.get("SLURM_VERSION", "")
        array = config.get("MaxArraySize", "1001")
        return Cluster(
            config.get("ClusterName", "?"),
            version,
            int(array) if array.isdigit() else 1001,
            config.get("AccountingStorageType", "").endswith("slurmdbd"),
        )

    def jobs(self) -> list[JobRow]:
        fields = ",".join(f"{name}:{_SPLIT}" for name in _ROW)
        text = self.call("squeue", "--me", "--noheader", "--array", "--states=all", f"--Format={fields}")
        return [row for row in (_job_row(line) for line in text.splitlines()) if row is not None]

    def machines(self) -> list[MachineRow]:
        return [
            _machine(line)
            for line in self.call("scontrol", "show", "nodes", "--oneliner", "--details").splitlines()
            if line
        ]

    def partitions(self) -> list[PartitionRow]:
        found = []
        for line in self.call("scontrol", "show", "partition", "--all", "--oneliner").splitlines():
            if fields := _fields(line):
                up = fields.get("State", "UP") == "UP"
                found.append(PartitionRow(fields["PartitionName"], fields.get("Default") == "YES", up))
        return found

    def submit(self, wanted: Submission) -> str:
        done = self._run(["sbatch", *options(wanted), "--", wanted.script, *wanted.arguments], utc=False)
        if done.returncode == 0:
            return done.stdout.strip().split(";")[0]
        words = _words(done.stderr) or f"sbatch ended with {done.returncode}"
        if _BUSY.search(words):
            raise SlurmBusy(words)
        if _LATER.search(words):
            raise EngineError(f"sbatch: {words}", "Is slurmctld up? Try `scontrol ping`.")
        raise SlurmRefused(f"Slurm refuses the job: {words}", "See `sinfo` and `sacctmgr show assoc`.")

    def cancel(self, ids: Sequence[str], pending: bool = False) -> None:
        self._scancel(ids, *(["--state=PENDING"] if pending else []))

    def signal_scripts(self, ids: Sequence[str]) -> None:
        self._scancel(ids, "--batch", "--signal=USR1")

    def limit(self, id: str, minutes: int) -> None:
        self.call("scontrol", "update", f"JobId={id}", f"TimeLimit={minutes}")

    def drain(self, node: str, why: str) -> None:
        self.call("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={why}")

    def resume(self, node: str) -> None:
        self.call("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def past(self, since: float, ids: Sequence[str] = ()) -> list[PastRow]:
        start = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since))
        chosen = [f"--jobs={','.join(ids)}"] if ids else []
        words = ["sacct", "--noheader", "--allocations", "--duplicates", f"--delimiter={_SPLIT}", "--parsable2"]
        text = self.call(*words, f"--starttime={start}", f"--format={_PAST}", *chosen)
        return [_past(line) for line in text.splitlines() if line.count(_SPLIT) == _PAST.count(",")]

    def call(self, *command: str) -> str:
        done = self._run(command)
        if done.returncode:
            words = _words(done.stderr) or f"it ended with {done.returncode}"
            raise EngineError(f"{command[0]}: {words}", "Is slurmctld up? Try `scontrol ping`.")
        return done.stdout

    def _scancel(self, ids: Sequence[str], *options: str) -> None:
        for first in range(0, len(ids), IDS_AT_ONCE):
            try:
                done = self._run(["scancel", *options, *ids[first : first + IDS_AT_ONCE]], patience=CANCEL_PATIENCE)
            except Slow:
                continue  # scancel retries by itself for a minute; the next look tries again too
            words = "\n".join(line for line in done.stderr.splitlines() if not _GONE.search(line))
            if done.returncode and _words(words):
                raise EngineError(f"scancel: {_words(words)}", "May this user cancel jobs?")

    def _run(
        self, command: Sequence[str], utc: bool = True, patience: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        """Runs a tool. Tools print times in their own time zone, hence UTC; a job inherits the user's zone."""
        environment = {**self.environment, "TZ": "UTC"} if utc else dict(self.environment)
        program = str(Path(self.folder) / command[0]) if self.folder else command[0]
        try:
            return subprocess.run(
                [program, *command[1:]], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors="replace", timeout=patience, cwd="/",
            )  # fmt: skip
        except FileNotFoundError as error:
            raise EngineError(
                f"There is no {program} here.", "Install Slurm's client tools, or set `tools` to their folder."
            ) from error
        except subprocess.TimeoutExpired as error:
            raise Slow(f"{command[0]} did not answer within {patience:g} s.", "Try it by hand.") from error


def options(wanted: Submission) -> list[str]:
    """The options of `sbatch`, without the script."""
    words = [
        "--parsable", f"--job-name={wanted.name}", f"--comment={wanted.comment}", f"--nodes={wanted.nodes}",
        "--ntasks-per-node=1", f"--cpus-per-task={wanted.cpus}", f"--chdir={wanted.folder}",
        f"--output={wanted.output}", f"--error={wanted.output}", "--open-mode=truncate", "--export=ALL",
        f"--signal=B:USR1@{wanted.signal}", "--requeue" if wanted.requeue else "--no-requeue",
    ]  # fmt: skip
    given = {
        "partition": wanted.partition,
        "mem": f"{wanted.memory}M" if wanted.memory else "",
        "gres": wanted.gres,
        "time": str(wanted.minutes) if wanted.minutes is not None else "",
        "nice": str(wanted.nice) if wanted.nice is not None else "",
        "qos": wanted.qos,
        "account": wanted.account,
        "constraint": wanted.constraint,
        "reservation": wanted.reservation,
        "dependency": wanted.dependency,
        "nodelist": wanted.nodelist,
        "exclude": wanted.exclude,
        "array": f"0-{wanted.array - 1}" if wanted.array else "",
    }
    words += [f"--{name}={value}" for name, value in given.items() if value]
    return [*words, *(["--exclusive"] if wanted.exclusive else []), *wanted.extra]


def clean_environment(names: Sequence[str], configuration: str = "") -> dict[str, str]:
    """The environment of the tools, and so of a job: only the named variables of the server's."""
    kept = {name: value for name, value in os.environ.items() if name in names}
    conf = configuration or os.environ.get("SLURM_CONF", "")
    return {**kept, **({"SLURM_CONF": conf} if conf else {})}


def _job_row(line: str) -> JobRow | None:
    words = line.split(_SPLIT)
    if len(words) < len(_ROW):
        return None
    id, raw, state, restarts, start, nodes, names, reason, comment = words[: len(_ROW)]
    return JobRow(
        id, raw, state, int(restarts or 0), reason, _time(start), expand(names), int(nodes or 1),
        "" if comment == "(null)" else comment,
    )  # fmt: skip


def _machine(line: str) -> MachineRow:
    fields = _fields(line)
    used = tres(fields.get("AllocTRES", ""))
    states = fields.get("State", "UNKNOWN").replace("*", "+NOT_RESPONDING").replace("~", "+POWERED_DOWN")
    return MachineRow(
        name=fields["NodeName"],
        states=tuple(re.sub(r"[^A-Z_+]", "", states).split("+")),
        cpus=int(fields.get("CPUEfctv") or fields.get("CPUTot") or 0),
        memory=int(fields.get("RealMemory", 0)),
        gres=fields.get("Gres", "").replace("(null)", ""),
        partitions=tuple(name for name in fields.get("Partitions", "").split(",") if name),
        reason=fields.get("Reason", ""),
        features=tuple(name for name in fields.get("ActiveFeatures", "").split(",") if name not in ("", "(null)")),
        used_cpus=int(fields.get("CPUAlloc", 0)),
        used_memory=int(fields.get("AllocMem", 0)),
        used_gpus=used.get("gres/gpu") or count_gpus(fields.get("GresUsed", "")),
    )


def _fields(line: str) -> dict[str, str]:
    """Parses `Name=value Name=value with blanks ...` of `scontrol --oneliner`."""
    matches = list(_FIELD.finditer(line))
    ends = [*(match.start() for match in matches[1:]), len(line)]
    found: dict[str, str] = {}
    for match, end in zip(matches, ends, strict=False):
        found.setdefault(
            match[1], line[match.end() : end].strip()
        )  # the first match counts: user-written text comes later and can't override it
    return found


def _past(line: str) -> PastRow:
    id, state, names, start, end, elapsed, allocated, comment = line.split(_SPLIT)
    held = tres(allocated)
    return PastRow(
        id, state.split()[0] if state else "", expand(names), _time(start), _time(end), float(elapsed or 0),
        held.get("cpu", 0), held.get("gres/gpu", 0), comment,
    )  # fmt: skip


def _time(text: str) -> float | None:
    try:
        return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None


def _words(text: str) -> str:
    """A tool's error messages, without its name at the start of every line."""
    lines = [re.sub(r"^\w+: (error|fatal|info): ", "", line).strip() for line in text.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))
