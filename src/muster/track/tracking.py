"""All parts of the record, created once in the leading server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from muster.store.base import Store
from muster.store.commit import Commit
from muster.track.artifact_scans import ArtifactScans
from muster.track.artifacts import Artifact, Artifacts
from muster.track.blob_refs import in_use
from muster.track.blobs import Blobs
from muster.track.code_scans import CodeScans
from muster.track.compare import Comparer
from muster.track.data_sets import DataSets
from muster.track.event_fold import EventFold
from muster.track.experiments import Experiments
from muster.track.external import External
from muster.track.intake import Intake, Purged
from muster.track.lineage import Lineage
from muster.track.logbook import Logbook
from muster.track.metrics import Metrics
from muster.track.models import Models
from muster.track.open_blob_store import open_blob_store
from muster.track.optuna_journals import OptunaJournals
from muster.track.origins import Origins, projects_of
from muster.track.promotions import Promotions
from muster.track.purge import Purge, remove_folder
from muster.track.record_db import RecordDb
from muster.track.required import Required
from muster.track.retention import Retention
from muster.track.run_stages import RunStages
from muster.track.runs import Runs
from muster.track.same_job import SameJob
from muster.track.saved import SavedQueries
from muster.track.search import Search
from muster.track.snapshots import Snapshots
from muster.track.stacks import Stacks
from muster.track.submitted import SubmittedJobs
from muster.track.usage import LimitOf, Usage

_LOGGED: Final = re.compile(r"\bm-[0-9a-f]{32}\b")


class Tracking:
    """`home` is the server's folder; what is too large for the database is stored under it by default."""

    def __init__(
        self,
        db: RecordDb,
        store: Store,
        home: Path,
        artifacts: str,
        limit_of: LimitOf | None,
        remove: Callable[[Path], None],
    ) -> None:
        self.db, self.home = db, home
        self.metrics = Metrics(db)
        self.blobs = Blobs(db, open_blob_store(artifacts, home), in_use)
        usage = Usage(db, limit_of)
        self.artifacts = Artifacts(db, self.blobs, usage)
        self.optuna = OptunaJournals(db, usage)
        self.snapshots = Snapshots(self.artifacts)
        self.code_scans = CodeScans(db, self.blobs, self.snapshots)
        self.experiments = Experiments(db)
        self.logbook = Logbook(db)
        self.runs = Runs(db, self.experiments)
        self.external = External(db, self.runs)
        self.required = Required(lambda: store.state().rules)
        self.runs.check_required = self.required.check
        self.retention = Retention(db, self.blobs, lambda: store.state().rules)
        self.lineage, self.data_sets = Lineage(db), DataSets(db)
        self.stacks = Stacks(db)
        self.search, self.saved = Search(db), SavedQueries(db)
        self.compare = Comparer(db, self.runs, self.search, self.blobs)
        self.scans = ArtifactScans(db, self.artifacts, lambda: store.state().rules, self._environment)
        self.models = Models(db, Promotions(db, self.metrics), self._need_clean)
        self.run_stages, self.same_job = RunStages(db), SameJob(db, self.runs)
        self.origins = Origins(db, lambda user: projects_of(store.state(), user))
        self.submitted = SubmittedJobs(self.experiments, self.origins)
        self.fold = EventFold(db, self.submitted, self.required)
        self.purged = Purged(db)
        self.intake = Intake(db, self.metrics, self.artifacts, self.required, self.purged, self.origins)
        self.purge = Purge(db, self.runs, self.blobs, self.purged, _phases(store), _folders(home), remove)

    def start(self) -> None:
        """Starts the background work."""
        self.metrics.start()
        self.scans.start()
        self.retention.start()

    def close(self) -> None:
        self.scans.close()
        self.retention.close()
        self.metrics.close()

    def _environment(self, run: str) -> str:
        """The tag that guards may apply by."""
        return self.runs.tags([run]).get(run, {}).get("environment", "")

    def files_of_version(self, source: str, run: str) -> Iterator[Artifact]:
        """The artifacts that a model version is made from, as far as they are here."""
        kind, _, rest = source.partition(":")
        named, _, inner = rest.strip("/").partition("/")
        if kind in ("artifact", "runs") and named:
            yield from self.artifacts.list(named, inner)
        if logged := _LOGGED.search(source):  # a logged model of MLflow
            for owner in self.artifacts.owners_like(f"/models/{logged[0]}"):
                yield from self.artifacts.list(owner)
        if run or named:
            kinds = ("checkpoint",) if kind == "checkpoint" else ("model",)
            yield from self.artifacts.list(run or named, kinds=kinds)

    def _need_clean(self, source: str, run: str, what: str) -> None:
        """Raises Refused if what a model version is made from is quarantined."""
        self.scans.need_clean(self.files_of_version(source, run), what)


def _phases(store: Store) -> Callable[[str], str | None]:
    def phase(run: str) -> str | None:
        job = store.job(run)
        return None if job is None else job.phase

    return phase


def _folders(home: Path) -> list[Path]:
    """Folders in which the local engine keeps one folder per job."""
    return [home / "local" / name for name in ("checkpoints", "attempts")]


def open_tracking(
    store: Store,
    commit: Commit,
    now: Callable[[], float],
    home: Path,
    artifacts: str = "",
    limit_of: LimitOf | None = None,
    remove: Callable[[Path], None] = remove_folder,
) -> Tracking | None:
    """Opens the record; None if the store has no database. `artifacts` is the setting.

    `limit_of` returns the most bytes that a project's artifacts may have. `remove` removes a folder of a purged run.
    """
    if store.database is None:
        return None
    return Tracking(RecordDb(store.database, commit, now), store, home, artifacts, limit_of, remove)
