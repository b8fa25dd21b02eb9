"""Scans artifacts beside everything else, each content once; what could act when it is loaded is quarantined.

Nothing is written before a verdict, so content without one is what is left to scan, whatever was killed. Uploads never
wait; a person's download and the registration of a model wait for the verdict.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import and_, func, select

from muster.api.scans import ScanStatus
from muster.core import faults
from muster.core.errors import MusterError, Refused, Unavailable
from muster.core.event import SYSTEM, Event
from muster.core.reasons import Reason, reason
from muster.core.record_events import ArtifactQuarantined
from muster.core.rules import Rules
from muster.scan.apart import Scanner
from muster.scan.artifacts import VERSION
from muster.scan.findings import Finding
from muster.scan.secrets import warm
from muster.store.base import Record
from muster.store.insert import add
from muster.store.record_tables import artifacts, notes, runs, scans
from muster.track.artifacts import Artifact, Artifacts
from muster.track.record_db import RecordDb
from muster.track.rows import note_row
from muster.track.scan_rows import SCANNED, Findings, keeping, known

_LOG: Final = logging.getLogger(__name__)
_EVERY: Final = 30.0  # seconds between two looks for what was not announced
_PAGE: Final = 100
_MOST: Final = 1000  # artifacts of one content that are looked at
_WORST: Final[tuple[ScanStatus, ...]] = ("quarantined", "flagged", "unscanned", "clean")
_NOTED: Final = 20  # artifacts of one content that are noted


@dataclass(frozen=True, slots=True)
class Verdict:
    status: ScanStatus
    findings: Findings = ()


class ArtifactScans:
    def __init__(
        self,
        db: RecordDb,
        kept: Artifacts,
        rules: Callable[[], Rules],
        environment: Callable[[str], str],
        scanner: Callable[[], Scanner] = Scanner,
    ) -> None:
        """`environment` returns that of a run, by which a guard may apply."""
        self._db, self._kept, self._rules, self._environment = db, kept, rules, environment
        self._background, self._asked = scanner(), scanner()
        self._asking = threading.Lock()
        self._wake, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="artifact-scans", daemon=True)
        kept.announce = self._wake.set

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        self._background.close()
        if self._thread.ident is not None:
            self._thread.join()
        self._background.close()  # once more: the thread may have begun a scan just then
        with self._asking:
            self._asked.close()

    # --- what is known ------------------------------------------------------------------------------------------------
    def verdicts(self, run: str, found: Sequence[Artifact]) -> dict[str, Verdict]:
        """Path → verdict, of those that are known or unscanned; code has none."""
        mine = [one for one in found if one.kind in SCANNED]
        scanned = known(self._db, (one.digest for one in mine), "artifact", VERSION)
        enforced = self._enforced(run) if any(scanned.values()) else False
        return {one.path: _verdict(scanned.get(one.digest), enforced) for one in mine}

    def worst(self, found: Iterable[Artifact]) -> ScanStatus | None:
        """The worst status of these artifacts, by what is known; None if there are none."""
        by_run: dict[str, list[Artifact]] = {}
        for one in found:
            by_run.setdefault(one.run, []).append(one)
        statuses = {one.status for run, mine in by_run.items() for one in self.verdicts(run, mine).values()}
        return next((status for status in _WORST if status in statuses), None)

    def need_clean(self, found: Iterable[Artifact], what: str) -> None:
        """Waits for the verdicts of these artifacts. Raises Refused if one is quarantined."""
        for one in found:
            if one.kind in SCANNED and (bad := self.look_now(one)) and self._enforced(one.run):
                raise Refused([_quarantined(one, bad, what)])

    def look_now(self, one: Artifact) -> Findings:
        """The verdict of an artifact, scanned now if it was not yet. Raises Unavailable while that is not possible."""
        scanned = known(self._db, [one.digest], "artifact", VERSION).get(one.digest)
        if scanned is None:
            with self._asking:
                scanned = self._scan(self._asked, one.digest, one.bytes, one.path)
        return scanned

    def quarantined(self, digest: str) -> tuple[Artifact, Findings] | None:
        """An artifact of this content that is quarantined, of any run; None if there is none."""
        found = self._of(digest)
        bad = self.look_now(found[0]) if found else ()
        return next(((one, bad) for one in found if self._enforced(one.run)), None) if bad else None

    # --- scanning -----------------------------------------------------------------------------------------------------
    def scan_all(self) -> int:
        """Scans what has no verdict yet; returns how many contents."""
        count, later = 0, set[str]()  # later: content that can't be read now
        while not self._closing.is_set():
            some = self._unscanned(later)
            for digest, size, path in some:
                if self._closing.is_set():
                    break
                try:
                    self._scan(self._background, digest, size, path)
                    count += 1
                except Unavailable as error:
                    _LOG.warning("%s It is looked at again later.", error.message)
                    later.add(digest)
            if len(some) < _PAGE or len(later) > _PAGE:
                break
        return count

    def _run(self) -> None:
        warmed = False
        while not self._closing.is_set():
            self._wake.clear()
            try:
                self.scan_all()
            except Exception as error:
                if not self._closing.is_set():
                    _LOG.warning("Artifacts could not be scanned, and are looked at again later: %s", error)
            if not self._wake.wait(_EVERY) and not warmed:  # idle: the next submission need not wait for it
                warm()
                warmed = True

    def _unscanned(self, later: set[str]) -> list[tuple[str, int, str]]:
        join = and_(scans.c.digest == artifacts.c.digest, scans.c.reading == "artifact", scans.c.version >= VERSION)
        columns = (artifacts.c.digest, func.max(artifacts.c.bytes), func.min(artifacts.c.path))
        found = select(*columns).select_from(artifacts.outerjoin(scans, join))
        found = found.where(scans.c.digest.is_(None), artifacts.c.kind.in_(SCANNED), artifacts.c.digest.not_in(later))
        found = found.group_by(artifacts.c.digest)
        with self._db.reading() as connection:
            return [(digest, int(size), path) for digest, size, path in connection.execute(found.limit(_PAGE))]

    def _scan(self, scanner: Scanner, digest: str, size: int, path: str) -> Findings:
        def read(start: int, stop: int) -> bytes:
            return b"".join(self._kept.blobs.open(digest, start, stop))

        try:
            found = tuple(scanner.scan(path, size, read))
        except (MusterError, RuntimeError, OSError) as error:
            raise Unavailable(f"{path} can't be scanned now: {error}", "Ask again in a moment.") from error
        if self._closing.is_set() and found:  # the scanner was ended with the server: no verdict
            raise Unavailable("The server is stopping.", "Ask again in a moment.")
        faults.point("track.before_verdict")
        self._keep(digest, found)
        return found

    def _keep(self, digest: str, found: Findings) -> None:
        records: list[Record] = [keeping(self._db, {digest: found}, "artifact", VERSION)]
        events: list[Event] = []
        for one in self._of(digest)[:_NOTED] if found else []:
            if self._enforced(one.run):
                record, event = self._told(one, found[0])
                records.append(record)
                events.append(event)
        self._db.write(*records, events=events)

    def _told(self, one: Artifact, finding: Finding) -> tuple[Record, Event]:
        """The note in the run's logbook, and the event."""
        project = self._project(one.run)
        text = f"The artifact `{one.path}` is quarantined: {finding.what}. {finding.hint}"
        note = note_row(project, one.run, self._db.now(), SYSTEM, "note", text, {"attachments": [one.path]})
        event = self._db.event(ArtifactQuarantined(one.path, finding.what), SYSTEM, project, one.run)
        return (lambda connection: add(connection, notes, [note])), event

    def _of(self, digest: str) -> list[Artifact]:
        return self._kept.of_content(digest, SCANNED, _MOST)

    def _enforced(self, run: str) -> bool:
        rule = self._rules().guard("artifacts", self._project(run), self._environment(run))
        return rule.action == "refuse"

    def _project(self, run: str) -> str:
        with self._db.reading() as connection:
            return connection.scalar(select(runs.c.project).where(runs.c.id == run)) or ""


def refusal(one: Artifact, bad: Findings) -> Refused:
    return Refused([_quarantined(one, bad, "can't be downloaded")])


def _quarantined(one: Artifact, bad: Findings, what: str) -> Reason:
    message = f"{one.path} of run {one.run} {what}: {bad[0]}"
    return reason("artifact_quarantined", message, bad[0].hint, run=one.run, path=one.path)


def _verdict(found: Findings | None, enforced: bool) -> Verdict:
    if not found:
        return Verdict("unscanned" if found is None else "clean")
    return Verdict("quarantined" if enforced else "flagged", found)
