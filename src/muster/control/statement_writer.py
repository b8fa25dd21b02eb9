"""Makes the signed statements that are due, beside the control loop, so that nothing waits for them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from muster.control.background import Background
from muster.control.signing import Signer
from muster.core.errors import ConfigError, Invalid, MusterError, NotFound
from muster.track.provenance.facts import Facts
from muster.track.provenance.rows import Due, Signed, due_of, failed, next_due, signed
from muster.track.provenance.statement import PAYLOAD_TYPE, subjects_digest
from muster.track.tracking import Tracking

log = logging.getLogger("muster.control")

EVERY: Final = 2.0  # seconds between two looks
_PAGE: Final = 100


class StatementWriter:
    def __init__(self, track: Tracking, signer: Signer, may_act: Callable[[], bool]) -> None:
        self._track, self._signer, self._may_act = track, signer, may_act
        self._facts = Facts(track.artifacts, track.runs, track.home, track.models.version)
        self._thread = Background("statements", self._step, may_act, lambda took: EVERY)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.close()

    @property
    def facts(self) -> Facts:
        return self._facts

    def _step(self) -> None:
        self.write_due()

    def write_due(self, now: float | None = None) -> int:
        """Makes what is due, and returns how many were looked at. `now`: instead of the present time."""
        count = 0
        while due := next_due(self._track.db, self._track.db.now() if now is None else now, _PAGE):
            for one in due:
                if not self._may_act():
                    return count
                self._write(one)
            count += len(due)
        return count

    def _write(self, due: Due) -> None:
        try:
            self._sign(due)
        except ConfigError as error:
            self._failed(due, error, final=False)
        except (Invalid, NotFound) as error:  # what is missing does not come by trying
            self._failed(due, error, final=True)
        except MusterError as error:
            self._failed(due, error, final=False)
        except Exception as error:
            log.exception("the statement of %s could not be made", due.ref)
            self._failed(due, error, final=False)

    def _sign(self, due: Due) -> None:
        files = self._facts.files(due)
        if files is None:
            raise NotFound("Its files are gone.")
        key = self._signer.key
        statement = self._facts.statement(due, files, self._signer.installation, key)
        envelope = self._signer.seal(statement.encode(), PAYLOAD_TYPE, key)
        stage = self._track.blobs.stage()
        try:
            stage.write(envelope)
            made = Signed(due.ref, subjects_digest(files.subjects), due.run, stage.digest, key, due.time)
            self._track.blobs.keep(stage, records=[signed(due, made)])
        finally:
            stage.drop()

    def _failed(self, due: Due, error: Exception, final: bool) -> None:
        text = error.message if isinstance(error, MusterError) else repr(error)
        if due_of(self._track.db, due.ref) == due:
            self._track.db.write(failed(due, text, self._track.db.now(), final))
