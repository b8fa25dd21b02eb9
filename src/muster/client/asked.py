"""Trials that a program runs itself: each as an object that reports, and a loop over them that outlives the server.

for trial in study.asked():
    for step in range(100):
        trial.report(step, train(trial.params))
        if trial.should_stop():
            break
    trial.tell()
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from muster.client import study_calls
from muster.client.blocking import blocking
from muster.client.connection import Anyone
from muster.client.study_calls import Outcome, patiently
from muster.core.errors import Invalid, MusterError, Unavailable

if TYPE_CHECKING:
    from muster.api.studies import ParamValue

REPORT_EVERY: Final = 0.5  # seconds between two reports that are sent, unless given
LOOK_EVERY: Final = 1.0  # seconds between two questions while no trial may start
T = TypeVar("T")
A = TypeVar("A", bound="TrialData", covariant=True)


@dataclass(slots=True)
class TrialData:
    """One trial. `params` are its parameters, `resume` is set if it was paused before: it goes on from where it was."""

    study: str
    number: int
    params: dict[str, ParamValue]
    seed: int | None
    resume: bool
    why: str
    objectives: list[str] = field(repr=False)
    points: dict[str, dict[int, float]] = field(repr=False)  # metric → step → value, all so far
    every: float = field(repr=False)
    client: Anyone = field(repr=False, compare=False)
    word: str = "go"  # what it should do, by the answer to its last report that was sent
    note: str = ""  # and why
    told: bool = False
    _due: float = field(default=0.0, repr=False)

    def should_stop(self) -> bool:
        """Whether it should save what it needs and end: it is not among the best, or its study was stopped."""
        return self.word != "go"


async def _report(
    trial: TrialData, /, step: int, value: float | Mapping[str, float] | None = None, **metrics: float
) -> None:
    """Tells a value of the objective, or values of several metrics, at a step.

    What follows too soon is kept and sent with a later report; so is what a server that is away did not get.
    """
    for name, one in {**_named(trial, value), **metrics}.items():
        trial.points.setdefault(name, {})[int(step)] = float(one)
    if trial.told or trial.word != "go" or time.monotonic() < trial._due:
        return
    trial._due = time.monotonic() + trial.every
    with suppress(Unavailable):  # a training does not wait for the server
        word = await study_calls.report_trial(trial.client, trial.study, trial.number, _points(trial))
        trial.word, trial.note = word["do"], word["note"]


async def _tell(
    trial: TrialData,
    /,
    value: float | Sequence[float] | Mapping[str, float] | None = None,
    *,
    outcome: Outcome = "complete",
) -> None:
    """Ends it: with the values of the objectives, or else the last ones that it reported. `outcome`: "failed" if its
    program did, "infeasible" if it needs more than there is, "lost" if that says nothing of its parameters.

    A trial that was to stop has ended already; to tell it is no mistake. Waits for a server that is away.
    """
    values: Sequence[float] | None = None
    if isinstance(value, Mapping):
        step = max((step for some in trial.points.values() for step in some), default=0) + 1
        for name, one in value.items():
            trial.points.setdefault(name, {})[step] = float(one)
    elif value is not None:
        values = [float(one) for one in value] if isinstance(value, Sequence) else [float(value)]
    to, points = trial.client, _points(trial)
    await patiently(to, lambda: study_calls.tell(to, trial.study, trial.number, values, outcome=outcome, points=points))
    trial.told = True


class AskedTrial(TrialData):
    """A trial of `Study.asked`."""

    __slots__ = ()

    report = blocking(_report)
    tell = blocking(_tell)


class AsyncAskedTrial(TrialData):
    """A trial of `AsyncStudy.asked`; its methods are awaited, apart from `should_stop`."""

    __slots__ = ()

    report = _report
    tell = _tell


class Asking(Protocol[A]):
    """What a study is for this: its id, its client, and the class of its trials."""

    @property
    def id(self) -> str: ...
    @property
    def client(self) -> Anyone: ...
    @property
    def _trial_class(self) -> type[A]: ...


async def asked(study: Asking[A], /, asker: str = "", *, every: float = REPORT_EVERY) -> AsyncGenerator[A, None]:
    """Trials to run here, one after the other, until the study is over. For studies without a job.

    Each is told to the server when the loop goes on, with the last values that it reported, unless `tell` was called;
    one in the middle of which the loop is left is lost, and tried again. With an `asker`, a name of this worker, a
    program that was killed gets its trial again when it is started again. A server that is away is waited for.
    """
    to, who = study.client, asker or uuid.uuid4().hex
    head = (await patiently(to, lambda: study_calls.study_status(to, study.id)))["study"]
    objectives = [one["metric"] for one in head["objectives"]]
    kept: dict[int, dict[str, dict[int, float]]] = {}  # what trials reported that may go on later
    while True:
        found = await patiently(to, lambda: study_calls.ask(to, study.id, who))
        if found["number"] is None:
            if found["over"]:
                return
            await to._transport.sleep(LOOK_EVERY)
            continue
        points = kept.setdefault(found["number"], {}) if found["resume"] else {}
        trial = study._trial_class(
            study.id, found["number"], found["params"], found["seed"], found["resume"], found["why"], objectives,
            points, every, to,
        )  # fmt: skip
        kept[trial.number] = trial.points
        left = True
        try:
            yield trial
            left = False
        finally:
            if left and not trial.told:
                with suppress(MusterError):
                    await study_calls.tell(to, study.id, trial.number, outcome="lost")
        if not trial.told:
            await _tell(trial)
        if trial.word != "pause":
            kept.pop(trial.number, None)


def _named(trial: TrialData, value: float | Mapping[str, float] | None) -> Mapping[str, float]:
    if value is None or isinstance(value, Mapping):
        return value or {}
    if len(trial.objectives) != 1:
        raise Invalid(
            f"The study has {len(trial.objectives)} objectives, and one value was reported.",
            f"Report them by name: `trial.report(step, {{{trial.objectives[0]!r}: ...}})`.",
        )
    return {trial.objectives[0]: float(value)}


def _points(trial: TrialData) -> dict[str, list[tuple[int, float]]]:
    return {name: sorted(some.items()) for name, some in trial.points.items()}
