"""Workers that Slurm starts: each finds its place, tells its end, and hears what it is told, however early."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from boot_kit import GangFixture, gang_fixture

from ingest_kit import PATIENCE, wait_for
from muster import wire
from muster.runtime import processes
from muster.runtime.boot_gang import BootError, GangFile, own_address

SEEN = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR:$MASTER_PORT $MUSTER_NODE"
POLLING = f"""exec {sys.executable} -c '
import time
from muster import runtime
runtime.should_stop()
print("up", flush=True)
while not runtime.should_stop():
    time.sleep(0.005)
print("leaving")
'"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[GangFixture]:
    with gang_fixture(tmp_path) as found:
        yield found


def test_a_gang_on_nodes_without_muster_sees_itself_whole(made: GangFixture) -> None:
    made.gang(f"{SEEN}; python3 -c 'import muster.runtime as r; print(r.rank(), r.world_size())'", num_nodes=2, nproc=2)
    python = made.archive()
    boots = [made.boot("slurm", python=python, **seat) for seat in seats(2)]
    assert [boot.wait(PATIENCE) for boot in boots] == [0, 0]
    first, ranks = made.server.log(0).splitlines()
    address = first.split()[3]
    assert address.split(":")[1].isdecimal()
    for rank in range(4):
        worker, local = divmod(rank, 2)
        expected = f"{rank}/4 {local}/2 {worker} {address} node{worker}\n{rank} 4\n"
        assert made.server.log(rank) == expected
    assert ranks == "0 4"
    assert [made.worker_exit(worker).reason for worker in (0, 1)] == ["completed", "completed"]
    assert list((made.scratch / "workers").iterdir()) == []  # nothing stays on the node but the package
    assert len(list((made.scratch / "pkg").iterdir())) == 1


def seats(workers: int) -> list[dict[str, str]]:
    each = {"SLURM_JOB_ID": "7"}
    # The last first: it has to wait for the first.
    return [{**each, "SLURM_PROCID": str(n), "SLURMD_NODENAME": f"node{n}"} for n in reversed(range(workers))]


def test_ranks_see_slurms_names_as_if_srun_had_started_each(made: GangFixture) -> None:
    names = "PROCID LOCALID NODEID NTASKS NPROCS STEP_NUM_TASKS NTASKS_PER_NODE TASKS_PER_NODE JOB_ID"
    made.gang("echo " + " ".join(f"$SLURM_{name}" for name in names.split()), num_nodes=2, nproc=2)
    boots = [made.slurm(worker, SLURM_NTASKS="2", SLURM_TASKS_PER_NODE="1(x2)") for worker in (0, 1)]
    assert [boot.wait(PATIENCE) for boot in boots] == [0, 0]
    for rank in range(4):
        assert made.server.log(rank) == f"{rank} {rank % 2} {rank // 2} 4 4 4 2 2(x2) 7\n"


def test_a_folder_for_checkpoints_that_can_not_be_made_is_said_at_once(made: GangFixture) -> None:
    made.gang("true", checkpoint_dir="/proc/no/such")
    assert made.slurm().wait(PATIENCE) == 1
    assert made.worker_exit().reason == "launch_failed"
    assert "the folder for checkpoints can't be made on node node0" in made.worker_exit().detail
    made.gang("true", checkpoint_dir="s3://bucket/prefix", attempt=2)
    (made.folder / "exit-0.json").unlink()
    assert made.slurm().wait(PATIENCE) == 0


def test_another_slurm_job_with_the_same_attempt_leaves(made: GangFixture) -> None:
    made.gang("echo $SLURM_JOB_ID >> starts")
    assert made.slurm().wait(PATIENCE) == 0
    told = made.server.requests
    assert made.slurm(SLURM_JOB_ID="8").wait(PATIENCE) == 0
    assert made.slurm(SLURM_RESTART_COUNT="1").wait(PATIENCE) == 0
    assert (made.starts(), made.server.requests) == (["7"], told)


