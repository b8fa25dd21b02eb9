"""Which writes that MLflow's own server answers leave an event of their own, since the record writes none of them."""

from __future__ import annotations

import re
from typing import Final

from muster.core.event import Event
from muster.track.mlflow.context import MlflowContext

_PART: Final = re.compile(r"/(?:ajax-)?api/\d\.\d/mlflow/([^/]+)")
# Their stores are the record's (`track/mlflow/plugin.py`, `registry.py`): the write leaves its event there.
_OF_RECORD: Final = frozenset({"experiments", "runs", "registered-models", "model-versions", "upload-artifact"})
# What programs log while they run: data, and much of it.
_LOGGED: Final = frozenset({"traces"})
_OTLP: Final = "/v1/traces"


def event_for(context: MlflowContext, method: str, path: str) -> Event | None:
    """The event of a forwarded request, which is written before it is forwarded; None for what leaves none."""
    if not getattr(context.asker, "writing", False) or path.startswith(_OTLP):
        return None
    found = _PART.match(path)
    if found is not None and found[1] in _OF_RECORD | _LOGGED:
        return None
    return context.track.db.event("mlflow.called", context.asker.user, "", method=method, path=path)
