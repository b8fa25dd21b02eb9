"""Stacks that a real launcher takes of real ranks: by py-spy, by the handler in the process, and from the kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest_kit import wait_for
from launcher_kit import LauncherFixture, launcher_fixture, order
from muster import wire
from muster.monitor.stacks import group
from muster.runtime import processes, rank_site, stacks

PYTHON = sys.executable
PROGRAM = textwrap.dedent("""
    import ctypes, os, threading, time
    def wait_for_data():
        time.sleep(1000)
    def hold_the_gil():
        ctypes.PyDLL(None).sleep(1000)
    def feed():
        time.sleep(1000)
    threading.Thread(target=feed, name="feeder", daemon=True).start()
    print("up", flush=True)
    [wait_for_data, hold_the_gil][int(os.environ["RANK"]) % 2]()
""").strip()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LauncherFixture]:
    with launcher_fixture(tmp_path) as made:
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / "train.py").write_text(PROGRAM)
        yield made


def start(shop: LauncherFixture, run: str, spy: str = "", **changes: Any) -> tuple[Path, int]:
    """A worker whose ranks are all up, and its launcher. `spy`: as MUSTER_PY_SPY has it."""
    folder = shop.folder(run, **changes)
    launcher = shop.start(folder, **{wire.PY_SPY: spy})
    ranks = wire.Launch.from_json((folder / "launch.json").read_text()).nproc
    wait_for(lambda: all("up\n" in shop.server.log(rank) for rank in range(ranks)), "the start of the ranks")
    return folder, launcher.pid


def take(shop: LauncherFixture, folder: Path, launcher: int, ident: int, ranks: int = 1) -> list[Any]:
    """The documents of all ranks for one order."""
    order(folder, launcher, wire.Command(ident, "stacks"))
    found = []
    for rank in range(ranks):
        docs = wait_for(
            lambda rank=rank: [one for one in shop.server.documents("stacks", rank) if one["order"] == ident]
        )
        assert len(docs) == 1
        found.append({**docs[0], "rank": rank})
    return found


def take_again(shop: LauncherFixture, folder: Path, launcher: int, ranks: int) -> list[Any]:
    seen = [one["order"] for one in shop.server.documents("stacks", 0)]
    return take(shop, folder, launcher, max(seen, default=0) + 1, ranks)


def texts(docs: list[Any]) -> list[str]:
    return [one["text"] for one in group(docs)]


def pid_of(folder: Path, docs: list[Any]) -> int:
    return int(docs[0]["processes"][0]["pid"])


@pytest.mark.parametrize(("spy", "source"), [("", "py-spy"), ("off", "signal")])
def test_every_rank_is_seen_also_one_that_holds_the_gil(shop: LauncherFixture, spy: str, source: str) -> None:
    folder, launcher = start(shop, f"exec {PYTHON} train.py", spy, nproc=2)
    docs = take(shop, folder, launcher, 5, 2)
    assert [doc["processes"][0]["source"] for doc in docs] == [source, source]
    assert texts(docs) == ["rank 0 in wait_for_data at train.py:3", "rank 1 in hold_the_gil at train.py:5"]
    (process,) = docs[0]["processes"]
    main, feeder = process["threads"]
    assert (main["main"], main["state"], feeder["main"]) == (True, "sleeping", False)
    assert feeder["frames"][0]["function"] == "feed"
    assert [frame["function"] for frame in main["frames"]] == ["wait_for_data", "<module>"]
    assert (docs[0]["world"], docs[0]["id"]) == (2, "5:0")


def test_the_second_order_is_answered_by_the_handler_too(shop: LauncherFixture) -> None:
    folder, launcher = start(shop, f"exec {PYTHON} train.py", "off")
    first, second = take(shop, folder, launcher, 5), take(shop, folder, launcher, 6)
    assert texts(first) == texts(second) == ["rank 0 in wait_for_data at train.py:3"]


@pytest.mark.parametrize("spy", ["", "off"])
def test_a_stopped_rank_is_named_as_such_and_stops_nothing_else(shop: LauncherFixture, spy: str) -> None:
    folder, launcher = start(shop, f"exec {PYTHON} train.py", spy)
    pid = pid_of(folder, take(shop, folder, launcher, 5))
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: (found := processes.stat(pid)) and found.state == "T")
    (text,) = texts(take(shop, folder, launcher, 6))
    where = " in wait_for_data at train.py:3" if not spy else ""
    assert text.startswith(f"rank 0 stopped (SIGSTOP){where}")
    size = (folder / "rank-0" / rank_site.FILE).stat().st_size
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: (found := processes.stat(pid)) and found.state == "S")
    assert (folder / "rank-0" / rank_site.FILE).stat().st_size == size  # no signal had waited for it


def test_programs_without_python_and_processes_below_a_shell(shop: LauncherFixture) -> None:
    run = f"echo up; if [ $RANK = 0 ]; then exec sleep 612; fi; {PYTHON} train.py; true"
    folder, launcher = start(shop, run, nproc=3)
    sleeper, shell, _ = docs = take(shop, folder, launcher, 5, 3)
    assert [one["name"] for one in sleeper["processes"]] == ["sleep"]
    assert "program sleep (no Python)" in texts(docs)[0]
    wait_for(lambda: len(take_again(shop, folder, launcher, 3)[1]["processes"]) > 1)
    assert shell["processes"][0]["name"] in ("bash", "sh")


def test_a_rank_that_has_ended_says_so(shop: LauncherFixture) -> None:
    folder, launcher = start(shop, "echo up; [ $RANK = 0 ] || exec sleep 612", nproc=2)
    docs = wait_for(lambda: (made := take_again(shop, folder, launcher, 2)) and made[0]["problem"] and made)
    assert docs[0]["problem"] == "the rank has ended with exit code 0"
    assert docs[1]["processes"][0]["name"] == "sleep"


def test_a_py_spy_that_may_not_look_or_hangs_leaves_it_to_the_handler(shop: LauncherFixture) -> None:
    refuses = shop.root / "refuses"
    refuses.write_text("#!/bin/sh\necho 'Error: Permission Denied' >&2\nexit 1\n")
    refuses.chmod(0o755)
    folder, launcher = start(shop, f"exec {PYTHON} train.py", str(refuses))
    assert take(shop, folder, launcher, 5)[0]["processes"][0]["source"] == "signal"
    refuses.write_text("#!/bin/sh\nexec sleep 1000\n")
    assert take(shop, folder, launcher, 6)[0]["processes"][0]["source"] == "signal"


def test_a_process_that_closed_the_file_of_its_handler_gets_no_signal(shop: LauncherFixture) -> None:
    """The handler would write to whatever has the number of that file by now."""
    code = "import os, time; os.closerange(3, 2000); fd = os.open('other', os.O_WRONLY | os.O_CREAT)"
    code += "; [os.dup2(fd, number) for number in range(500, 510)]; print('up', flush=True); time.sleep(1000)"
    folder, launcher = start(shop, f'exec {PYTHON} -c "{code}"', "off")
    (doc,) = take(shop, folder, launcher, 5)
    assert doc["processes"][0]["source"] == "kernel"
    assert "it did not answer" in doc["processes"][0]["problem"]
    assert (shop.root / "work" / "other").read_bytes() == b""


def test_a_process_with_another_handler_is_not_disturbed(shop: LauncherFixture) -> None:
    code = "import signal, time; signal.signal(28, lambda *_: print('disturbed', flush=True)); print('up', flush=True)"
    folder, launcher = start(shop, f'exec {PYTHON} -S -c "{code}; time.sleep(1000)"', "off")
    (doc,) = take(shop, folder, launcher, 5)
    assert doc["processes"][0]["source"] == "kernel"
    assert "disturbed" not in shop.server.log()


def test_a_stop_that_is_older_than_the_stacks_is_obeyed(shop: LauncherFixture) -> None:
    start(shop, "echo up; exec sleep 612")
    shop.server.commands["token"] = wire.Command(9, "stacks")
    wait_for(lambda: shop.server.documents("stacks"))
    shop.server.commands["token"] = wire.Command(7, "stop", "user_stop", grace=60.0)
    wait_for(lambda: shop.server.attempt().exits, "the end")


def test_nccls_flight_record_is_kept_with_the_run(shop: LauncherFixture) -> None:
    envs = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(shop.root / "trace_")}
    (shop.root / "trace_1").write_bytes(b"record of rank 1")
    folder, launcher = start(shop, f"exec {PYTHON} train.py", nproc=2, envs=envs)
    take(shop, folder, launcher, 5, 2)
    (found,) = wait_for(lambda: shop.server.documents("artifact", 0), "the record")
    assert (found["path"], found["rank"]) == ("stacks/trace_1", 1)
    assert shop.server.blobs[found["digest"]] == b"record of rank 1"


def test_the_hook_runs_the_sitecustomize_that_it_stands_before(tmp_path: Path) -> None:
    pkg, own, rank = (tmp_path / name for name in ("pkg", "own", "rank"))
    for folder in (pkg, own, rank):
        folder.mkdir()
    (pkg / "sitecustomize.py").symlink_to(Path(rank_site.__file__))
    script = "import sys; own = sys.modules.get('sitecustomize')\n"
    script += "print(getattr(own, '__file__', ''), [p for p in sys.path if p.startswith(sys.argv[1])])"

    def run(code: str | None) -> tuple[str, str]:
        if code is not None:
            (own / "sitecustomize.py").write_text(code)
        env = {"PYTHONPATH": f"{pkg}:{own}", "MUSTER_RANK_DIR": str(rank)}
        done = subprocess.run(
            [PYTHON, "-c", script, str(tmp_path)], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.strip(), done.stderr

    both = f"['{pkg}', '{own}']"
    out, err = run(None)  # ours, or one that the machine's Python has, as Debian's does
    assert (out.endswith(f"/sitecustomize.py {both}"), err) == (True, "")
    assert run("print('own')") == (f"own\n{own}/sitecustomize.py {both}", "")
    out, err = run("import no_such_module")
    assert "no_such_module" in err
    assert both in out
    changed, _ = run("import sys; sys.path.insert(0, sys.path[0] + '/more')")
    assert str(pkg) in changed
    assert (rank / rank_site.FILE).exists()


def test_a_document_is_bounded(tmp_path: Path) -> None:
    threads = [
        {
            "name": "t",
            "main": at == 0,
            "state": "",
            "wait": "",
            "frames": [{"function": "f" * 300, "file": "x", "line": 1}] * 100,
        }
        for at in range(20)
    ]
    found = [{"pid": pid, "name": "python", "source": "py-spy", "problem": "", "threads": threads} for pid in range(30)]
    kept = stacks._bounded(found)
    assert 1 <= len(kept) < 30
    assert all(len(one["threads"]) == 1 for one in kept)
    assert len(str(kept)) < stacks.DOC_BYTES
