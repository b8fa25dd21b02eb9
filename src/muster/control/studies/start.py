"""Studies as people start, change, stop and resume them: proposals that run against the live state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from muster.control.admission import CHECKS, Files, Site, advisories, environments, images, parent
from muster.control.admission.base import Check
from muster.control.admission.files import NO_FINDINGS
from muster.control.submit import Before, Submission, admit, context, look_beforehand, resume, submit
from muster.core.entities.study import Study, StudyChanged, StudyEnqueued, StudyStarted, StudyStopped, trials_of
from muster.core.errors import Invalid, NotFound
from muster.core.event import Event
from muster.core.reasons import Reason
from muster.core.state import State
from muster.store.base import Entry, Proposal, Store
from muster.tune.space import Params
from muster.tune.spec import StudySpec
from muster.tune.trial_spec import base_spec, study_spec, trial_spec

_OWN_CHECKS: tuple[Check, ...] = (images.check, environments.check, advisories.check)  # of a file that is changed
_TRIAL_CHECKS: tuple[Check, ...] = tuple(check for check in CHECKS if check is not parent.check)


@dataclass(frozen=True, slots=True)
class NewStudy:
    """`of`: the submission of the study's own job, with its rows of the record, and with the code of its trials."""

    spec: StudySpec
    text: str
    of: Submission
    seed: int
    prior: Sequence[Mapping[str, Any]] = field(default_factory=tuple)


def study_submission(spec: StudySpec, project: str, **given: Any) -> Submission:
    """The submission of the study's own job."""
    return Submission(study_spec(spec, project), **given)


def start_study(store: Store, new: NewStudy, now: float, local: bool, **site: Unpack[Site]) -> Proposal:
    """Accepts the study and its job in one transaction, if a trial of it would be accepted too."""
    accept = submit(store, new.of, now, local, **site)
    sample = _sample(new)
    findings = Files().look(sample.spec, new.of.python) if sample is not None and local else NO_FINDINGS
    before = _before_trials(store, sample, site)

    def propose(state: State) -> Entry:
        entry = accept(state)
        if not entry.events:
            return entry
        if sample is not None:
            asked = context(store, state, sample.user, local, findings, now, **site)
            admit(sample, before.over(asked), _TRIAL_CHECKS)
        (job,) = entry.events
        code = dict(new.of.code) if new.of.code is not None else None
        prior = [dict(one) for one in new.prior]
        started = StudyStarted(new.spec.name, new.spec.to_doc(), new.text, new.seed, prior, code, new.of.trusted)
        return replace(entry, events=[job, Event(started, job.time, job.actor, job.project, job.job)])

    return propose


def _before_trials(store: Store, sample: Submission | None, site: Site) -> Before:
    """What can be said of the trials of a study beforehand. Each runs the image of the study's file as it is written
    there, so that a digest counts only if it is written."""
    if sample is None:
        return Before()
    return look_beforehand(store, sample, site)[1].as_written()


def _sample(new: NewStudy) -> Submission | None:
    return _trial_of(new.spec, new.of.user, new.of.trusted, new.of.code)


def _trial_of(spec: StudySpec, user: str, trusted: bool, code: Mapping[str, Any] | None = None) -> Submission | None:
    """The submission of one of its trials."""
    if spec.job is None:
        return None
    params = spec.enqueue[0] if spec.enqueue else spec.space.at([0.5] * len(spec.space.parameters))
    made = trial_spec(spec, base_spec(spec), "", params)
    alone = made.model_copy(update={"parent": None})
    return Submission(alone, user, code=code, trusted=trusted, template=base_spec(spec))


def change_study(
    store: Store,
    study: str,
    spec: StudySpec,
    text: str,
    why: str,
    actor: str,
    now: float,
    local: bool,
    trusted: bool = False,
    **site: Unpack[Site],
) -> Proposal:
    """Puts another file in force, or the same again. A study that was over goes on."""
    again = resume(store, study, actor, now, local, trusted, **site)
    known_now = store.state().studies.get(study)
    sample = None
    if known_now is not None:
        sample = _trial_of(spec, known_now.user, trusted and known_now.trusted, known_now.code)
    before = _before_trials(store, sample, site)

    def propose(state: State) -> Entry:
        known = find_study(state, study)
        if sample is not None:
            admit(sample, before.over(context(store, state, sample.user, local, now=now, **site)), _OWN_CHECKS)
        trials = trials_of(state, study)
        outside = sorted(number for number, one in trials.items() if not spec.space.fits(one.params))
        entry = again(state) if study not in state.jobs else Entry()
        changed = StudyChanged(spec.to_doc(), text, why, outside, trusted and known.trusted)
        about = (max(now, state.time), actor, known.project, study)
        return replace(entry, events=[*entry.events, Event(changed, *about)])

    return propose


def resume_study(
    store: Store, study: Study, actor: str, now: float, local: bool, trusted: bool = False, **site: Unpack[Site]
) -> Proposal:
    """A study that was stopped, or is over, goes on with its file as it is."""
    spec, told = StudySpec.of(study.doc), f"resumed by {actor}"
    again = change_study(store, study.id, spec, study.text, told, actor, now, local, trusted, **site)

    def propose(state: State) -> Entry:
        known = find_study(state, study.id)
        if known.ended_at is None:
            why = "has not ended" if known.stopped is None else "is being stopped: its trials save and leave"
            raise Invalid(f"Study {study.id} {why}.", f"See `muster tune status {study.id}`.")
        return again(state)

    return propose


def stop_study(study: str, why: Reason, actor: str, now: float) -> Proposal:
    """Asks for no more trials, and has those that run save and leave. They go on when the study is resumed."""

    def propose(state: State) -> Entry:
        known = find_study(state, study)
        if known.ended_at is not None or known.stopped is not None:
            raise Invalid(f"Study {study} has ended, or is being stopped.", f"See `muster tune status {study}`.")
        return Entry([Event(StudyStopped(why), max(now, state.time), actor, known.project, study)])

    return propose


def enqueue_points(study: str, points: Sequence[Params], actor: str, now: float) -> Proposal:
    def propose(state: State) -> Entry:
        known = find_study(state, study)
        if known.ended_at is not None or known.stopped is not None:
            raise Invalid(f"Study {study} has ended.", f"`muster tune resume {study}` continues it.")
        queued = StudyEnqueued([dict(one) for one in points])
        return Entry([Event(queued, max(now, state.time), actor, known.project, study)])

    return propose


def find_study(state: State, study: str) -> Study:
    known = state.studies.get(study)
    if known is None:
        raise NotFound(f"There is no study {study!r}.", "See `muster tune ls`.")
    return known
