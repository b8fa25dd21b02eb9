"""Makes room on the server's own machine: when the disk of checkpoints is nearly full, those of studies' losers go."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from muster.control.background import Background
from muster.control.clock import Clock
from muster.control.submit import peek
from muster.core.entities.study import StudyPruned, progress_of, trials_of
from muster.core.event import SYSTEM, Event
from muster.core.state import State
from muster.store.base import Entry
from muster.store.commit import Commit
from muster.tune.losers import losers
from muster.tune.spec import StudySpec
from muster.tune.view import view_of

EVERY: Final = 30.0  # seconds between two looks
FULL: Final = 0.90  # of the disk, from which on checkpoints are removed
ENOUGH: Final = 0.85  # down to which they are
AT_ONCE: Final = 20  # folders between two looks at the disk


def disk_share(folder: Path) -> float:
    usage = shutil.disk_usage(folder)
    return usage.used / usage.total


class CheckpointSpace:
    """A thread beside the control loop. `remove` removes a folder of a job."""

    def __init__(
        self,
        commit: Commit,
        clock: Clock,
        may_act: Callable[[], bool],
        folder: Path,
        remove: Callable[[Path], None],
        share: Callable[[Path], float] = disk_share,
    ) -> None:
        self._commit, self._clock, self._folder, self._remove, self._share = commit, clock, folder, remove, share
        self._thread = Background("checkpoint-space", self.look, may_act, lambda took: max(EVERY, 10 * took))

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.close()

    def look(self) -> None:
        if not self._folder.is_dir() or self._share(self._folder) < FULL:
            return
        found: list[list[tuple[str, str, str]]] = []
        self._commit.run([peek(found, lambda state: list(_candidates(state)))])
        there = [one for one in found[0] if (self._folder / one[2]).is_dir()]
        while there and self._share(self._folder) > ENOUGH:
            some, there = there[:AT_ONCE], there[AT_ONCE:]
            gone = [one for one in some if self._gone(one[2])]
            self._record(gone)

    def _gone(self, job: str) -> bool:
        self._remove(self._folder / job)
        return not (self._folder / job).exists()

    def _record(self, gone: list[tuple[str, str, str]]) -> None:
        now, by_study = self._clock.now(), dict[tuple[str, str], list[str]]()
        for study, project, job in gone:
            by_study.setdefault((study, project), []).append(job)
        events = [Event(StudyPruned(jobs), now, SYSTEM, project, study) for (study, project), jobs in by_study.items()]
        if events:
            self._commit.submit(lambda state: Entry(events)).result()


def _candidates(state: State) -> Iterator[tuple[str, str, str]]:
    """(study, project, job) of trials whose checkpoints may go, in turn of all studies, the oldest study first."""
    needed = {job.spec.start_from.partition("@")[0] for job in state.jobs.values() if job.spec.start_from}
    lists = []
    for study in state.studies.values():
        changes = progress_of(state, study.id).changes
        view = view_of(StudySpec.of(study.doc), study, trials_of(state, study.id), changes)
        lists.append([
            (study.id, study.project, one.job)
            for one in losers(view)
            if one.job not in state.jobs and one.job not in needed
        ])  # fmt: skip
    longest = max(map(len, lists), default=0)
    yield from (some[place] for place in range(longest) for some in lists if place < len(some))
