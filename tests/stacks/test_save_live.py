"""`muster save` with a real server and real ranks: a checkpoint of a job that goes on, and who is refused."""

from __future__ import annotations

import asyncio
import json
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from exec_kit import client_of, held, muster
from live import LiveServer, live_server, until
from muster.client import AsyncClient, Client
from muster.control.orders import SPACING
from muster.core.errors import Conflict, NotAllowed
from muster.data.formats import tokens

# Both ranks see a request; the first of them writes.
PROGRAM = textwrap.dedent("""
    import os, time
    from muster import runtime
    step = 0
    while True:
        step += 1
        if runtime.should_save():
            print(f"rank {os.environ['RANK']} saves", flush=True)
            if os.environ["RANK"] == "0":
                with runtime.checkpoint(step) as folder:
                    (folder / "state").write_text(str(step))
        time.sleep(0.05)
""")
SMALL = {
    "task": "language",
    "steps": 10**9,
    "print_every": 1000,
    "device": "cpu",
    "model": {"shape": "tiny-llama", "layers": 1, "dim": 16, "ffn": 16, "sequence": 8},
    "data": {"batch": 2, "sources": [{"path": "data", "name": "made-up"}]},
    "checkpoint": {"every": 10**9},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("save"), "--nodes", "2", config="cpus = 8\n") as server:
        (server.home / "train.py").write_text(PROGRAM)
        yield server


@pytest.fixture(scope="module")
def job(server: LiveServer) -> str:
    """A program of two ranks on two nodes that saves only when it is asked."""
    job = str(server.submit("exec python train.py", num_nodes=2)["id"])
    until(lambda: server.get(f"/v1/jobs/{job}")["can_save"], "the program to look for requests")
    return job


@pytest.fixture
def client(server: LiveServer) -> Iterator[Client]:
    with client_of(server) as client:
        yield client


@pytest.fixture(autouse=True)
def apart() -> None:
    """Each test's first request is one of its own."""
    time.sleep(SPACING)


def run(server: LiveServer, *words: str) -> tuple[int, str, str]:
    process = muster(server, "save", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate()
    return process.returncode, out.decode(), err.decode()


def test_every_rank_is_asked_once_and_the_job_goes_on(server: LiveServer, client: Client, job: str) -> None:
    saved = client.job(job).save()
    assert saved.phase == "running"
    assert saved.checkpoint is not None
    assert (saved.checkpoint["attempt"], Path(saved.checkpoint["path"], "state").is_file()) == (1, True)
    event = server.get("/v1/events", job=job, kind="save.ordered")["events"][0]
    assert (event["actor"], event["data"]["ranks"]) == ("admin", 2)

    time.sleep(SPACING)  # who asks again sooner has asked once
    code, out, err = run(server, job)
    assert (code, err) == (0, "")
    again = server.get(f"/v1/jobs/{job}")["checkpoint"]
    assert again["step"] > saved.checkpoint["step"]
    assert out.startswith(f"{job} saved step {again['step']:,} (")

    def told() -> list[str]:
        return sorted(one.text for one in client.logs(job))

    both = [f"rank {rank} saves" for rank in (0, 0, 1, 1)]
    until(lambda: told() == both, "the second rank")
    client.job(job).stacks()  # an order of another kind, told while that to save is
    assert told() == both


def test_the_asynchronous_client_need_not_wait(server: LiveServer, job: str) -> None:
    async def ask() -> str:
        async with AsyncClient(server.url, token=server.token) as client:
            found = await client.save(job, timeout=0)
            return found.phase

    before = server.get(f"/v1/jobs/{job}")["checkpoint"]
    assert asyncio.run(ask()) == "running"
    until(lambda: server.get(f"/v1/jobs/{job}")["checkpoint"] != before, "the checkpoint")
    code, out, _ = run(server, job, "--no-wait", "--json")
    assert (code, json.loads(out)["jobs"][0]["id"]) == (0, job)


def test_a_training_of_muster_saves_at_its_next_step(server: LiveServer, client: Client) -> None:
    row = np.random.default_rng(0).integers(0, 50, 2000)
    tokens.write(server.home / "data", [{"tokens": row}], vocab=64)
    (server.home / "small.yaml").write_text(yaml.safe_dump(SMALL))
    training = client.job(server.submit("exec python -m muster.train small.yaml", name="training")["id"])
    until(lambda: training.refresh().raw.get("can_save"), "its first step")
    saved = training.save()
    assert saved.checkpoint is not None
    assert saved.checkpoint["step"] > 0
    until(lambda: ((training.refresh().progress or {}).get("step") or 0) > saved.checkpoint["step"], "the next step")
    assert training.phase == "running"
    training.stop(force=True)


def test_who_may_not_and_what_can_not_is_refused(server: LiveServer, client: Client, job: str) -> None:
    def refused(ref: str) -> str:
        with pytest.raises(Conflict) as found:
            client.save(ref)
        return str(found.value)

    plain = held(server)
    assert "has not said that it can save" in refused(plain)
    assert server.get(f"/v1/jobs/{plain}")["can_save"] is False
    client.stop(plain, force=True)
    server.wait(plain, "stopped")
    assert "is stopped: only a program that runs" in refused(plain)
    waits = server.submit("true", num_nodes=2, resources={"cpus": 8})["id"]
    assert "is queued: only a program that runs" in refused(waits)
    array = server.submit("sleep 100", array="0-1%1")["id"]
    assert "has no ranks of its own" in refused(array)
    for one in (waits, array):
        client.stop(one, force=True)
    assert not server.get("/v1/events", job=plain, kind="save.ordered")["events"]

    made = server.post("/v1/tokens", {"user": "auditor", "superuser": True, "role": "viewer"})["token"]
    with client_of(server, made) as viewer, pytest.raises(NotAllowed):
        viewer.save(job)
    code, _, err = run(server, plain)
    assert code == 1
    assert "only a program that runs can save" in err