def test_a_worker_that_fails_says_so_to_the_engine_and_by_its_status(made: GangFixture) -> None:
    made.gang("echo no luck; exit 3")
    assert made.slurm().wait(PATIENCE) == 1
    ended = made.worker_exit()
    assert (ended.outcome, ended.reason, ended.exit_code) == ("failed", "user_error", 3)
    assert made.server.attempt().exits[0] == ended


def test_without_scratch_the_worker_lives_in_the_gangs_folder(made: GangFixture) -> None:
    made.gang("echo hello", scratch=False)
    assert made.slurm().wait(PATIENCE) == 0
    assert (made.folder / "worker-0" / "done").exists()
    assert made.server.log() == "hello\n"


def test_orders_reach_the_ranks_through_the_process_that_slurm_signals(made: GangFixture) -> None:
    made.gang(POLLING)
    boot = made.slurm()
    wait_for(lambda: made.server.log() == "up\n")
    made.order(wire.Command(1, "stop", "preempted", 100.0))
    boot.send_signal(signal.SIGUSR1)
    assert boot.wait(PATIENCE) == 1
    assert (made.worker_exit().outcome, made.worker_exit().reason) == ("stopped", "preempted")
    assert made.server.log() == "up\nleaving\n"


def test_another_order_is_a_new_one_whatever_its_number(made: GangFixture) -> None:
    made.gang("trap 'echo term' TERM; echo up; while :; do sleep 0.02; done")
    boot = made.slurm()
    wait_for(lambda: made.server.log() == "up\n")
    made.order(wire.Command(1, "stop", "preempted", 500.0))
    boot.send_signal(signal.SIGUSR1)
    wait_for(lambda: "term" in made.server.log())
    made.order(wire.Command(1, "stop", "user_stop", 0.1))
    boot.send_signal(signal.SIGUSR1)
    assert boot.wait(PATIENCE) == 1
    assert made.worker_exit().reason == "preempted"  # the first cause stands


def test_an_order_says_better_than_sigterm_why_it_has_to_go(made: GangFixture) -> None:
    made.gang(POLLING)
    boot = made.slurm()
    wait_for(lambda: made.server.log() == "up\n")
    made.order(wire.Command(1, "stop", "max_duration", 100.0))
    boot.terminate()
    assert boot.wait(PATIENCE) == 1
    assert made.worker_exit().reason == "max_duration"


def test_a_signal_that_comes_while_it_starts_is_not_lost(made: GangFixture) -> None:
    """Worker 1 waits for worker 0: whatever comes, it has not begun."""
    made.gang("echo never", num_nodes=2)
    boot = made.slurm(1)
    wait_for((made.folder / "owner").exists)
    boot.terminate()
    assert boot.wait(PATIENCE) == 1
    assert (made.worker_exit(1).outcome, made.worker_exit(1).reason) == ("failed", "node_lost")


def test_an_order_reaches_a_worker_that_waits_for_the_first(made: GangFixture) -> None:
    made.gang("echo never", num_nodes=2)
    boot = made.slurm(1)
    wait_for((made.folder / "owner").exists)
    made.order(wire.Command(1, "stop", "user_stop", 5.0))
    boot.send_signal(signal.SIGUSR1)
    assert boot.wait(PATIENCE) == 1
    assert (made.worker_exit(1).outcome, made.worker_exit(1).reason) == ("stopped", "user_stop")


def test_an_order_from_before_the_start_keeps_the_ranks_from_starting(made: GangFixture) -> None:
    made.gang("echo $RANK >> starts")
    made.order(wire.Command(1, "stop", "user_stop", 5.0))
    assert made.slurm().wait(PATIENCE) == 1
    assert (made.worker_exit().reason, made.starts()) == ("user_stop", [])


