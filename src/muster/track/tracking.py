"""All parts of the record, created once in the leading server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from muster.store.base import Store
from muster.store.commit import Commit
from muster.track.artifacts import Artifacts
from muster.track.blob_refs import in_use
from muster.track.blobs import Blobs
from muster.track.compare import Comparer
from muster.track.event_fold import EventFold
from muster.track.experiments import Experiments
from muster.track.external import External
from muster.track.intake import Intake, Purged
from muster.track.lineage import Lineage
from muster.track.logbook import Logbook
from muster.track.metrics import Metrics
from muster.track.models import Models
from muster.track.open_blob_store import open_blob_store
from muster.track.origins import Origins, projects_of
from muster.track.promotions import Promotions
from muster.track.purge import Purge, remove_folder
from muster.track.record_db import RecordDb
from muster.track.required import Required
from muster.track.retention import Retention
from muster.track.runs import Runs
from muster.track.saved import SavedQueries
from muster.track.search import Search
from muster.track.snapshots import Snapshots
from muster.track.stacks import Stacks
from muster.track.submitted import SubmittedJobs
from muster.track.usage import LimitOf, Usage


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
        self.artifacts = Artifacts(db, self.blobs, Usage(db, limit_of))
        self.snapshots = Snapshots(self.artifacts)
        self.experiments = Experiments(db)
        self.logbook = Logbook(db)
        self.runs = Runs(db, self.experiments)
        self.external = External(db, self.runs)
        self.required = Required(lambda: store.state().rules)
        self.runs.check_required = self.required.check
        self.retention = Retention(db, self.blobs, lambda: store.state().rules)
        self.lineage = Lineage(db)
        self.stacks = Stacks(db)
        self.search, self.saved = Search(db), SavedQueries(db)
        self.compare = Comparer(db, self.runs, self.search, self.blobs)
        self.models = Models(db, Promotions(db, self.metrics))
        self.origins = Origins(db, lambda user: projects_of(store.state(), user))
        self.submitted = SubmittedJobs(self.experiments, self.origins)
        self.fold = EventFold(db, self.submitted, self.required)
        self.purged = Purged(db)
        self.intake = Intake(db, self.metrics, self.artifacts, self.required, self.purged, self.origins)
        self.purge = Purge(db, self.runs, self.blobs, self.purged, _phases(store), _folders(home), remove)

    def start(self) -> None:
        """Starts the background work."""
        self.metrics.start()
        self.retention.start()

    def close(self) -> None:
        self.retention.close()
        self.metrics.close()


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
