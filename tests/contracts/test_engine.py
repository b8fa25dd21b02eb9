"""The engine contract, over every registered engine: idempotent by (job, attempt), and true to what runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from ingest_kit import IngestServer, ingest_server, wait_for
from muster.core.errors import EngineError
from muster.core.resources import Resources
from muster.engines.base import Engine, GangLaunch, Incremental, NodeInfo, Seat, WorkerReport
from muster.engines.local import LocalConfig, LocalEngine, describe_machine
from muster.engines.sim import SimEngine
from muster.wire import WorkerExit


class Bench(Protocol):
    """An engine under test, and a way to let its workers do something."""

    engine: Engine

    def run(self, kind: str) -> str:
        """What a rank runs: `ok` ends well, `bad` ends with exit code 3, `long` goes on until it is stopped."""

    def until(self, look: Callable[[], Any]) -> Any:
        """Lets time pass until `look` finds something."""

    def restart(self) -> None:
        """What a server that was killed and started again does."""

    def starts(self, job: str, attempt: int) -> int:
        """How many ranks were ever started for an attempt."""

    def close(self) -> None:
        """Leaves nothing behind."""


class LocalBench:
    def __init__(self, root: Path, server: IngestServer) -> None:
        self._root = root
        self._server = server
        self._open()

    def _open(self) -> None:
        nodes = describe_machine(2, accelerators="H100:2", cpus=4.0, memory=1 << 30)
        engine = LocalEngine(LocalConfig(self._root / "engine", nodes, urls=lambda: [self._server.url]))
        engine.start()
        self.engine: Engine = engine

    def run(self, kind: str) -> str:
        end = {"ok": "exit 0", "bad": "exit 3", "long": "exec sleep 600"}[kind]
        return f"echo up >> {self._root}/$MUSTER_JOB.$MUSTER_ATTEMPT; {end}"

    def until(self, look: Callable[[], Any]) -> Any:
        return wait_for(look)

    def restart(self) -> None:
        self.engine.close()
        self._open()

    def starts(self, job: str, attempt: int) -> int:
        path = self._root / f"{job}.{attempt}"
        return len(path.read_text().split()) if path.exists() else 0

    def close(self) -> None:
        left = {(report.job, report.attempt) for report in self.engine.poll()}
        for job, attempt in left:
            self.engine.stop(job, attempt, 0.0, "user_stop")
        wait_for(lambda: all(report.status == "ended" for report in self.engine.poll()))
        for job, attempt in left:
            self.engine.forget(job, attempt)
        wait_for(lambda: self.engine.poll() == [] and not list((self._root / "engine" / "attempts").iterdir()))
        self.engine.close()


def local_bench(root: Path) -> Iterator[Bench]:
    with ingest_server() as server:
        bench = LocalBench(root, server)
        yield bench
        bench.close()


class SimBench:
    """Time passes when somebody waits: then gangs that end by themselves do."""

    def __init__(self) -> None:
        resources = Resources(4000, 1 << 30, 2, "H100")
        self._engine = SimEngine([NodeInfo(f"n{i}", "main", resources) for i in range(2)], time.monotonic)
        self.engine: Engine = self._engine

    def run(self, kind: str) -> str:
        return kind

    def until(self, look: Callable[[], Any]) -> Any:
        for (job, attempt), gang in self._engine._gangs.items():
            if gang.launch.run != "long":
                self._engine.end(job, attempt, _SIM_ENDS[gang.launch.run])
        found = look()
        assert found
        return found

    def restart(self) -> None:
        """Whoever asks it is new; the engine is not."""

    def starts(self, job: str, attempt: int) -> int:
        gang = self._engine._gangs[(job, attempt)].launch
        return self._engine.launches.count((job, attempt)) * len(gang.seats) * gang.nproc

    def close(self) -> None:
        self.engine.close()


def sim_bench(root: Path) -> Iterator[Bench]:
    bench = SimBench()
    yield bench
    bench.close()


_SIM_ENDS = {
    "ok": WorkerExit("succeeded", "completed", "", 0.0),
    "bad": WorkerExit("failed", "user_error", "", 0.0, rank=0, exit_code=3),
}
ENGINES: dict[str, Callable[[Path], Iterator[Bench]]] = {"local": local_bench, "sim": sim_bench}


@pytest.fixture(params=ENGINES.values(), ids=ENGINES.keys())
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    yield from request.param(tmp_path)


def gang(bench: Bench, kind: str, job: str = "job-a", attempt: int = 1, workers: int = 1, nproc: int = 1) -> GangLaunch:
    names = [node.name for node in bench.engine.nodes()]
    return GangLaunch(
        job=job,
        attempt=attempt,
        seats=[Seat(names[index]) for index in range(workers)],
        nproc=nproc,
        run=bench.run(kind),
        workdir="/",
        envs={},
        secrets=(),
        token=f"{job}/{attempt}",
        checkpoint_keep=1,
        checkpoint_every=None,
        max_duration=None,
        memory=None,
        stop_grace=5.0,
        trusted=True,
    )


def reports(bench: Bench, job: str = "job-a", attempt: int = 1) -> list[WorkerReport]:
    found = [r for r in bench.engine.poll() if (r.job, r.attempt) == (job, attempt)]
    return sorted(found, key=lambda r: r.worker)


def all_are(bench: Bench, status: str, job: str = "job-a", attempt: int = 1) -> list[WorkerReport]:
    found = reports(bench, job, attempt)
    return found if found and all(r.status == status for r in found) else []


def test_it_is_an_engine_with_distinct_nodes(bench: Bench) -> None:
    assert isinstance(bench.engine, Engine)
    nodes = bench.engine.nodes()
    assert nodes
    assert len({node.name for node in nodes}) == len(nodes)
    assert all(node.resources.milli_cpus > 0 and node.resources.memory > 0 for node in nodes)


def test_a_gang_that_ends_well_is_reported_until_it_is_forgotten(bench: Bench) -> None:
    bench.engine.launch(gang(bench, "ok", workers=2))
    ended = bench.until(lambda: all_are(bench, "ended"))
    assert [(r.worker, r.exit.outcome, r.exit.reason) for r in ended if r.exit] == [
        (0, "succeeded", "completed"),
        (1, "succeeded", "completed"),
    ]
    assert reports(bench) == ended
    bench.engine.forget("job-a", 1)
    assert reports(bench) == []


def test_a_failure_says_how(bench: Bench) -> None:
    bench.engine.launch(gang(bench, "bad"))
    (ended,) = bench.until(lambda: all_are(bench, "ended"))
    assert ended.exit is not None
    assert (ended.exit.outcome, ended.exit.reason, ended.exit.exit_code) == ("failed", "user_error", 3)


def test_launching_twice_is_launching_once(bench: Bench) -> None:
    wanted = gang(bench, "long", workers=2, nproc=2)
    for _ in range(3):
        bench.engine.launch(wanted)
    bench.until(lambda: all_are(bench, "running"))
    bench.engine.launch(wanted)
    bench.until(lambda: bench.starts("job-a", 1) == 4)
    bench.engine.stop("job-a", 1, 1.0, "user_stop")
    bench.until(lambda: all_are(bench, "ended"))
    bench.engine.launch(wanted)
    assert all_are(bench, "ended")
    assert bench.starts("job-a", 1) == 4


def test_stop_ends_every_worker_with_the_reason_given(bench: Bench) -> None:
    bench.engine.launch(gang(bench, "long", workers=2))
    bench.until(lambda: bench.starts("job-a", 1) == 2)
    for _ in range(2):
        bench.engine.stop("job-a", 1, 10.0, "preempted")
    ended = bench.until(lambda: all_are(bench, "ended"))
    assert [(r.exit.outcome, r.exit.reason) for r in ended if r.exit] == [("stopped", "preempted")] * 2


def test_a_stop_right_after_the_launch_is_not_lost(bench: Bench) -> None:
    bench.engine.launch(gang(bench, "long"))
    bench.engine.stop("job-a", 1, 10.0, "user_stop")
    (ended,) = bench.until(lambda: all_are(bench, "ended"))
    assert ended.exit is not None
    assert (ended.exit.outcome, ended.exit.reason) == ("stopped", "user_stop")


def test_attempts_and_jobs_are_apart(bench: Bench) -> None:
    bench.engine.launch(gang(bench, "bad", attempt=1))
    bench.until(lambda: all_are(bench, "ended"))
    bench.engine.launch(gang(bench, "long", attempt=2))
    bench.engine.launch(gang(bench, "long", job="job-b"))
    bench.until(lambda: all_are(bench, "running", attempt=2) and all_are(bench, "running", job="job-b"))
    bench.engine.stop("job-a", 2, 1.0, "user_stop")
    bench.until(lambda: all_are(bench, "ended", attempt=2))
    bench.engine.forget("job-a", 2)
    assert all_are(bench, "ended", attempt=1)
    assert all_are(bench, "running", job="job-b")


def test_what_is_not_known_is_nobodys_trouble(bench: Bench) -> None:
    bench.engine.stop("job-never", 1, 1.0, "user_stop")
    bench.engine.forget("job-never", 1)
    assert bench.engine.poll() == []


def test_a_change_wakes_whoever_waits(bench: Bench) -> None:
    woken = threading.Event()
    bench.engine.on_change(woken.set)
    bench.engine.launch(gang(bench, "long"))
    bench.until(lambda: all_are(bench, "running"))
    woken.clear()
    bench.engine.stop("job-a", 1, 1.0, "user_stop")
    bench.until(woken.is_set)


def test_a_new_server_finds_what_an_old_one_started(bench: Bench) -> None:
    bench.engine.launch(gang(bench, "long"))
    bench.engine.launch(gang(bench, "bad", job="job-b"))
    bench.until(lambda: bench.starts("job-a", 1) == 1)
    (told,) = bench.until(lambda: all_are(bench, "ended", job="job-b"))
    bench.restart()
    assert all_are(bench, "running")
    assert all_are(bench, "ended", job="job-b") == [told]
    bench.engine.launch(gang(bench, "long"))
    bench.engine.stop("job-a", 1, 1.0, "user_stop")
    bench.until(lambda: all_are(bench, "ended"))
    assert bench.starts("job-a", 1) == 1


def test_a_node_that_does_not_exist_is_refused(bench: Bench) -> None:
    wanted = gang(bench, "ok")
    elsewhere = GangLaunch(**{**{f: getattr(wanted, f) for f in wanted.__slots__}, "seats": [Seat("nowhere")]})
    with pytest.raises(EngineError, match="nowhere"):
        bench.engine.launch(elsewhere)
    assert bench.engine.poll() == []


def test_an_engine_that_tells_by_itself_tells_everything_once(bench: Bench) -> None:
    engine = bench.engine
    if not isinstance(engine, Incremental):  # it has to be polled: then that is what it is asked for
        assert engine.poll() == []
        return
    assert engine.nodes_changed()
    engine.nodes()
    assert not engine.nodes_changed()
    engine.launch(gang(bench, "long", workers=2))
    engine.launch(gang(bench, "ok", job="job-b"))
    assert engine.changes() == engine.poll()
    assert engine.changes() == []
    ended = bench.until(lambda: all_are(bench, "ended", job="job-b"))
    engine.stop("job-a", 1, 1.0, "user_stop")
    bench.until(lambda: all_are(bench, "ended"))
    told = engine.changes()
    assert told is not None
    assert sorted(told, key=lambda r: (r.job, r.worker)) == [*reports(bench), *ended]
    for job in ("job-a", "job-b"):
        engine.forget(job, 1)
    assert engine.changes() == []
