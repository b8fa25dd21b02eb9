"""Asks a company's own admission checks, plug-ins and HTTP hooks, each with a deadline and a stated default.

They are asked in threads of their own, before the transaction that accepts the job. A check that hangs keeps its
thread: each has a number of places, and a user may have only some of them, so that nobody's jobs use up all.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import httpx

from muster.admission import GROUP, Answer, Job, Plugin, Refuse, Warn
from muster.api.health import AdmissionStatus
from muster.control.admission.external import NO_VERDICT, Verdict, plain_view
from muster.control.admission.inspected import NOTHING, ImageFinding, Inspected
from muster.control.admission_hooks import AdmissionHook, BadAnswer, Terms, call_hook
from muster.core.errors import ConfigError
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec

log = logging.getLogger("muster.control")

PLACES: Final = 8  # calls of one check at once
PLACES_OF_USER: Final = 3
REQUEST_SECONDS: Final = 60.0  # that all checks together may take for the jobs of one request
_TEXT_MAX: Final = 1000  # characters of a message or a hint


class NoAnswer(Exception):
    """The check did not answer in time, or has no place left."""


@dataclass(slots=True)
class Checker:
    """One check: what it is, and how it has done since the server began to lead."""

    name: str
    kind: str  # `plug-in` or `hook`
    where: str
    terms: Terms
    call: Callable[[Job], Answer]
    counts: Counter[str] = field(default_factory=Counter)  # asked, warned, refused, failed
    error: str = ""  # the last one
    seconds: float = 0.0  # of the last answer
    _busy: Counter[str] = field(default_factory=Counter)  # user → calls that have not returned
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, job: Job, most: float) -> Answer:
        """The answer; raises what went wrong. `most`: seconds that the request has left."""
        began = time.monotonic()
        self.counts["asked"] += 1
        limit = min(self.terms.deadline, most)
        if limit <= 0:
            raise NoAnswer(f"the request has used its {REQUEST_SECONDS:g} s for such checks; send fewer jobs in one")
        self._enter(job.user)
        future: Future[Answer] = Future()
        threading.Thread(target=self._run, args=(job, future), name=f"admission-{self.name}", daemon=True).start()
        try:
            answer = future.result(limit)
        except TimeoutError:
            if future.done():
                raise
            raise NoAnswer(f"it did not answer within {limit:g} s") from None
        self.seconds = time.monotonic() - began
        if answer is not None and not isinstance(answer, Warn | Refuse):
            raise BadAnswer(f"it returned {type(answer).__name__}, and None, Warn or Refuse is expected")
        return answer

    def status(self) -> AdmissionStatus:
        counts = self.counts
        return {
            "name": self.name, "kind": "hook" if self.kind == "hook" else "plug-in", "where": self.where,
            "deadline": self.terms.deadline, "on_error": self.terms.on_error, "projects": list(self.terms.projects),
            "asked": counts["asked"], "warned": counts["warned"], "refused": counts["refused"],
            "failed": counts["failed"], "error": self.error, "seconds": self.seconds,
        }  # fmt: skip

    def _enter(self, user: str) -> None:
        with self._lock:
            if self._busy.total() >= PLACES or self._busy[user] >= PLACES_OF_USER:
                raise NoAnswer("it has not answered earlier calls")
            self._busy[user] += 1

    def _run(self, job: Job, future: Future[Answer]) -> None:
        try:
            future.set_result(self.call(job))
        except BaseException as error:  # a plug-in may even raise SystemExit
            future.set_exception(error)
        finally:
            with self._lock:
                self._busy[job.user] -= 1
                if not self._busy[job.user]:
                    del self._busy[job.user]


def not_inspected(spec: JobSpec, user: str, tree: str) -> Inspected:
    return NOTHING


class ExternalAdmission:
    """The checks of this installation. Plug-ins are imported when a job, or `muster doctor`, first asks for them."""

    def __init__(
        self,
        hooks: Sequence[AdmissionHook],
        plugins: Mapping[str, Terms],
        inspect: Callable[[JobSpec, str, str], Inspected] = not_inspected,
    ) -> None:
        self.inspect = inspect
        self._hooks = [Checker(one.name, "hook", one.place, one.terms, partial(call_hook, one)) for one in hooks]
        self._terms = plugins
        self._found: list[Checker] | None = None
        self._lock = threading.Lock()

    def checkers(self) -> list[Checker]:
        with self._lock:
            if self._found is None:
                self._found = [*find_plugins(self._terms), *self._hooks]
            return self._found

    def status(self) -> list[AdmissionStatus]:
        return [one.status() for one in self.checkers()]

    def asking(self) -> ExternalAsking:
        """For the jobs of one request."""
        return ExternalAsking(self)


class ExternalAsking:
    def __init__(self, external: ExternalAdmission) -> None:
        self._external = external
        self._left = REQUEST_SECONDS
        self._warnings: list[str] = []

    def ask(self, spec: JobSpec, user: str, trusted: bool) -> Verdict:
        concerned = [
            one for one in self._external.checkers() if not one.terms.projects or spec.project in one.terms.projects
        ]
        if not concerned:
            return NO_VERDICT
        job, reasons, warnings = plain_view(spec, user, trusted), list[Reason](), list[str]()
        for one in concerned:
            began = time.monotonic()
            try:
                answer = one.ask(job, self._left)
            except BaseException as error:
                answer = _failed(one, error)
                reasons += [_unavailable(one, answer.message)] if isinstance(answer, Refuse) else []
                warnings += [answer.message] if isinstance(answer, Warn) else []
            else:
                reasons += [_refused(one, answer)] if isinstance(answer, Refuse) else []
                warnings += [_told(one, answer)] if isinstance(answer, Warn) else []
            self._left -= time.monotonic() - began
        self._warnings += warnings
        return Verdict(tuple(reasons), tuple(warnings))

    def inspect(self, spec: JobSpec, user: str, tree: str) -> Inspected:
        began = time.monotonic()
        if self._left <= 0:
            trouble = f"the request has used its {REQUEST_SECONDS:g} s; send fewer jobs in one"
            return Inspected(ImageFinding(signed=False, trouble=trouble), None, (), trouble, looked=True)
        found = self._external.inspect(spec, user, tree)
        self._left -= time.monotonic() - began
        return found

    def warn(self, warnings: Sequence[str]) -> None:
        self._warnings += warnings

    def take_warnings(self) -> list[str]:
        found, self._warnings = self._warnings, []
        return found


def find_plugins(terms: Mapping[str, Terms]) -> list[Checker]:
    """The plug-ins that are installed, by name. One that can't be imported fails at every call, as its terms say."""
    found: dict[str, Checker] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        given = terms.get(point.name, Terms())
        if given.enabled:
            found[point.name] = Checker(point.name, "plug-in", point.value, given, _load(point))
    for name, given in terms.items():
        if given.enabled and name not in found:  # the settings rely on it
            missing = ConfigError(f"no package that is installed has the entry point {name!r} of the group {GROUP!r}")
            found[name] = Checker(name, "plug-in", "not installed", given, _raising(missing), error=str(missing))
    return list(found.values())


