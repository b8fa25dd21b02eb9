"""Spare processes: their ranks see what a cold start sees, what does not fit starts cold, and nothing is left over."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from local_shop import NODES, Shop

from ingest_kit import ingest_server, wait_for
from muster.engines.base import GangLaunch
from muster.engines.local import LocalEngine
from muster.engines.local_launch import LocalConfig, describe_gang
from muster.runtime import processes, spare_rules

# Writes what a program can see of its process; then it waits to be killed.
PROGRAM = r"""
import numpy, atexit, json, multiprocessing, os, random, resource, signal, subprocess, sys, threading, time
def child(queue): queue.put([sys.argv[1:], __name__])
def look():
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    spawned = queue.get()
    process.join()
    main = sys.modules["__main__"]
    with open("/proc/self/environ", "rb") as file:
        shown = {a: b for a, _, b in (e.decode().partition("=") for e in file.read().split(b"\0") if e)}
    with open("/proc/self/cmdline", "rb") as file:
        line = file.read().decode().split("\0")
    with open("/proc/self/status") as file:
        status = {a: b.strip() for a, _, b in (one.partition(":") for one in file)}
    told = subprocess.run(["env"], capture_output=True, text=True).stdout.splitlines()
    stack, frame = [], sys._getframe()
    while frame:
        stack.append(frame.f_code.co_filename)
        frame = frame.f_back
    return {
        "argv": sys.argv, "orig_argv": sys.orig_argv, "line": line, "path": sys.path, "flags": str(sys.flags),
        "executable": sys.executable, "main": sorted(vars(main)), "file": main.__file__, "spec": str(main.__spec__),
        "stack": stack, "site": sys.modules["sitecustomize"].__file__,
        "meta": [type(f).__name__ for f in sys.meta_path if not isinstance(f, type)],
        "environ": dict(os.environ), "told": dict(one.partition("=")[::2] for one in told if not one.startswith("_=")),
        "shown_as_it_is": shown == dict(os.environ), "spawned": spawned,
        "signals": [str(signal.getsignal(n)) for n in range(1, 32)],
        "mask": str(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "caught": [status[name] for name in ("SigBlk", "SigIgn", "SigCgt", "Umask", "CapEff", "NoNewPrivs", "Threads")],
        "cwd": os.getcwd(), "fds": sorted(set(os.listdir("/proc/self/fd"))), "stdin": os.readlink("/proc/self/fd/0"),
        "out": [os.readlink(f"/proc/self/fd/{n}").partition(":")[0] for n in (1, 2)],
        "text": [(f.encoding, f.errors, f.line_buffering, f.write_through) for f in (sys.stdout, sys.stderr)],
        "limits": [resource.getrlimit(n) for n in range(16)], "nice": os.nice(0),
        "leads": os.getsid(0) == os.getpid() == os.getpgrp(),
        "main_thread": threading.main_thread() is threading.current_thread(), "alive": threading.active_count(),
        "frozen_gc": __import__("gc").get_freeze_count(), "warnings": len(sys.warnoptions),
    }
if __name__ == "__main__":
    seen = look()
    draws = [random.random(), numpy.random.random(), list(multiprocessing.current_process().authkey)]
    rank, attempt = os.environ["RANK"], os.environ["MUSTER_ATTEMPT"]
    atexit.register(lambda: print("left", flush=True))
    print("printed by", rank, flush=True)
    with open(f"seen-{attempt}-{rank}.draft", "w") as file:
        json.dump({"seen": seen, "draws": draws, "pid": os.getpid(), "parent": os.getppid()}, file)
    os.rename(f"seen-{attempt}-{rank}.draft", f"seen-{attempt}-{rank}")
    while not os.path.exists("end"):
        time.sleep(0.05)
    raise ValueError("as it should")
"""
COMMAND = f"{sys.executable} -u program.py --lr $LR 'two words'"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with ingest_server() as server:
        made = Shop(tmp_path_factory.mktemp("spare"), server)
        (made.root / "program.py").write_text(PROGRAM)
        try:
            yield made
        finally:
            made.close()


def gang(shop: Shop, job: str, attempt: int, **changes: Any) -> GangLaunch:
    fields = {"run": COMMAND, "nproc": 2, "envs": {"LR": "3e-4"}, "warm": True, "token": f"{job}-{attempt}", **changes}
    run = fields.pop("run")
    return replace(shop.gang("", job=job, attempt=attempt, **fields), run=run)


def seen(shop: Shop, attempt: int, rank: int) -> dict[str, Any]:
    place = shop.root / f"seen-{attempt}-{rank}"
    wait_for(place.exists)
    found: dict[str, Any] = json.loads(place.read_text())
    return found


def spare_of(shop: Shop, job: str, attempt: int) -> int:
    """The process that is ready for the attempt after this one."""
    place = shop.attempts / job / str(attempt) / "0" / "spare"
    return int(wait_for(lambda: place.exists() and place.read_text()))


def launcher_of(shop: Shop, job: str, attempt: int) -> int:
    return int(json.loads((shop.attempts / job / str(attempt) / "0" / "launcher.json").read_text())["pid"])


def launcher_log(shop: Shop, job: str, attempt: int) -> str:
    return (shop.attempts / job / str(attempt) / "0" / "launcher.log").read_text()


def gone(*pids: int) -> bool:
    return not any((found := processes.stat(pid)) and found.state != "Z" for pid in pids)


def die(shop: Shop, engine: LocalEngine, job: str, attempt: int, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: [r for r in engine.poll() if (r.job, r.attempt, r.status) == (job, attempt, "ended")])


def plain(found: dict[str, Any], shop: Shop) -> dict[str, Any]:
    """Without what differs between any two attempts and ranks."""
    text = json.dumps(found["seen"])
    env = found["seen"]["environ"]
    for name in ("MUSTER_RANK_DIR", "MUSTER_GANG", "MASTER_PORT"):
        text = text.replace(env[name], name)
    text = text.replace(f"/{env['MUSTER_ATTEMPT']}/0/", "/ATTEMPT/0/")
    made: dict[str, Any] = json.loads(text)
    for one in (made["environ"], made["told"]):
        for name in ("RANK", "LOCAL_RANK", "MUSTER_ATTEMPT", "MASTER_PORT"):
            assert one.pop(name)
    return made


def test_ranks_of_a_spare_process_see_what_a_cold_start_sees_and_nothing_is_left(base: Shop) -> None:
    with base.engine() as engine:
        engine.launch(gang(base, "same", 2))
        cold = [seen(base, 2, rank) for rank in (0, 1)]
        pid = spare_of(base, "same", 2)
        die(base, engine, "same", 2, cold[1]["pid"])
        engine.launch(gang(base, "same", 3))
        warm = [seen(base, 3, rank) for rank in (0, 1)]
        assert "forked from a spare process" in launcher_log(base, "same", 3)
        assert plain(warm[0], base) == plain(cold[0], base)
        assert plain(warm[1], base) == plain(cold[1], base)
        assert warm[0]["seen"]["shown_as_it_is"]
        draws = [value for one in (*cold, *warm) for value in one["draws"]]
        assert all(draws.count(value) == 1 for value in draws)
        assert {one["parent"] for one in warm} == {launcher_of(base, "same", 3)}
        assert gone(pid)
        assert {one["pid"] for one in warm} <= set(base.left()), "it is found by its mark, as any rank is"
        spare_of(base, "same", 3)
        (base.root / "end").touch()
        (found,) = wait_for(lambda: [r for r in engine.poll() if r.attempt == 3 and r.status == "ended"])
        (base.root / "end").unlink()
        assert found.exit is not None
        assert (found.exit.reason, found.exit.exit_code) == ("user_error", 1)
        trace = found.exit.detail.partition("Traceback (most recent call last):\n")[2]
        assert trace.count("File ") == 1  # the program's own line alone
        engine.launch(gang(base, "same", 4))
        last = [seen(base, 4, rank)["pid"] for rank in (0, 1)]
        assert "forked from a spare process" in launcher_log(base, "same", 4)
        os.kill(launcher_of(base, "same", 4), signal.SIGKILL)
        wait_for(lambda: gone(*last))  # as all ranks do, they die with their launcher
        wait_for(lambda: [r for r in engine.poll() if r.attempt == 4 and r.status == "ended"])
        engine.launch(gang(base, "same", 5))
        seen(base, 5, 0)
        following = spare_of(base, "same", 5)
        above = processes.stat(following)
        assert above is not None
        assert set(engine.kept()) == {"same"}
        engine.release("same")
        assert not engine.kept()
        wait_for(lambda: gone(following, above.parent))
        engine.stop("same", 5, 0.0, "user_stop")
        wait_for(lambda: [r for r in engine.poll() if r.attempt == 5 and r.status == "ended"])
        assert not base.left()


def test_what_does_not_fit_starts_cold(base: Shop) -> None:
    """Another environment; a module beside the program; a spare process that was killed, with its launcher."""
    # Not the first attempt, which gets a spare process only after some seconds.
    changed: list[tuple[str, dict[str, Any]]] = [("LR", {"envs": {"LR": "1e-4"}}), ("secrets.py", {}), ("", {})]
    for number, (word, changes) in enumerate(changed):
        job = f"cold-{number}"
        for place in base.root.glob("seen-*"):
            place.unlink()
        with base.engine() as engine:
            engine.launch(gang(base, job, 2, nproc=1))
            first = seen(base, 2, 0)
            pid = spare_of(base, job, 2)
            above = processes.stat(pid)
            assert above is not None
            if word == "secrets.py":
                (base.root / word).write_text(
                    "from random import SystemRandom\nrandbits = SystemRandom().getrandbits\n"
                )
            if not word:
                os.kill(above.parent, signal.SIGKILL)
                wait_for(lambda pid=pid: gone(pid))
            die(base, engine, job, 2, first["pid"])
            engine.launch(gang(base, job, 3, nproc=1, **changes))
            again = seen(base, 3, 0)
            assert again["seen"]["argv"][2] == changes.get("envs", {"LR": "3e-4"})["LR"]
            log = launcher_log(base, job, 3)
            assert "forked" not in log
            assert word in log
            wait_for(lambda pid=pid: gone(pid))
            (base.root / "secrets.py").unlink(missing_ok=True)
            next_one = spare_of(base, job, 3)
            die(base, engine, job, 3, again["pid"])
        wait_for(lambda next_one=next_one: gone(next_one))  # the engine is closed: the server is gone


def test_a_gang_that_a_new_server_adopts_gets_one_too(base: Shop) -> None:
    for place in base.root.glob("seen-*"):
        place.unlink()
    with base.engine() as engine:
        engine.launch(gang(base, "adopted", 1, nproc=1))
        seen(base, 1, 0)
    with base.engine() as engine:
        pid = spare_of(base, "adopted", 1)
        assert not gone(pid)
        engine.stop("adopted", 1, 0.0, "user_stop")
        wait_for(lambda: [r for r in engine.poll() if (r.job, r.status) == ("adopted", "ended")])
        engine.release("adopted")
        wait_for(lambda: gone(pid))


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("python train.py", True),
        ("exec /opt/x/bin/python3.11 -u -m pkg.train --lr $LR \"a b\" 'c; d' --x=${LR}", True),
        ("python train.py --rank $RANK", False),
        ("python train.py --job ${MUSTER_JOB}", False),
        ("python train.py --data $FILES", False),
        ("cd x && python train.py", False),
        ("python train.py; echo done", False),
        ("python train.py > log", False),
        ("python train.py $(date)", False),
        ("python train.py `date`", False),
        ('python train.py "$(date)"', False),
        ("python\ntrain.py", False),
        ("python -c 'print()'", False),
        ("python -I train.py", False),
        ("LR=1 python train.py", False),
        ("torchrun train.py", False),
        ("python data/*.py", False),
        ("python", False),
    ],
)
def test_commands(base: Shop, run: str, expected: bool) -> None:
    given = gang(base, "words", 1, run=run, envs={"LR": "1", "FILES": "a/*"})
    (launch,) = describe_gang(LocalConfig(base.root, NODES), given)
    assert spare_rules.fits(launch) is expected
    assert not spare_rules.fits(replace(launch, warm=False))
    assert not spare_rules.fits(replace(launch, secrets=("TOKEN",)))


def test_environments_are_compared() -> None:
    old = {"A": "1", "RANK": "0", "MUSTER_JOB": "a", "PYTHONPATH": "/own:/attempts/1/pkg"}
    assert not spare_rules.difference(old, {**old, "RANK": "1", "PYTHONPATH": "/own:/attempts/2/pkg"})
    assert spare_rules.difference(old, {**old, "A": "2"}) == "A"
    assert spare_rules.difference(old, {**old, "CUDA_VISIBLE_DEVICES": "0"}) == "CUDA_VISIBLE_DEVICES"
    assert spare_rules.difference(old, {**old, "PYTHONPATH": "/other:/attempts/2/pkg"}) == "PYTHONPATH"
    assert spare_rules.memory_allows() in (True, False)
