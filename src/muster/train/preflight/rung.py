"""Runs the checks of a rung one after the other in another process, each with a time limit."""

from __future__ import annotations

import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import torch

from muster.checks.findings import Check, Finding, Level, Result, failed, not_applicable, some, unknown
from muster.train.preflight.children import Child, ChildFailed, Send, method
from muster.train.preflight.program import Undecided, Unusable, generators_kept, last_line

LATE: Final = 3  # checks that may not end in time before the rest is left out
GRACE: Final = 60.0  # seconds for a process to begin


class _TooLong(BaseException):
    """The limit of a check that runs in this process; programs rarely catch a BaseException."""


def run_checks(
    rung: Level, subject: Any, checks: Sequence[Check], limit: float, skip: Mapping[str, str], forks: bool | None = None
) -> list[Result]:
    """The results of all checks, in order. What a check does to generators or models is lost with its process.

    On a machine with a GPU they run in this process, as a fork can't use the device; `forks` as in `children.method`.
    """
    found: dict[str, tuple[Finding, float]] = {}
    for name, why in skip.items():
        found[name] = (not_applicable(f"left out: {why}"), 0.0)
    if method(forks) == "fork":
        _elsewhere(subject, checks, limit, found)
    else:
        _here(subject, checks, limit, found)
    return [Result(rung, check.name, check.proves, *found[check.name]) for check in checks]


def judged(check: Check, subject: Any, before: Mapping[str, Finding]) -> Finding:
    """What a check finds; what it raises becomes words."""
    missing = [name for name in check.needs if name in before and before[name].status in ("failed", "unknown")]
    if missing:
        return unknown(f"not judged, as {some(missing)} failed", f"Mend {some(missing)} first.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return check.run(subject)
    except Undecided as error:
        return unknown(str(error), error.hint)
    except Unusable as error:
        return failed(str(error), error.hint)
    except torch.OutOfMemoryError as error:
        return unknown(last_line(error), "Give the checks a smaller batch.")
    except SystemExit as error:
        return Finding(check.on_error, f"the program called exit({error.code!r})", "Let its functions return.")
    except Exception as error:
        return Finding(check.on_error, f"the program raised {last_line(error)}", _where(error))


def _elsewhere(subject: Any, checks: Sequence[Check], limit: float, found: dict[str, Any]) -> None:
    late = 0
    while left := [check for check in checks if check.name not in found]:
        if late >= LATE:
            found.update({each.name: (unknown(f"not run, as {late} checks did not end in time"), 0.0) for each in left})
            return
        child = Child.start("fork", _work, subject, left, {name: each for name, (each, _) in found.items()})
        began, name = time.monotonic(), left[0].name
        try:
            child.receive(GRACE)
            while name:
                began = time.monotonic()
                name, finding, following = child.receive(limit)
                found[name] = (finding, time.monotonic() - began)
                name = following
        except TimeoutError:
            late += 1
            found[name] = (_too_long(limit), time.monotonic() - began)
        except ChildFailed as error:
            hint = "Something in the program ends the whole process, or needs more memory than there is."
            found[name] = (failed(str(error), hint), time.monotonic() - began)
        finally:
            child.kill()


def _work(send: Send, subject: Any, checks: Sequence[Check], before: dict[str, Finding]) -> None:
    send("began")
    for check, following in zip(checks, [*(each.name for each in checks[1:]), ""], strict=True):
        before[check.name] = judged(check, subject, before)
        send((check.name, before[check.name], following))


def _here(subject: Any, checks: Sequence[Check], limit: float, found: dict[str, Any]) -> None:
    for check in [each for each in checks if each.name not in found]:
        began, before = time.monotonic(), {name: each for name, (each, _) in found.items()}
        try:
            with generators_kept(), _limited(limit):
                finding = judged(check, subject, before)
        except _TooLong:
            finding = _too_long(limit)
        found[check.name] = (finding, time.monotonic() - began)


@contextmanager
def _limited(limit: float) -> Iterator[None]:
    """Interrupts the main thread by a signal; elsewhere there is no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _too_long(limit: float) -> Finding:
    return unknown(f"did not end in {limit:g} s", "Give the checks a smaller model or batch, or a longer limit=.")


def _where(error: BaseException) -> str:
    """The place in the program that raised it."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not any(part in name for part in ("/torch/", "/muster/train/", f"{sys.prefix}/lib")):
            place = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"Raised at {place}." if place else ""
