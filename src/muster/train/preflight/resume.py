"""The rung `resume`: a training is saved and killed, a new process loads it, and must go on as if nothing had been.

    class Training:                                  # yours, or a few lines around it
        def __init__(self): self.model, self.optimizer, self.schedule = ...
        def step(self): ...; self.batch = batch; return loss        # a number, a tensor, or a mapping of them
        def save(self, path): ...                    # a file or a folder of that name
        def load(self, path): ...

    report = preflight.check_resume(Training)

Weights, optimizers and schedules are found among the object's attributes, and data by `batch`, the last one.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from muster.checks.findings import Report
from muster.train.preflight.children import Child, ChildFailed, Send, method
from muster.train.preflight.hook import LIMIT, about
from muster.train.preflight.program import SEED, last_line, seed_all
from muster.train.preflight.resume_checks import RESUME, Evidence, judge
from muster.train.preflight.traces import Parts, StepTrace, Trace, batch_digest, generators, metrics_of

BEFORE: Final = 3  # steps before the save
AFTER: Final = 4  # and after it
FILE: Final = "saved"


class Training(Protocol):
    """A training that can be saved and loaded."""

    def step(self) -> Any: ...

    def save(self, path: str, /) -> Any: ...

    def load(self, path: str, /) -> Any: ...


def check_resume(
    start: Callable[[], Training],
    *,
    before: int = BEFORE,
    after: int = AFTER,
    limit: float = LIMIT,
    skip: Sequence[str] = (),
    name: str = "a program",
) -> Report:
    """Runs the checks of the rung `resume`. `start()` makes the training, each time in a new process.

    `limit` is the time in seconds for each process.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="preflight-") as folder:
        path = str(Path(folder) / FILE)
        straight = _traced(limit, _train, start, before + after, None, None)
        saved = _traced(limit, _train, start, after, before, path)
        resumed = _traced(limit, _go_on, start, after, path) if isinstance(saved, Trace) else "nothing was saved"
    results = judge(Evidence(straight, saved, resumed), RESUME, skip)
    return Report(name, results, (), about(), time.monotonic() - began)


def _traced(limit: float, function: Callable[..., None], *args: Any) -> Trace | str:
    """What a training in a new process sends, or how it failed. It is killed at the end, as a machine would."""
    try:
        child = Child.start(method(), function, *args)
    except (AttributeError, TypeError, OSError) as error:
        return f"can't be started: {last_line(error)}; on a machine with a GPU `start` must stand in a module"
    try:
        found: Trace | str = child.receive(limit)
    except TimeoutError:
        found = f"did not end in {limit:g} s"
    except ChildFailed as error:
        found = f"failed: {error}"
    finally:
        child.kill()
    return found


def _train(send: Send, start: Callable[[], Training], steps: int, before: int | None, path: str | None) -> None:
    """In the new process: `before` steps, a save, and `steps` more; then it is killed."""

    def trace() -> Trace:
        seed_all(SEED)
        training = start()
        done = [_stepped(training) for _ in range(before or 0)]
        state = Parts.found_in(training).state()
        drawn = generators()
        if path is not None:
            training.save(path)
        size = _size(Path(path)) if path is not None else 0
        done += [_stepped(training) for _ in range(steps)]
        return Trace(done, state, drawn, {"bytes": size, "before": before or 0})

    _send(send, trace)
    os.kill(os.getpid(), signal.SIGKILL)


def _go_on(send: Send, start: Callable[[], Training], steps: int, path: str) -> None:
    def trace() -> Trace:
        seed_all(SEED)
        training = start()
        training.load(path)
        state, drawn = Parts.found_in(training).state(), generators()
        return Trace([_stepped(training) for _ in range(steps)], state, drawn)

    _send(send, trace)


def _send(send: Send, trace: Callable[[], Trace]) -> None:
    try:
        send(trace())
    except BaseException as error:
        send(f"raised {last_line(error)}")


def _stepped(training: Training) -> StepTrace:
    before = Parts.found_in(training).rates()
    metrics = metrics_of(training.step())
    return StepTrace(metrics, before, batch_digest(training), generators())


def _size(path: Path) -> int:
    """Bytes of a file, of a folder's files, or of files whose names begin so."""
    found = list(path.parent.glob(f"{path.name}*"))
    return sum(each.stat().st_size for one in found for each in ([one] if one.is_file() else one.rglob("*")))
