"""Optuna's studies kept by a Muster server: `optuna.create_study(storage=muster.optuna_storage(project="vision"))`.

It is Optuna's own `JournalStorage`, over a journal that the server keeps. A worker blocks while the server is away, and
goes on when it is back; nothing is appended twice. `optuna_plugin` makes the same of `storage="muster://"`.
"""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import time
import uuid
import weakref
import zlib
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from enum import EnumType
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend
from optuna.storages.journal._base import BaseJournalSnapshot
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from muster.client.blocking import complete
from muster.client.client import Client
from muster.client.optuna_calls import append_logs, read_logs, read_snapshot, save_snapshot
from muster.client.target import server_of, words_of
from muster.core.errors import ConfigError, Conflict, MusterError, Unavailable

log: Final = logging.getLogger("muster.optuna")

RETRY_FOR: Final = 3600.0  # seconds for which a worker waits for a server that is away
_FIRST_DELAY: Final = 0.1  # seconds, doubled up to the last
_LAST_DELAY: Final = 2.0
_SNAPSHOT_FROM: Final = 2000  # logs, which are replayed in a tenth of a second
_SNAPSHOT_GROWTH: Final = 1.25  # of the logs since the last snapshot
_FORMAT: Final = f"optuna-{optuna.__version__}"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a journal is. `url` None: the server is found as `muster.Client` finds it."""

    url: str | None = None
    project: str = "default"
    journal: str = "default"

    @staticmethod
    def of(uri: str) -> Place:
        """`muster://`, `muster://HOST:PORT`, with `?project=NAME&journal=NAME`."""
        words = words_of(uri)
        if unknown := words.keys() - {"project", "journal"}:
            raise ConfigError(
                f"{uri!r} has {', '.join(sorted(unknown))}.", "Write muster://HOST:PORT?project=NAME&journal=NAME."
            )
        return replace(Place(server_of(uri)), **words)


def storage(
    project: str = "default",
    url: str | None = None,
    *,
    journal: str = "default",
    retry_for: float = RETRY_FOR,
) -> OptunaStorage:
    """A storage for `optuna.create_study` and everything else of Optuna that takes one.

    All of a project's studies are in one journal, as they would be in one database; `journal` names another one. `url`
    is a server's address, or `muster://` with a project. While the server is away a worker waits for it, for
    `retry_for` seconds; but not when the storage is opened.
    """
    place = Place.of(url) if url is not None and url.startswith("muster:") else Place(url)
    named = {"project": project, "journal": journal}
    place = replace(place, **{name: value for name, value in named.items() if value != "default"})
    return OptunaStorage(Backend(place, retry_for))


def save_study(study: optuna.Study, target: str) -> None:
    """Copies a study into a SQLite file (`x.db`), a journal file (`x.log`), or a storage by its address."""
    if "://" in target:
        to: Any = optuna.storages.get_storage(target)
    elif target.endswith((".db", ".sqlite", ".sqlite3")):
        to = optuna.storages.get_storage(f"sqlite:///{target}")
    elif target.endswith((".log", ".journal")):
        to = JournalStorage(JournalFileBackend(target))
    else:
        raise ConfigError(
            f"{target!r} is neither a database nor a journal.", "Write x.db, x.log or the address of a storage."
        )
    try:
        optuna.copy_study(from_study_name=study.study_name, from_storage=study._storage, to_storage=to)
    except optuna.exceptions.DuplicatedStudyError:
        raise Conflict(
            f"{target} has a study {study.study_name!r} already.", "Delete it (`optuna delete-study`), or name another."
        ) from None


class Backend(BaseJournalBackend, BaseJournalSnapshot):
    """The journal on the server. The answer to an append has what others appended, so that the read that follows each
    append needs no request."""

    def __init__(self, place: Place, retry_for: float = RETRY_FOR) -> None:
        self.place, self.retry_for = place, retry_for
        self._journal = 0  # its id; 0: not known yet
        self._next = 0  # the number of the first log that was not read
        self._fresh: list[dict[str, Any]] | None = None  # logs from `_next` on, if an append has just brought them
        self._kept = 0  # logs in the newest snapshot that is known
        self._answered = False
        self._client: tuple[int, Client] | None = None  # with the process that it belongs to

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        fresh, self._fresh = self._fresh, None
        if fresh is not None and self._next <= log_number_from <= self._next + len(fresh):
            found = fresh[log_number_from - self._next :]
        else:
            found = self._read(log_number_from)
        self._next = log_number_from + len(found)
        return found

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        texts = [json.dumps(one, separators=(",", ":")) for one in logs]
        asked = (self.place.project, self.place.journal, texts, uuid.uuid4().hex, self._next, self._journal)
        answer = self._repeated(lambda: complete(append_logs(self._connected(), *asked)))
        self._journal = answer["id"]
        if len(answer["logs"]) == answer["first"] - self._next:
            # As the others read them: what JSON makes of them.
            self._fresh = [json.loads(one) for one in (*answer["logs"], *texts)]

    def save_snapshot(self, snapshot: bytes) -> None:
        """Sends it if enough has changed: for every snapshot a worker would send all of its studies."""
        if self._next < max(_SNAPSHOT_FROM, _SNAPSHOT_GROWTH * self._kept):
            return
        data = zlib.compress(snapshot, 1)
        asked = (self.place.project, self.place.journal, _FORMAT, data, self._next, self._journal)
        try:
            self._kept = complete(save_snapshot(self._connected(), *asked))["logs"]
        except MusterError as error:  # it only saves time, and the next one may succeed
            log.warning("a snapshot of the Optuna journal %s was not kept: %s", self.place.journal, error)

    def load_snapshot(self) -> bytes | None:
        asked = (self.place.project, self.place.journal, _FORMAT)
        data = self._repeated(lambda: complete(read_snapshot(self._connected(), *asked)))
        return zlib.decompress(data) if data else None

    def restored(self, logs: int) -> None:
        """A snapshot of so many logs was loaded."""
        self._kept = logs

    def __getstate__(self) -> dict[str, Any]:
        return {"place": self.place, "retry_for": self.retry_for}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Backend.__init__(self, **state)

    def _read(self, after: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            asked = (self.place.project, self.place.journal, after + len(found), self._journal)
            page = self._repeated(partial(self._page, asked))
            self._journal = page["id"]
            found += [json.loads(one) for one in page["logs"]]
            if after + len(found) >= page["end"]:
                return found

    def _page(self, asked: tuple[str, str, int, int]) -> Any:
        return complete(read_logs(self._connected(), *asked))

    def _repeated(self, call: Callable[[], T]) -> T:
        """What it returns once the server answers."""
        until, delay = time.monotonic() + self.retry_for, _FIRST_DELAY
        while True:
            try:
                found = call()
            except Unavailable as error:
                if not self._answered or time.monotonic() + delay > until:
                    raise
                if delay == _FIRST_DELAY:
                    log.warning("waiting for the Muster server: %s", error.message)
                time.sleep(delay)
                delay = min(2 * delay, _LAST_DELAY)
            else:
                self._answered = True
                return found

    def _connected(self) -> Client:
        """A process that was forked must not use the connections of the other."""
        if self._client is None or self._client[0] != os.getpid():
            client = Client(self.place.url)
            self._client = (os.getpid(), client)
            weakref.finalize(self, client.close)
        return self._client[1]


class OptunaStorage(JournalStorage):
    """Optuna's, with these differences: a snapshot from the server can't run code, a process that was forked from a
    worker is another worker, and Optuna may wrap it as it wraps databases."""

    _backend: Backend

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        _STORAGES.add(self)

    def restore_replay_result(self, snapshot: bytes) -> None:
        try:
            found: Any = _SafeReader(io.BytesIO(snapshot)).load()
        except Exception as error:  # of whatever kind: damaged bytes raise anything
            log.warning("a snapshot of the Optuna journal can't be used (%s); all of it is read.", error)
            return
        found._worker_id_prefix = self._worker_id_prefix
        found._worker_id_to_owned_trial_id = {}
        found._last_created_trial_id_by_this_process = -1
        self._replay_result = found
        self._backend.restored(found.log_number_read)

    def __getstate__(self) -> dict[str, Any]:
        return {"backend": self._backend}

    def __setstate__(self, state: dict[str, Any]) -> None:
        OptunaStorage.__init__(self, state["backend"])

    def forked(self) -> None:
        self._worker_id_prefix = self._replay_result._worker_id_prefix = f"{uuid.uuid4()}-"
        self._replay_result._worker_id_to_owned_trial_id = {}
        self._thread_lock = Lock()  # another thread of the parent may have held it

    # --- what Optuna's cache of databases calls -----------------------------------------------------------------------

    def _create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> FrozenTrial:
        trial_id = self.create_new_trial(study_id, template_trial)
        with self._thread_lock:  # its creation has been read just now: `get_trial` would ask the server again
            return self._replay_result.get_trial(trial_id)

    def _set_trial_param(
        self, trial_id: int, name: str, value: float, distribution: BaseDistribution, previous: BaseDistribution | None
    ) -> None:
        self.set_trial_param(trial_id, name, value, distribution)

    def _get_trials(
        self,
        study_id: int,
        states: Container[TrialState] | None,
        included_trial_ids: set[int],
        trial_id_greater_than: int,
    ) -> list[FrozenTrial]:
        found = self.get_all_trials(study_id, deepcopy=False, states=states)
        return [one for one in found if one._trial_id > trial_id_greater_than or one._trial_id in included_trial_ids]

    def _get_best_trial_id(self, study_id: int, direction: StudyDirection) -> int:
        return self.get_best_trial(study_id)._trial_id

    def get_heartbeat_interval(self) -> None:
        """None: there are no heartbeats."""

    def get_current_version(self) -> str:
        """For `optuna storage upgrade`: there is nothing to upgrade."""
        return optuna.__version__

    get_head_version = get_current_version

    def get_all_versions(self) -> list[str]:
        return []


class _SafeReader(pickle.Unpickler):
    """Makes what Optuna's snapshots consist of, and refuses everything else: another member wrote it."""

    _ALLOWED: Final = {
        "optuna.storages.journal._storage": {"JournalStorageReplayResult"},
        "optuna.study._frozen": {"FrozenStudy"},
        "optuna.study._study_direction": {"StudyDirection"},
        "optuna.trial._frozen": {"FrozenTrial"},
        "optuna.trial._state": {"TrialState"},
        "optuna.distributions": {"FloatDistribution", "IntDistribution", "CategoricalDistribution"},
        "datetime": {"datetime"},
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _member
        if name not in self._ALLOWED.get(module, ()):
            raise pickle.UnpicklingError(f"it has a {module}.{name}")
        return super().find_class(module, name)


def _member(of: Any, name: Any) -> Any:
    """Python 3.11.0 to 3.11.3 write a member of an enumeration as `getattr(StudyDirection, "MINIMIZE")`."""
    if not isinstance(of, EnumType) or not isinstance(name, str) or name not in of.__members__:
        raise pickle.UnpicklingError(f"it has a builtins.getattr of {of!r}")
    return of[name]


def _worth_a_line(record: logging.LogRecord) -> bool:
    """False for httpx's line on a request to a journal: a trial makes several, and Optuna's command shows them all."""
    return not any("/optuna/" in str(one) for one in record.args or ())


logging.getLogger("httpx").addFilter(_worth_a_line)
_STORAGES: Final[weakref.WeakSet[OptunaStorage]] = weakref.WeakSet()


def _forked() -> None:
    for one in list(_STORAGES):
        one.forked()


os.register_at_fork(after_in_child=_forked)
