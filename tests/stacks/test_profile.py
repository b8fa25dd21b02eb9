"""Profiles: where ranks spend their time, by py-spy and by the handler in the process, merged over all ranks."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exec_kit import client_of, muster
from ingest_kit import wait_for
from launcher_kit import LauncherFixture, launcher_fixture, order
from live import LiveServer, live_server, until
from muster import wire
from muster.monitor.profiles import Frame, folded, functions, merged
from muster.runtime import profile
from muster.runtime.profile import Place, Seen, bounded, from_raw
from muster.track.stacks import stacks_row

PROGRAM = textwrap.dedent("""
    import os, time
    def burn():
        until = time.monotonic() + 0.03
        while time.monotonic() < until:
            pass
    def wait_for_data():
        time.sleep(0.01)
    def step():
        burn()
        wait_for_data()
    print("up", flush=True)
    while True:
        step()
""").strip()


def names(found: dict[str, Any]) -> Counter[str]:
    """How often each function was the innermost one of the program."""
    seen: Counter[str] = Counter()
    for stack in found["stacks"]:
        own = [name for at in stack["at"] if (name := found["frames"][at]["function"]) in ("burn", "wait_for_data")]
        seen[own[-1] if own else "other"] += stack["count"]
    return seen


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LauncherFixture]:
    with launcher_fixture(tmp_path) as made:
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / "train.py").write_text(PROGRAM)
        yield made


@pytest.mark.parametrize(("spy", "source", "least"), [("", "py-spy", 20), ("off", "signal", 3)])
def test_a_worker_tells_where_its_ranks_spend_their_time(
    shop: LauncherFixture, spy: str, source: str, least: int
) -> None:
    folder = shop.folder(f"exec {sys.executable} train.py", nproc=2)
    launcher = shop.start(folder, **{wire.PY_SPY: spy})
    wait_for(lambda: all("up\n" in shop.server.log(rank) for rank in range(2)), "the start of the ranks")
    order(folder, launcher.pid, wire.Command(5, "stacks", grace=3.0))
    for rank in range(2):
        (doc,) = wait_for(lambda rank=rank: shop.server.documents("stacks", rank), "the profile")
        found = doc["profile"]
        assert (found["source"], found["problem"], found["left_out"]) == (source, "", 0)
        seen = names(found)
        assert seen["burn"] > seen["wait_for_data"] > 0, seen  # one that waits is seen, too
        assert found["samples"] == seen.total() >= least
        assert found["frames"][found["stacks"][0]["at"][0]]["function"] == "<module>"
        assert doc["processes"][0]["threads"][0]["frames"], "the stacks of the first moment are there as well"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("profile") / "muster", "--nodes", "2", config="cpus = 8\n") as server:
        (server.home / "train.py").write_text(PROGRAM)
        yield server


@pytest.fixture(scope="module")
def job(server: LiveServer) -> str:
    job = str(server.submit("exec python train.py", nproc=1, num_nodes=2)["id"])
    with client_of(server) as client:
        until(lambda: [one.text for one in client.logs(job)].count("up") == 2, "the ranks")
    return job


def run(server: LiveServer, *words: str) -> subprocess.CompletedProcess[bytes]:
    process = muster(server, "profile", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate()
    return subprocess.CompletedProcess(shlex.split("muster profile"), process.returncode, out, err)


def test_the_command_line_shows_functions_and_writes_folded_stacks(server: LiveServer, job: str) -> None:
    file = server.home / "folded.txt"
    done = run(server, job, "--for", "2s", "--out", str(file))
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith(f"{job}, 2 of 2 ranks, "), done.stderr
    assert any("burn" in line and "train.py:" in line for line in lines)
    stack, count = file.read_text().splitlines()[0].rsplit(" ", 1)
    assert (stack.split(";")[0].startswith("<module> ("), int(count) > 0) == (True, True)
    one = json.loads(run(server, job, "--json", "--rank", "1", "--last").stdout)
    assert [rank["rank"] for rank in one["ranks"]] == [1]
    assert names(one["ranks"][0]["profile"])["burn"] > 0
    for words in (["--for", "2h"], ["--for", "soon"], ["--rank", "2", "--last"]):
        assert run(server, job, *words).returncode == 2


def test_the_client_of_a_job_profiles_it(server: LiveServer, job: str) -> None:
    with client_of(server) as client:
        view = client.job(job).profile(seconds=1.0)
        assert {one["rank"] for one in view["ranks"]} == {0, 1}
        stacks = merged(view["ranks"])
        assert "burn" in [one.name for one in functions(stacks)[:3]]
        assert client.kept_stacks(job)[0]["id"] == view["id"]


def test_main_threads_alone_count_whatever_the_words_of_a_process_are() -> None:
    text = (
        'process 7:"python -c a;b";thread (7): MainThread;<module> (/x y/train.py:3);step (/x y/train.py:1) 4\n'
        'process 7:"python";thread (9): helper;run (t.py:1) 9\n'
        'process 7:"python";process 8:"python worker";thread (8): MainThread;<module> (w.py:2) 3\n'
        "py-spy> Wrote raw flamegraph data to '/dev/stdout'. Samples: 16 Errors: 0\n"
        "thread (7): MainThread;odd 1\n"
    )
    assert from_raw(text, [7, 8]) == {
        (Place("<module>", "/x y/train.py", 3), Place("step", "/x y/train.py", 1)): 4,
        (Place("<module>", "w.py", 2),): 3,
        (Place("odd", "", 0),): 1,
    }


def test_rare_stacks_are_left_out_of_a_profile_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "DOC_BYTES", 5000)
    seen = Seen({(Place("main", "m.py", 1), Place(f"f{at}", "m.py", at)): at for at in range(1, 200)})
    found = bounded(seen, {})
    assert len(json.dumps(found)) <= 5000
    told = [stack["count"] for stack in found["stacks"]]
    assert told == sorted(told, reverse=True)
    assert (max(told), sum(told) + found["left_out"]) == (199, found["samples"])


def test_a_function_that_calls_itself_counts_once() -> None:
    a, b = Frame("a", "m.py", 1), Frame("b", "m.py", 2)
    again = Frame("a", "m.py", 9)
    stacks = Counter({(a, b): 2, (a, again): 3, (a,): 1})
    found = {one.name: (one.own, one.whole, one.lines) for one in functions(stacks)}
    assert found == {"a": (4, 6, [(1, 6), (9, 3)]), "b": (2, 2, [(2, 2)])}
    assert folded(stacks).splitlines()[0] == "a (m.py:1);a (m.py:9) 3"


def test_a_profile_that_is_none_is_refused() -> None:
    good = bounded(Seen({(Place("main", "m.py", 1),): 3}), {"seconds": 1.0, "source": "py-spy", "problem": ""})
    doc = {"order": 5, "world": 1, "problem": "", "processes": [], "time": 1.0}
    assert json.loads(stacks_row("r", 1, 0, {**doc, "profile": good})["doc"])["profile"]["samples"] == 3
    for wrong in ({"at": [1], "count": 3}, {"at": [-1], "count": 3}, {"at": [0], "count": 0}):
        with pytest.raises(ValueError, match="that there is not"):
            stacks_row("r", 1, 0, {**doc, "profile": {**good, "stacks": [wrong]}})
