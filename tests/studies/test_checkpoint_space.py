"""A disk that is nearly full loses the checkpoints of studies' losers, the worst first, and no other."""

from __future__ import annotations

import shutil
from pathlib import Path

from muster.control.studies.disk import ENOUGH, FULL, CheckpointSpace
from muster.core.entities.study import StudyPruned, StudyStarted, TrialEnded, TrialLeaving, TrialPaused, TrialStarted
from muster.core.event import Event
from muster.store.base import EventFilter
from muster.store.direct import DirectCommit
from muster.store.memory import MemoryStore
from muster.tune.space import Parameter, Space
from muster.tune.spec import Objective, StudySpec
from scheduler_kit import job_event

SPEC = StudySpec("lr", Space((Parameter("lr", "float", 0, 1),)), (Objective("loss"),))
ENDS = {  # trial → how it ended, and its value
    0: ("complete", 0.9), 1: ("complete", 0.1), 2: ("stopped", 0.5), 3: ("failed", None), 4: ("complete", 0.2),
    5: ("complete", 0.3), 6: ("complete", 0.4), 7: ("complete", 0.5), 8: ("complete", 0.6), 9: ("stopped", 0.4),
}  # fmt: skip


class Rig:
    """Folders of a megabyte each on a disk whose share of use follows from how many there are."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore()
        events = [Event(StudyStarted("lr", SPEC.to_doc(), "", 1, []), 1.0, "ada", "red", "lr-1")]
        for number in range(12):
            job = f"lr-{number + 2}"
            events.append(Event(TrialStarted("lr-1", number, {"lr": number / 20}), 2.0, "muster", "red", job))
            (folder / job).mkdir(parents=True)
            (folder / job / "state").write_bytes(b"x")
        for number, (outcome, value) in ENDS.items():
            values = None if value is None else [value]
            ended = TrialEnded("lr-1", number, outcome, values)
            events.append(Event(ended, 3.0, "muster", "red", f"lr-{number + 2}"))
        events += [
            Event(TrialLeaving("lr-1", 10), 3.0, "muster", "red", "lr-12"),
            Event(TrialPaused("lr-1", 10, 7), 3.0, "muster", "red", "lr-12"),
            job_event(30, start_from="lr-11@3"),
        ]
        (folder / "other-1").mkdir()
        self.store.append(events)
        self.folder, self.used = folder, FULL
        commit = DirectCommit(self.store, lambda events: None)  # type: ignore[arg-type]
        self.space = CheckpointSpace(commit, self, lambda: True, folder, shutil.rmtree, self.share)  # type: ignore[arg-type]

    def now(self) -> float:
        return 9.0

    def share(self, folder: Path) -> float:
        return self.used - 0.01 * (13 - len(list(self.folder.iterdir())))

    def there(self) -> set[str]:
        return {one.name for one in self.folder.iterdir()}


def test_nothing_goes_while_there_is_room(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "checkpoints")
    rig.used = FULL - 0.001
    rig.space.look()
    assert len(rig.there()) == 13


def test_the_worst_go_first_until_there_is_room_and_are_in_the_log(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "checkpoints")
    rig.space.look()
    gone = {f"lr-{number}" for number in range(2, 14)} - rig.there()
    # The failed trial, those that were stopped (the worse one first), then those that are whole and not among the best.
    assert gone == {"lr-5", "lr-4", "lr-2", "lr-10"}, "the source lr-11 of a queued job stays, and five of the best"
    assert rig.share(rig.folder) > ENOUGH, "no more may go"
    (event,) = rig.store.events(EventFilter(kind="study.pruned"))
    assert isinstance(event.data, StudyPruned)
    assert event.data.runs == ["lr-5", "lr-4", "lr-2", "lr-10"]
    assert {"lr-12", "lr-13", "other-1"} <= rig.there(), "one is paused, one runs, one is no trial"
