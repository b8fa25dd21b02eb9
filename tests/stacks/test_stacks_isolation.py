"""Stacks of a member's isolated ranks, with py-spy and without; and a rank can't have the launcher read other files."""

from __future__ import annotations

import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
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


@pytest.fixture(scope="module")
def spy() -> Iterator[Path]:
    """Where py-spy is looked for: beside this Python, which every isolated rank sees."""
    with tempfile.TemporaryDirectory(prefix="muster-spy-", dir=sys.prefix) as name:
        Path(name).chmod(0o755)
        yield Path(name) / "py-spy"


@pytest.fixture(scope="module", params=["root", "user", "granted"])
def server(request: pytest.FixtureRequest, spy: Path) -> Iterator[LiveServer]:
    kind = request.param
    config = "[engines.local]\n" + ("use_subuids = true\n" if kind == "granted" else "")
    grants, uid = GRANTS if kind == "granted" else None, 0 if kind == "root" else ORDINARY
    with server_of(uid, config, {wire.PY_SPY: str(spy)}, grants=grants) as server:
        yield server


@pytest.fixture(params=[True, False], ids=["py-spy", "without"])
def spied(request: pytest.FixtureRequest, spy: Path) -> bool:
    """Whether the machine has py-spy."""
    spy.unlink(missing_ok=True)
    if request.param:
        spy.symlink_to(Path(sys.executable).parent / "py-spy")
    return bool(request.param)


def taken(server: LiveServer, token: str, run: str) -> dict[str, Any]:
    job = submit(server, token, run)
    with client_of(server, token) as client:
        until(lambda: [one.text for one in client.logs(job)].count("up") == 1, "the rank")
        view = client.stacks(job)
        client.stop(job, force=True)
        return dict(view)


def test_an_isolated_rank_shows_its_stacks(server: LiveServer, spied: bool) -> None:
    view = taken(server, member(server, "ada"), program(SLEEPS))
    (process, *_) = [one for one in view["ranks"][0]["processes"] if one["name"].startswith("python")]
    assert process["source"] == ("py-spy" if spied else "signal")
    assert [one["text"] for one in view["groups"]] == ["rank 0 in read_sample at <stdin>:3"]


def test_an_isolated_rank_is_profiled(server: LiveServer, spied: bool) -> None:
    token = member(server, "ada")
    job = submit(server, token, program(SLEEPS))
    with client_of(server, token) as client:
        until(lambda: [one.text for one in client.logs(job)].count("up") == 1, "the rank")
        view = client.profile(job, seconds=1)
        client.stop(job, force=True)
    profile = view["ranks"][0]["profile"]
    assert (profile["source"], profile["problem"]) == ("py-spy" if spied else "signal", "")
    assert "read_sample" in [frame["function"] for frame in profile["frames"]]


def test_a_link_in_place_of_its_file_is_not_followed(server: LiveServer, spied: bool) -> None:
    secret = server.home / "config.toml"
    view = taken(server, member(server, "eve"), LINKED.format(secret=secret) + program(SLEEPS))
    (process, *_) = [one for one in view["ranks"][0]["processes"] if one["name"].startswith("python")]
    assert process["source"] == ("py-spy" if spied else "kernel"), process["problem"]
    assert "cpus = 32" not in str(view)
