"""The drill's own parts: what follows from events and steps, when a fault is due, the proxy, the digest, the report."""

from __future__ import annotations

import ctypes
import http.client
import json
import math
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from muster.core.errors import Invalid, Unavailable
from muster.core.spec import JobSpec
from muster.drill import beside, beside_network, inject, weights
from muster.drill.clock import with_clock
from muster.drill.drill import ready, with_check
from muster.drill.inject import _facts
from muster.drill.leftovers import named, processes_left
from muster.drill.measure import Check, Result, Times, adds_up, from_checkpoint, result_of, times
from muster.drill.must_hold import Over, finite, missing_reports, record, says_why
from muster.drill.proxy import StoreProxy, endpoint_of
from muster.drill.read_files import ReadFiles
from muster.drill.report import markdown
from muster.drill.scenario import ENDS, Setting
from muster.drill.scenarios import SCENARIOS, find
from muster.drill.watch import Seen
from muster.exec_frames import STDERR, Decoder, Ended, Frame, encode_end


def _event(kind: str, time: float, attempt: int = 1, **data: Any) -> Any:
    return {"kind": kind, "time": time, "attempt": attempt, "data": data}


EVENTS = [
    _event("attempt.running", 5.0),
    _event("worker.ended", 11.0, exit={"outcome": "failed"}),
    _event("attempt.ended", 11.5, outcome="failed"),
    _event("attempt.running", 14.0, 2),
    _event("attempt.ended", 30.0, 2, outcome="succeeded"),
]
STEPS = [Seen(8.0, 1, 20), Seen(9.9, 1, 25), Seen(15.0, 2, 21), Seen(17.0, 2, 26)]


def test_times_are_counted_from_the_fault_and_a_new_step_is_one_that_was_not_reached_before():
    assert times(EVENTS, STEPS, 10.0, 1, ENDS) == Times(1.0, 4.0, 7.0)
    assert times(EVENTS, STEPS, 20.0, 2, ENDS) == Times(None, None, None)
    assert times(EVENTS, STEPS, 10.0, 1, ("attempt.hung",)).detected is None
    late = [*STEPS[:2], Seen(10.2, 1, 26), *STEPS[2:], Seen(18.0, 2, 27)]  # 26 was done before, and is seen after
    assert times(EVENTS, late, 10.0, 1, ENDS).new_step == 8.0
    assert times(EVENTS[:1], late[:3], 10.0, 1, ENDS) == Times(None, None, 0.2)


def test_every_later_attempt_must_begin_at_a_checkpoint():
    attempts: Any = [{"number": 1, "from_step": None}, {"number": 2, "from_step": 20}]
    assert from_checkpoint(attempts, 1)
    assert not from_checkpoint(attempts, 2)
    assert not from_checkpoint([*attempts, {"number": 3, "from_step": None}], 1)


def test_a_ledger_adds_up_or_not():
    one: Any = {"unit": "cpu", "held": 10.0, "parts": {"training": 7.0, "lost": 3.0}}
    assert adds_up({"ledgers": [one]}).ok  # type: ignore[typeddict-item]
    assert not adds_up({"ledgers": [{**one, "held": 11.0}]}).ok  # type: ignore[typeddict-item]
    assert not adds_up({"ledgers": []}).ok  # type: ignore[typeddict-item]


def test_the_first_check_that_failed_is_the_reason_and_what_was_not_checked_is_no_failure():
    facts = {"job": "drill-kill-rank-2", "fault": "rank 1 was killed", "attempts": 2, "steps_again": 4}
    checks = [Check("the run succeeded", True), Check("weights", None, "nothing to compare")]
    held = result_of("kill-rank", "It holds.", checks, facts)
    assert (held.verdict, held.why) == ("held", "")
    wrong = with_check(held, Check("the same weights", False, "a and b"))
    assert (wrong.verdict, wrong.why) == ("did not hold", "the same weights: a and b")
    page = markdown(replace(wrong, times=Times(1.0, None, 2.5)), "drill-reference-1")
    for words in (
        "did not hold",
        "| time to restart | none |",
        "| the same weights | NO | a and b |",
        "| weights | not",
    ):
        assert words in page


