"""The launcher: one process per worker that starts its ranks, stays until all have ended, and reports to the platform.

`python -m muster.runtime.launcher DIR [--recover]`. With `--recover`, or if a launcher was here before, no rank is
started: the worker's remaining processes are killed, and its unreported data is reported.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from muster import wire
from muster.masking import Masker
from muster.runtime import code, namespace, processes, verdict
from muster.runtime.channel import Away, Channel, Gone, fetch_secrets
from muster.runtime.companion import Companion, Program, plain_environment
from muster.runtime.exec_start import Execs
from muster.runtime.folder import Folder
from muster.runtime.host import FOLDER as HOST
from muster.runtime.keeper import Keeper
from muster.runtime.output import Output
from muster.runtime.pulse import PulseTaker
from muster.runtime.ranks import RankSource, WorkerRanks, environment, gang_environment, make_sandbox, workdir
from muster.runtime.sandbox import WORK, Sandbox, SandboxError
from muster.runtime.segments import LogStore
from muster.runtime.ship import Shipper
from muster.runtime.spot_notice import SpotWatch
from muster.runtime.stacks_host import StackTaker
from muster.runtime.streams import LogSource, SpoolSource, Stream
from muster.runtime.supervise import DRAIN, KEEPER_GONE, STRAYS_EVERY, Supervisor
from muster.runtime.wake_pipe import Commands, WakePipe

LINGER: Final = 7 * 86400.0  # seconds that the launcher waits, after its ranks, for a server that is away
PARTING: Final = 10.0  # seconds instead, for a launcher that is told to leave a cluster's node
FULL_DISK_LOOK: Final = 1.0  # seconds
LOCK_PATIENCE: Final = 1.0  # seconds
FOLDER_LOOK: Final = 30.0  # seconds between two checks whether the folder still exists


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    recover = "--recover" in given
    folders = [word for word in given if word != "--recover"]
    if len(folders) != 1 or folders[0].startswith("-"):
        print("usage: python -m muster.runtime.launcher DIR [--recover]", file=sys.stderr)  # noqa: T201
        return 2
    return run(Path(folders[0]), recover)


def run(
    path: Path, recover: bool = False, keeper: tuple[int, int] | None = None, spare: RankSource | None = None
) -> int:
    """Runs a launcher and returns its exit status. Returns 0 at once if another launcher runs here.
    `keeper` overrides the launch's. `spare`: what the ranks may be forked from."""
    folder = Folder(path.resolve())
    try:
        launch = folder.launch()
    except (OSError, ValueError, TypeError, KeyError) as error:
        print(f"{path}: launch.json can't be read: {error!r}", file=sys.stderr)  # noqa: T201
        return 2
    if not folder.lock(LOCK_PATIENCE) or folder.done():
        return 0
    processes.fault("after_lock")
    _settle(folder)
    folder.isolated = launch.isolation is not None
    launcher = Launcher(folder, replace(launch, keeper=keeper) if keeper else launch)
    return launcher.recover() if recover or folder.started() else launcher.start(spare)


