"""Stacks of a member's isolated ranks, with py-spy and without; and a rank can't have the launcher read other files."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from exec_kit import client_of
from isolation_kit import GRANTS, ORDINARY, member, program, server_of, submit
from live import LiveServer, until
from muster import wire

SLEEPS = textwrap.dedent("""
    import time
    def read_sample():
        time.sleep(1000)
    print("up", flush=True)
    read_sample()
""").strip()
# Its file of stacks is a link to a file that only the server may read.
LINKED = 'rm -f "$MUSTER_RANK_DIR/stacks"; ln -s {secret} "$MUSTER_RANK_DIR/stacks"; '


@pytest.fixture(scope="module", params=["root", "user", "granted"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=["", "off"])
def server(request: pytest.FixtureRequest, kind: str) -> Iterator[LiveServer]:
    """With py-spy, and without."""
    config = "[engines.local]\n" + ("use_subuids = true\n" if kind == "granted" else "")
    grants, uid = GRANTS if kind == "granted" else None, 0 if kind == "root" else ORDINARY
    with server_of(uid, config, {wire.PY_SPY: request.param}, grants=grants) as server:
        yield server


def taken(server: LiveServer, token: str, run: str) -> dict[str, Any]:
    job = submit(server, token, run)
    with client_of(server, token) as client:
        until(lambda: [one.text for one in client.logs(job)].count("up") == 1, "the rank")
        view = client.stacks(job)
        client.stop(job, force=True)
        return dict(view)


def test_an_isolated_rank_shows_its_stacks(server: LiveServer) -> None:
    view = taken(server, member(server, "ada"), program(SLEEPS))
    (process, *_) = [one for one in view["ranks"][0]["processes"] if one["name"].startswith("python")]
    assert process["source"] == ("signal" if server.env[wire.PY_SPY] else "py-spy")
    assert [one["text"] for one in view["groups"]] == ["rank 0 in read_sample at <stdin>:3"]


def test_a_link_in_place_of_its_file_is_not_followed(server: LiveServer) -> None:
    secret = server.home / "config.toml"
    view = taken(server, member(server, "eve"), LINKED.format(secret=secret) + program(SLEEPS))
    (process, *_) = [one for one in view["ranks"][0]["processes"] if one["name"].startswith("python")]
    assert process["source"] == ("kernel" if server.env[wire.PY_SPY] else "py-spy")
    assert "cpus = 32" not in str(view)
