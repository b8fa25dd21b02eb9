"""Facts for reproducing a run: its environment, seeds, data sets, code and outcome."""

from __future__ import annotations

import re
from typing import Any, Final, cast

from sqlalchemy import Connection, select

from muster.api.runs import KnownOfRun, ReproducedData
from muster.api.words import Phase
from muster.store.codec import loads
from muster.store.record_tables import links, run_attempts, run_params
from muster.track.record_db import RecordDb
from muster.track.rows import Run

_SEED: Final = re.compile(r"(^|[._/-])seeds?$|^(seed|random_state)", re.IGNORECASE)


def known(db: RecordDb, run: Run) -> KnownOfRun:
    """`environment` of its last attempt, `seeds`, `data` with later digests, `code` and `attempts`."""
    with db.reading() as connection:
        environment = _environment(connection, run)
        return {
            "run": run.id,
            "phase": cast(Phase, run.phase),
            "attempts": run.attempts,
            "code": run.doc.get("code") or {},
            "environment": environment,
            "seeds": {**(environment.get("seeds") or {}), **_seeds(connection, run.id)},
            "data": _data(connection, run.id),
        }


def _environment(connection: Connection, run: Run) -> dict[str, Any]:
    docs = select(run_attempts.c.doc).where(run_attempts.c.run == run.id).order_by(run_attempts.c.attempt.desc())
    for text in connection.scalars(docs):
        found = loads(text).get("environment")
        if isinstance(found, dict):
            return found
    first = run.doc.get("environment")
    return first if isinstance(first, dict) else {}


def _seeds(connection: Connection, run: str) -> dict[str, str]:
    rows = connection.execute(select(run_params.c.key, run_params.c.value).where(run_params.c.run == run))
    return {key: value for key, value in rows if _SEED.search(key)}


def _data(connection: Connection, run: str) -> list[ReproducedData]:
    """The data sets it read, each with its digest and, if another run has read it since, the newest digest."""
    target = f"run:{run}"
    read = select(links.c.source, links.c.time, links.c.doc).where(
        links.c.target == target, links.c.role == "reads", links.c.source.startswith("data:")
    )
    found: list[ReproducedData] = []
    for source, time, doc in connection.execute(read).all():
        later = select(links.c.doc).where(links.c.source == source, links.c.role == "reads", links.c.time > time)
        newest = connection.scalars(later.order_by(links.c.time.desc()).limit(1)).first()
        about = loads(doc)
        since = loads(newest).get("digest") if newest else None
        found.append({"name": source.removeprefix("data:"), "digest": about.get("digest"), "newest": since})
    return found
