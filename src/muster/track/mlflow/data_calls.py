"""Lists the data sets that runs of experiments read, for MLflow's UI."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import literal, select

from muster.store.codec import loads
from muster.store.record_tables import links, runs
from muster.track.mlflow.context import MlflowContext
from muster.track.mlflow.limits import experiment_number

_MOST: Final = 1000


def summaries(context: MlflowContext, request: dict[str, Any]) -> dict[str, Any]:
    """Each combination of experiment, name, digest and context once."""
    numbers = [experiment_number(one) for one in request["experiment_ids"]]
    query = (
        select(runs.c.experiment, links.c.source, links.c.doc, runs.c.project)
        .join_from(runs, links, links.c.target == literal("run:") + runs.c.id)
        .where(runs.c.experiment.in_(numbers), links.c.role == "reads", links.c.source.like("data:%"))
        .order_by(links.c.time, links.c.source, runs.c.id)
    )
    with context.track.db.reading() as connection:
        rows = connection.execute(query).all()
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for experiment, source, text, project in rows:
        if not context.caller.sees(project):
            continue
        name, _, version = source[5:].partition("@")
        doc = loads(text)
        one = {
            "experiment_id": str(experiment),
            "name": doc.get("name") or name,
            "digest": str(doc.get("digest") or doc.get("version") or version),
            "context": doc.get("context"),
        }
        found[tuple(one.values())] = one
    return {"summaries": list(found.values())[:_MOST]}