class Launcher:
    """The launcher of a worker; holds its folder's lock."""

    def __init__(self, folder: Folder, launch: wire.Launch) -> None:
        self._folder = folder
        self._launch = launch
        self._wake_pipe = WakePipe()
        self._commands = Commands(folder, self._wake_pipe, launch.orders)
        self._keeper = Keeper(launch.keeper)
        self._gang = WorkerRanks(launch, folder)
        self._sandbox: Sandbox | None = None
        self._outputs: dict[int, Output] = {}
        self._remarks: list[str] = []  # for the ranks' logs
        self._secrets: dict[str, str] = {}
        self._links: tuple[tuple[int, float, float], ...] = ()  # of the first worker, for the server
        self._taken: dict[str, Any] | None = None  # what the run starts from, for the server
        self._early: wire.WorkerExit | None = None  # how it ended, if that was before a rank was started

    def start(self, spare: RankSource | None = None) -> int:
        """Starts the ranks and stays until the server knows how they ended."""
        self._wake_pipe.open()
        self._keeper.open()
        self._folder.prepare()
        self._folder.write_identity()
        processes.fault("after_launcher_json")
        ended = self._obstacle()
        self._open_outputs(recover=False)
        for output in self._outputs.values():
            for remark in self._remarks:
                output.say(remark)
        if not ended:
            try:
                self._gang.start(self._secrets, spare)
            except OSError as error:
                ended = _failed(
                    verdict.LAUNCH_FAILED, f"the machine refused to start rank {len(self._gang.ranks)}: {error}"
                )
        if spare is not None:
            spare.close()
        shipper = self._open_shipper()
        companion = self._open_companion(shipper)
        if self._taken is not None:
            companion.document(min(self._outputs), self._taken)
            shipper.notify()
        folders = {rank.rank: self._folder.rank_files_dir(rank.rank) for rank in self._gang.ranks}
        pulses = PulseTaker({rank.rank: rank.pid for rank in self._gang.ranks}, companion.devices, folders)
        shipper.watch(pulses, companion.take_sample)
        if not ended:
            ended = self._supervise(shipper, companion)
        self._until_gone(self._gang.kill_strays)
        return self._hand_over(ended, shipper, companion)

    def recover(self) -> int:
        """For a worker whose launcher died: kills remaining processes, writes its exit if there is none,
        ships the rest."""
        self._wake_pipe.open()
        self._folder.write_identity()
        self._until_gone(self._kill_left)
        self._switch()
        detail = "the launcher was killed; what was left of its ranks has been killed too"
        ended = self._folder.exit() or _failed(verdict.LAUNCHER_LOST, detail)
        self._open_outputs(recover=True)
        shipper = self._open_shipper()
        return self._hand_over(ended, shipper, self._open_companion(shipper))

    def _obstacle(self) -> wire.WorkerExit | None:
        """Fetches the secrets and prepares the start. Returns an exit if the ranks can't be started."""
        if self._go_on() and self._launch.secrets:
            try:
                self._secrets = fetch_secrets(self._channel(), self._launch.secrets, self._wait)
            except Gone as error:
                return _failed(verdict.SECRET_MISSING, str(error))
            except Away:
                pass  # it was told to stop meanwhile, and `_early` has the reason
        if self._early:
            return self._early
        failed_lately = self._launch.node in self._launch.check_nodes
        if (failed_lately or self._launch.links) and (faulty := self._check_node(failed_lately) or self._early):
            return faulty
        if self._launch.isolation:
            ended = self._keep_apart()
        else:
            ended = None if Path(self._launch.workdir).is_dir() else self._bring_code()
        return ended or (self._take_start() if self._launch.start is not None else None)

    def _take_start(self) -> wire.WorkerExit | None:
        """Takes the checkpoint of another run that this one starts from."""
        launch_start = import_module("muster.runtime.launch_start")  # few launchers need it
        start_checkpoint = import_module("muster.runtime.start_checkpoint")
        try:
            found = launch_start.start(self._launch, self._wait)
        except start_checkpoint.NoStart as error:
            return _failed(verdict.START_MISSING, f"on node {self._launch.node}: {error}")
        except start_checkpoint.Stopped:
            return self._early
        except OSError as error:
            return _failed(verdict.LAUNCH_FAILED, f"{self._launch.checkpoint_dir} can't be made: {error}")
        self._remarks += [found.remark] if found.remark else []
        self._taken = found.doc
        self._launch = replace(self._launch, envs={**self._launch.envs, **found.envs})
        self._gang = WorkerRanks(self._launch, self._folder, self._sandbox)
        return None

    def _check_node(self, failed_lately: bool) -> wire.WorkerExit | None:
        """Checks a node that failed lately, and the links of a gang that has one. Forks, so it comes before the first
        thread."""
        launch = self._launch
        checks = import_module("muster.runtime.node_checks")  # few launchers need it
        node = checks.Node(self._folder.path, launch.devices, launch.accelerators, shared=launch.accelerators is None)
        wanted = dict(checks.CHECKS) if failed_lately else {}
        if launch.links:
            link_check = import_module("muster.runtime.link_check")
            links = link_check.meet(launch, self._wait)
            wanted |= {"links": links} if links is not None else {}
        findings = checks.run_checks(node, wanted) if not self._early else []
        if "links" in wanted:
            wanted["links"].close()
        if failed_lately:
            told = ", ".join(f"{one.check} {one.status}" for one in findings)
            self._remarks.append(f"{launch.node} failed lately and was checked: {told}")
        for one in findings:
            if one.check == "links":
                figures = link_check.read_figures(one.detail) if one.status == "ok" else {}
                told = link_check.describe(figures) or f"not measured: {one.detail}"
                self._remarks.append(f"links to the gang's first worker: {told}")
                self._links = tuple((worker, *found) for worker, found in figures.items() if launch.worker == 0)
        failed = checks.failures(findings)
        return _failed(verdict.NODE_CHECK_FAILED, failed) if failed else None

    def _keep_apart(self) -> wire.WorkerExit | None:
        """Opens the sandbox. The ranks start in the job's workdir if they may write there,
        else in a copy of the code."""
        try:
            self._switch()
            self._sandbox = make_sandbox(self._launch, self._folder)
            self._sandbox.open(gang_environment(self._launch, self._folder))
            self._gang = WorkerRanks(self._launch, self._folder, self._sandbox)
            workdir = self._launch.workdir
            allowed = self._sandbox.enters(workdir) if workdir else "write"
        except SandboxError as error:
            return _failed(verdict.NOT_ISOLATED, f"node {self._launch.node} can't keep a member's job apart: {error}")
        except OSError as error:
            return _failed(verdict.LAUNCH_FAILED, f"the job can't be kept apart on node {self._launch.node}: {error}")
        if allowed == "write":
            return None
        if self._launch.code:
            self._remarks.append(f"{workdir} is not open to this job, which starts in a copy of its code")
            return self._bring_code()
        if allowed:
            self._remarks.append(f"{workdir} can be read by this job and not written")
            return None
        detail = f"{workdir} is not open to jobs of members on node {self._launch.node}"
        return _failed(verdict.WORKDIR_MISSING, f"{detail}, and there is no snapshot of it")

    def _kill_left(self) -> bool:
        isolated = self._launch.isolation
        if isolated and isolated.subid and not namespace.in_each(isolated, self._gang.kill_marked):
            return False
        return self._gang.kill_marked()

    def _switch(self) -> None:
        """Becomes root of a user namespace, if that is how the ranks get a user of their own. Raises SandboxError."""
        if self._launch.isolation and self._launch.isolation.subid:
            namespace.enter(self._launch.isolation)

    def _bring_code(self) -> wire.WorkerExit | None:
        """For a node without the job's folder: uses its snapshot instead, if there is one."""
        launch = self._launch
        missing = f"{launch.workdir} is not a directory on node {launch.node}"
        if not launch.code:
            return _failed(verdict.WORKDIR_MISSING, missing)
        cache = Path(os.environ.get(wire.SCRATCH) or self._folder.path) / "snapshots"
        into = self._folder.path / WORK if self._sandbox else self._folder.path
        try:
            found = code.bring(self._channel(), launch.code, into / "code", cache, self._wait)
            if self._sandbox:
                self._sandbox.give(found)
        except Gone as error:
            return _failed(verdict.WORKDIR_MISSING, f"{missing}, and its snapshot can't be had: {error}")
        except OSError as error:
            return _failed(verdict.LAUNCH_FAILED, f"the job's code can't be written on node {launch.node}: {error}")
        except Away:
            return self._early
        self._launch = replace(launch, workdir=str(found))
        self._gang = WorkerRanks(self._launch, self._folder, self._sandbox)
        return None

    def _wait(self, seconds: float) -> bool:
        self._wake_pipe.wait(seconds)
        return self._go_on()

    def _go_on(self) -> bool:
        """Whether the ranks should still be started; if not, `_early` has the reason."""
        if self._wake_pipe.terminated:
            detail = "the launcher was told to leave its node before it had started a rank"
            self._early = _failed(verdict.NODE_LOST, detail)
        if self._keeper.gone():
            self._early = _failed(verdict.NODE_LOST, f"{KEEPER_GONE} before a rank was started")
        for command in self._commands.take():
            if command.kind in ("stop", "kill"):
                reason = command.reason or verdict.USER_STOP
                self._early = wire.WorkerExit("stopped", reason, "stopped before its ranks were started", time.time())
        return self._early is None

    def _supervise(self, shipper: Shipper, companion: Companion) -> wire.WorkerExit:
        def tell(rank: int, doc: dict[str, Any]) -> None:
            companion.document(rank, doc)
            shipper.notify()

        spot = SpotWatch(self._launch.spot_notices, self._wake_pipe.wake)
        loop = Supervisor(
            self._launch,
            self._folder,
            self._gang,
            self._outputs,
            shipper,
            self._wake_pipe,
            self._commands,
            self._keeper,
            Execs(self._launch, self._folder, self._secrets, self._sandbox),
            StackTaker(self._launch, self._folder, self._sandbox, tell),
            spot,
        )
        spot.start()
        try:
            return loop.run()
        except Exception:
            processes.log_line(traceback.format_exc())
            return _failed(
                verdict.LAUNCH_FAILED, f"the launcher broke, which is a bug: {traceback.format_exc()[-2000:]}"
            )
        finally:
            spot.stop()

    def _until_gone(self, kill: Callable[[], bool]) -> None:
        """Returns when no process of the worker is left, or when one has survived SIGKILL for long."""
        until = time.monotonic() + DRAIN
        while not kill() and time.monotonic() < until:
            self._wake_pipe.wait(STRAYS_EVERY)

    def _hand_over(self, ended: wire.WorkerExit, shipper: Shipper, companion: Companion) -> int:
        """Writes the exit, and stays until the server has it with everything before it."""
        ended = replace(ended, detail=Masker(self._secrets.values()).mask(ended.detail))
        processes.fault("before_exit_json")
        written = self._folder.write_exit(ended)
        processes.fault("after_exit_json")
        shipper.finish(ended)
        companion.finish()
        # No descendant is left; this looks for processes that the ranks had others start.
        self._until_gone(self._gang.kill_marked)
        began = time.monotonic()
        while not (written and shipper.result) and (left := began + self._patience() - time.monotonic()) > 0:
            self._wake_pipe.wait(min(left, FOLDER_LOOK if written else FULL_DISK_LOOK))
            if not self._folder.path.exists():
                break  # the folder was removed, so nothing needs the report
            written = written or self._folder.write_exit(ended)
        if shipper.result:
            self._folder.write_done()
        return 0

    def _patience(self) -> float:
        """Seconds, from the end of the ranks, to wait for a server that is away. A launcher that is told to leave its
        node exits at once, but has a moment for the last reports if the node's disk will be lost."""
        if not self._wake_pipe.terminated:
            return LINGER
        return PARTING if self._launch.orders or self._launch.keeper else 0.0

    def _open_outputs(self, recover: bool) -> None:
        first = self._launch.worker * self._launch.nproc
        for rank in range(first, first + self._launch.nproc):
            store = LogStore(self._folder.rank_dir(rank), self._launch.log_limit)
            if recover:
                store.recover()
            self._outputs[rank] = Output(Masker(self._secrets.values()), store)

    def _open_shipper(self) -> Shipper:
        """Started after the ranks, because forking with a second thread running is not safe."""
        streams = []
        for rank, output in self._outputs.items():
            streams.append(Stream(rank, "spool", SpoolSource(self._folder.rank_files_dir(rank), output.say)))
            streams.append(Stream(rank, "log", LogSource(output.store)))
            streams.append(Stream(rank, "host", SpoolSource(self._folder.rank_dir(rank) / HOST, output.say)))
        shipper = Shipper(
            self._channel(),
            self._launch.worker,
            streams,
            on_command=self._commands.post,
            on_exec=self._commands.post_exec,
            on_end=self._wake_pipe.wake,
            say=lambda rank, text: self._outputs[rank].say(text),
            node=self._launch.node,
            links=self._links,
            on_keep=self._folder.keep_steps,
        )
        shipper.start()
        return shipper

    def _open_companion(self, shipper: Shipper) -> Companion:
        launch, first = self._launch, min(self._outputs)
        base = {rank: environment(launch, rank - first, self._folder, {}, os.environ) for rank in self._outputs}
        seen = {rank: plain_environment(env, self._folder.package_dir) for rank, env in base.items()}
        companion = Companion(
            self._folder.path,
            {rank: self._folder.rank_dir(rank) for rank in self._outputs},
            self._program(seen),
            self._channel(),
            say=lambda rank, text: self._outputs[rank].say(text),
            closed=shipper.close_host,
            files={rank: self._folder.rank_files_dir(rank) / "files" for rank in self._outputs},
            isolated=launch.isolation is not None,
        )
        companion.start({rank.rank: rank.pid for rank in self._gang.ranks})
        return companion

    def _program(self, seen: Mapping[int, Mapping[str, str]]) -> Program:
        """The program for the environment capture.
        The job's Python may be any program, so it is run in the job's sandbox."""
        launch, where = self._launch, workdir(self._launch)
        sandbox = self._sandbox or (make_sandbox(launch, self._folder) if launch.isolation else None)
        secrets = {**dict.fromkeys(launch.secrets, ""), **self._secrets}
        return Program(launch.run, where, seen, secrets, tuple(sandbox.shell()) if sandbox else ())

    def _channel(self) -> Channel:
        launch = self._launch
        return Channel(launch.urls, launch.urls_file, launch.token, launch.ca_file)


def _settle(folder: Folder) -> None:
    """Detaches from the terminal, the working directory and the parent; stderr goes to its own log."""
    with contextlib.suppress(PermissionError):  # it leads a session already
        os.setsid()
    processes.set_process_name("muster-launcher")
    processes.adopt_orphans()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    log = os.open(folder.path / "launcher.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.close(null)
    os.close(log)


def _failed(reason: str, detail: str) -> wire.WorkerExit:
    return wire.WorkerExit("failed", reason, detail, time.time())


if __name__ == "__main__":
    sys.exit(main())
