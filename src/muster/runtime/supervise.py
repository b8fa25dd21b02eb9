"""The launcher's loop: reads output, executes commands, watches memory and time, and stops the whole gang."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Mapping
from typing import Final

from muster import wire
from muster.runtime import processes, verdict
from muster.runtime.ending import Ending, failing, forcing, stopping
from muster.runtime.exec_start import Execs
from muster.runtime.folder import Folder
from muster.runtime.keeper import Keeper
from muster.runtime.output import Output
from muster.runtime.ranks import Rank, WorkerRanks
from muster.runtime.ship import Shipper
from muster.runtime.spot_notice import Notice, SpotWatch
from muster.runtime.stacks_host import StackTaker
from muster.runtime.wake_pipe import Commands, WakePipe

READ_BYTES: Final = 256 << 10  # per rank before the others have their turn
MEMORY_FIRST: Final = 0.1  # seconds after the start
MEMORY_EVERY: Final = 1.0  # seconds
MEMORY_SHARE: Final = 20  # a look costs at most one part in this many of the launcher's time
STRAYS_EVERY: Final = 0.02  # seconds between two rounds of killing what is left
DRAIN: Final = 10.0  # seconds that a process that we can't kill may keep a rank's output open
GONE_GRACE: Final = 5.0  # seconds
ALONE: Final = 10.0  # seconds that a server has to answer to a notice, at most
UNKILLABLE: Final = 60.0  # seconds of SIGKILL after which a process is given up: it is in uninterruptible sleep
KEEPER_GONE: Final = "the process that held the worker's place on its node has ended"


class Supervisor:
    """Supervises started ranks until they end. Times are monotonic."""

    def __init__(
        self,
        launch: wire.Launch,
        folder: Folder,
        gang: WorkerRanks,
        outputs: Mapping[int, Output],
        shipper: Shipper,
        wake_pipe: WakePipe,
        commands: Commands,
        keeper: Keeper,
        execs: Execs,
        stacks: StackTaker,
        spot: SpotWatch,
    ) -> None:
        self._launch = launch
        self._folder = folder
        self._gang = gang
        self._outputs = outputs
        self._shipper = shipper
        self._wake_pipe = wake_pipe
        self._commands = commands
        self._keeper = keeper
        self._execs = execs
        self._stacks = stacks
        self._spot = spot
        self._alone_at: float | None = None  # after a notice: when the ranks are stopped without the server's word
        self._pipes = 0  # number of open pipes
        self._selector = selectors.DefaultSelector()
        self._ending: Ending | None = None
        self._strays_at: float | None = None  # set when every rank has ended
        self._drain_until = 0.0
        self._clean = False
        self._rang = True  # true at first, to see what came before the loop
        self._stop_at: float | None = None
        self._memory_at = 0.0
        self._peak = 0
        self._oom_kills = (0, 0)  # the kernel's count at the last look and at the one before

    def run(self) -> wire.WorkerExit:
        """Returns when no process of the worker is left and all of its output is in the logs."""
        now = time.monotonic()
        self._memory_at = now + MEMORY_FIRST
        self._stop_at = now + self._launch.max_duration if self._launch.max_duration is not None else None
        self._oom_kills = (processes.oom_kills(),) * 2
        self._selector.register(self._wake_pipe.fd, selectors.EVENT_READ, self._wake_pipe)
        if self._keeper.fd >= 0:
            self._selector.register(self._keeper.fd, selectors.EVENT_READ, self._keeper)
        for rank in self._gang.ranks:
            self._selector.register(rank.pipe, selectors.EVENT_READ, rank)
            self._pipes += 1
        while not self._over():
            for key, _ in self._selector.select(self._timeout()):
                if isinstance(key.data, Rank):
                    self._pump(key.data)
                elif key.data is self._wake_pipe:
                    self._wake_pipe.drain()
                    self._rang = True
                else:
                    self._selector.unregister(self._keeper.fd)
                    self._abandon(time.monotonic())
            self._attend(time.monotonic())
        self._close()
        return self._verdict()

    def _over(self) -> bool:
        drained = self._pipes == 0 or time.monotonic() >= self._drain_until
        return self._strays_at is not None and self._clean and drained

    def _timeout(self) -> float:
        times = [self._memory_at]
        if self._strays_at is not None:
            times = [self._drain_until] if self._clean else [self._strays_at]
        elif self._ending:
            times.append(self._ending.next_at())
        elif self._stop_at is not None:
            times.append(self._stop_at)
        if self._alone_at is not None and not self._ending:
            times.append(self._alone_at)
        return max(0.0, min(times) - time.monotonic())

    def _pump(self, rank: Rank) -> None:
        try:
            chunk = os.read(rank.pipe, READ_BYTES)
        except BlockingIOError:
            return
        if chunk:
            self._outputs[rank.rank].feed(chunk)
        else:
            self._selector.unregister(rank.pipe)
            self._pipes -= 1
            os.close(rank.pipe)
            self._outputs[rank.rank].finish()
        self._shipper.notify()

    def _attend(self, now: float) -> None:
        if self._wake_pipe.terminated and not self._ending:
            self._run_commands(now)  # first: the sender of the signal may have signalled the ranks too
        for rank in self._gang.reap():
            if rank.exit and rank.exit.exit_code != 0 and not self._ending:
                killed = processes.oom_kills() > self._oom_kills[1]
                self._ending = failing(now, self._living(), rank.rank, killed)
        self._execs.sweep()
        if self._strays_at is not None or not (self._gang.alive() or self._leaving()) or self._unkillable(now):
            self._clean_up(now)
            return
        if self._rang:
            self._rang = False
            self._run_commands(now)
        if self._stop_at is not None and now >= self._stop_at:
            detail = f"the run reached its max_duration: this attempt had {self._launch.max_duration:g} s left"
            self._stop(now, self._launch.stop_grace, "stopped", verdict.MAX_DURATION, detail)
            self._stop_at = None
        if self._spot.notice is not None and not self._ending:
            self._heed(self._spot.notice, now)
        if now >= self._memory_at:
            self._watch_memory(now)
        if self._ending:
            told, kill = self._ending.due(now)
            self._gang.signal(told, signal.SIGTERM)
            if kill:
                self._gang.signal(self._living(), signal.SIGKILL)

    def _run_commands(self, now: float) -> None:
        for command in self._commands.take():
            self._folder.write_command(command)
            detail = f"asked to stop within {command.grace:g} s"
            match command.kind:
                case "stop":
                    self._stop(now, command.grace, "stopped", command.reason or verdict.USER_STOP, detail)
                case "kill":
                    self._end(forcing(now, "stopped", command.reason or verdict.USER_STOP, "killed on request"))
                case "save":
                    self._folder.ask_save()
                case "stacks":
                    self._stacks.take(command.id, list(self._gang.ranks), command.grace)
        for ident in self._commands.take_execs():
            self._execs.start(ident)
        # After the commands, because they have a better reason.
        if self._wake_pipe.terminated:
            if self._launch.orders is None:  # else the cluster tells the whole gang
                self._shipper.leave(now + self._launch.stop_grace, told=True)
            self._stop(
                now, self._launch.stop_grace, "failed", verdict.NODE_LOST, "the launcher was told to leave its node"
            )
        if self._shipper.result == "gone":
            detail = "the server said that it wants this attempt no more (status 410)"
            self._stop(now, GONE_GRACE, "stopped", verdict.USER_STOP, detail)

    def _heed(self, notice: Notice, now: float) -> None:
        """The server stops the whole gang at once, so that it can save together. If it is away, this worker stops."""
        left = notice.deadline - now
        if self._alone_at is None:
            self._alone_at = now + min(ALONE, left / 2)
            for output in self._outputs.values():
                output.say(f"{self._launch.node} is taken away in {left:.0f} s ({notice.source})")
            self._shipper.leave(notice.deadline)
        elif now >= self._alone_at:
            detail = f"the machine is taken away in {left:.0f} s ({notice.source}), and the server is away"
            self._stop(now, max(0.0, left - wire.LEAVE_SPARE), "failed", verdict.SPOT_NOTICE, detail)

    def _abandon(self, now: float) -> None:
        grace = min(self._launch.stop_grace, GONE_GRACE)
        self._stop(now, grace, "failed", verdict.NODE_LOST, KEEPER_GONE)

    def _stop(self, now: float, grace: float, outcome: wire.Outcome, reason: str, detail: str) -> None:
        self._end(stopping(now, grace, self._living(), self._gang.reporting(), outcome, reason, detail))
        if self._ending:
            self._folder.ask_stop(time.time() + max(0.0, self._ending.kill_at - now))

    def _end(self, ending: Ending) -> None:
        if self._ending:
            self._ending.hasten(ending)
        else:
            self._ending = ending

    def _watch_memory(self, now: float) -> None:
        own = set(processes.descendants(os.getpid())) - set(self._stacks.processes())
        used = processes.private_memory(own)
        self._peak = max(self._peak, used)
        limit = self._launch.memory
        if limit is not None and used > limit and not self._ending:
            words = f"the worker used {verdict.format_size(used)}, its limit is {verdict.format_size(limit)}"
            detail = f"{words} ({used}/{limit} bytes)"
            self._end(forcing(now, "failed", verdict.OUT_OF_MEMORY, detail))
        self._oom_kills = (processes.oom_kills(), self._oom_kills[0])
        self._memory_at = now + max(MEMORY_EVERY, MEMORY_SHARE * (time.monotonic() - now))

    def _leaving(self) -> bool:
        """Whether ranks still use their grace: a shell dies of SIGTERM at once, but the program in it may be saving."""
        ending = self._ending
        return ending is not None and not ending.forced and not self._gang.has_left(ending.ranks)

    def _unkillable(self, now: float) -> bool:
        """Whether ranks have survived SIGKILL for so long that the worker ends without them."""
        ending = self._ending
        return ending is not None and ending.forced and now >= ending.killed_at + UNKILLABLE

    def _clean_up(self, now: float) -> None:
        """After the last rank: kills remaining processes until none is found."""
        if self._strays_at is None:
            self._drain_until = now + DRAIN
            self._strays_at = now
        if not self._clean and now >= self._strays_at:
            self._clean = self._gang.kill_strays() or now >= self._drain_until
            self._strays_at = now + STRAYS_EVERY

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Rank):
                os.close(key.data.pipe)
                self._outputs[key.data.rank].finish()
                processes.log_line(f"rank {key.data.rank}'s output was still open at its end")
        self._selector.close()

    def _living(self) -> list[int]:
        return [rank.rank for rank in self._gang.alive()]

    def _verdict(self) -> wire.WorkerExit:
        ranks = {rank.rank: rank for rank in self._gang.ranks}
        exits = tuple(rank.exit for rank in ranks.values() if rank.exit)
        if self._ending is None:
            return wire.WorkerExit("succeeded", verdict.COMPLETED, "", time.time(), None, 0, None, exits, self._peak)
        ending = self._ending
        reason, detail = ending.reason, ending.detail
        code = signum = None
        if ending.rank is not None and (first := ranks[ending.rank].exit):
            tail = self._outputs[ending.rank].tail()
            reason, detail = verdict.classify_exit(first, ranks[ending.rank].pid, tail, ending.oom_killed)
            code, signum = first.exit_code, first.signal
        elif killed := [str(ended.rank) for ended in exits if ended.signal == signal.SIGKILL]:
            detail += f"; ended by SIGKILL: rank {', '.join(killed)}"
        for rank in self._gang.alive():
            state = processes.stat(rank.pid)
            detail += (
                f"; rank {rank.rank} can't be killed: process {rank.pid} is in state {state.state if state else '?'}"
            )
        return wire.WorkerExit(
            ending.outcome, reason, detail, time.time(), ending.rank, code, signum, exits, self._peak
        )
