"""Workers that pods start: from a Secret that nobody can write to, with a package that unpacks itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from boot_kit import GangFixture, gang_fixture
from hypothesis import given
from hypothesis import strategies as st

from ingest_kit import PATIENCE, wait_for
from muster import wire
from muster.runtime.boot_gang import BootError, GangFile
from muster.runtime.boot_kubernetes import TERMINATION_BYTES, find, message

SEEN = "echo $RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $MUSTER_NODE"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[GangFixture]:
    with gang_fixture(tmp_path) as found:
        yield found


def pod(made: GangFixture, index: int, *options: str, **env: str) -> subprocess.Popen[bytes]:
    """As the manifest has it; each pod has its own message."""
    (made.shop.root / f"message-{index}").touch()
    told = {
        "JOB_COMPLETION_INDEX": str(index),
        "MUSTER_NODE": f"machine{index}",
        "MUSTER_MASTER": "127.0.0.1",
        "MUSTER_TERMINATION": str(made.shop.root / f"message-{index}"),
    }
    return made.boot("kubernetes", *options, python=made.archive(), **{**told, **env})


def told(made: GangFixture, index: int) -> wire.WorkerExit:
    return wire.WorkerExit.from_dict(json.loads((made.shop.root / f"message-{index}").read_text()))


def test_a_gang_of_pods_from_an_archive(made: GangFixture) -> None:
    made.gang(SEEN, num_nodes=2, port=29512)
    made.folder.chmod(0o500)
    before = sorted(path.name for path in made.folder.iterdir())
    pods = [pod(made, index) for index in (0, 1)]
    assert [each.wait(PATIENCE) for each in pods] == [0, 0]
    assert made.server.log(0) == "0/2 127.0.0.1:29512 machine0\n"
    assert made.server.log(1) == "1/2 127.0.0.1:29512 machine1\n"
    assert [told(made, index).reason for index in (0, 1)] == ["completed", "completed"]
    assert sorted(path.name for path in made.folder.iterdir()) == before


def test_a_pod_that_is_told_to_go_tells_first(made: GangFixture) -> None:
    """Its disk goes with it: what the ranks say while they leave must be told before."""
    program = f"""exec {sys.executable} -c '
import time
from muster import runtime
runtime.should_stop()
print("up", flush=True)
while not runtime.should_stop():
    time.sleep(0.005)
print("saved")
'"""
    made.gang(program)
    running = pod(made, 0)
    wait_for(lambda: made.server.log() == "up\n")
    running.send_signal(signal.SIGTERM)
    assert running.wait(PATIENCE) == 1
    assert made.server.log() == "up\nsaved\n"
    assert made.server.attempt().exits[0] == told(made, 0)
    assert (told(made, 0).outcome, told(made, 0).reason) == ("failed", "node_lost")


def test_killed_while_it_unpacks_itself(made: GangFixture) -> None:
    made.gang("echo $RANK >> starts; echo hello")
    assert pod(made, 0, MUSTER_FAULT_LAUNCHER="after_unpacking").wait(PATIENCE) == -signal.SIGKILL
    assert pod(made, 0).wait(PATIENCE) == 0
    assert (made.starts(), made.server.log()) == (["0"], "hello\n")


def test_started_again_after_its_end_it_starts_nothing(made: GangFixture) -> None:
    made.gang("echo $RANK >> starts; false")
    assert [pod(made, 0).wait(PATIENCE) for _ in range(2)] == [1, 1]
    assert made.starts() == ["0"]


@pytest.mark.parametrize(
    ("environment", "worker", "address"),
    [
        ({"MUSTER_WORKER": "1", "JOB_COMPLETION_INDEX": "0", "MUSTER_MASTER": "a"}, 1, "a"),
        ({"JOB_COMPLETION_INDEX": "2", "MUSTER_MASTER": "a.b.svc"}, 2, "a.b.svc"),
        ({"PET_NODE_RANK": "2", "PET_MASTER_ADDR": "trainer"}, 2, "trainer"),
        ({"RANK": "1", "MASTER_ADDR": "operator-master-0"}, 1, "operator-master-0"),
    ],
)
def test_who_numbers_the_pods(made: GangFixture, environment: dict[str, str], worker: int, address: str) -> None:
    gang = GangFile.read(made.gang("true", num_nodes=3, port=1234))
    place = find(gang, {**environment, "MUSTER_NODE": "m"})
    assert (place.worker, place.address, place.port, place.node) == (worker, address, 1234, "m")


@pytest.mark.parametrize(
    ("environment", "port", "word"),
    [
        ({"MUSTER_MASTER": "a"}, 1, "no worker's number"),
        ({"MUSTER_WORKER": "3", "MUSTER_MASTER": "a"}, 1, "but the gang has 3 workers"),
        ({"MUSTER_WORKER": "-1", "MUSTER_MASTER": "a"}, 1, "from 0 to 2"),
        ({"MUSTER_WORKER": "1"}, 1, "where rank 0 is"),
        ({"MUSTER_WORKER": "1", "MUSTER_MASTER": "a"}, 0, "no port"),
    ],
)
def test_a_manifest_that_lacks_something(made: GangFixture, environment: dict[str, str], port: int, word: str) -> None:
    gang = GangFile.read(made.gang("true", num_nodes=3, port=port))
    with pytest.raises(BootError, match=word):
        find(gang, environment)


def test_a_gang_of_one_needs_nothing(made: GangFixture) -> None:
    place = find(GangFile.read(made.gang("true")), {})
    assert (place.worker, place.address) == (0, "127.0.0.1")
    assert place.port > 0


ENDS = st.builds(
    wire.WorkerExit,
    st.sampled_from(["succeeded", "failed", "stopped"]),
    st.sampled_from(["completed", "user_error"]),
    st.text(max_size=9000),
    st.floats(0, 1e10),
    ranks=st.lists(st.builds(wire.RankExit, st.integers(0, 99), st.none(), st.just(9), st.just(1.0))).map(tuple),
)


@given(ENDS)
def test_the_message_is_an_end_that_fits(ended: wire.WorkerExit) -> None:
    raw = message(ended)
    assert len(raw) <= TERMINATION_BYTES
    back = wire.WorkerExit.from_dict(json.loads(raw))
    assert (back.outcome, back.reason, back.time) == (ended.outcome, ended.reason, ended.time)
    assert ended.detail.endswith(back.detail)
