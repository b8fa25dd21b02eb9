"""The launcher end to end: what ranks are given, what comes back, and how each way of ending is judged."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from components import memory_groups, require
from ingest_kit import PATIENCE, wait_for
from launcher_kit import LauncherFixture, launcher_fixture, read_exit
from muster import wire
from muster.core.reasons import REASONS
from muster.runtime import processes, verdict
from muster.runtime.ranks import gang_mark, likelihood


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LauncherFixture]:
    with launcher_fixture(tmp_path) as made:
        yield made


def test_two_ranks_get_what_torchrun_gives_and_musters_names(shop: LauncherFixture) -> None:
    folder = shop.folder(
        f"{sys.executable} -c 'import os, json; print(json.dumps(dict(os.environ)))'",
        nproc=2,
        num_nodes=3,
        worker=1,
        envs={"LR": "3e-4", "PYTHONPATH": "/mine"},
        devices=(4, 5),
        checkpoint_every=90.0,
    )
    ended = shop.run(folder, MUSTER_SERVER_KEY="the server's own", TORCHELASTIC_RUN_ID="an outer one")
    assert (ended.outcome, ended.reason, [r.rank for r in ended.ranks]) == ("succeeded", "completed", [2, 3])
    for rank, local in ((2, 0), (3, 1)):
        env = json.loads(shop.server.log(rank))
        wanted = {
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": "6",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": "1",
            "NODE_RANK": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
            "MUSTER_ATTEMPT": "1",
            "MUSTER_NODE": "local-0",
            "MUSTER_RANK_DIR": str(folder / f"rank-{rank}"),
            "MUSTER_CONTROL": str(folder / "control"),
            "MUSTER_CHECKPOINT_KEEP": "3",
            "MUSTER_CHECKPOINT_EVERY": "90",
            "CUDA_VISIBLE_DEVICES": "4,5",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "LR": "3e-4",
            "PYTHONPATH": f"/mine{os.pathsep}{folder / 'pkg'}",
        }
        assert {name: env.get(name) for name in wanted} == wanted
        assert "/1/1@" in env["MUSTER_GANG"]
        assert not {"MUSTER_SERVER_KEY", "TORCHELASTIC_RUN_ID"} & env.keys()


def test_a_rank_can_import_the_runtime_and_nothing_else_of_the_platforms(shop: LauncherFixture) -> None:
    code = "import muster.runtime, importlib.util as u; print(muster.__file__, u.find_spec('fastapi'))"
    bare = f'{sys.executable} -S -c "{code}"'  # -S: an environment without the platform's site-packages
    assert shop.run(shop.folder(bare)).reason == "completed"
    assert re.search(r"/pkg/muster/__init__.py None$", shop.server.log().strip())


def test_a_simple_command_replaces_the_shell_in_a_session_of_its_own(shop: LauncherFixture) -> None:
    code = "import os; print(os.getpid(), os.getpgrp(), os.getsid(0), os.readlink('/proc/self/fd/0'))"
    ended = shop.run(shop.folder(f'{sys.executable} -c "{code}"'))
    pid, group, session, stdin = shop.server.log().split()
    assert ended.reason == "completed"
    assert pid == group == session
    assert stdin == "/dev/null"


def test_output_comes_while_the_rank_runs_even_without_a_newline(shop: LauncherFixture) -> None:
    folder = shop.folder("printf 'password? '; sleep 600")
    launcher = shop.start(folder)
    wait_for(lambda: shop.server.log() == "password? ")
    assert read_exit(folder) is None
    assert launcher.poll() is None


@pytest.mark.parametrize(
    ("run", "reason", "detail"),
    [
        ("exit 0", "completed", r"^$"),
        ("surely-no-such-program --x", "command_not_found", r"surely-no-such-program: command not found$"),
        ("./nowhere.sh", "command_not_found", r"nowhere.sh: No such file or directory$"),
        ("touch it; ./it", "command_not_executable", r"\./it: Permission denied$"),
        ("echo one; echo two; exit 7", "user_error", r"exit code 7\none\ntwo$"),
        ("exit 127", "user_error", r"exit code 127\nit printed nothing$"),
        ("kill -SEGV $$", "killed_by_signal", r"^rank 0 \(pid \d+\) was killed by SIGSEGV"),
        ("bash -c 'kill -KILL $$'; exit $?", "killed_by_signal", r"was killed by SIGKILL"),
    ],
)
def test_each_way_of_ending_has_its_reason(shop: LauncherFixture, run: str, reason: str, detail: str) -> None:
    ended = shop.run(shop.folder(run))
    assert ended.reason == reason
    assert ended.outcome == ("succeeded" if reason == "completed" else "failed")
    assert re.search(detail, ended.detail), ended.detail


def test_the_detail_of_an_error_is_the_last_traceback(shop: LauncherFixture) -> None:
    (shop.root / "train.py").write_text(
        "print('noise\\n' * 50)\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('the loss is gone') from e\n"
    )
    ended = shop.run(shop.folder(f"{sys.executable} {shop.root}/train.py"))
    assert (ended.reason, ended.exit_code, ended.rank) == ("user_error", 1, 0)
    assert "Traceback (most recent call last):" in ended.detail
    assert ended.detail.endswith("ValueError: the loss is gone")
    assert "noise" not in ended.detail


def test_a_missing_workdir_is_named(shop: LauncherFixture) -> None:
    ended = shop.run(shop.folder("true", workdir=str(shop.root / "gone")))
    assert ended.reason == "workdir_missing"
    assert str(shop.root / "gone") in ended.detail


def test_the_first_rank_that_fails_is_the_cause_and_takes_the_gang_down(shop: LauncherFixture) -> None:
    wait = "until [ -e up0 ] && [ -e up2 ]; do sleep 0.02; done"
    run = f"if [ $RANK = 1 ]; then {wait}; exit 3; fi; touch up$RANK; sleep 600"
    ended = shop.run(shop.folder(run, nproc=3))
    assert (ended.reason, ended.rank, ended.exit_code) == ("user_error", 1, 3)
    assert [(r.rank, r.exit_code, r.signal) for r in ended.ranks] == [(0, None, 15), (1, 3, None), (2, None, 15)]
    assert not shop.left()


def test_a_rank_that_is_killed_takes_the_gang_down_even_one_that_ignores_sigterm(shop: LauncherFixture) -> None:
    folder = shop.folder("trap '' TERM; echo $$; while :; do sleep 0.05; done", nproc=2)
    launcher = shop.start(folder)
    wait_for(lambda: shop.server.log(0) and shop.server.log(1))
    victim = int(shop.server.log(1))
    os.kill(victim, signal.SIGKILL)
    assert launcher.wait(PATIENCE) == 0
    ended = shop.ended(folder)
    assert (ended.reason, ended.rank, ended.signal) == ("killed_by_signal", 1, signal.SIGKILL)
    assert f"pid {victim}" in ended.detail
    assert ended.ranks[0].signal == signal.SIGKILL
    assert not shop.left()


def read_if_there(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_daemon_that_a_rank_leaves_behind_is_killed_and_the_job_succeeds(shop: LauncherFixture) -> None:
    run = "setsid sleep 600 & echo $! > daemon; env -i setsid sleep 601 & echo done"
    ended = shop.run(shop.folder(run))
    assert ended.outcome == "succeeded"
    assert processes.stat(int((shop.root / "work" / "daemon").read_text())) is None
    assert not shop.left()
    # Found as a descendant: it carries no mark.
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x00601" in read_if_there(path)]


def test_memory_over_the_limit_ends_the_worker_with_both_figures(shop: LauncherFixture) -> None:
    hog = f"{sys.executable} -c 'x = bytearray(300 << 20); import time; time.sleep(600)'"
    ended = shop.run(shop.folder(hog, memory=100 << 20))
    assert (ended.outcome, ended.reason) == ("failed", "out_of_memory")
    used, limit = map(int, re.findall(r"(\d+)/(\d+) bytes", ended.detail)[0])
    assert limit == 100 << 20
    assert used > limit
    assert ended.peak_memory == used


def test_shared_pages_are_not_counted(shop: LauncherFixture) -> None:
    code = "import mmap; m = mmap.mmap(-1, 200 << 20); m.write(bytes(200 << 20)); print(1); input()"
    folder = shop.folder(f"mkfifo gate; {sys.executable} -c '{code}' < gate", memory=150 << 20)
    launcher = shop.start(folder)
    with wait_for(lambda: _fifo(shop.root / "work" / "gate")).open("w") as gate:
        wait_for(lambda: shop.server.log())
        assert 1 << 20 < processes.private_memory(processes.descendants(launcher.pid)) < 150 << 20
        gate.write("\n")
    assert launcher.wait(PATIENCE) == 0
    assert shop.ended(folder).reason == "completed"


@pytest.mark.component("cgroup")
def test_a_machine_without_memory_is_told_from_a_rank_that_was_killed(shop: LauncherFixture) -> None:
    parent, limit = memory_groups()
    require("a memory control group", os.access(parent, os.W_OK), "Run the tests as root, with cgroups mounted.")
    group = parent / f"muster-test-{os.getpid()}"
    group.mkdir()
    (group / limit).write_text(str(120 << 20))
    folder = shop.folder(f"exec {sys.executable} -c 'bytearray(400 << 20)'")
    enter = f"echo $$ > {group}/cgroup.procs; exec {sys.executable} -m muster.runtime.launcher {folder}"
    launcher = shop.start_command(["sh", "-c", enter])
    assert launcher.wait(PATIENCE) == 0
    group.rmdir()
    ended = shop.ended(folder)
    assert (ended.reason, ended.signal) == ("host_out_of_memory", signal.SIGKILL)


def test_a_kernel_that_killed_for_memory_is_told_from_any_other_kill() -> None:
    killed = wire.RankExit(2, None, signal.SIGKILL, 0.0)
    assert verdict.classify_exit(killed, 17, "", oom_killed=True).reason == "host_out_of_memory"
    assert verdict.classify_exit(killed, 17, "", oom_killed=False).reason == "killed_by_signal"
    by_shell = wire.RankExit(2, 137, None, 0.0)
    assert verdict.classify_exit(by_shell, 17, "", oom_killed=True).reason == "host_out_of_memory"
    other = wire.RankExit(2, None, signal.SIGSEGV, 0.0)
    assert verdict.classify_exit(other, 17, "", oom_killed=True).reason == "killed_by_signal"


OUT_OF_DEVICE_MEMORY = (  # of PyTorch 2.11 on an H200
    "CUDA out of memory. Tried to allocate 60.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 39.29 GiB is "
    "free. Including non-PyTorch memory, this process has 100.51 GiB memory in use. Of the allocated memory 100.00 GiB "
    "is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."
)
RAISED = f"Traceback (most recent call last):\n  File a\ntorch.OutOfMemoryError: {OUT_OF_DEVICE_MEMORY}"
AFTER = "\n[rank0]:[W1117 ProcessGroupNCCL.cpp:1575] Warning: destroy_process_group() was not called"
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 15.78 GiB total capacity; 13.10 GiB already "
    "allocated; 1.25 GiB free; 13.40 GiB reserved in total by PyTorch)"
)


@pytest.mark.parametrize(
    ("tail", "told"),
    [
        (RAISED, "asked for 60.00 GiB on GPU 0; 39.29 GiB of 139.80 GiB was free, and it held 100.51 GiB"),
        (
            "\n".join(f"[rank0]: {line}" for line in RAISED.splitlines()) + AFTER,
            "asked for 60.00 GiB on GPU 0; 39.29 GiB of 139.80 GiB was free, and it held 100.51 GiB",
        ),
        (OLD, "asked for 2.00 GiB on GPU 1; 1.25 GiB of 15.78 GiB was free, and it held 13.10 GiB"),
        ("torch.AcceleratorError: CUDA error: out of memory", "asked for more memory"),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 512 bytes.", "asked for 512 bytes"),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "asked for more memory",
        ),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "asked for more memory"),
        ("RuntimeError: Triton Error [CUDA]: out of memory", "asked for more memory"),
    ],
    ids=["torch", "distributed", "old", "driver", "hip", "cublas", "cudnn", "triton"],
)
def test_a_device_without_memory_is_a_reason_of_its_own(tail: str, told: str) -> None:
    ended = wire.RankExit(3, 1, None, 0.0)
    found = verdict.classify_exit(ended, 17, f"step 1\n{tail}\n", oom_killed=False)
    assert found.reason == "device_out_of_memory"
    assert found.detail.splitlines()[0] == f"rank 3 {told}"
    assert tail.splitlines()[-1] in found.detail


@pytest.mark.parametrize(
    "tail",
    [
        f"{RAISED}\nsmaller now\nTraceback (most recent call last):\nValueError: something else\n",
        f"caught torch.OutOfMemoryError: {OUT_OF_DEVICE_MEMORY}\nno batch is small enough\n",
        "RuntimeError: the bank is out of memory\n",
        "MemoryError: out of memory\n",
    ],
    ids=["caught", "printed", "other", "host"],
)
def test_a_program_that_died_of_something_else_did_not_run_out_of_device_memory(tail: str) -> None:
    ended = wire.RankExit(3, 1, None, 0.0)
    assert verdict.classify_exit(ended, 17, tail, oom_killed=False).reason == "user_error"


def test_descendants_are_the_same_with_and_without_the_kernels_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["sh", "-c", "sleep 651 & (sleep 652 & sleep 653 & wait) & wait"]
    with subprocess.Popen(command, start_new_session=True) as top:
        try:
            found = wait_for(lambda: pids if len(pids := processes.descendants(top.pid)) == 4 else None)
            monkeypatch.setattr(processes, "_CHILDREN_LISTED", False)
            assert sorted(processes.descendants(top.pid)) == sorted(found)
        finally:
            os.killpg(top.pid, signal.SIGKILL)


def test_every_reason_that_the_launcher_gives_is_in_the_list() -> None:
    assert set(verdict.REASONS) <= REASONS.keys()
    values = [value for name, value in vars(verdict).items() if name.isupper() and isinstance(value, str)]
    constants = {value for value in values if value in REASONS}
    assert constants == set(verdict.REASONS)


def test_a_long_traceback_keeps_its_first_line_and_its_end() -> None:
    text = "x\n" + verdict.TRACEBACK + "\n" + "  File a\n" * 5000 + "ValueError: the end"
    found = verdict.excerpt(text)
    assert found.startswith(verdict.TRACEBACK)
    assert found.endswith("ValueError: the end")
    assert len(found) <= verdict.DETAIL_BYTES


def test_a_long_message_keeps_the_innermost_frames_and_its_first_line() -> None:
    frames = "".join(f'  File "a.py", line {number}, in f\n' for number in range(500))
    for mark in ("", "[rank1]: "):
        text = f"{verdict.TRACEBACK}\n{frames}ValueError: the first line\n" + "and so on\n" * 5000
        found = verdict.excerpt(f"{mark}".join(["", *text.splitlines(keepends=True)]))
        assert found.startswith(verdict.TRACEBACK)
        assert f"line 499, in f\n{mark}ValueError: the first line\n" in found
        assert "line 498" in found
        assert len(found) <= verdict.DETAIL_BYTES


def _fifo(path: Path) -> Path | None:
    return path if path.is_fifo() else None


def test_of_ends_in_one_instant_the_kill_from_outside_is_the_cause() -> None:
    ends = [wire.RankExit(0, None, signal.SIGABRT, 0.0), wire.RankExit(1, 1, None, 0.0)]
    ends += [wire.RankExit(2, None, signal.SIGSEGV, 0.0), wire.RankExit(3, None, signal.SIGKILL, 0.0)]
    assert [end.rank for end in sorted(ends, key=lambda end: (likelihood(end), end.rank))] == [3, 2, 0, 1]


def test_the_worker_of_another_server_whose_job_has_the_same_id_is_left_alone(
    shop: LauncherFixture, tmp_path: Path
) -> None:
    folder = shop.folder("true", job="gpt-1")
    mark = gang_mark("gpt-1", 1, 0, tmp_path / "another server" / "0")
    other = subprocess.Popen(["sleep", "600"], env={**os.environ, wire.GANG: mark})
    try:
        assert shop.run(folder).outcome == "succeeded"  # and whatever it left behind was looked for and killed
        assert processes.marked(mark) == [other.pid]
    finally:
        other.kill()
        other.wait()
