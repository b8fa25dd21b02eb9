"""The contract between the platform and its workers: environment names, files, spool records and messages.

Standard library only: this module is imported by the server, by the launcher on every node and by every rank.

A worker's folder, created by the engine and owned by one launcher:

    launch.json     what to start (`Launch`); readable by its owner only, it holds the attempt's token
    lock            held by the launcher while it is alive
    launcher.json   {"pid", "start_ticks", "boot_id"}; its presence means that ranks may have been started
    exit.json       how the worker ended (`WorkerExit`), written once, atomically, fsynced
    control         CONTROL_BYTES shared with the ranks by mmap: flags that a rank can read in nanoseconds
    inbox.json      a command from the engine (`Command`); SIGUSR1 tells the launcher to read it
    command.json    the last command that was executed
    done            the server has everything: the folder may be removed
    launcher.log    the launcher's own log
    spare           the id of a process that is ready to become the next attempt's ranks; see `runtime.spare`
    pkg/muster      a link to this package, for the ranks' PYTHONPATH
    pkg/sitecustomize.py  a link to muster/runtime/rank_site.py
    code            the job's code, if its `workdir` does not exist here: the ranks start in it
    reserve         reserved space, so that the end can be written on a full disk
    rank-N/spool.K  segments of the rank's reports, numbered from 0, records as below; N is the global rank
    rank-N/log.K    segments of the rank's captured output, K being the stream offset of the first byte
    rank-N/host/spool.K  segments of the launcher's own reports on the rank: hardware and environment
    rank-N/stacks   the stacks of its Python processes, appended when the launcher asks for them
    rank-N/imports  the modules of large libraries that the rank has imported, one a line, if a spare process is kept
    rank-N/collectives.PID  how many collectives its process groups have begun; see `runtime.rank_collectives`
    rank-N/files    files that the rank handed over, each with a note on what it is; removed when the server has them
    rank-N/own      holds the rank's spool and files instead, if ranks are isolated from their launcher
    home, tmp, work the home, temporary folder and code folder of such ranks

Everything shipped is a byte range of a *stream* (rank, "spool" | "log" | "host"). The offset is the sequence number:
the server stores bytes and offset in one transaction, acknowledges the offset it has, and drops bytes that it already
has. A host stream has the format of a spool. A file's bytes are sent to /v1/ingest/blobs; then a document on the host
stream names them.

Documents (KIND_DOC), by their type; all have "type" and "time":

    params       values {name: JSON value}
    tags         values {name: text, or null to remove it}
    note         text
    progress     step, total?, unit?
    started      pid, ...
    checkpoint   step, path, bytes; world?, layout?, format?, files?, load? (how to load it, a sentence)
    restore      skipped [{path, what}], path? and step? of the checkpoint that is used instead
    taken        step, path, bytes, how ("link" or "copy"), why: the run has the checkpoint of another run to start from
    waiting      text: what the program waits for, empty when that is over; note?
    data         name, version?, digest?, uri?, role "input" | "output", rows?, bytes?, about? {}
    media        id, kind, name, step, mime?, and data (inline JSON) or digest and bytes; about? {}
    artifact     id, path, digest, bytes, kind, step?, mime?, about? {}
    environment  python, packages, image?, driver?, devices, host, env, seeds
    phase        name (one of PHASES; "" for none) from this time on; spent? {name: seconds}: of the time since the
                 rank's previous phase document, the rest being of the phase that it names
    stacks       id, order, world, problem, processes, maybe profile: on a host stream only; see `muster.runtime.stacks`
    child        id (of a run below this one), and begin, name?, params?, tags?; or step, values {metric: number, or a
                 text such as "nan"}; or params; or tags; or outcome, detail
    fault        gpu, code (of an Xid, or "ecc"), number (of the entry, in this boot), boot: on a host stream only

`id` makes a repeated delivery harmless.
"""

from __future__ import annotations

import json
import math
import re
import struct
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, NamedTuple

# --- environment: torchrun's names, so that an unmodified script works -----------------------------------------------
RANK: Final = "RANK"
WORLD_SIZE: Final = "WORLD_SIZE"
LOCAL_RANK: Final = "LOCAL_RANK"
LOCAL_WORLD_SIZE: Final = "LOCAL_WORLD_SIZE"
GROUP_RANK: Final = "GROUP_RANK"  # index of the node in the gang
NODE_RANK: Final = "NODE_RANK"  # the same, under a name that many launch scripts read
MASTER_ADDR: Final = "MASTER_ADDR"
MASTER_PORT: Final = "MASTER_PORT"

