"""What studies need of a server: its record, its store, and what admission must know."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from muster.control import admission
from muster.control.admission import Context
from muster.control.admission.pools import open_pools
from muster.control.metric_tap import MetricTap
from muster.control.studies.curves import LiveCurves
from muster.control.studies.round import Site
from muster.control.studies.snapshot import Snapshot
from muster.control.studies.steps import ContextOf
from muster.control.submit import Submission, context
from muster.core.spec import JobSpec
from muster.core.state import State
from muster.cost.budgets import projected
from muster.store.base import Store
from muster.track.snapshots import Code
from muster.track.tracking import Tracking
from muster.tune.space import Params
from muster.tune.trial_spec import text_of

SiteOf = Callable[[bool], admission.Site]  # for jobs of an administrator, or of a member


@dataclass(frozen=True, slots=True)
class _Live:
    store: Store
    track: Tracking
    now: Callable[[], float]
    site_of: SiteOf
    local: bool

    def names(self, run: str) -> Collection[str]:
        return {one.name for one in self.track.metrics.series(run)}

    def submission(self, spec: JobSpec, snapshot: Snapshot, params: Params, number: int) -> Submission:
        study = snapshot.study
        texts = {name: text_of(value) for name, value in params.items()}
        template = JobSpec.model_validate(study.doc["job"]) if study.doc.get("job") else None
        made = Submission(spec, study.user, trusted=study.trusted, index=number, template=template)
        made = replace(made, rows=self.track.submitted.rows_of(spec, study.user, texts))
        if study.code is None:
            return made
        records = self.track.snapshots.records(Code.model_validate(study.code), spec.project, self.now())
        return replace(made, code=study.code, records=records)

    def contexts(self) -> ContextOf:
        sites = {trusted: self.site_of(trusted) for trusted in (False, True)}

        def asked(state: State, submission: Submission) -> Context:
            user = submission.user

            def may_read(project: str) -> bool:
                return submission.trusted or user in state.projects[project].members

            site: admission.Site = {**sites[submission.trusted], "may_read": may_read}
            return context(self.store, state, user, self.local, now=self.now(), **site)

        return asked

    def trial_cost(self, state: State, spec: JobSpec, user: str) -> int | None:
        asked = context(self.store, state, user, self.local, now=self.now())
        return projected(state, spec, user, open_pools(asked, spec), self.now()) or None


def live_site(
    store: Store, track: Tracking, now: Callable[[], float], tap: MetricTap, wake: threading.Event, site_of: SiteOf,
    local: bool,
) -> Site:  # fmt: skip
    live = _Live(store, track, now, site_of, local)
    curves = LiveCurves(tap, track.metrics, wake)
    return Site(curves, store.job, live.names, live.submission, live.contexts, live.trial_cost)
