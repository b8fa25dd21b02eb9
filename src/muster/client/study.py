"""A study as the clients return it: methods that call the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from muster.client import asked, promotion, study_calls
from muster.client.asked import AskedTrial, AsyncAskedTrial, TrialData
from muster.client.blocking import blocking, iterating
from muster.client.connection import Anyone
from muster.client.study_page import write_report

if TYPE_CHECKING:
    from muster.api.studies import (
        AskedTrial as AskedView,
    )
    from muster.api.studies import (
        StudyChange,
        StudyReport,
        StudyStatus,
        TrialRow,
        TrialState,
        TrialWord,
    )


@dataclass(slots=True)
class StudyData:
    """One study. `notes`: what is worth a look, of one that was just started."""

    _trial_class: ClassVar[type[TrialData]]

    id: str
    name: str
    notes: list[str]
    client: Anyone = field(repr=False, compare=False)

    @classmethod
    def from_view(cls, view: Mapping[str, Any], client: Anyone) -> Self:
        return cls(view["id"], view["name"], list(view["notes"]), client)


async def _status(study: StudyData, /) -> StudyStatus:
    """How it stands; see `Client.study_status`."""
    return await study_calls.study_status(study.client, study.id)


async def _best(study: StudyData, /) -> TrialRow | None:
    """Its best trial so far: "number", "params", "values" and more; None while none has a value."""
    return (await study_calls.study_status(study.client, study.id))["best"]


async def _trials(study: StudyData, /, state: TrialState | None = None) -> list[TrialRow]:
    """Its trials by number, or those in one state."""
    return await study_calls.trials(study.client, study.id, state=state)


async def _report(study: StudyData, /, path: str | Path | None = None) -> StudyReport:
    """All that a report shows; with a path, it is also written there, as HTML, or as JSON by the name of the file."""
    report = await study_calls.study_report(study.client, study.id)
    if path is not None:
        await study.client._transport.work(write_report, report, path)
    return report


async def _wait(study: StudyData, /, timeout: float | None = None) -> StudyStatus:
    """How it stands once it has ended; see `Client.wait_study`."""
    return await study_calls.wait_study(study.client, study.id, timeout)


def _watch(study: StudyData, /, every: float = study_calls.EVERY) -> AsyncGenerator[StudyStatus, None]:
    """How it stands, now and every few seconds, until it has ended."""
    return study_calls.watch_study(study.client, study.id, every)


async def _stop(study: StudyData, /) -> StudyStatus:
    """It asks for no more trials; those that run save and leave, and go on when it is resumed."""
    return await study_calls.stop_study(study.client, study.id)


async def _resume(study: StudyData, /, timeout: float = study_calls.STOP_PATIENCE) -> StudyStatus:
    """It goes on; see `Client.resume_study`."""
    return await study_calls.resume_study(study.client, study.id, timeout)


async def _extend(
    study: StudyData,
    /,
    *,
    trials: int | None = None,
    cost: str | None = None,
    until: str | None = None,
    parallel: int | None = None,
) -> StudyChange:
    """Gives it other limits, after which it goes on; see `Client.extend_study`."""
    limits: dict[str, Any] = {"trials": trials, "cost": cost, "until": until, "parallel": parallel}
    return await study_calls.extend_study(study.client, study.id, **limits)


async def _enqueue(study: StudyData, /, *points: Mapping[str, Any], **params: Any) -> StudyStatus:
    """Parameters that are tried before any that are searched for."""
    return await study_calls.enqueue(study.client, study.id, *points, **params)


async def _promote(
    study: StudyData,
    /,
    trial: int | None = None,
    *,
    anyway: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> Any:
    """Submits the job of the winner at the next scale; see `Client.promote`."""
    return await promotion.promote(study.client, study.id, trial, anyway=anyway, overrides=overrides)


async def _ask(study: StudyData, /, asker: str = "") -> AskedView:
    """A trial to run here; see `Client.ask`. `asked` is a loop over them."""
    return await study_calls.ask(study.client, study.id, asker)


async def _tell(
    study: StudyData, /, number: int, values: Any = None, *, outcome: study_calls.Outcome = "complete"
) -> TrialWord:
    """Tells how a trial has ended; see `Client.tell`."""
    return await study_calls.tell(study.client, study.id, number, values, outcome=outcome)


class Study(StudyData):
    """A study of a `Client`."""

    __slots__ = ()
    _trial_class = AskedTrial

    status = blocking(_status)
    best = blocking(_best)
    trials = blocking(_trials)
    report = blocking(_report)
    wait = blocking(_wait)
    watch = iterating(_watch)
    stop = blocking(_stop)
    resume = blocking(_resume)
    extend = blocking(_extend)
    enqueue = blocking(_enqueue)
    promote = blocking(_promote)
    ask = blocking(_ask)
    tell = blocking(_tell)
    asked = iterating(asked.asked)


class AsyncStudy(StudyData):
    """A study of an `AsyncClient`; its methods are awaited."""

    __slots__ = ()
    _trial_class = AsyncAskedTrial

    status = _status
    best = _best
    trials = _trials
    report = _report
    wait = _wait
    watch = _watch
    stop = _stop
    resume = _resume
    extend = _extend
    enqueue = _enqueue
    promote = _promote
    ask = _ask
    tell = _tell
    asked = asked.asked
