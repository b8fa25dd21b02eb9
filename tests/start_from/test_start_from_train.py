"""Jobs of `muster.train` that start from another run's checkpoint: in the run's folder, and in object storage."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live import LiveServer, live_server
from muster.data.formats import tokens
from s3_kit import s3_server

TRAIN = f"{sys.executable} -m muster.train config.json"
CONFIG: dict[str, Any] = {
    "task": "language",
    "model": {"shape": "tiny-llama", "layers": 1, "dim": 32, "ffn": 48, "sequence": 16},
    "optimizer": {"lr": 3e-3},
    "schedule": {"warmup": 5},
    "checkpoint": {"every": 10},
    "print_every": 1,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("train") / "home", config="cpus = 8\n") as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("work")
    tokens.write(made / "data", [{"tokens": np.random.default_rng(0).integers(0, 256, 4000)}], vocab=256)
    data = {"batch": 8, "sources": [{"path": str(made / "data"), "name": "made-up"}]}
    (made / "config.json").write_text(json.dumps({**CONFIG, "data": data}))
    return made


def train(server: LiveServer, folder: Path, *words: str, **spec: Any) -> str:
    run = " ".join([TRAIN, *words])
    return str(server.submit(run, workdir=str(folder), name="train", checkpoint={"keep": 5}, **spec)["id"])


def test_it_goes_on_from_the_other_run_with_other_settings(server: LiveServer, folder: Path) -> None:
    first = train(server, folder, "steps=20")
    assert server.wait(first)["phase"] == "succeeded", server.output(first)
    job = train(server, folder, "steps=30", "optimizer.lr=0.001", start_from=f"{first}@10")
    ended = server.wait(job)
    assert ended["phase"] == "succeeded", server.output(job)
    steps, _ = server.metric(job, "loss")[1]
    assert (min(steps), max(steps)) == (11, 30), "it began elsewhere"
    assert "continuing after step 10" in server.output(job)
    assert (ended["start_from"]["taken"], ended["checkpoint"]["step"]) == (10, 30)
    assert Path(ended["checkpoint"]["path"]).parent.name == job
    # The same as a run that was never interrupted and never moved, in every loss up to the change.
    whole = server.metric(first, "loss")[1]
    moved = train(server, folder, "steps=20", start_from=f"{first}@10")
    assert server.wait(moved)["phase"] == "succeeded", server.output(moved)
    assert server.metric(moved, "loss")[1][1] == whole[1][whole[0].index(11) :]


def test_in_object_storage_the_store_copies_it(server: LiveServer, folder: Path) -> None:
    with s3_server() as s3:
        bucket = s3.address()
        first = train(server, folder, "steps=20", f"checkpoint.where={bucket}/one", envs=s3.env)
        assert server.wait(first)["phase"] == "succeeded", server.output(first)
        where = f"checkpoint.where={bucket}/two"
        job = train(server, folder, "steps=30", where, start_from=first, envs=s3.env)
        ended = server.wait(job)
        assert ended["phase"] == "succeeded", (ended["reason"], server.output(job))
        steps, _ = server.metric(job, "loss")[1]
        assert (min(steps), ended["start_from"]["taken"]) == (21, 20)
        assert ended["checkpoint"]["path"] == f"{bucket}/two/step-000000030"
        kept = server.get(f"/v1/runs/{job}/checkpoints")["checkpoints"]
        assert (kept[0]["path"], kept[0]["taken_from"]) == (f"{bucket}/two/step-000000020", f"{first}@20")

        # A program that saves into its own folder fetches it from the bucket, and one without muster.train says so.
        job = train(server, folder, "steps=25", start_from=first, envs=s3.env)
        assert server.wait(job)["phase"] == "succeeded", server.output(job)
        assert min(server.metric(job, "loss")[1][0]) == 21
        plain = f"{sys.executable} -c 'from muster import runtime; print(runtime.last_checkpoint())'"
        job = server.submit(plain, workdir=str(folder), start_from=first, envs=s3.env)["id"]
        ended = server.wait(job)
        assert (ended["phase"], ended["reason"]["code"]) == ("stopped", "start_missing"), ended["reason"]
        assert f"starts from a checkpoint in {bucket}/one" in ended["reason"]["message"]

        job = train(server, folder, "steps=30", where.replace("two", "three"), start_from=f"{first}@11", envs=s3.env)
        ended = server.wait(job)
        assert (ended["phase"], ended["reason"]["code"]) == ("stopped", "start_missing"), server.output(job)
        assert "no checkpoint of step 11" in ended["reason"]["message"]
        assert not server.metric(job, "loss"), "it began at step 0"


def test_a_program_with_a_place_of_its_own_fetches_what_the_launcher_has_taken(
    server: LiveServer, folder: Path
) -> None:
    first = train(server, folder, "steps=20")
    assert server.wait(first)["phase"] == "succeeded", server.output(first)
    job = train(server, folder, "steps=25", "checkpoint.where=own-place", start_from=first)
    ended = server.wait(job)
    assert ended["phase"] == "succeeded", server.output(job)
    assert min(server.metric(job, "loss")[1][0]) == 21
    assert ended["checkpoint"]["path"] == f"{folder}/own-place/step-000000025"
    # Its checkpoints can be started from, too, by a program of the same kind.
    last = train(server, folder, "steps=27", start_from=job)
    assert server.wait(last)["phase"] == "succeeded", server.output(last)
    assert min(server.metric(last, "loss")[1][0]) == 26