# --- environment: Muster's own ---------------------------------------------------------------------------------------
JOB: Final = "MUSTER_JOB"
ATTEMPT: Final = "MUSTER_ATTEMPT"  # number, from 1
NODE: Final = "MUSTER_NODE"
GANG: Final = "MUSTER_GANG"  # marks every process of this worker, so that all of them can be found, and no others
NEEDS_PREFIX: Final = "MUSTER_NEEDS_"  # and the name of a job that it needed, in capitals: its id
# A task of an array: the array's id, its index, how many tasks there are, and the first and the last index. Scripts for
# Slurm find theirs too.
ArrayNames = tuple[str, str, str, str, str]
ARRAY: Final[ArrayNames] = (
    "MUSTER_ARRAY_JOB", "MUSTER_ARRAY_INDEX", "MUSTER_ARRAY_COUNT", "MUSTER_ARRAY_MIN", "MUSTER_ARRAY_MAX",
)  # fmt: skip
SLURM_ARRAY: Final[ArrayNames] = (
    "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_MAX",
)  # fmt: skip
# A trial of a study: the study's id, the number of the trial, its parameters as JSON, and a file that has the same.
STUDY: Final = "MUSTER_STUDY"
TRIAL: Final = "MUSTER_TRIAL"
PARAMS: Final = "MUSTER_PARAMS"
PARAMS_FILE: Final = "MUSTER_PARAMS_FILE"
RANK_DIR: Final = "MUSTER_RANK_DIR"
CONTROL: Final = "MUSTER_CONTROL"
CHECKPOINT_DIR: Final = "MUSTER_CHECKPOINT_DIR"
CHECKPOINT_KEEP: Final = "MUSTER_CHECKPOINT_KEEP"
CHECKPOINT_EVERY: Final = "MUSTER_CHECKPOINT_EVERY"  # seconds between saves that the job file asked for
CHECKPOINT_MEMORY: Final = "MUSTER_CHECKPOINT_MEMORY"  # the folder of those that are kept in the machine's memory
# The checkpoint to start from: the newest that the server knows; the first attempt whose checkpoints count, and the
# step of an earlier one that counts too; how many seconds to wait for a store that can't be read.
CHECKPOINT_KNOWN: Final = "MUSTER_CHECKPOINT_KNOWN"
CHECKPOINT_SINCE: Final = "MUSTER_CHECKPOINT_SINCE"
CHECKPOINT_STEP: Final = "MUSTER_CHECKPOINT_STEP"
CHECKPOINT_WAIT: Final = "MUSTER_CHECKPOINT_WAIT"
# The checkpoint of another run that this one starts from: the folder or the URL that has it, and its step if one was
# named. The folder is the run's own once the launcher has taken it.
START_FROM: Final = "MUSTER_START_FROM"
START_STEP: Final = "MUSTER_START_STEP"
MIRROR: Final = "MUSTER_MIRROR"  # other tools that also receive rank 0's reports: see runtime/mirrors.py
PREFLIGHT: Final = "MUSTER_PREFLIGHT"  # the rung of preflight that the job is
PREFLIGHT_STEPS: Final = "MUSTER_PREFLIGHT_STEPS"  # after how many steps it should save and end
PREFLIGHT_REPORT: Final = "preflight/report.json"  # the artifact with what a program's own checks found
EXEC: Final = "MUSTER_EXEC"  # marks the processes of an exec session: its id
SPOT_NOTICE: Final = "MUSTER_SPOT_NOTICE"  # a file whose presence means that the machine goes away soon
PY_SPY: Final = "MUSTER_PY_SPY"  # for launchers: the path of py-spy, or "off"
DCGM_URL: Final = "MUSTER_DCGM_URL"  # for launchers: a dcgm-exporter of the node, to read instead of the driver
NODE_EXPORTER_URL: Final = "MUSTER_NODE_EXPORTER_URL"  # the same for a node-exporter, instead of the kernel's files
SCRATCH: Final = "MUSTER_SCRATCH"  # for launchers, not ranks: a local folder of the node that they share

