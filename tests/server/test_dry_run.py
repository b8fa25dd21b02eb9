"""A submission that is only checked, without a server: what happens before the commit, and what in it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import Response

from muster.control.admission import Site
from muster.control.spot_history import SpotHistory
from muster.core.entities import Token
from muster.core.errors import Refused
from muster.core.state import State
from muster.server.auth import Identity
from muster.server.leader import Leader
from muster.server.routes.jobs import SubmitBody, submit_job


def test_the_server_is_asked_about_itself_before_the_commit() -> None:
    """To find out may take a process, and nothing else is committed meanwhile."""
    done: list[str] = []

    def site(asking: Identity, *given: Any, **named: Any) -> Site:
        done.append("site")
        return {}

    def look(look: Callable[[State], Any]) -> Any:
        done.append("commit")
        return look(State())

    ada = Identity("ada", Token("1", "first", "ada", "", "admin", superuser=True, created_at=0.0))
    clock, store = SimpleNamespace(now=lambda: 0.0), SimpleNamespace(state=State)
    ingest = SimpleNamespace(expected_ends=dict)
    leader = SimpleNamespace(
        clock=clock, store=store, track=None, local=False, site=site, look=look, ingest=ingest,
        spot_history=SpotHistory(None),
    )  # fmt: skip
    body = SubmitBody.model_validate({"spec": {"name": "a", "run": "true"}, "dry_run": True})
    with pytest.raises(Refused):
        submit_job(body, cast(Leader, leader), ada, Response())
    assert done == ["site", "commit"]
