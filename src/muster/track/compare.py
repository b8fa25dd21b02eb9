"""Compares runs: differences in parameters, configuration, environment, code and data, and their metrics."""

from __future__ import annotations

import operator as signs
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api.compare import ChangedFiles, ComparedFiles, Comparison, MetricRow, ValueRow
from muster.api.runs import RunView
from muster.core.errors import Invalid
from muster.track.blobs import Blobs
from muster.track.code_diff import changed_files
from muster.track.facts import flat, same_value
from muster.track.record_db import RecordDb
from muster.track.replicates import SEEDS, significance
from muster.track.rows import Run
from muster.track.run_views import summaries
from muster.track.runs import Runs
from muster.track.search import Search

MOST: Final = 200  # runs in one comparison
SPACES: Final = ("params", "configuration", "environment", "packages", "code", "data")
_OF_CODE: Final = ("commit", "branch", "dirty", "tree", "remote")
# Fields of the spec that identify or describe the run but don't affect training.
_LEFT_OUT: Final = ("name", "purpose", "tags", "data", "workdir")
Values = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Comparer:
    db: RecordDb
    runs: Runs
    search: Search
    blobs: Blobs

    def compare(
        self,
        ids: Sequence[str],
        *,
        metric: str | None = None,
        mode: str | None = None,
        group: str | None = None,
        by: Sequence[str] = SEEDS,
        everything: bool = False,
        lines: bool = False,
    ) -> Comparison:
        """Compares runs. `everything` adds equal values; `lines` adds the changed lines of snapshot files.

        Runs are grouped by the field `group`, or so that the runs of a group differ only in the parameters `by`. Groups
        are tested for a significant difference in the `metric`; `mode` says whether "min" or "max" is better. Raises
        Invalid and QueryError.
        """
        ids = list(dict.fromkeys(ids))
        if not 1 < len(ids) <= MOST:
            raise Invalid(
                f"{len(ids)} run{'' if len(ids) == 1 else 's'} to compare.", f"Give 2 to {MOST} different ones."
            )
        known = self.runs.many(ids)
        found = [known[one] for one in ids if one in known]
        views = self.search.views([run.id for run in found])
        sides = {name: [values(run, view) for run, view in zip(found, views, strict=True)] for name, values in _SIDES}
        equal = {name: _rows(name, sides[name], same=True) for name in SPACES}
        metrics = self._metrics([run.id for run in found])
        answer: Comparison = {
            "runs": views,
            "differences": {name: _rows(name, sides[name], same=False) for name in SPACES},
            "same": {name: len(equal[name]) for name in SPACES},
            "files": self._files(found, lines),
            "metrics": metrics,
            "significance": significance(self.search, views, metrics, metric, mode, group, by),
        }
        if everything:
            answer["equal"] = equal
        return answer

    def _metrics(self, ids: Sequence[str]) -> list[MetricRow]:
        """One row per metric. Metrics that most runs have come first, metrics that the platform measures come last."""
        with self.db.reading() as connection:
            found = summaries(connection, ids)
        names = {name for one in ids for name in found[one]}

        def place(name: str) -> tuple[bool, int, str]:
            return name.startswith("system/"), -sum(name in found[one] for one in ids), name

        return [{"name": name, "runs": [found[one].get(name) for one in ids]} for name in sorted(names, key=place)]

    def _files(self, runs: Sequence[Run], lines: bool) -> ComparedFiles | None:
        """How other snapshots differ from the first run's; None if the first run has none or all are equal."""
        base = runs[0].code_tree
        others = [run for run in runs[1:] if run.code_tree and run.code_tree != base]
        if not base or not others:
            return None
        changes: dict[str, ChangedFiles] = {}
        for run in others:
            if run.code_tree not in changes:
                changes[run.code_tree] = changed_files(self.blobs, base, run.code_tree, lines)
        return {"base": runs[0].id, "changes": [{"run": run.id, **changes[run.code_tree]} for run in others]}


def _rows(space: str, sides: Sequence[Values], same: bool) -> list[ValueRow]:
    """One row per name with each run's value, None if it has none. `same` selects the equal rows or the others."""
    names = sorted({name for values in sides for name in values})
    rows: list[ValueRow] = [{"name": name, "values": [values.get(name) for values in sides]} for name in names]
    # 3e-4 and 0.0003 are the same learning rate, but 2.1 and 2.10 are different versions.
    alike = _same_number if space in ("params", "configuration") else signs.eq
    return [row for row in rows if all(alike(row["values"][0], one) for one in row["values"][1:]) == same]


def _same_number(one: str | None, other: str | None) -> bool:
    return one == other or (one is not None and other is not None and same_value(one, other))


def _params(run: Run, view: RunView) -> Values:
    found: Values = view["params"]
    return found


def _configuration(run: Run, view: RunView) -> Values:
    spec = run.doc.get("spec") or {}
    kept = {name: value for name, value in spec.items() if name not in _LEFT_OUT}
    return {**flat({"command": run.doc["command"]} if "command" in run.doc and not spec else {}), **flat(kept)}


def _environment(run: Run, view: RunView) -> Values:
    """The environment without packages and without machine details that can't make a difference."""
    found = dict(run.doc.get("environment") or {})
    found.pop("packages", None)
    return {name: value for name, value in flat(found).items() if name not in ("type", "time", "python.prefix")}


def _packages(run: Run, view: RunView) -> Values:
    return {str(name): str(one) for name, one in ((run.doc.get("environment") or {}).get("packages") or {}).items()}


def _code(run: Run, view: RunView) -> Values:
    code = {**view["code"], "remote": (run.doc.get("code") or {}).get("remote", "")}
    return {name: str(code[name]).lower() if name == "dirty" else code[name] for name in _OF_CODE if code[name] != ""}


def _data(run: Run, view: RunView) -> Values:
    """Data set name → version, so that two versions of one data set are in one row."""
    found: dict[str, str] = {}
    for one in view["data"]:
        name, _, version = one.partition("@")
        found[name] = ", ".join(filter(None, [found.get(name, ""), version or "any version"]))
    return found


_SIDES: Final[tuple[tuple[str, Callable[[Run, RunView], Values]], ...]] = (
    ("params", _params),
    ("configuration", _configuration),
    ("environment", _environment),
    ("packages", _packages),
    ("code", _code),
    ("data", _data),
)
