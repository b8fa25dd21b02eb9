"""The hand-over of gangs to Slurm: writes their folders, groups equal ones into job arrays, reuses requeued jobs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from muster.core.errors import EngineError
from muster.core.faults import point
from muster.engines.base import GangLaunch
from muster.engines.describe import launch_of
from muster.engines.isolation import isolation_of
from muster.engines.remote import Held
from muster.engines.slurm.gang import SlurmGang
from muster.engines.slurm.model import PENDING, SlurmBusy, SlurmRefused, Submission
from muster.engines.slurm.shared import AttemptRecord, Key
from muster.engines.slurm.slurm_state import SlurmState
from muster.engines.slurm.submission import submission_of, together
from muster.wire import Isolation, WorkerExit

LEAVING: Final = "its last attempt is still leaving"
LEAVING_MAX: Final = 30.0  # seconds
_STOPPED: Final = Held("Stopped", "it was stopped while it was handed over")


class Handover:
    def __init__(self, slurm_state: SlurmState) -> None:
        self._slurm = slurm_state

    def launch(self, gangs: Sequence[GangLaunch], wanted: Callable[[Key], bool]) -> Mapping[Key, str | Held]:
        refused: dict[Key, str] = {}
        ready: list[tuple[Key, Submission]] = []
        for gang in gangs:
            key = (gang.job, gang.attempt)
            if key in self._slurm.gangs and (self._slurm.gangs[key].record.slurm or self._slurm.gangs[key].held):
                continue
            try:
                made = self._write(gang)
            except EngineError as error:
                refused[key] = str(error)
                continue
            if self._slurm.is_leaving(key):
                self._slurm.gangs[key].held, self._slurm.gangs[key].held_why = made, LEAVING
                self._slurm.gangs[key].held_until = time.monotonic() + LEAVING_MAX
            elif not self._take_orphan(key, made):
                ready.append((key, made))
        assert self._slurm.cluster is not None
        stopped = {key: _STOPPED for key, _ in ready if not wanted(key)}
        ready = [(key, made) for key, made in ready if key not in stopped]
        for group in together([made for _, made in ready], self._slurm.cluster.max_array - 1):
            self._submit([ready[index] for index in group], refused)
        for key in refused:
            self._slurm.gangs.pop(key, None)
            self._slurm.shared.remove(key)
        return {**refused, **stopped}

    def submit_held(self) -> None:
        """Submits held gangs until Slurm rejects one: if there is no room for one, there is none for the next."""
        room = True
        for gang in self._slurm.gangs.values():
            if gang.held is None or gang.ended is not None:
                continue
            if gang.held_why == LEAVING and self._slurm.is_leaving(gang.key) and time.monotonic() < gang.held_until:
                continue
            if gang.held_why == LEAVING and self._take_orphan(gang.key, gang.held):
                gang.held = None
            elif room:
                refused: dict[Key, str] = {}
                self._submit_one(gang.key, gang.held, refused)
                for why in refused.values():
                    gang.end({}, WorkerExit("failed", "engine_refused", why, time.time()))
                room = gang.held is None

    def _write(self, gang: GangLaunch) -> Submission:
        """Writes everything that the gang's launchers need, before the job is submitted."""
        key = (gang.job, gang.attempt)
        pool = self._slurm.pools.get(gang.pool)
        if pool is None:
            raise EngineError(
                f"Slurm has no partition for the pool {gang.pool!r}.", f"It has {', '.join(self._slurm.pools)}."
            )
        members = [machine for machine in self._slurm.machines if pool.partition in machine.partitions]
        wanted = submission_of(
            gang, self._slurm.settings, pool, members, self._slurm.home.installation, os.geteuid() == 0
        )
        shared, settings = self._slurm.shared, self._slurm.settings
        shared.tell_urls(self._slurm.home.urls())
        wanted = replace(
            wanted,
            script=str(shared.script),
            arguments=self._arguments(shared.name(key)),
            folder=str(settings.root),
            output=str(settings.root / "out" / "%j.out"),
        )
        checkpoints = f"{settings.checkpoints.rstrip('/')}/{gang.job}"
        launch = launch_of(gang, 0, "", self._slurm.home, checkpoints, None, str(shared.servers))
        launch = replace(launch, isolation=self._isolation(gang), pass_env=self._passed())
        more = {"scratch": settings.scratch, "port": 0, "address": settings.address, "linger": settings.linger}
        record = AttemptRecord(len(gang.seats), wanted.shape())
        shared.write_gang(key, launch, more, record)
        self._slurm.gangs[key] = SlurmGang(key, record)
        return wanted

    def _isolation(self, gang: GangLaunch) -> Isolation | None:
        """The isolation of a gang. The gangs' folders hold tokens, and with Slurm's own tools, or a token for them,
        a job could escape."""
        settings, home = self._slurm.settings, self._slurm.home
        rest = settings.rest.removeprefix("unix:") if settings.rest.startswith("unix:") else ""
        hidden = [str(settings.root), settings.checkpoints, settings.scratch, settings.token_file, rest, *home.private]
        paths = [path for path in hidden if path.startswith("/") and "$" not in path]
        return isolation_of(gang, settings.isolation, paths, settings.root / "users.json")

    def _passed(self) -> tuple[str, ...]:
        return (*self._slurm.settings.environment, *self._slurm.settings.isolation.pass_env)

    def _arguments(self, name: str) -> tuple[str, ...]:
        settings = self._slurm.settings
        wait = str(int(settings.claim_within))
        return str(settings.root), name, settings.python, str(self._slurm.shared.package), wait

    def _take_orphan(self, key: Key, wanted: Submission) -> bool:
        """Tries to use a requeued job that waits in Slurm's queue for this attempt. Returns whether one was found."""
        for id, orphan in list(self._slurm.orphans.items()):
            if orphan.job != key[0]:
                continue
            del self._slurm.orphans[id]
            if orphan.shape != wanted.shape():
                self._slurm.client.cancel([id])
                continue
            row = orphan.row
            if wanted.minutes is not None and row.state in PENDING:
                try:
                    self._slurm.client.limit(id, wanted.minutes)
                except EngineError:
                    self._slurm.client.cancel([id])
                    continue
            self._slurm.claims[row.raw, row.restarts] = key
            self._slurm.shared.claim(row.raw, row.restarts, key)
            self._slurm.assign(self._slurm.gangs[key], id, row.restarts)
            return True
        return False

    def _submit(self, group: Sequence[tuple[Key, Submission]], refused: dict[Key, str]) -> None:
        if len(group) == 1:
            self._submit_one(*group[0], refused)
            return
        keys = [key for key, _ in group]
        tag = os.urandom(6).hex()
        table = self._slurm.shared.write_array(tag, keys)
        comment = f"{self._slurm.mark}array:{tag}:{len(keys)}"
        wanted = replace(
            group[0][1], name="muster-array", comment=comment, arguments=self._arguments(table), array=len(keys)
        )
        try:
            slurm = self._slurm.client.submit(wanted)
        except SlurmRefused as error:
            refused.update(dict.fromkeys(keys, str(error)))
        except SlurmBusy:  # there may be room for some
            for key, each in group:
                self._submit_one(key, each, refused)
        else:
            point("slurm.after_submit")
            self._slurm.arrays[tag] = dict(enumerate(keys))
            for number, key in enumerate(keys):
                self._slurm.assign(self._slurm.gangs[key], f"{slurm}_{number}", 0)

    def _submit_one(self, key: Key, wanted: Submission, refused: dict[Key, str]) -> None:
        gang = self._slurm.gangs[key]
        gang.held = None
        try:
            slurm = self._slurm.client.submit(wanted)
        except SlurmRefused as error:
            refused[key] = str(error)
        except SlurmBusy as error:
            gang.held, gang.held_why = wanted, f"Slurm takes no further job of this user's for now ({error.message})"
        else:
            point("slurm.after_submit")
            self._slurm.assign(gang, slurm, 0)
