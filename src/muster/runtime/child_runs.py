"""Child runs: the trials of a program that runs many itself, such as one of Ray Tune, as runs below its own run.

    trial = runtime.child_run("t7", params={"lr": 3e-4})
    trial.log({"loss": loss}, step)
    trial.close()

They go through the reports of the program's own run: nothing waits for the server, and each is stored once. Those that
are left open end with the program's run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, SupportsIndex

from muster import wire
from muster.runtime.checks import Number, check_keys, check_name, explain, mapping
from muster.runtime.reporter import Reporter, shared

_ID: Final = re.compile(wire.CHILD_ID)


class ChildRun:
    """One of them. Its run's id is that of the program's run, a dot, and `id`."""

    def __init__(self, reporter: Reporter, id: str) -> None:
        self.id, self._reporter = id, reporter
        self._next, self._closed = 0, False

    def log(self, values: Mapping[str, Number], step: SupportsIndex | None = None) -> None:
        """Records one value for each metric at a step; the default step is the one after the last."""
        given = mapping(values)
        number, found = explain(self._next if step is None else step, given)
        for name in given:
            check_name(name)
        self._next = number + 1
        self._write(step=number, values=dict(zip(given, found, strict=True)))

    def params(self, values: Mapping[str, Any]) -> None:
        check_keys("params()", values)
        self._write(params=dict(values))

    def tags(self, values: Mapping[str, str]) -> None:
        check_keys("tags()", values)
        self._write(tags={key: str(value) for key, value in values.items()})

    def close(self, outcome: wire.Outcome = "succeeded", detail: str = "") -> None:
        """Ends the run; the first call counts."""
        if outcome not in wire.OUTCOMES:
            raise ValueError(f"close(): outcome got {outcome!r}; expected 'succeeded', 'failed' or 'stopped'.")
        if not self._closed:
            self._closed = True
            self._write(outcome=outcome, detail=detail[-wire.CHILD_DETAIL :])

    def __enter__(self) -> ChildRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.close("failed", f"{type(error).__name__}: {error}")

    def _write(self, **fields: Any) -> None:
        self._reporter.document("child", id=self.id, **fields)


def open_child(
    reporter: Reporter, id: str, name: str, params: Mapping[str, Any] | None, tags: Mapping[str, str] | None
) -> ChildRun:
    """With an `id` that was used before, the same run goes on."""
    if not _ID.fullmatch(id):
        raise ValueError(f"child_run(): id got {id!r}; expected 1 to 60 letters, digits, `_` and `-`.")
    check_keys("child_run(): params", params or {})
    check_keys("child_run(): tags", tags or {})
    shown = {key: str(value) for key, value in (tags or {}).items()}
    reporter.document("child", id=id, begin=True, name=name, params=dict(params or {}), tags=shown)
    return ChildRun(reporter, id)


def child_run(
    id: str, name: str = "", params: Mapping[str, Any] | None = None, tags: Mapping[str, str] | None = None
) -> ChildRun:
    """A run below this job's run; `muster.start_run(...).child_run(...)` for scripts outside of jobs."""
    return open_child(shared, id, name, params, tags)