# --- spool segment ---------------------------------------------------------------------------------------------------
SEGMENT_MAGIC: Final = b"MUSTSP01"
SEGMENT_BYTES: Final = 4 << 20
# magic, segment number, flags (1 = sealed), stream offset of the first record, committed bytes after the header
SEGMENT_HEADER: Final = struct.Struct("<8sIIQQ32x")
SEGMENT_SEALED: Final = 1
SEGMENT_FLAGS_AT: Final = 12
SEGMENT_COMMITTED_AT: Final = 24  # u64, written after the record it counts

# --- spool record: every record starts with this header and its size is a multiple of eight --------------------------
RECORD_HEADER: Final = struct.Struct("<HHI")  # kind, argument, whole size in bytes
KIND_ROW: Final = 1  # argument: shape id; then step i64, time f64, one f64 a name of the shape
KIND_SHAPE: Final = 2  # argument: shape id; then a JSON list of metric names, zero padded
KIND_DOC: Final = 3  # argument: 0; then a JSON object with "type" and "time", zero padded
ROW_FIXED: Final = 24  # bytes of a row before its values
DOC_MAX: Final = 1 << 20
HEAD_MAX: Final = 1 << 20  # bytes of a batch's header
PIECE_TIMES: Final = 64  # maximum moments of one piece of a log
NAME_MAX: Final = 256
PULSES_MAX: Final = 1024  # in a batch: as many as a worker may have ranks
GROUPS_MAX: Final = 8  # process groups of a rank whose collectives are counted
GROUP_NAME_MAX: Final = 24  # characters
_ODD: Final = re.compile(r"[^\w.-]", re.ASCII)  # characters of such a name that are replaced
LINKS_MAX: Final = 64  # links of one gang that are measured
DEVICES_MAX: Final = 128  # devices and slices of one node, in a sample
SHAPES_MAX: Final = 4096

DocType = Literal[
    "progress",
    "checkpoint",
    "restore",
    "taken",
    "waiting",
    "listens",
    "params",
    "note",
    "started",
    "tags",
    "data",
    "media",
    "artifact",
    "environment",
    "phase",
    "stacks",
    "fault",
    "child",
]
CHILD_ID: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}"  # of a child run, within its parent
CHILD_DETAIL: Final = 4000  # characters of why it ended

# --- what a rank does: the parts of its start, then the rest ---------------------------------------------------------
StartName = Literal["import", "rendezvous", "build", "compile", "load"]
PhaseName = Literal[StartName, "training", "data", "waiting", "saving", "evaluating", "idle"]
START_PHASES: Final[tuple[StartName, ...]] = ("import", "rendezvous", "build", "compile", "load")
PHASES: Final[tuple[PhaseName, ...]] = (*START_PHASES, "training", "data", "waiting", "saving", "evaluating", "idle")

LEAVE_SPARE: Final = 2.0  # seconds of a notice that ranks don't get, for the launcher's last report

# --- control block ---------------------------------------------------------------------------------------------------
CONTROL_BYTES: Final = 256
CONTROL_STOP_AT: Final = 0  # u8: 1 when the rank should save and exit
CONTROL_SAVE_AT: Final = 1  # u8: counts save requests, modulo 256
CONTROL_DEADLINE_AT: Final = 8  # f64: wall-clock time by which it should have exited; 0: none
CONTROL_KEEP_AT: Final = 16  # i64 each: one more than a step whose checkpoint is not to be pruned; 0: none
CONTROL_KEEP_MAX: Final = 30  # such steps

