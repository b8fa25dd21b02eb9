"""`muster cp` with a real server and a real job: both ways, what it refuses, and what a break leaves."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from exec_kit import ends, held, muster
from live import LiveServer, live_server, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("cp"), "--nodes", "2", config="cpus = 8\n") as server:
        yield server


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("job-folder")


@pytest.fixture(scope="module")
def job(server: LiveServer, work: Path) -> str:
    return held(server, workdir=str(work), num_nodes=2)


def cp(server: LiveServer, *words: str) -> tuple[int, str, str]:
    done = muster(server, "cp", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = done.communicate()
    return done.returncode, out.decode(), " ".join(err.decode().split())


def test_files_and_folders_go_both_ways(server: LiveServer, job: str, work: Path, tmp_path: Path) -> None:
    large = os.urandom(5_000_001)
    (tmp_path / "tree" / "in").mkdir(parents=True)
    (tmp_path / "tree" / "in" / "large").write_bytes(large)
    (tmp_path / "tree" / "link").symlink_to("in/large")
    done = cp(server, str(tmp_path / "tree"), f"{job}:")
    assert done[0] == 0, done
    assert (work / "tree" / "in" / "large").read_bytes() == large
    code, out, _ = cp(server, "--json", f"{job}:tree@1", str(tmp_path / "back"))
    assert (code, json.loads(out)) == (0, {"files": 1, "bytes": len(large), "skipped": 0})
    assert (tmp_path / "back" / "link").read_bytes() == large
    assert cp(server, "--worker", "1", f"{job}:{work}/tree/in/large", str(tmp_path))[0] == 0
    assert (tmp_path / "large").read_bytes() == large
    told = [event["data"]["command"] for event in server.get("/v1/events", job=job, kind="exec.opened")["events"]]
    assert told == ["muster cp receive .", "muster cp send tree", f"muster cp send {work}/tree/in/large"]
    assert [one["code"] for one in ends(server, job)] == [0, 0, 0]


def test_what_can_not_be_copied_is_told(server: LiveServer, job: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    for words, told in (
        ((f"{job}:no-such", str(tmp_path / "b")), "No such file or directory"),
        ((str(tmp_path / "a"), f"{job}:no/such/folder/a"), "there is no folder no/such/folder"),
        ((str(tmp_path / "none"), f"{job}:a"), "No such file or directory"),
        ((f"{job}:.", str(tmp_path / "no" / "folder")), "there is no folder"),
        ((f"{job}:a@7", str(tmp_path / "b")), "there is no worker 7"),
        (("no-such-job:a", str(tmp_path / "b")), "There is no job"),
    ):
        code, _, err = cp(server, *words)
        assert (code, told in err) == (1, True), err
    for words in ((f"{job}:a", f"{job}:b"), (str(tmp_path / "a"), str(tmp_path / "b"))):
        assert cp(server, *words)[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_client_that_is_killed_leaves_no_part_under_the_name(
    server: LiveServer, job: str, work: Path, tmp_path: Path
) -> None:
    (tmp_path / "large").write_bytes(bytes(400_000_000))
    copy = muster(server, "cp", str(tmp_path / "large"), f"{job}:large")
    until(lambda: [path for path in work.glob(".large.*.part") if path.stat().st_size > 1_000_000], "a part of it")
    copy.kill()
    copy.wait()
    before = len(ends(server, job))
    until(lambda: len(ends(server, job)) > before or not processes_of(work), "the end of the session")
    until(lambda: not list(work.glob("*large*")), "nothing to be left of it")


def processes_of(folder: Path) -> list[str]:
    """Processes that have a file of the folder open."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            found += [str(link)] if str(link.readlink()).startswith(f"{folder}/.large") else []
        except OSError:
            continue
    return found


def test_of_a_job_that_is_over_nothing_can_be_copied(server: LiveServer, tmp_path: Path) -> None:
    over = server.submit("true")["id"]
    server.wait(over, "succeeded")
    code, _, err = cp(server, f"{over}:a", str(tmp_path))
    assert code == 1
    assert f"muster runs artifacts {over}" in err
