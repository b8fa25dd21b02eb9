"""Saving beside training: what is copied when, one save at a time, and where errors come up."""

from __future__ import annotations

import json
import random
import threading

import numpy as np
import pytest
import torch
from ckpt_kit import blank, check_loads, names, save, snapshot

from muster import wire
from muster.runtime import last_checkpoint
from muster.runtime.reporter import Reporter
from muster.train.checkpoint import Saver, Snapshot, newest, restore, rng_state, set_rng_state
from muster.train.checkpoint import saving as saving_module
from muster.train.checkpoint import store as store_module
from muster.train.checkpoint.store import Local
from muster.train.errors import CheckpointError, CheckpointMismatch


@pytest.fixture
def gate(monkeypatch):
    """Writing waits until the gate is opened."""
    opened, reached, real = threading.Event(), threading.Event(), Local.put

    def put(self, name, data):
        reached.set()
        assert opened.wait(180)
        return real(self, name, data)

    monkeypatch.setattr(Local, "put", put)
    opened.reached = reached
    yield opened
    opened.set()


def test_what_was_saved_comes_back(tmp_path):
    assert newest(tmp_path / "none") is None
    save(tmp_path, 1, 2)
    found = newest(tmp_path)
    assert (found.step, found.path, found.world) == (2, str(tmp_path / "step-000000002"), 1)
    assert found.shared == {"step": 2, "ledger": 2**64 - 3, "layout": {"dp": 1}}
    check_loads(found, 2)
    assert names(found.store.root / found.folder) == [
        "index.json", "manifest.json", "rank-00000-0.bin", "rank-00000.pt", "shared.pt",
    ]  # fmt: skip
    assert last_checkpoint(tmp_path) == tmp_path / "step-000000002"  # the runtime's own reader takes it too


def test_training_goes_on_while_the_copy_is_written(tmp_path, gate):
    state = snapshot(1)
    with Saver(tmp_path) as saver:
        saving = saver.save(state)
        assert gate.reached.wait(180)
        assert not saving.done
        assert saver.poll() is saving
        for value in (*state.model.values(), state.optim["embed.weight.exp_avg"]):
            value.zero_()
        state.shared["ledger"] = 0
        gate.set()
        assert saver.wait().path == str(tmp_path / "step-000000001")
        assert saving.done
        assert 0 < saving.stall_seconds <= saving.seconds
        assert saving.bytes == saver.newest().manifest.total
        check_loads(saver.newest(), 1)


def test_a_second_save_waits_or_is_left_out(tmp_path, gate):
    with Saver(tmp_path, busy="skip") as saver:
        first = saver.save(snapshot(1))
        assert saver.save(snapshot(2)) is None
        gate.set()
        saver.save(snapshot(3), wait=True)  # never left out
        assert first.done
    assert names(tmp_path) == ["step-000000001", "step-000000003"]


def test_the_buffer_is_used_again(tmp_path):
    with Saver(tmp_path) as saver:
        saver.save(snapshot(1), wait=True)
        image = saver._stage.image.data_ptr()
        plan = saver._plan[1]
        saver.save(snapshot(2), wait=True)
        assert saver._stage.image.data_ptr() == image
        assert saver._plan[1] is plan
        saver.save(snapshot(3, rows=8), wait=True)  # other shapes: planned anew
        check_loads(saver.newest(), 3, rows=8)


def test_the_buffer_can_be_prepared_before_the_first_save(tmp_path):
    with Saver(tmp_path) as saver:
        saver.prepare(snapshot(1))
        prepared = saver._plan[1]
        saver.save(snapshot(1), wait=True)
        assert saver._plan[1] is prepared
        check_loads(saver.newest(), 1)
        saver.prepare(snapshot(2))
        saver.save(snapshot(2, rows=8), wait=True)  # other shapes than it was prepared for
        check_loads(saver.newest(), 2, rows=8)
        saver.prepare(snapshot(3))  # and never used


def test_the_same_step_again_replaces_the_first(tmp_path):
    for _ in range(3):
        save(tmp_path, 7)
        assert len(names(tmp_path)) == 1
    check_loads(newest(tmp_path), 7)
    save(tmp_path, 3)  # went back by hand: the last commit counts
    assert newest(tmp_path).step == 3


@pytest.mark.parametrize("tolerate", [0, 1])
def test_an_error_comes_up_at_the_next_call_and_training_may_go_on(tmp_path, monkeypatch, capfd, tolerate):
    real = Local.put

    def put(self, name, data):
        if name.endswith("-0.bin") and broken:
            raise OSError(5, "Input/output error")
        return real(self, name, data)

    monkeypatch.setattr(Local, "put", put)
    words = r"the checkpoint of step 2 was not saved: .*Input/output error.*those before it in .* are intact"
    with Saver(tmp_path, tolerate=tolerate) as saver:
        broken = False
        saver.save(snapshot(1), wait=True)
        broken = True
        failed = saver.save(snapshot(2))
        assert failed.wait(180)
        assert "step 2 was not saved" in str(failed.error)
        if tolerate == 0:
            with pytest.raises(CheckpointError, match=words):
                saver.save(snapshot(3))
        else:
            saver.save(snapshot(3))
            with pytest.raises(CheckpointError, match="step 3 was not saved"):
                saver.wait()
        assert names(tmp_path) == ["step-000000001"]
        broken = False
        assert saver.save(snapshot(4), wait=True).error is None
        check_loads(saver.newest(), 4)
    assert "step 2 was not saved" in capfd.readouterr().err