def _load(point: EntryPoint) -> Plugin:
    try:
        loaded = point.load()
    except (Exception, SystemExit) as error:
        log.exception("the admission plug-in %s can't be imported", point.name)
        return _raising(ConfigError(f"it can't be imported: {type(error).__name__}: {error}"))
    if not callable(loaded):
        return _raising(ConfigError(f"{point.value} is no function"))
    made: Plugin = loaded
    return made


def _raising(error: Exception) -> Plugin:
    def fail(job: Job) -> Answer:
        raise error

    return fail


def _failed(one: Checker, error: BaseException) -> Warn | Refuse:
    """What the failure means. Users read what sort it is; its text, which may quote anything, is for administrators."""
    one.counts["failed"] += 1
    one.error = _clipped(str(error) if isinstance(error, NoAnswer | BadAnswer) else f"{type(error).__name__}: {error}")
    log.warning("admission %s %s: %s", one.kind, one.name, one.error)
    if isinstance(error, NoAnswer | BadAnswer):
        why = str(error)
    elif isinstance(error, httpx.TimeoutException):
        why = f"it did not answer within {one.terms.deadline:g} s"
    elif isinstance(error, httpx.TransportError):
        why = "it can't be reached"
    else:
        why = f"it failed ({type(error).__name__})"
    if one.terms.on_error == "allow":
        return Warn(f"The check {one.name!r} was left out: {why}.")
    return Refuse(f"the check {one.name!r} is required, and {why}")


def _unavailable(one: Checker, message: str) -> Reason:
    return reason("admission_unavailable", message, check=one.name)


def _refused(one: Checker, answer: Refuse) -> Reason:
    one.counts["refused"] += 1
    return reason(
        "admission_refused", f"{_clipped(answer.message)} ({one.name})", _clipped(answer.hint), check=one.name
    )


def _told(one: Checker, answer: Warn) -> str:
    one.counts["warned"] += 1
    return " ".join(part for part in (f"{_clipped(answer.message)} ({one.name}).", _clipped(answer.hint)) if part)


def _clipped(text: object) -> str:
    words = " ".join(str(text).split())
    return words if len(words) <= _TEXT_MAX else f"{words[: _TEXT_MAX - 1]}…"
