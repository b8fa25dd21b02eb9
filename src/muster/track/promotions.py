"""Stages of model versions: each promotion with its actor, reason, and evidence at that time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Connection, select

from muster.api.numbers import json_number
from muster.api.words import STAGES
from muster.core.errors import Invalid, NotFound, Refused
from muster.core.promotion import Need, against, missing
from muster.core.record_events import VersionStaged
from muster.store import record_tables as tables
from muster.store.base import Record
from muster.store.codec import check_text, dumps, loads
from muster.store.insert import Row, add
from muster.track.metrics import Metrics
from muster.track.model_rows import LOCK, Version, find_models, find_versions, put_version
from muster.track.record_db import RecordDb
from muster.track.rows import Doc, link_row, note_row

WHY_MAX: Final = 10_000  # characters
EVIDENCE_MAX: Final = 100  # runs
_METRICS_MAX: Final = 200  # per run


@dataclass(frozen=True, slots=True)
class Promotion:
    id: int
    name: str
    version: int
    time: float
    actor: str
    old: str
    new: str
    doc: Doc  # why, evidence: [{run, project, metrics: {name: {value, step}}}], forced


class Promotions:
    """`asks`: what the policy asks for at a stage, as it was found; None: nothing. The server sets it."""

    def __init__(self, db: RecordDb, metrics: Metrics) -> None:
        self._db, self._metrics = db, metrics
        self.asks: Callable[[Version, str], Sequence[Need] | None] = lambda version, stage: None

    def promote(
        self,
        name: str,
        version: int,
        stage: str,
        *,
        actor: str,
        why: str = "",
        evidence: Sequence[str] = (),
        metrics: Sequence[str] = (),
        force: bool = False,
        archive_others: bool = False,
        override: bool = False,
        rollback: bool = False,
    ) -> Promotion:
        """Moves a version to a stage. `evidence`: runs whose metrics, or only `metrics`, are read now and stored.

        Production needs evidence, unless `force` is given with a reason. `archive_others` archives the versions that
        were in that stage. `override`: although the policy asks for more; whether the actor may is not checked here.
        `rollback`: to a stage that it was in before.
        """
        check_text(why, *evidence, *metrics)
        if stage not in STAGES:
            raise Invalid(f"There is no stage {stage!r}.", f"Use one of {', '.join(STAGES)}.")
        if len(why) > WHY_MAX or len(evidence) > EVIDENCE_MAX:
            raise Invalid("Too much was given.", f"At most {WHY_MAX:,} characters of why, and {EVIDENCE_MAX} runs.")
        beside: Doc = {"rollback": True} if rollback else {}
        if not rollback:
            beside, evidence = self._asked(name, version, stage, override, evidence)
        if stage == "production" and not evidence and not rollback and not (force and why.strip()):
            raise Invalid(
                f"{name}/{version} can't go to production without evidence.",
                "Name the runs that speak for it (`--evidence RUN`), or give `--force` and `--why`.",
            )
        shown = self._evidence(evidence, metrics)
        with self._db.holding(LOCK):
            versions, project = self._read(name, version)
            now, old = self._db.now(), versions[version]
            forced = {"forced": True} if force and not evidence else {}
            doc = {"why": why, "evidence": shown, **forced, **beside}
            records = [self._moved(old, stage, project, actor, doc, now)]
            if archive_others and stage in ("staging", "production"):
                others = [one for one in versions.values() if one.stage == stage and one.version != version]
                because = {"why": f"{name}/{version} took its place", "evidence": []}
                records += [self._moved(one, "archived", project, actor, because, now) for one in others]
            told = self._db.event(VersionStaged(name, version, stage), actor, project)
            self._db.write(*records, events=[told])
        return next(one for one in reversed(self.promotions(name, version)) if one.new == stage)

    def earlier(self, name: str, stage: str) -> int:
        """The version that was in a stage before the one that is. Raises NotFound."""
        table = tables.model_versions.c
        with self._db.reading() as connection:
            versions = {one.version: one for one in find_versions(connection, table.name == name)}
        now = {one.version for one in versions.values() if one.stage == stage}
        for one in reversed(self.promotions(name)):
            if one.new == stage and one.version not in now and one.version in versions:
                return one.version
        raise NotFound(f"No other version of {name!r} was in {stage}.", f"See `muster models show {name}`.")

    def promotions(self, name: str, version: int | None = None) -> list[Promotion]:
        """Oldest first."""
        table = tables.promotions
        query = select(table).where(table.c.name == name).order_by(table.c.id)
        if version is not None:
            query = query.where(table.c.version == version)
        with self._db.reading() as connection:
            return [_promotion(row) for row in connection.execute(query).all()]

    def _asked(
        self, name: str, version: int, stage: str, override: bool, evidence: Sequence[str]
    ) -> tuple[Doc, Sequence[str]]:
        """What is kept of the policy's needs, and the evidence: the version's run where the policy looked at it."""
        versions, _ = self._read(name, version)
        needs = self.asks(versions[version], stage)
        if needs is None:
            return {}, evidence
        lacking = missing(needs)
        if lacking and not override:
            raise Refused([against(one) for one in lacking])
        known = [one for one in [versions[version].run] if one and not any(need.name == "run" for need in lacking)]
        return {"needs": [asdict(one) for one in needs], "overridden": [one.name for one in lacking]}, evidence or known

    def _read(self, name: str, version: int) -> tuple[dict[int, Version], str]:
        table = tables.model_versions.c
        with self._db.reading() as connection:
            versions = {one.version: one for one in find_versions(connection, table.name == name)}
            models = find_models(connection, tables.models.c.name == name)
        if version not in versions:
            raise NotFound(f"Model {name!r} has no version {version}.", f"See `muster models show {name}`.")
        return versions, models[0].project

    def _evidence(self, runs: Sequence[str], metrics: Sequence[str]) -> list[Doc]:
        """The current metrics of the runs."""
        table = tables.runs.c
        with self._db.reading() as connection:
            query = select(table.id, table.project, table.phase).where(table.id.in_(list(runs)))
            known = {row.id: row for row in connection.execute(query)}
        missing = [run for run in runs if run not in known]
        if missing:
            raise NotFound(f"There is no run {missing[0]!r} to serve as evidence.", "See `muster runs`.")
        found = self._metrics.summaries(list(runs)) if runs else {}
        shown: list[Doc] = []
        for run in dict.fromkeys(runs):
            values = _values(found.get(run, {}), metrics)
            absent = [name for name in metrics if name not in values]
            if absent:
                raise Invalid(f"Run {run} has no metric {absent[0]!r}.", f"See `muster runs show {run}`.")
            shown.append({"run": run, "project": known[run].project, "phase": known[run].phase, "metrics": values})
        return shown

    def _moved(self, old: Version, stage: str, project: str, actor: str, doc: Mapping[str, Any], now: float) -> Record:
        row: Row = {
            "name": old.name, "version": old.version, "time": now, "actor": actor, "old": old.stage, "new": stage,
            "doc": dumps(doc),
        }  # fmt: skip
        note = note_row(project, "", now, actor, "promotion", _text(old, stage, doc), {"model": old.ref, **doc})
        links = [link_row(f"run:{one['run']}", old.ref, "evaluates", now) for one in doc["evidence"]]
        moved = put_version(old.name, old.version, stage=stage, updated_at=now)

        def record(connection: Connection) -> None:
            moved(connection)
            add(connection, tables.promotions, [row])
            add(connection, tables.links, links)
            add(connection, tables.notes, [note])

        return record


def _promotion(row: Sequence[Any]) -> Promotion:
    values: list[Any] = [*row[:-1], loads(row[-1])]
    return Promotion(*values)


def _values(found: Mapping[str, Any], wanted: Sequence[str]) -> Doc:
    names = list(wanted) or [name for name in sorted(found) if not name.startswith("system/")][:_METRICS_MAX]
    return {
        name: {"value": json_number(found[name].last), "step": found[name].last_step} for name in names if name in found
    }


def _text(old: Version, stage: str, doc: Mapping[str, Any]) -> str:
    lines = [f"Model {old.name}, version {old.version}: {old.stage} → {stage}."]
    if doc["why"]:
        lines += ["", doc["why"]]
    for one in doc["evidence"]:
        values = ", ".join(f"{name} {item['value']}" for name, item in list(one["metrics"].items())[:10])
        lines += ["", f"- `{one['run']}`: {values or one['phase']}"]
    return "\n".join(lines)
