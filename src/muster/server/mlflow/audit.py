"""Decides which writes that MLflow's own server handles get an audit event here, since the record writes none."""

from __future__ import annotations

import re
from typing import Final

from muster.core.event import Event
from muster.core.record_events import MlflowCalled
from muster.track.mlflow.context import MlflowContext

_PART: Final = re.compile(r"/(?:ajax-)?api/\d\.\d/mlflow/([^/]+)")
# Their stores are in the record (`track/mlflow/plugin.py`, `registry.py`), which writes their events.
_OF_RECORD: Final = frozenset({"experiments", "runs", "registered-models", "model-versions", "upload-artifact"})
# What programs log while they run: data, and a lot of it.
_LOGGED: Final = frozenset({"traces"})
_OTLP: Final = "/v1/traces"


def event_for(context: MlflowContext, method: str, path: str) -> Event | None:
    """The event of a forwarded request, written before it is forwarded; None if it gets none."""
    if not getattr(context.caller, "writing", False) or path.startswith(_OTLP):
        return None
    found = _PART.match(path)
    if found is not None and found[1] in _OF_RECORD | _LOGGED:
        return None
    return context.track.db.event(MlflowCalled(method, path), context.caller.user, "")