def test_the_end_of_the_block_waits_and_raises(tmp_path, monkeypatch):
    monkeypatch.setattr(Local, "commit", lambda *_: 1 / 0)
    with pytest.raises(CheckpointError, match=r"step 1 was not saved: .*ZeroDivisionError"), Saver(tmp_path) as saver:
        saver.save(snapshot(1))
    with pytest.raises(KeyError) as caught, Saver(tmp_path) as saver:
        raise KeyError(saver.save(snapshot(2)).step)
    assert "step 2 was not saved" in caught.value.__notes__[0]
    assert names(tmp_path) == []


def test_the_platform_is_told_after_the_commit(tmp_path, monkeypatch):
    reporter = Reporter(tmp_path / "rank")
    (tmp_path / "rank").mkdir()
    told = []

    def document(kind, **fields):
        told.append((kind, fields, newest(tmp_path / "c").step))
        reporter.document(kind, **fields)

    monkeypatch.setattr(saving_module.reporter, "document", document)
    save(tmp_path / "c", 5)
    ((kind, fields, there),) = told
    assert (kind, fields["step"], fields["path"], there) == ("checkpoint", 5, str(tmp_path / "c/step-000000005"), 5)
    assert fields["bytes"] == newest(tmp_path / "c").manifest.total
    assert json.dumps(fields)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.shared.pop("step"), r"shared\['step'\] got None"),
        (lambda s: s.shared.update(step=-1), r"shared\['step'\] got -1"),
        (lambda s: s.extra.update(what=object()), "Snapshot.extra can't be saved"),
        (lambda s: s.shared.update(what=threading.Lock()), "Snapshot.shared can't be saved"),
        (lambda s: s.optim.update(what=open), "Snapshot.optim can't be saved"),
        (lambda s: s.model.update(m=torch.empty(2, device="meta")), "model/m is on the meta device"),
    ],
)
def test_what_cannot_be_saved_is_refused_at_once(tmp_path, change, words):
    state = snapshot(1)
    change(state)
    with Saver(tmp_path) as saver:
        with pytest.raises(CheckpointError, match=words):
            saver.save(state)
        assert saver.poll() is None
        saver.save(snapshot(2), wait=True)


def test_it_must_be_open_and_its_settings_sound(tmp_path):
    with pytest.raises(CheckpointError, match="is not open"):
        Saver(tmp_path).save(snapshot(1))
    with pytest.raises(ValueError, match="keep 0"):
        Saver(tmp_path, keep=0).open()
    with pytest.raises(CheckpointError, match="Write it as s3://bucket/prefix"):
        Saver("ftp://bucket/x").open()


def test_a_checkpoint_of_another_model_names_names_and_touches_nothing(tmp_path):
    save(tmp_path, 1)
    other = blank()
    other.model.pop("mask")
    other.model |= {f"head.{n}": torch.zeros(2) for n in range(9)}
    other.model["embed.weight"] = torch.zeros(4, 5)
    words = (
        r"missing in the checkpoint: model/head.0, .*model/head.4 and 4 more; "
        r"unexpected in the checkpoint: model/mask; "
        r"differently shaped: model/embed.weight saved \[6, 5\], here \[4, 5\]"
    )
    before = other.model["norm.weight"].clone()
    with pytest.raises(CheckpointMismatch, match=words):
        restore(newest(tmp_path), other)
    assert torch.equal(other.model["norm.weight"], before)


def test_the_model_alone_may_be_loaded(tmp_path):
    save(tmp_path, 4)
    state = Snapshot(blank().model, {"other.state": torch.ones(2)})
    restore(newest(tmp_path), state, optim=False)
    assert torch.equal(state.model["embed.weight"], snapshot(4).model["embed.weight"])
    assert torch.equal(state.optim["other.state"], torch.ones(2))


def test_another_precision_is_converted(tmp_path):
    save(tmp_path, 4)
    state = blank()
    state.model["embed.weight"] = torch.zeros(6, 5, dtype=torch.bfloat16)
    restore(newest(tmp_path), state)
    assert torch.equal(state.model["embed.weight"], snapshot(4).model["embed.weight"].bfloat16())


def test_random_numbers_go_on_where_they_were(tmp_path):
    def draw():
        return random.random(), np.random.normal(), torch.randn(3).tolist()

    draw()
    with Saver(tmp_path) as saver:
        saver.save(Snapshot({"w": torch.ones(2)}, extra=rng_state(), shared={"step": 1}), wait=True)
        expected = [draw() for _ in range(3)]
        restored = restore(saver.newest(), Snapshot({"w": torch.zeros(2)}))
    set_rng_state(restored.extra)
    assert [draw() for _ in range(3)] == expected


def test_what_an_earlier_attempt_left_goes(tmp_path, monkeypatch):
    monkeypatch.setenv(wire.ATTEMPT, "3")
    save(tmp_path, 1)
    (tmp_path / ".saving-2-000000009-aa").mkdir()
    save(tmp_path, 2)
    assert names(tmp_path) == ["step-000000001", "step-000000002"]


def test_a_resume_does_not_wait_for_the_removal_of_half_a_save(tmp_path, monkeypatch):
    left = tmp_path / ".saving-2-000000009-aa"
    left.mkdir()
    (left / "rank-00000-0.bin").write_bytes(b"x")
    reached, killed = threading.Event(), threading.Event()
    monkeypatch.setenv(wire.ATTEMPT, "3")
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "_remove", lambda folders: (reached.set(), killed.wait(180)))
        Local(tmp_path).clean()
        assert reached.wait(180)
    (aside,) = set(names(tmp_path)) - {".lock"}
    assert aside.startswith(".removing-")  # and it is found again if the process is killed now
    save(tmp_path, 1)
    assert names(tmp_path) == ["step-000000001"]
    killed.set()