def test_the_end_is_told_to_the_engine_while_no_server_answers_and_the_rest_later(made: GangFixture) -> None:
    made.gang("seq 300", linger=0.1)
    made.server.go_away()
    boot = made.slurm()
    assert wait_for(made.worker_exit).reason == "completed"
    assert boot.wait(PATIENCE) == 0
    assert not made.worker().exists()  # the node keeps nothing
    made.server.come()
    assert made.boot("slurm", "--recover").wait(PATIENCE) == 0
    assert made.server.log() == "".join(f"{n}\n" for n in range(1, 301))
    assert made.server.attempt().exits[0] == made.worker_exit()
    assert (made.folder / "worker-0" / "done").exists()


def test_the_machine_that_boot_leaves_ends_its_ranks(made: GangFixture) -> None:
    made.gang("echo $$; exec sleep 637")
    boot = made.slurm()
    rank = int(wait_for(made.server.log))
    boot.kill()
    ended = wait_for(lambda: made.server.attempt().exits.get(0))
    assert (ended.outcome, ended.reason) == ("failed", "node_lost")
    assert processes.stat(rank) is None
    wait_for(lambda: (made.worker() / "done").exists())


def test_what_can_not_be_started_is_said_where_the_engine_looks(made: GangFixture) -> None:
    made.gang("echo never", num_nodes=2)
    made.scratch.symlink_to(made.work)
    (made.folder / "rendezvous.json").write_text('{"address": "127.0.0.1", "port": 1, "node": "x", "boot_id": "other"}')
    assert made.slurm(1).wait(PATIENCE) == 1
    assert made.worker_exit(1).reason == "launch_failed"
    assert "found no address of x but 127.0.0.1" in made.worker_exit(1).detail
    (made.folder / "rendezvous.json").unlink()
    assert made.slurm(0).wait(PATIENCE) == 1
    assert "is a link" in made.worker_exit(0).detail
    assert made.slurm(0, SLURM_PROCID="2").wait(PATIENCE) == 1
    assert "SLURM_PROCID is 2, but the gang has 2 workers" in made.worker_exit(2).detail


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"launch": {}}', '{"launch": 3}'])
def test_a_gang_without_sense_is_refused_with_a_word(tmp_path: Path, text: str) -> None:
    (tmp_path / "gang.json").write_text(text)
    with pytest.raises(BootError, match=r"gang\.json can't be read"):
        GangFile.read(tmp_path)


def test_the_scratch_folder_may_name_variables(made: GangFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made.gang("true")
    text = (folder / "gang.json").read_text().replace(str(made.scratch), "$NODE_DISK/muster")
    (folder / "gang.json").write_text(text)
    with pytest.raises(BootError, match="is its variable set"):
        GangFile.read(folder)
    monkeypatch.setenv("NODE_DISK", "/local")
    assert GangFile.read(folder).scratch == Path("/local/muster")


def test_the_address_is_one_that_this_machine_really_has(made: GangFixture) -> None:
    gang = GangFile.read(made.gang("true"))
    # Names that lead nowhere, elsewhere, and to itself alone.
    assert own_address(gang, ["192.0.2.1", "no-such-host.invalid", "localhost"]) == "127.0.0.1"


def test_many_boots_of_one_worker_start_one_set_of_ranks(made: GangFixture) -> None:
    made.gang("echo $RANK >> starts; until [ -e go ]; do sleep 0.02; done", nproc=2)
    boots = [made.slurm() for _ in range(4)]
    wait_for(lambda: made.starts() == ["0", "1"])
    (made.work / "go").touch()
    assert [boot.wait(PATIENCE) for boot in boots] == [0] * 4
    assert made.starts() == ["0", "1"]


def test_what_is_held_back_is_not_held_back_from_the_ranks(made: GangFixture) -> None:
    """A blocked signal stays so across exec: a rank would never hear SIGTERM."""
    mask = "grep SigBlk /proc/self/status"
    made.gang(mask)
    assert made.slurm().wait(PATIENCE) == 0
    assert int(made.server.log().split()[1], 16) == 0
