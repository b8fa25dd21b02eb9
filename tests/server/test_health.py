"""What `/v1/health` says to whom: everybody learns that something is wrong, administrators learn what."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.cli.check_server import _record
from muster.control.external_admission import ExternalAdmission
from muster.control.follow import Lag
from muster.control.inspection import AdvisoryFile, Inspector
from muster.core.entities import Token
from muster.server.auth import Identity
from muster.server.leader import Leader
from muster.server.routes.health import health
from muster.store.base import SetAside

SECRET = "the password of another project"
QUIET = {"waiting": 0, "oldest": None, "given_up": 0, "error": ""}


def ask(superuser: bool, trouble: str = "", aside: tuple[SetAside, ...] = (), **outbox: Any) -> dict[str, Any]:
    caller = Identity("ada", Token("1", "first", "ada", "", "admin", superuser=superuser, created_at=0.0))
    store = SimpleNamespace(version=lambda: 9, set_aside=lambda limit: list(aside)[:limit])
    follower = SimpleNamespace(lag=lambda: Lag("record", 8, 1, trouble))
    sender = SimpleNamespace(status=lambda: {**QUIET, **outbox})
    inspector = Inspector({}, AdvisoryFile(None))
    external = ExternalAdmission([], {})
    parts = SimpleNamespace(
        store=store, followers=[follower], outbox=sender, external=external, inspector=inspector
    )  # fmt: skip
    return health(cast(Leader, parts), caller)


@pytest.mark.parametrize(
    "wrong",
    [
        {"trouble": SECRET},
        {"aside": (SetAside(f"spool of {SECRET}", SECRET, error=SECRET),)},
        {"given_up": 1, "error": SECRET},
    ],
)
def test_error_texts_are_for_administrators(wrong: dict[str, Any]) -> None:
    theirs, ours = ask(False, **wrong), ask(True, **wrong)
    assert SECRET in str(ours)
    assert SECRET not in str(theirs)
    assert not theirs["healthy"]
    assert not ours["healthy"]
    assert [check for check in _record(theirs) if check.status == "warn"]


@pytest.mark.parametrize("superuser", [True, False])
def test_nothing_is_wrong(superuser: bool) -> None:
    told = ask(superuser)
    assert told["healthy"]
    assert [check.status for check in _record(told)] == ["ok"]
