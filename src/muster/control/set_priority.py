"""Changes the priority of a job that is not over, as a proposal. The job's place in the queue follows by itself."""

from __future__ import annotations

from muster.control.admission.priority import outside
from muster.control.submit import live_tasks
from muster.core.entities.study import trials_of
from muster.core.errors import Invalid, Refused
from muster.core.event import Event
from muster.core.job import Job
from muster.core.job_events import JobPriority
from muster.core.state import State
from muster.store.base import Entry, Proposal


def set_priority(job_id: str, priority: int, actor: str, now: float, why: str = "") -> Proposal:
    """Gives the job this priority, and says why in the log; of an array or a study, every task or trial not over.

    It may always be lowered. One that is raised must be within the range of the queue, as at the submission.
    """

    def propose(state: State) -> Entry:
        job = state.jobs.get(job_id)
        if job is None:
            raise Invalid(f"Job {job_id} has ended already.", "Give a priority to a job that waits or runs.")
        jobs = [job, *live_tasks(state, job)] if job.is_array else [job, *_trials(state, job_id)]
        changed = [one for one in jobs if one.priority != priority]
        if any(one.priority < priority for one in changed):
            refusal = outside(state.queues.get(job.queue), priority)
            if refusal is not None:
                raise Refused([refusal])
        data = JobPriority(priority, why or f"set by {actor}")
        return Entry([Event(data, max(now, state.time), actor, one.project, one.id) for one in changed])

    return propose


def _trials(state: State, study: str) -> list[Job]:
    """The jobs of the trials of a study that are not over. Later trials have the priority of the study's job."""
    trials = trials_of(state, study)
    names = [trials[number].job for number in state.live_trials.get(study, ())]
    return [state.jobs[name] for name in names if name in state.jobs]
