"""What every engine must pass, against the real cluster under a real server: tests that each engine's file inherits.

A test file makes a class of `ClusterContract` with its rig; cluster and server are started once for all of its tests.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Protocol

import httpx
import pytest

from exec_kit import Screen
from live import LiveServer, stop_everything, until
from muster.client import Client


class Rig(Protocol):
    """A cluster of the test's own. `pool` has two free nodes at least, with two H100 each."""

    name: str
    pool: str
    config: str  # of the server, in TOML
    env: dict[str, str]  # of the server and of commands

    def start(self, folder: Path) -> None:
        """Returns when work can be placed on every node."""

    def close(self) -> None:
        """Leaves no process behind."""

    def kill_node(self, node: str) -> None:
        """The machine dies under running work, its processes with it."""

    def restore(self) -> None:
        """All nodes are there again."""

    def records(self) -> str:
        """All that the cluster's own tools and files show of jobs, as far as others than their owner can ask for it."""

    def cancel_outside(self, job: str) -> None:
        """Somebody cancels the job with the cluster's own tool."""


class ClusterContract:
    """Ordered: what breaks the cluster comes last."""

    make: ClassVar[type[Any]]

    @pytest.fixture(scope="class")
    @classmethod
    def rig(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
        rig: Rig = cls.make()
        try:
            rig.start(tmp_path_factory.mktemp(f"{rig.name}-cluster"))
            yield rig
        finally:
            rig.close()

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
        server = LiveServer(tmp_path_factory.mktemp(f"{rig.name}-home"), config=rig.config, env=rig.env)
        server.start()
        try:
            until(lambda: len(nodes_of(server)) >= 2, "the cluster's nodes")
            yield server
        finally:
            stop_everything(server)

    @pytest.fixture
    def folder(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Shared by the test and by every rank, wherever it runs."""
        return tmp_path_factory.mktemp("work")

    # --- what runs, runs as it should ---------------------------------------------------------------------------------
    def test_a_gang_of_two_nodes_meets_under_torchruns_names(self, rig: Rig, server: LiveServer, folder: Path) -> None:
        job = submit(rig, server, folder, MEET, num_nodes=2, nproc=2)
        assert server.wait(job)["phase"] == "succeeded", server.output(job)
        told = {rank: server.output(job, rank=rank).split() for rank in range(4)}
        assert [told[rank][:6] for rank in range(4)] == [
            [str(rank), "4", str(rank % 2), "2", str(rank // 2), job] for rank in range(4)
        ]
        assert all(words[-1] == "met" for words in told.values()), told
        assert len({told[rank][6] for rank in range(4)}) == 2, "two workers shared a node"
        assert sorted({told[rank][6] for rank in range(4)}) == sorted(server.job(job)["nodes"])

    def test_reports_and_output_arrive_whole(self, rig: Rig, server: LiveServer, folder: Path) -> None:
        job = submit(rig, server, folder, REPORT.replace("STEPS", "50"))
        assert server.wait(job)["phase"] == "succeeded", server.output(job)
        assert server.metric(job, "loss")[1] == (list(range(50)), [1 / (step + 1) for step in range(50)])
        assert server.output(job) == "".join(f"step {step}\n" for step in range(50))

    def test_a_job_starts_when_what_it_needs_has_succeeded(self, rig: Rig, server: LiveServer, folder: Path) -> None:
        first = server.submit(hold(folder), workdir=str(folder), pool=rig.pool, name="needed")["id"]
        shown = f"test -e {shlex.quote(str(folder))}/go && echo $MUSTER_NEEDS_NEEDED"
        job = server.submit(shown, workdir=str(folder), pool=rig.pool, name="needing", needs=[first])["id"]
        until(lambda: (folder / "up-0").exists(), "the job that is needed")
        waits = server.job(job)
        assert (waits["phase"], waits["reason"]["code"], waits["needs"]) == (
            "queued", "waits_for_jobs", {first: "succeeded"},
        )  # fmt: skip
        (folder / "go").touch()
        assert server.wait(job)["phase"] == "succeeded", server.output(job)
        assert server.output(job) == f"{first}\n"

    def test_a_gang_starts_from_another_runs_checkpoint_and_then_from_its_own(
        self, rig: Rig, server: LiveServer, folder: Path
    ) -> None:
        first = submit(rig, server, folder, SAVES_STEPS, name="source")
        assert server.wait(first)["phase"] == "succeeded", server.output(first)
        spec = {"num_nodes": 2, "nproc": 1, "resources": WHOLE, "retry": {"backoff": 0}}
        job = submit(rig, server, folder, STARTS, name="starter", start_from=f"{first}@2", **spec)
        assert server.wait(job)["phase"] == "succeeded", server.output(job)
        told = [server.output(job, attempt=attempt, rank=rank) for attempt in (1, 2) for rank in (0, 1)]
        wanted = ["step-000000002 two"] * 2 + ["step-000000009 nine"] * 2
        assert all(f"goes on from {words}\n" in text for words, text in zip(wanted, told, strict=True)), told
        assert server.job(job)["start_from"] == {"run": first, "step": 2, "taken": 2}
        attempts = server.get(f"/v1/runs/{job}/attempts")["attempts"]
        assert [one["from_step"] for one in attempts] == [2, 9]

        gone = submit(rig, server, folder, STARTS, name="gone", start_from=f"{first}@1")
        ended = server.wait(gone)
        assert (ended["phase"], ended["reason"]["code"]) == ("stopped", "start_missing"), ended["reason"]
        assert f"{first} has no checkpoint of step 1 " in ended["reason"]["message"]
        assert "goes on from" not in server.output(gone)

    def test_every_task_of_an_array_has_its_index(self, rig: Rig, server: LiveServer, folder: Path) -> None:
        shown = 'echo "$MUSTER_ARRAY_INDEX $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT"'
        array = server.submit(shown, workdir=str(folder), pool=rig.pool, name="tasks", array="3-5%2")["id"]
        assert server.wait(array)["phase"] == "succeeded"
        tasks = server.get("/v1/jobs", parent=array)["jobs"]
        assert sorted(server.output(task["id"]) for task in tasks) == ["3 3 3\n", "4 4 3\n", "5 5 3\n"]

    def test_odd_names_and_arguments_pass_unharmed(self, rig: Rig, server: LiveServer, folder: Path) -> None:
        spec = {"envs": {"ODD": ODD}, "tags": {"odd": ODD}, "purpose": ODD}
        run = f"printf '%s|' \"$ODD\" {shlex.quote(ODD)}; printf '%s' '#SBATCH --x' $'\\n%b'"
        job = server.submit(run, workdir=str(folder), pool=rig.pool, name="odd", **spec)["id"]
        assert server.wait(job)["phase"] == "succeeded", server.output(job)
        assert server.output(job) == f"{ODD}|{ODD}|#SBATCH --x\n%b"

    def test_secrets_are_in_no_record_of_the_cluster(self, rig: Rig, server: LiveServer, folder: Path) -> None:
        value = "s3cr3t-of-the-contract"
        with server.http() as http:
            assert http.put("/v1/projects/default/secrets/CONTRACT", json={"value": value}).status_code < 300
        shown = f"test ${{#CONTRACT}} = {len(value)} || exit 9; echo $CONTRACT; {hold(folder)}"
        job = server.submit(shown, workdir=str(folder), pool=rig.pool, secrets=["CONTRACT"])["id"]
        until(lambda: (folder / "up-0").exists(), "the rank that has the secret")
        records = rig.records()
        assert "CONTRACT" not in records or value not in records
        assert value not in records
        assert "att_" not in records, "an attempt's token is shown"
        assert job in records or job.replace("-", "") in records, "the cluster does not know the job at all"
        (folder / "go").touch()
        assert server.wait(job)["phase"] == "succeeded", server.output(job)
        assert value not in server.output(job)

    def test_commands_shells_and_copies_beside_the_ranks_of_each_worker(
        self, rig: Rig, server: LiveServer, folder: Path
    ) -> None:
        run = hold(folder)
        job = server.submit(run, workdir=str(folder), pool=rig.pool, num_nodes=2, nproc=1, resources=WHOLE)["id"]
        until(lambda: (folder / "up-1").exists() and server.job(job)["phase"] == "running", "both workers")
        with Client(server.url, token=server.token) as client:
            shown = ["sh", "-c", "echo $MUSTER_NODE $RANK $MUSTER_JOB; pwd; cat; exit 5"]
            for worker, node in enumerate(client.job(job).nodes):
                done = client.exec(job, shown, worker=worker, input=b"given")
                assert done.text == f"{node} {worker} {job}\n{folder}\ngiven", done
                assert done.code == 5
            screen = Screen(server, "attach", job, "--worker", "1")
            try:
                screen.shows(f"{job}, worker 1 on {client.job(job).nodes[1]}")
                screen.types("test -t 0 && echo a-terminal-of-$RANK; exit 6\r")
                screen.shows("\na-terminal-of-1")
                assert screen.process.wait(60) == 6
            finally:
                screen.close()
            made = folder / "made"
            made.mkdir()
            (made / "a").write_bytes(bytes(range(256)) * 5000)
            env = {**os.environ, **rig.env, "MUSTER_URL": server.url, "MUSTER_TOKEN": server.token}
            for words in ((str(made), f"{job}:there@1"), (f"{job}:there", str(folder / "back"))):
                subprocess.run([sys.executable, "-m", "muster", "cp", *words], env=env, check=True)
            assert (folder / "back" / "a").read_bytes() == (made / "a").read_bytes()
        (folder / "go").touch()
        assert server.wait(job)["phase"] == "succeeded", server.output(job)

    def test_the_stacks_of_the_ranks_of_each_worker(self, rig: Rig, server: LiveServer, folder: Path) -> None:
        (folder / "waits.py").write_text(WAITS)
        run = f"exec {shlex.quote(sys.executable)} waits.py"
        job = server.submit(run, workdir=str(folder), pool=rig.pool, num_nodes=2, nproc=1, resources=WHOLE)["id"]
        until(lambda: (folder / "in-1").exists() and (folder / "in-0").exists(), "both ranks")
        until(lambda: server.job(job)["phase"] == "running", "the job")
        with Client(server.url, token=server.token) as client:
            view = client.job(job).stacks()
            texts = [one["text"] for one in view["groups"]]
            assert texts == ["rank 0 in exchange at waits.py:3", "rank 1 in load at waits.py:5"], view
            client.stop(job, force=True)
        assert server.wait(job)["phase"] == "stopped", server.output(job)

    def test_a_node_without_the_jobs_folder_runs_its_snapshot(self, rig: Rig, server: LiveServer, folder: Path) -> None:
        code = folder / "code"
        (code / "part").mkdir(parents=True)
        (code / "part" / "word.py").write_text("WORD = 'from the snapshot'")
        (code / "program.py").write_text(LOSES_FOLDER)
        spec = {"name": "shipped", "run": f"exec {shlex.quote(sys.executable)} program.py", "pool": rig.pool,
                "workdir": str(code), "retry": {"max_restarts": 1, "on": ["error"], "backoff": 0}}  # fmt: skip
        with Client(server.url, token=server.token) as client:
            job = client.submit(spec).id
        assert server.wait(job)["phase"] == "succeeded", server.output(job)
        assert server.output(job, attempt=2).split("\n")[0] == "from the snapshot"
        assert not code.exists()

    # --- what ends, ends as it should ---------------------------------------------------------------------------------
    def test_a_stop_gives_the_grace_to_save(self, rig: Rig, server: LiveServer, folder: Path) -> None:
        job = submit(rig, server, folder, SAVE, num_nodes=2)
        until(lambda: len(list(folder.glob("up-*"))) == 2, "both ranks")
        server.post(f"/v1/jobs/{job}/stop", {"grace": 30})
        ended = server.wait(job)
        assert (ended["phase"], ended["reason"]["code"]) == ("stopped", "user_stop")
        assert sorted(path.name for path in folder.glob("saved-*")) == ["saved-0", "saved-1"]

    def test_a_rank_that_fails_takes_its_gang_down_and_is_named(
        self, rig: Rig, server: LiveServer, folder: Path
    ) -> None:
        retry = {"max_restarts": 1, "on": ["error"], "backoff": 0}
        job = submit(rig, server, folder, FAIL_ONCE, num_nodes=2, retry=retry)
        ended = server.wait(job)
        assert (ended["phase"], ended["attempt"]) == ("succeeded", 2), server.output(job)
        first = server.get(f"/v1/jobs/{job}/attempts")["attempts"][0]
        assert first["reason"]["code"] == "user_error"
        assert (first["reason"]["data"]["rank"], first["reason"]["data"]["exit_code"]) == (1, 3)

    def test_a_job_that_can_never_fit_is_refused_with_what_would(
        self, rig: Rig, server: LiveServer, folder: Path
    ) -> None:
        there = len(nodes_of(server))
        body = {"spec": {"name": "huge", "run": "true", "pool": rig.pool, "num_nodes": there + 1}}
        with server.http() as http:
            answer = http.post("/v1/jobs", json=body)
        assert answer.status_code == 409, answer.text
        (reason,) = answer.json()["error"]["reasons"]
        assert (reason["code"], reason["data"]["nearest"]) == ("never_fits", {"num_nodes": there})

    def test_what_still_waits_can_be_stopped_and_never_starts(self, rig: Rig, server: LiveServer, folder: Path) -> None:
        filling = [
            server.submit(hold(folder, f"full{i}"), workdir=str(folder), pool=rig.pool, resources=WHOLE)["id"]
            for i in range(len(nodes_of(server)))
        ]
        until(lambda: len(list(folder.glob("full*-0"))) == len(filling), "a full cluster")
        job = submit(rig, server, folder, "open('started', 'w')", resources=WHOLE)
        server.wait(job, "queued", "starting")
        why = server.get(f"/v1/jobs/{job}/why")
        assert why["reason"]["message"], why
        server.post(f"/v1/jobs/{job}/stop")
        assert server.wait(job)["phase"] == "stopped"
        (folder / "go").touch()
        for one in filling:
            assert server.wait(one)["phase"] == "succeeded"
        assert not (folder / "started").exists()

    def test_many_short_jobs_at_once_run_once_each(self, rig: Rig, server: LiveServer, folder: Path) -> None:
        spec = {"workdir": str(folder), "pool": rig.pool, "resources": {"cpus": 0.1}}
        specs = [{"spec": {"name": f"short-{i}", "run": f"echo x >> ran-{i}", **spec}} for i in range(30)]
        made = server.post("/v1/jobs/batch", {"jobs": specs})
        jobs = [one["id"] for one in made["jobs"]]
        for job in jobs:
            assert server.wait(job)["phase"] == "succeeded", server.job(job)
        assert [(folder / f"ran-{i}").read_text() for i in range(30)] == ["x\n"] * 30

    # --- what breaks, mends -------------------------------------------------------------------------------------------
    def test_jobs_go_on_without_the_server_and_are_taken_up_again(
        self, rig: Rig, server: LiveServer, folder: Path
    ) -> None:
        job = submit(rig, server, folder, REPORT.replace("STEPS", "200") + HELD, num_nodes=2)
        until(lambda: len(list(folder.glob("up-*"))) == 2, "both ranks")
        server.kill()
        (folder / "go").touch()
        server.start()
        ended = server.wait(job)
        assert (ended["phase"], ended["attempt"]) == ("succeeded", 1), server.output(job)
        assert server.metric(job, "loss")[1][0] == list(range(200))
        assert (folder / "starts").read_text().split() == ["1", "1"]

    @pytest.mark.parametrize("instant", ["engine.before_launch:1", "engine.after_launch:1"])
    def test_a_server_killed_while_it_hands_a_gang_over_doubles_nothing(
        self, rig: Rig, server: LiveServer, folder: Path, instant: str
    ) -> None:
        server.stop()
        server.start(MUSTER_FAULT=instant)
        with contextlib.suppress(httpx.TransportError):  # it may die before it answers
            submit(rig, server, folder, COUNT, num_nodes=2, name="handed", tags={"instant": instant})
        assert server.wait_dead() == -9
        server.start()
        jobs = [job for job in server.get("/v1/jobs", name="handed")["jobs"] if job["tags"].get("instant") == instant]
        assert len(jobs) == 1
        job = jobs[0]["id"]
        ended = server.wait(job)
        assert (ended["phase"], ended["attempt"]) == ("succeeded", 1), server.output(job)
        assert (folder / "starts").read_text().split() == ["1", "1"]

    def test_who_is_cancelled_with_the_clusters_own_tool_is_told_and_starts_again(
        self, rig: Rig, server: LiveServer, folder: Path
    ) -> None:
        job = submit(rig, server, folder, COUNT + HELD, retry={"backoff": 0})
        until(lambda: (folder / "up-0").exists(), "its rank")
        rig.cancel_outside(job)
        until(lambda: server.job(job)["attempt"] == 2, "a second attempt")
        (folder / "go").touch()
        assert server.wait(job)["phase"] == "succeeded"
        first = server.get(f"/v1/jobs/{job}/attempts")["attempts"][0]
        assert first["outcome"] != "succeeded"
        assert first["reason"]["message"]

    def test_a_node_lost_in_mid_run_costs_an_attempt_and_no_more(
        self, rig: Rig, server: LiveServer, folder: Path
    ) -> None:
        job = submit(rig, server, folder, COUNT + HELD, num_nodes=2, retry={"backoff": 0})
        until(lambda: len(list(folder.glob("up-*"))) == 2, "both ranks")
        until(lambda: len(set(server.job(job)["nodes"])) == 2, "where they are")
        victim = server.job(job)["nodes"][1]
        rig.kill_node(victim)
        try:
            until(lambda: server.job(job)["attempt"] == 2, "a second attempt", patience=120)
            (folder / "go").touch()
            assert server.wait(job)["phase"] == "succeeded"
            first = server.get(f"/v1/jobs/{job}/attempts")["attempts"][0]
            assert first["reason"]["code"] in ("node_lost", "launcher_lost"), first["reason"]
            assert sorted((folder / "starts").read_text().split()) == ["1", "1", "2", "2"]
        finally:
            rig.restore()


# --- what the ranks run -----------------------------------------------------------------------------------------------
ODD = 'it\'s "quoted"  $HOME `x` \\ %j *?\n\tsecond line; é 漢字 🙂 #end'
WHOLE = {"accelerators": "H100:2"}
# Rank 0 waits in one function, the other ranks in another one.
WAITS = textwrap.dedent("""
    import os, time
    def exchange():
        time.sleep(1000)
    def load():
        time.sleep(1000)
    rank = os.environ["RANK"]
    open("in-" + rank, "w").close()
    exchange() if rank == "0" else load()
""").strip()
HELD = textwrap.dedent("""
    import pathlib, time, os
    pathlib.Path("up-" + os.environ["RANK"]).touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.05)
""")
COUNT = textwrap.dedent("""
    import os
    with open("starts", "a") as file:
        file.write(os.environ["MUSTER_ATTEMPT"] + "\\n")
""")
REPORT = COUNT + textwrap.dedent("""
    import os
    from muster import runtime
    for step in range(STEPS):
        if os.environ["RANK"] == "0":
            runtime.report(step=step, loss=1 / (step + 1))
            print("step", step)
""")
MEET = textwrap.dedent("""
    import os, socket, time
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MUSTER_JOB", "MUSTER_NODE")
    print(*(os.environ[name] for name in names))
    where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if os.environ["RANK"] == "0":
        with socket.create_server(where) as door:
            for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
                door.accept()[0].sendall(b"x")
    else:
        while True:
            try:
                assert socket.create_connection(where, 30).recv(1) == b"x"
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
    print("met")
""")
SAVE = textwrap.dedent("""
    import os, pathlib, time
    from muster import runtime
    rank = os.environ["RANK"]
    runtime.report(step=0, loss=1.0)
    pathlib.Path("up-" + rank).touch()
    while not runtime.should_stop():
        time.sleep(0.05)
    pathlib.Path("saved-" + rank).touch()
""")
SAVES_STEPS = textwrap.dedent("""
    from muster import runtime
    for step, text in enumerate(["zero", "one", "two", "three", "four"]):
        with runtime.checkpoint(step) as folder:
            (folder / "state").write_text(text)
""")
# The second rank is up before the first one saves and kills itself.
STARTS = textwrap.dedent("""
    import os, pathlib, signal, time
    from muster import runtime
    found, attempt = runtime.last_checkpoint(), os.environ["MUSTER_ATTEMPT"]
    print("goes on from", found.name, (found / "state").read_text())
    pathlib.Path("starter-" + attempt + "-" + os.environ["RANK"]).touch()
    while attempt == "1":
        if os.environ["RANK"] == "0" and pathlib.Path("starter-1-1").exists():
            with runtime.checkpoint(9) as folder:
                (folder / "state").write_text("nine")
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
""")
LOSES_FOLDER = textwrap.dedent("""
    import os, pathlib, shutil, sys
    if os.environ["MUSTER_ATTEMPT"] == "1":
        shutil.rmtree(pathlib.Path.cwd())
        sys.exit(3)
    from part.word import WORD
    print(WORD)
""")
# In lockstep over files, with a checkpoint every two seconds. Says for each attempt which ranks of how many are up.
ELASTIC = COUNT + textwrap.dedent("""
    import os, pathlib, sys, time
    from muster import runtime
    attempt, rank, size = os.environ["MUSTER_ATTEMPT"], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    mine = [pathlib.Path(f"step-{attempt}-{other}") for other in range(size)]
    pathlib.Path(f"up-{attempt}-{rank}-of-{size}").touch()
    for step in range(10**6):
        mine[rank].write_text("x" * step)
        while not (runtime.should_stop() or all(path.exists() and path.stat().st_size >= step for path in mine)):
            time.sleep(0.2)
        runtime.report(step=step, loss=1.0)
        if rank == 0 and step % 10 == 9:
            with runtime.checkpoint(step) as folder:
                (folder / "state").write_text("x")
        if pathlib.Path("go").exists() or runtime.should_stop():
            sys.exit(0 if pathlib.Path("go").exists() else 1)
        time.sleep(0.2)
""")
FAIL_ONCE = textwrap.dedent("""
    import os, sys, time
    if os.environ["MUSTER_ATTEMPT"] == "1":
        if os.environ["RANK"] == "1":
            sys.exit(3)
        time.sleep(600)
""")


def submit(rig: Rig, server: LiveServer, folder: Path, program: str, **spec: Any) -> str:
    """A job whose ranks run this Python program in the folder."""
    (folder / "program.py").write_text(program)
    run = f"exec {shlex.quote(sys.executable)} program.py"
    made: str = server.submit(run, workdir=str(folder), pool=rig.pool, **spec)["id"]
    return made


def elastic(rig: Rig, server: LiveServer, folder: Path, fewest: int, most: int, **spec: Any) -> str:
    """An elastic gang on whole nodes, on a server where it may grow as soon as it has saved."""
    with server.http() as http:
        answer = http.put("/v1/rules", json={"text": "preemption: {restart_cost: 0s, grace: 10s}"})
        assert answer.status_code == 200, answer.text
    nodes = {"min": fewest, "max": most}
    return submit(rig, server, folder, ELASTIC, num_nodes=nodes, resources=WHOLE, nproc=1, retry={"backoff": 0}, **spec)


def whole_attempt(folder: Path, size: int, after: int = 0) -> int:
    """The first attempt past `after` of which all ranks were up, `size` in number; waits for it."""

    def found() -> int:
        names = [path.name.split("-") for path in folder.glob(f"up-*-of-{size}")]
        attempts = [int(name[1]) for name in names if int(name[1]) > after]
        return next((one for one in sorted(attempts) if attempts.count(one) == size), 0)

    return until(found, f"{size} ranks", patience=120)


def loses_a_node_and_grows_back(rig: Rig, server: LiveServer, folder: Path, most: int) -> None:
    """An elastic gang takes all nodes, goes on without one that is lost, and takes it again when it is back: then the
    node is checked, and all links are measured."""
    job = elastic(rig, server, folder, 1, most)
    first = whole_attempt(folder, most)
    victim = until(lambda: len(nodes := server.job(job)["nodes"]) == most and nodes[1], "where they are")
    rig.kill_node(victim)
    try:
        second = whole_attempt(folder, most - 1, after=first)
        assert server.job(job)["attempt"] == second == first + 1, "it waited for nodes that the cluster does not have"
    finally:
        rig.restore()
    third = whole_attempt(folder, most, after=second)
    (folder / "go").touch()
    assert server.wait(job)["phase"] == "succeeded", server.output(job)
    reasons = [one["reason"]["code"] for one in server.get(f"/v1/jobs/{job}/attempts")["attempts"]]
    assert reasons[first - 1] in ("node_lost", "launcher_lost"), reasons
    assert reasons[second - 1] == "resizing", reasons
    starts = (folder / "starts").read_text().split()
    assert [starts.count(str(one)) for one in (first, second, third)] == [most, most - 1, most]
    links = server.output(job, attempt=third).partition("links to the gang's first worker: ")[2]
    assert all(f"worker {number} " in links for number in range(1, most)), links


def hold(folder: Path, name: str = "up") -> str:
    """A shell command that says that it is up, and waits for the file `go`."""
    where = shlex.quote(str(folder))
    return f"touch {where}/{name}-$RANK; until test -e {where}/go; do sleep 0.05; done"


def nodes_of(server: LiveServer) -> list[str]:
    return [node["name"] for node in server.get("/v1/nodes")["nodes"] if node.get("role", "node") != "slot"]