Stream = Literal["spool", "log", "host"]
STREAMS: Final[tuple[Stream, ...]] = ("spool", "log", "host")
CommandKind = Literal["stop", "save", "stacks", "kill"]
WorkerState = Literal["running", "ended"]
Outcome = Literal["succeeded", "failed", "stopped"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("succeeded", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class Isolation:
    """How ranks are isolated from the server and from other jobs; see `muster.runtime.sandbox`."""

    uid: int  # the user that they run as if their launcher is root: one for each project
    gid: int
    name: str  # the name of that user, as programs see it
    hidden: tuple[str, ...] = ()  # folders and files that the ranks can't see
    readable: tuple[str, ...] = ()  # paths that they can see even inside a hidden folder
    writable: tuple[str, ...] = ()  # paths that they may write to; everything else is read-only
    subid: int = 0  # which of the granted ids is the user, from 1; see `muster.runtime.namespace`. 0: no namespace

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Isolation:
        lists = {name: tuple(raw.get(name, ())) for name in ("hidden", "readable", "writable")}
        return cls(**{**raw, **lists})


@dataclass(frozen=True, slots=True)
class Start:
    """The checkpoint of another run that a run starts from; see `muster.runtime.start_checkpoint`."""

    run: str
    step: int | None = None  # None: its newest that verifies
    # Where that run's program saves, a folder or a URL, if that is not beside this run's own folder: then the program
    # takes it, and not the launcher.
    store: str = ""
    share: bool = False  # the two runs may have the same files: they are of one project, and of the same trust


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that one launcher needs to start its ranks. `worker` is the index of its node in the gang, from 0."""

    job: str
    attempt: int
    worker: int
    node: str
    num_nodes: int
    nproc: int  # ranks on this node
    run: str  # run by the shell
    workdir: str
    envs: dict[str, str]
    secrets: tuple[str, ...]  # names; the launcher fetches the values with its token, if there are any
    urls: tuple[str, ...]  # servers, tried in turn
    urls_file: str | None  # a file with the current server's address, in case it moved: JSON {"urls": [...]}
    token: str
    master_addr: str
    master_port: int
    checkpoint_dir: str
    checkpoint_keep: int
    checkpoint_every: float | None
    devices: tuple[int, ...] | None  # accelerators of this worker by index; None: the environment is not changed
    max_duration: float | None  # seconds left for the whole run
    memory: int | None  # bytes for all ranks of this worker together
    stop_grace: float  # seconds between the request to stop and SIGKILL
    log_limit: int  # bytes of output kept per rank
    ca_file: str | None = None
    code: str = ""  # digest of a snapshot that is fetched from the server if `workdir` does not exist; "": none
    orders: str | None = None  # a file outside the folder in which the engine puts a `Command`; read on SIGUSR1
    keeper: tuple[int, int] | None = None  # pid and start ticks of a process; when it ends, the node is no longer ours
    isolation: Isolation | None = None  # None: an administrator's job, or one of trusted members
    pass_env: tuple[str, ...] | None = None  # names that ranks inherit in addition to the usual ones; None: all
    check_nodes: tuple[str, ...] = ()  # nodes that failed lately: no rank starts there before `runtime.node_checks`
    accelerators: int | None = None  # whole ones on each node; None: a part of one, which others may use too
    checkpoint_memory: str = ""  # a private folder in memory for the run's checkpoints; "": none are kept there
    warm: bool = False  # a spare process is kept for the next attempt; see `runtime.spare`
    spot_notices: tuple[str, ...] = ()  # where to look whether the machine is taken away; see `runtime.spot_notice`
    links: bool = False  # the gang's links are measured before its ranks start; see `runtime.link_check`
    start: Start | None = None  # what the run starts from, if it is another run's checkpoint

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Launch:
        raw = json.loads(text)
        for name in ("secrets", "urls", "devices", "keeper", "pass_env"):
            raw[name] = tuple(raw[name]) if raw.get(name) is not None else None
        for name in ("check_nodes", "spot_notices"):
            raw[name] = tuple(raw.get(name, ()))
        raw["isolation"] = Isolation.from_dict(raw["isolation"]) if raw.get("isolation") else None
        raw["start"] = Start(**raw["start"]) if raw.get("start") else None
        return cls(**raw)


@dataclass(frozen=True, slots=True)
class RankExit:
    rank: int
    exit_code: int | None  # None if a signal ended it
    signal: int | None
    time: float


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """How a worker ended: `reason` is a code from `core.reasons`, `rank` is the first rank that failed."""

    outcome: Outcome
    reason: str
    detail: str  # for people: the last traceback, the missing command, the limit that was exceeded
    time: float
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    ranks: tuple[RankExit, ...] = ()
    peak_memory: int = 0

    def to_dict(self) -> dict[str, Any]:
        # Field by field: `asdict` copies deeply and takes ten times as long, and this runs at the end of every worker.
        return {
            "outcome": self.outcome,
            "reason": self.reason,
            "detail": self.detail,
            "time": self.time,
            "rank": self.rank,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "ranks": tuple(asdict(rank) for rank in self.ranks),
            "peak_memory": self.peak_memory,
        }

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> WorkerExit:
        return cls(**{**raw, "ranks": tuple(RankExit(**r) for r in raw.get("ranks", ()))})


@dataclass(frozen=True, slots=True)
class Command:
    """A command from the platform to a worker; `id` increases, so that a repeated delivery is recognised."""

    id: int
    kind: CommandKind
    reason: str = ""
    grace: float = 0.0  # seconds; of stacks: for how long they are looked at again and again, for a profile

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Command:
        return cls(**raw)


@dataclass(frozen=True, slots=True)
class Piece:
    """A byte range of one stream of one rank."""

    rank: int
    stream: Stream
    offset: int
    data: bytes
    times: tuple[tuple[int, float], ...] = ()  # of a log: offsets, and when the bytes from each of them on were written


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a launcher sees of one living rank; see `muster.runtime.pulse`."""

    rank: int
    spool: int  # bytes of its reports so far
    log: int  # bytes of its output so far
    cpu: float  # seconds that its processes have used
    io: int  # bytes that they have read and written
    state: str  # of its main process, as in /proc/PID/stat; R if any of its processes runs
    waits_in: str = ""  # the kernel's function in which the main process sleeps, if it is known
    use: float | None = None  # of its most used accelerator, 0..1
    power: float | None = None  # W, of its accelerators together
    collectives: dict[str, int] | None = None  # by process group, how many it has begun; None: not known now

    def to_list(self) -> list[Any]:
        return [self.rank, self.spool, self.log, round(self.cpu, 2), self.io, self.state, self.waits_in, self.use,
                self.power]  # fmt: skip

    @classmethod
    def from_list(cls, raw: list[Any], collectives: Any = None) -> Pulse:
        """Raises ValueError or TypeError for anything that `to_list` would not have made."""
        rank, spool, log, cpu, io, state, waits_in, use, power = raw
        counts, numbers = (rank, spool, log, io), [cpu, *(one for one in (use, power) if one is not None)]
        if not all(isinstance(one, int) and 0 <= one < 2**63 for one in counts):
            raise ValueError(f"bad pulse {raw!r}"[:200])
        if not all(isinstance(one, int | float) and math.isfinite(one) for one in numbers):
            raise ValueError(f"bad pulse {raw!r}"[:200])
        begun = collective_counts(collectives) if collectives is not None else None
        return cls(rank, spool, log, cpu, io, str(state)[:2], str(waits_in)[:64], use, power, begun)


def collective_counts(raw: Any) -> dict[str, int]:
    """How many collectives process groups have begun, of the first groups. Raises ValueError for anything else."""
    if not isinstance(raw, dict) or not all(type(one) is int and 0 <= one < 2**63 for one in raw.values()):
        raise ValueError(f"bad counts of collectives in a pulse: {raw!r}"[:200])
    return {_ODD.sub("_", str(name)[:GROUP_NAME_MAX]): count for name, count in list(raw.items())[:GROUPS_MAX]}


Figure = float | None  # None: the machine does not say


class DeviceSample(NamedTuple):
    """The last figures of one accelerator, or of a slice of it (MIG). `gpu` is its index in PCI bus order."""

    gpu: int
    uuid: str
    name: str
    profile: str  # of a slice, such as 1g.10gb; "" for a whole device
    instance: int  # of a slice: the id of its GPU instance; -1 for a whole device
    use: Figure  # 0..1
    memory_used: Figure  # bytes
    memory: Figure
    power: Figure  # W
    temperature: Figure  # degrees Celsius
    clock: Figure  # Hz


class NodeSample(NamedTuple):
    """The last figures of a machine, and of those of its accelerators that a worker was given."""

    every: float  # seconds until the next one
    cpus: Figure
    cpu: Figure  # busy seconds of all CPUs since the machine started
    memory: Figure  # bytes
    available: Figure
    disk_read: Figure  # bytes since the machine started
    disk_written: Figure
    received: Figure
    sent: Figure
    devices: tuple[DeviceSample, ...] = ()
    disk: Figure = None  # the used part of its fullest file system, 0 to 1
    errors: Figure = None  # packets that its network lost or dropped since the machine started

    @classmethod
    def from_list(cls, raw: list[Any]) -> NodeSample:
        """Raises ValueError or TypeError for anything that no launcher sends. It is called for every node every few
        seconds."""
        every, *rest = raw
        figures, (devices, *more) = rest[:8], rest[8:]  # launchers of an older release send no more than devices
        numbers = [float(every), *figures, *more]
        if not isinstance(devices, list) or len(devices) > DEVICES_MAX or not _are_figures(numbers):
            raise ValueError(f"bad sample {raw!r}"[:200])
        found = []
        for one in devices:
            device = DeviceSample(*one)
            gpu, uuid, name, profile, instance, *values = device
            if not (type(gpu) is type(instance) is int and 0 <= gpu < DEVICES_MAX > instance >= -1):
                raise ValueError(f"bad device {one!r}"[:200])
            texts = uuid + name + profile
            if len(texts) > 3 * 96 or not texts.isprintable() or not _are_figures(values):
                raise ValueError(f"bad device {one!r}"[:200])
            found.append(device)
        return cls(float(every), *figures, tuple(found), *more)  # type: ignore[call-arg]


def _are_figures(values: list[Any]) -> bool:
    """Whether all are finite numbers or None. What is no number, such as True, would spoil what others read."""
    return all(one is None or (type(one) in (int, float) and -1e18 < one < 1e18) for one in values)


@dataclass(frozen=True, slots=True)
class Batch:
    """One POST from a launcher to /v1/ingest: u32 header length, header JSON, then the bytes of the pieces in order.

    The bearer token and `worker` identify the worker and its attempt. An empty batch asks for the server's offsets.
    """

    worker: int
    state: WorkerState
    exit: WorkerExit | None = None
    pieces: tuple[Piece, ...] = ()
    command_seen: int = 0
    whole: bool = False  # nothing of this worker follows
    node: str = ""  # the machine that the launcher runs on, which a cluster may have chosen
    leaving: float | None = None  # seconds until the machine is taken away, if there is a notice
    clock: float = 0.0  # the launcher's monotonic clock when the pulses were taken
    pulses: tuple[Pulse, ...] = ()
    # Seconds by which its machine's clock is ahead of the server's, and the greatest error of that, if it is known.
    offset: tuple[float, float] | None = None
    # Of the first worker: other worker, MB/s and round trip in ms of its link; see `runtime.link_check`.
    links: tuple[tuple[int, float, float], ...] = ()
    sample: NodeSample | None = None  # of its machine, if there is a new one
    told: bool = False  # it is leaving because its cluster told it to, and the cluster may know why

    def encode(self) -> bytes:
        header: dict[str, Any] = {
            "worker": self.worker,
            "state": self.state,
            "exit": self.exit.to_dict() if self.exit else None,
            "command_seen": self.command_seen,
            "whole": self.whole,
            "node": self.node,
            "pieces": [[p.rank, p.stream, p.offset, len(p.data)] for p in self.pieces],
            "times": [p.times for p in self.pieces],
        }
        if self.leaving is not None:
            header |= {"leaving": self.leaving, "told": self.told}
        if self.offset is not None:
            header["offset"] = self.offset
        if self.links:
            header["links"] = self.links
        if self.sample is not None:
            header["sample"] = self.sample
        if self.pulses:
            header |= {"clock": self.clock, "pulses": [pulse.to_list() for pulse in self.pulses]}
        if any(pulse.collectives for pulse in self.pulses):
            header["collectives"] = [pulse.collectives for pulse in self.pulses]  # apart: older servers pass over it
        head = json.dumps(header).encode()
        return b"".join([struct.pack("<I", len(head)), head, *(p.data for p in self.pieces)])

    @classmethod
    def decode(cls, body: bytes) -> Batch:
        """Raises ValueError, with the cause, for anything that `encode` would not have written."""
        try:
            (head_len,) = struct.unpack_from("<I", body)
            if head_len > HEAD_MAX:
                raise ValueError(f"its header has {head_len} bytes, of at most {HEAD_MAX}")
            header = json.loads(body[4 : 4 + head_len])
            at, pieces = 4 + head_len, []
            times = header.get("times") or [()] * len(header["pieces"])  # older launchers don't send them
            for (rank, stream, offset, length), written in zip(header["pieces"], times, strict=True):
                if stream not in STREAMS or not all(isinstance(v, int) and v >= 0 for v in (rank, offset, length)):
                    raise ValueError(f"bad piece {[rank, stream, offset, length]}")
                if at + length > len(body):
                    raise ValueError("the body is shorter than its header says")
                moments = tuple((int(start), float(moment)) for start, moment in written)
                pieces.append(Piece(rank, stream, offset, body[at : at + length], moments))
                at += length
            if at != len(body):
                raise ValueError("the body is longer than its header says")
            if header["state"] not in ("running", "ended"):
                raise ValueError(f"bad state {header['state']!r}")
            ended = WorkerExit.from_dict(header["exit"]) if header["exit"] else None
            whole = header.get("whole") is True  # older launchers don't send it
            seen, node = int(header["command_seen"]), str(header.get("node", ""))
            clock, pulses = float(header.get("clock", 0.0)), header.get("pulses", ())
            counts = header.get("collectives") or [None] * len(pulses)
            left = header.get("leaving")
            leaving = float(left) if left is not None else None
            ahead, error = (float(one) for one in header.get("offset") or (0.0, 0.0))
            offset = (ahead, error) if header.get("offset") else None
            links = tuple((int(worker), float(speed), float(trip)) for worker, speed, trip in header.get("links", ()))
            numbers = (clock, leaving or 0.0, ahead, error, *(one for link in links for one in link))
            if len(pulses) > PULSES_MAX or len(links) > LINKS_MAX or not all(map(math.isfinite, numbers)):
                raise ValueError(
                    f"{len(pulses)} pulses at {clock}, leaving in {leaving}, offset {offset}, links {links}"
                )
            sample = NodeSample.from_list(header["sample"]) if header.get("sample") else None
            return cls(
                int(header["worker"]), header["state"], ended, tuple(pieces), seen, whole, node, leaving,
                clock, tuple(Pulse.from_list(*pair) for pair in zip(pulses, counts, strict=True)), offset, links,
                sample, header.get("told") is True,
            )  # fmt: skip
        except (struct.error, LookupError, TypeError, OverflowError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a batch: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Reply:
    """The server's reply: the offset that it holds of every stream, the next command, and whether all is done."""

    acked: dict[tuple[int, Stream], int] = field(default_factory=dict)
    command: Command | None = None
    done: bool = False  # the end is recorded and nothing is missing: the launcher may exit
    execs: tuple[str, ...] = ()  # ids of exec sessions that wait for this worker
    time: float | None = None  # the server's clock, in seconds since 1970; older servers don't send it
    keep: tuple[int, ...] = ()  # steps of checkpoints that the run must not prune: others have yet to start from them

    def to_json(self) -> str:
        acked = [[rank, stream, offset] for (rank, stream), offset in self.acked.items()]
        return json.dumps(
            {
                "acked": acked,
                "command": asdict(self.command) if self.command else None,
                "done": self.done,
                "execs": self.execs,
                "time": self.time,
                "keep": self.keep,
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Reply:
        raw = json.loads(text)
        acked = {(rank, stream): offset for rank, stream, offset in raw["acked"]}
        command = Command.from_dict(raw["command"]) if raw["command"] else None
        execs, keep = tuple(raw.get("execs", ())), tuple(raw.get("keep", ()))
        return cls(acked, command, raw["done"], execs, raw.get("time"), keep)


def doc_record(doc: dict[str, Any]) -> bytes:
    """A KIND_DOC record."""
    return _padded(KIND_DOC, 0, json.dumps(doc).encode())


def shape_record(shape: int, names: tuple[str, ...]) -> bytes:
    """A KIND_SHAPE record."""
    return _padded(KIND_SHAPE, shape, json.dumps(names).encode())


def row_struct(width: int) -> struct.Struct:
    """The layout of a KIND_ROW record with `width` values: header, step, time, values."""
    return struct.Struct(f"<HHIqd{width}d")


def _padded(kind: int, argument: int, payload: bytes) -> bytes:
    size = RECORD_HEADER.size + len(payload)
    padding = -size % 8
    return RECORD_HEADER.pack(kind, argument, size + padding) + payload + b"\0" * padding