@pytest.mark.parametrize(
    ("phase", "saved", "step", "expected"),
    [
        ("running", {10}, 11, True),
        ("running", {10}, 10, False),  # no step to repeat
        ("running", set(), 9, False),
        ("queued", {10}, 11, False),
        ("running", {7, 8, 9, 10, 11}, 11, True),  # it saves every step
    ],
)
def test_a_fault_is_due_after_a_checkpoint_and_a_step(phase, saved, step, expected):
    watch: Any = SimpleNamespace(
        job=SimpleNamespace(phase=phase, since=0.0), saved=saved, steps=[Seen(1.0, 1, step)], step_now=step
    )
    assert ready(watch, 1) is expected
    assert ready(watch, 1, mute=True) is (phase == "running")


def _setting(engine: str = "local", **spec: Any) -> Setting:
    return Setting(JobSpec(name="job", run="true", **spec), engine)


def test_what_does_not_apply_says_why():
    by_name = {one.name: one for one in SCENARIOS}
    assert len(by_name) == len(SCENARIOS)
    assert "--private" in by_name["server"].applies(_setting())
    assert "num_nodes=2" in by_name["two-nodes"].applies(_setting())
    assert "slurm" in by_name["node"].applies(_setting("slurm", num_nodes=2))
    assert not by_name["node"].applies(_setting())
    assert "accelerator" in by_name["device-memory"].applies(_setting())
    assert "endpoint" in by_name["store-hangs"].applies(_setting())
    assert not by_name["store-hangs"].applies(_setting(envs={"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}))
    assert "nproc=2" in by_name["peer-reset"].applies(_setting())
    assert "folder of this machine" in by_name["corrupt-sample"].applies(_setting("slurm"))
    assert "hang: off" in by_name["stop-rank"].applies(_setting(hang={"action": "off"}))
    for one in SCENARIOS:
        assert one.holds.endswith(".")


def test_scenarios_are_found_by_name():
    assert [one.name for one in find(["server", "kill-rank"])] == ["kill-rank", "server"]
    assert find(["all"]) == list(SCENARIOS)
    with pytest.raises(Invalid, match="kill-rnk") as error:
        find(["kill-rnk"])
    assert "kill-rank" in error.value.hint


class _Store(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = json.dumps([self.path, self.headers["Host"], len(body)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Store)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def _put(url: str, timeout: float = 30.0) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=timeout)
    try:
        connection.request("PUT", "/bucket/key?part=1", b"x" * 1000, {"Host": "signed.example"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_store_behind_the_proxy_refuses_hangs_or_is_slow_and_then_works(upstream):
    assert endpoint_of({"AWS_ENDPOINT_URL": upstream}) == ("AWS_ENDPOINT_URL", upstream)
    assert endpoint_of({"AWS_ENDPOINT_URL": "https://example.com"}) is None
    with StoreProxy(upstream) as proxy:
        status, told = _put(proxy.url)
        assert (status, json.loads(told)) == (200, ["/bucket/key?part=1", "signed.example", 1000])
        with proxy.broken("refuse"):
            assert _put(proxy.url)[0] == 503
        with proxy.broken("hang"), pytest.raises(TimeoutError):
            _put(proxy.url, timeout=0.2)
        with proxy.broken("slow"):
            assert _put(proxy.url)[0] == 200
        assert _put(proxy.url)[0] == 200
        assert proxy.requests == 5


def test_the_digest_is_of_the_content_and_not_of_the_manifest(tmp_path):
    for name, text in {"one": "a", "two": "a", "three": "b"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_text(text)
        (tmp_path / name / "manifest.json").write_text(name)
    paths = [str(tmp_path / name) for name in ("one", "two", "three", "missing")]
    command = [sys.executable, "-S", "-c", weights._PROGRAM, json.dumps(paths)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    one, two, three, missing = json.loads(said.removeprefix("drill digests ")).values()
    assert one == two != three
    assert missing is None


def test_the_clock_of_a_python_below_the_command_jumps(tmp_path):
    program = "import pathlib, time; t = time.time(); pathlib.Path('.drill/jump').write_text('3600'); time.sleep(0.15)"
    env = {**os.environ, "MUSTER_CHECKPOINT_DIR": str(tmp_path), "RANK": "0"}
    command = with_clock(f'{sys.executable} -c "{program}; print(round(time.time() - t, -1))"')
    done = subprocess.run(["/bin/sh", "-c", command], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "3600.0\n", done.stderr


READER = """
import json, os, pathlib, sys
text, numbers = open("text.txt", "rb").read(), pathlib.Path("numbers.bin").read_bytes()
with open("written.txt", "w") as file:
    file.write("x" * 10**6)
handle = os.open("small.txt", os.O_RDONLY)
print(json.dumps([text.count(b"\\xff"), numbers.count(b"\\xff"), os.read(handle, 99).decode()]))
"""


def test_files_that_a_python_reads_are_seen_and_a_damaged_copy_is_read_in_place_of_one(tmp_path):
    work, own = tmp_path / "work", tmp_path / "drill"
    own.mkdir()
    for name, data in {"text.txt": b"words\n" * 4000, "numbers.bin": b"12345", "small.txt": b"small"}.items():
        work.mkdir(exist_ok=True)
        (work / name).write_bytes(data)
    (work / "large.py").write_text("#" * 10**6)
    (work / "read.py").write_text(READER)
    reads = ReadFiles(own)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys\nsys.found = True\n")  # the one that was there
    env = {**os.environ, **reads.install({"PYTHONPATH": str(tmp_path / "site")})}

    def run(*words: str) -> Any:
        command = [sys.executable, *(words or ("read.py",))]
        return json.loads(subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, check=True).stdout)

    assert reads.largest() is None
    assert run() == [0, 0, "small"]
    assert reads.largest() == work / "text.txt"
    assert not reads.used
    assert reads.damage(work / "text.txt") == 3000
    assert run() == [3000, 0, "small"]
    assert reads.used
    assert (work / "text.txt").read_bytes() == b"words\n" * 4000
    assert run("-c", "import sys; print(str(sys.found).lower())") is True


def test_the_connections_of_another_process_are_reset():
    program = """
import socket, sys
made = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
try:
    made.recv(1)
    print("closed")
except ConnectionError as error:
    print(type(error).__name__)
"""
    libc = ctypes.CDLL(None, use_errno=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-c", program, str(listener.getsockname()[1])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "connected\n"
            here, _ = listener.accept()
            with here:
                try:
                    found = [beside_network.reset(libc, one) for one in beside_network.connections(libc, [process.pid])]
                except ValueError as error:
                    process.kill()
                    pytest.skip(str(error))
                assert len(found) == 1
                with pytest.raises(ConnectionError):
                    here.recv(1)
            assert process.stdout.read().strip() in ("ConnectionResetError", "BrokenPipeError", "closed")
        assert list(beside_network.connections(libc, [process.pid])) == []


def test_a_program_of_several_files_is_sent_as_one():
    told = subprocess.run(
        [sys.executable, "-S", "-", json.dumps({"do": "host_memory", "rank": 0, "most": 1})],
        input=inject.program(), env={"MUSTER_JOB": f"none-{os.getpid()}"}, capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(told.stdout) == {"refused": "no process of rank 0 was found"}


@pytest.mark.parametrize(
    ("phase", "reasons", "ok"),
    [
        ("failed", [("user_error", "rank 0 ended with exit code 1: ValueError: a bad record")], True),
        ("failed", [("user_error", "rank 0 ended with exit code 1")], False),  # it says nothing
        ("failed", [("killed_by_signal", "rank 0 was killed by SIGSEGV: a crash")], False),
        ("failed", [], False),
    ],
)
def test_a_failure_is_clear_if_the_program_says_why(phase, reasons, ok):
    attempts = [{"number": 1, "reason": {"code": code, "message": message}} for code, message in reasons]
    job: Any = SimpleNamespace(id="j-1", phase=phase, reason=None)
    client: Any = SimpleNamespace(attempts=lambda job: attempts)
    assert says_why(Over(client, job, 1, False, "")).ok is ok


def test_a_record_is_whole_if_it_has_the_steps_of_the_undisturbed_run():
    def metrics(job: str, name: str = "", points: int = 0) -> Any:
        steps = [1, 2, 4] if job == "lost" else [1, 2, 3, 4]
        curve = {"attempts": [{"steps": steps, "values": [math.nan if job == "nan" else 0.5] * len(steps)}]}
        return curve if name else {"names": ["loss", "system/cpu"]}

    client: Any = SimpleNamespace(metrics=metrics)

    def over(job: str, reference: str = "reference") -> Over:
        return Over(client, SimpleNamespace(id=job, phase="succeeded", reason=None), 1, False, reference)  # type: ignore[arg-type]

    assert record(over("whole")) == Check("the record has every report", True, "4 points")
    assert record(over("whole", "")).ok is None
    assert finite(over("whole")).ok
    assert finite(over("nan")).ok is False
    assert missing_reports(client, "lost", "reference") == ["loss at step 3"]


def test_a_rank_is_found_below_its_shell_and_a_command_beside_it_is_none(monkeypatch):
    job = f"drill-{os.getpid()}"
    monkeypatch.setenv("MUSTER_JOB", job)
    env = {**os.environ, "RANK": "1"}
    waits = "read line; exit 0"
    rank = subprocess.Popen(["/bin/sh", "-c", "cat; exit 0"], env=env, stdin=subprocess.PIPE)
    other = subprocess.Popen(["/bin/sh", "-c", waits], env={**env, "MUSTER_EXEC": "x"}, stdin=subprocess.PIPE)
    try:
        found: list[int] = []
        while not found or beside.name_of(found[0]) != "cat":
            found = beside.processes(1)
        assert len(found) == 1
        assert beside.parent_of(found[0]) == rank.pid
        assert beside.processes(0) == []
    finally:
        for process in (rank, other):
            process.communicate()


def test_processes_of_another_servers_job_with_the_same_id_are_not_left_over(tmp_path):
    job = f"drill-reference-{os.getpid()}"
    own, other = (SimpleNamespace(home=tmp_path / name) for name in ("own", "other"))
    env = {**os.environ, "MUSTER_JOB": job, "MUSTER_CHECKPOINT_DIR": str(tmp_path / "own" / "checkpoints" / job)}
    process = subprocess.Popen(["cat"], env=env, stdin=subprocess.PIPE)
    try:
        assert processes_left([job], own, seconds=0) == processes_left([job], seconds=0) == [process.pid]
        assert named(process.pid) == f"process {process.pid} (cat)"
        assert processes_left([job], other) == []
    finally:
        process.communicate()


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (Ended(None, "Worker 0 of attempt 2 of drill-3 ended."), "Worker 0 of attempt 2 of drill-3 ended"),
        (Ended(3, ""), "It ended with exit code 3. no python"),
    ],
)
def test_a_session_that_ends_before_the_fault_says_how(ended, words):
    frames = [Frame(STDERR, b"no python\n"), *Decoder().feed(encode_end(ended))]

    async def receive(wait: float) -> list[Frame]:
        return frames

    with pytest.raises(Unavailable, match=words):
        _facts(SimpleNamespace(receive=receive), 0.0)


def test_a_result_is_data_for_programs():
    result = Result("server", "It holds.", "not applicable", "why", checks=(Check("a", None),))
    assert json.loads(json.dumps(result.to_dict()))["checks"][0] == {"name": "a", "ok": None, "told": ""}
