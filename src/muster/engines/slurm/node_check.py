"""Checks of nodes on Slurm: a small batch job on the node, which prints what it found into the shared folder."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from muster.core.errors import EngineError
from muster.engines.node_check import Progress, is_whole, memory_of, options, run_check
from muster.engines.slurm.machines import health_of
from muster.engines.slurm.model import OVER, PENDING, MachineRow, Submission, count_gpus
from muster.engines.slurm.slurm_state import SlurmState

WORD: Final = "check"  # in the comment of such a job: WORD:NODE:TAG
MINUTES: Final = 2  # its time limit; it takes some seconds
DEADLINE: Final = "now+4minutes"  # Slurm itself removes one that waits for longer, if the server was killed
LATE: Final = 3.0  # seconds after its end in which its output may still come


class SlurmChecks:
    """Its calls come from threads of the server's, `clear` from the engine's."""

    def __init__(self, slurm: SlurmState) -> None:
        self._slurm = slurm
        self._tags: set[str] = set()  # of checks that somebody waits for

    def run(self, node: str) -> Sequence[Mapping[str, Any]]:
        machine = next((one for one in self._slurm.machines if one.name == node), None)
        if machine is None:
            raise EngineError(f"Slurm has no node {node!r} now.", "See `muster nodes`.")
        health, why = health_of(machine)
        if health != "healthy":
            raise EngineError(
                f"{node} can't be checked: Slurm starts nothing on it ({why.removeprefix('Slurm: ')}).",
                f"Put it back first, with `muster nodes release {node}` or `scontrol update`: it is checked before "
                "the next start there. Or run `python -m muster.runtime.node_checks` on it.",
            )
        devices = count_gpus(machine.gres)
        free = max(0, devices - machine.used_gpus)
        return run_check(node, lambda asked: _SlurmCheck(self._slurm, self._tags, machine, asked, devices), free)

    def clear(self) -> None:
        """Cancels checks that nobody waits for: those of a server that was killed."""
        for row in self._slurm.rows.values():
            word, _, rest = row.comment.removeprefix(self._slurm.mark).partition(":")
            tag = rest.rpartition(":")[2]
            if word == WORD and row.state not in (*OVER, "COMPLETING") and tag not in self._tags:
                self._slurm.client.cancel([row.id])
                if re.fullmatch("[0-9a-f]+", tag):
                    _output(self._slurm, tag).unlink(missing_ok=True)


class _SlurmCheck:
    """See `muster.engines.node_check.PlacedCheck`. It is submitted when it is made. `tags`: of the living ones."""

    def __init__(self, slurm: SlurmState, tags: set[str], machine: MachineRow, asked: int, devices: int) -> None:
        self._slurm, self._tags, self._tag = slurm, tags, os.urandom(6).hex()
        self._output = _output(slurm, self._tag)
        self._over = False
        self._over_at: float | None = None  # monotonic: since when Slurm says so
        wanted = _submission(slurm, machine, self._tag, asked, devices)
        tags.add(self._tag)
        try:
            self._id = slurm.client.submit(wanted)
        except EngineError as error:
            tags.discard(self._tag)
            raise EngineError(f"{machine.name} can't be checked. {error.message}", error.hint) from error

    def progress(self) -> Progress:
        os.listdir(self._output.parent)  # noqa: PTH208  (a network file system may keep saying that it is not there)
        text = self._output.read_text(errors="replace") if self._output.exists() else ""
        if is_whole(text):
            self._over = True
            return Progress("ended", text)
        row = self._slurm.rows.get(self._id)
        if row is None or row.state in PENDING:
            return Progress("waiting", f"Slurm: {row.reason}" if row is not None else "")
        if row.state not in OVER:
            return Progress("running")
        if self._over_at is None:
            self._over_at = time.monotonic()
        if time.monotonic() - self._over_at < LATE:
            return Progress("running")
        return Progress("ended", f"Slurm says {row.state}. {text}")

    def remove(self) -> None:
        if not self._over:  # else it ends by itself, and Slurm's tools would wait for it
            with suppress(EngineError):  # then the next look cancels it
                self._slurm.client.cancel([self._id])
        with suppress(OSError):
            self._output.unlink(missing_ok=True)
        self._tags.discard(self._tag)


def _submission(slurm: SlurmState, machine: MachineRow, tag: str, asked: int, devices: int) -> Submission:
    settings, shared = slurm.settings, slurm.shared
    pool = next((one for one in slurm.pools.values() if one.partition in machine.partitions), None)
    if pool is None:
        raise EngineError(f"{machine.name} is in no partition that is a pool here.", "See `muster nodes`.")
    folder = settings.scratch or str(_output(slurm, tag).parent)
    return Submission(
        name="muster-check",
        comment=f"{slurm.mark}{WORD}:{machine.name}:{tag}",
        partition=pool.partition,
        nodes=1,
        cpus=1,
        script=str(shared.check_script),
        arguments=(settings.python, str(shared.package), folder, *options(asked, devices)),
        folder=str(settings.root),
        output=str(_output(slurm, tag)),
        memory=memory_of(asked) >> 20,
        gres=f"gpu:{asked}" if asked else "",
        minutes=MINUTES,
        signal=1,  # second before the limit: it would end the check
        requeue=False,
        qos=pool.qos or settings.qos,
        account=pool.account or settings.account,
        nodelist=machine.name,
        extra=(*settings.extra, *(() if settings.rest else (f"--deadline={DEADLINE}",))),
    )


def _output(slurm: SlurmState, tag: str) -> Path:
    return slurm.shared.root / "checks" / f"{tag}.out"
