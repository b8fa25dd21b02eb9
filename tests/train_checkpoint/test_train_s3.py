"""Checkpoints in object storage, against a real S3 server: whole or absent, whoever is killed or comes second."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path

import pytest
import torch
from ckpt_kit import check_loads, in_child, save, snapshot

from gang_kit import gang
from muster.runtime import rank_info
from muster.train.checkpoint import Saver, Snapshot, export, newest, restore
from muster.train.checkpoint.s3 import S3, open_s3
from muster.train.checkpoint.s3_client import CheckpointS3, client
from muster.train.errors import CheckpointDamaged, CheckpointError, CheckpointHeld
from muster.train.models import safetensors
from s3_kit import KEY, SECRET

PART = 5 << 20  # bytes: the least that S3 takes for a part that is not the last


def objects(where: str) -> list[str]:
    return sorted(name for name, _ in open_s3(where)._objects(""))


def uploads(where: str) -> bytes:
    store = open_s3(where)
    return store.client.request("GET", "", {"uploads": "", "prefix": store.prefix}).body


def test_what_was_saved_comes_back(bucket, tmp_path):
    where = f"s3://{bucket}/runs/a"
    assert newest(where) is None
    save(where, *range(1, 6), keep=2, keep_every=2)
    assert {name.split("/")[0] for name in objects(where)} == {f"step-00000000{n}" for n in (2, 4, 5)}
    check_loads(newest(where), 5)
    assert newest(where).path == f"{where}/step-000000005"
    save(where, 5)  # the same step again: the older one goes after the new one is there
    assert {name.split("/")[0] for name in objects(where)} == {"step-000000002", "step-000000004", "step-000000005.1"}
    check_loads(newest(where), 5)
    export(newest(where), tmp_path / "model.safetensors")
    assert torch.equal(safetensors.read_folder(tmp_path)["embed.weight"], snapshot(5).model["embed.weight"])


def test_damaged_ones_are_skipped(bucket, capfd):
    where = f"s3://{bucket}"
    save(where, 1, 2, 3, 4)
    store = open_s3(where)
    data = bytearray(store.get("step-000000004/rank-00000-0.bin"))
    data[9] ^= 1
    store.put("step-000000004/rank-00000-0.bin", memoryview(data))
    store.put("step-000000003/shared.pt", memoryview(b"short"))
    store.drop("step-000000002/index.json")
    save(f"s3://{bucket}/other", 1)
    assert newest(where) is None
    said = capfd.readouterr().err
    assert "step-000000004 is damaged and is not used: rank-00000-0.bin: its checksum is" in said
    assert "step-000000003 is damaged and is not used: shared.pt has 5 bytes" in said
    assert "step-000000002 is damaged and is not used: index.json is not there" in said


def test_big_objects_go_up_in_parts_and_come_down_in_ranges(bucket):
    store = S3(client(bucket), "x/", part_bytes=PART)
    data = os.urandom(2 * PART + 12345)
    crc = store.put("step-000000001/big", memoryview(data))
    assert store.files("step-000000001") == {"big": len(data)}
    into = bytearray(3000)
    store.read("step-000000001/big", PART - 1000, memoryview(into))
    assert into == data[PART - 1000 : PART + 2000]
    assert S3(client(bucket), "x/", part_bytes=1 << 30).put("step-000000001/one", memoryview(data)) == crc
    with pytest.raises(CheckpointDamaged, match="500 bytes came where 3000 were saved"):
        store.read("step-000000001/big", len(data) - 500, memoryview(into))
    with pytest.raises(CheckpointDamaged, match="has no 3000 bytes from 0 on"):
        store.read("step-000000001/none", 0, memoryview(into))


def test_an_answer_that_was_lost_when_parts_were_joined(bucket, monkeypatch):
    """The server has joined them, the client tries again and is told that there is no such upload."""
    real = CheckpointS3.request

    def twice(self, method, name="", query=None, **rest):
        if method == "POST" and "uploadId" in (query or {}):
            real(self, method, name, query, **rest)
        return real(self, method, name, query, **rest)

    monkeypatch.setattr(CheckpointS3, "request", twice)
    store = S3(client(bucket), "x/", part_bytes=PART)
    store.put("step-000000001/big", memoryview(bytes(2 * PART)))
    assert store.files("step-000000001") == {"big": 2 * PART}


def big(step: int) -> Snapshot:
    return Snapshot({"w": torch.full((3 * PART // 4 + 1,), float(step))}, shared={"step": step})


def cut_off(where: str) -> list[tuple[str, int, int, int]]:
    """Killed while parts go up, when they are joined, and just before the last object; what was found each time."""
    real_part, real_put = S3._part, S3.put
    found = []
    for when in ("part", "join", "commit"):

        def work(when: str = when) -> None:
            saver = Saver(where).open()
            store = saver._store
            assert isinstance(store, S3)
            store.part_bytes = PART

            def part(self: S3, key: str, upload: str, number: int, piece: memoryview) -> str:
                if number == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real_part(self, key, upload, number, piece)

            def put(self: S3, name: str, data: memoryview) -> int:
                if when == "commit" and name.endswith("manifest.json"):
                    os.kill(os.getpid(), signal.SIGKILL)
                return real_put(self, name, data)

            request = type(store.client).request

            def joined(self: object, method: str, name: str = "", query: object = None, **rest: object) -> object:
                if when == "join" and method == "POST" and "uploadId" in dict(query or {}):  # type: ignore[call-overload]
                    os.kill(os.getpid(), signal.SIGKILL)
                return request(self, method, name, query, **rest)  # type: ignore[arg-type]

            S3.put, type(store.client).request = put, joined  # type: ignore[method-assign,assignment]
            if when == "part":
                S3._part = part  # type: ignore[method-assign]
            saver.save(big(2), wait=True)

        ended = in_child(work)
        good = newest(where)
        assert good is not None
        left = sum(each.startswith("step-000000002") for each in objects(where))
        found.append((when, ended, good.step, left + uploads(where).count(b"<Upload>")))
        with Saver(where):  # the dead holder keeps nobody out, and its leavings go
            pass
        assert not any(each.startswith("step-000000002") for each in objects(where))
        assert b"<Upload>" not in uploads(where)
    return found


def test_a_save_that_is_cut_off_is_no_checkpoint(bucket):
    where = f"s3://{bucket}/cut"
    with Saver(where) as saver:
        saver.save(big(1), wait=True)
    (found,) = gang(1, cut_off, where, group=False)
    for when, ended, step, left in found:
        assert (ended, step) == (-signal.SIGKILL, 1), when
        assert left > 0, when
    state = Snapshot({"w": torch.zeros(3 * PART // 4 + 1)})
    restore(newest(where), state)
    assert torch.equal(state.model["w"], big(1).model["w"])


def two_ranks(where: str) -> tuple[int, float]:
    with Saver(where) as saver:
        saver.save(snapshot(1), wait=True)
        saver.save(snapshot(2), wait=True)
        found = saver.newest()
        assert found is not None
        state = snapshot(9)
        restored = restore(found, state)
        assert restored.extra is not None
        assert f"rank-0000{rank_info.rank()}.pt" in found.manifest.files
        return found.step, state.optim["embed.weight.lr"]


def test_two_ranks_save_and_load(bucket):
    assert gang(2, two_ranks, f"s3://{bucket}/two") == [(2, 2 / 7)] * 2


def test_the_second_owner_is_refused(bucket):
    where = f"s3://{bucket}/held"
    with Saver(where) as saver:
        with pytest.raises(CheckpointHeld, match=rf"held by another run \(process {os.getpid()} on .*is free in \d+ s"):
            Saver(where).open()
        saver.save(snapshot(1), wait=True)
        open_s3(where).put(
            ".owner", memoryview(b'{"host": "elsewhere", "pid": 7, "since": "now"}')
        )  # as after a long sleep
        with pytest.raises(CheckpointHeld, match=r"step 2 was not saved: .*process 7 on elsewhere"):
            saver.save(snapshot(2), wait=True)
    assert newest(where).step == 1
    assert open_s3(where).get(".owner").startswith(b'{"host": "elsewhere"')
    assert not any(name.startswith("step-000000002") for name in objects(where))


def test_keys_are_checked_and_never_shown(bucket, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
    with pytest.raises(CheckpointError, match=r"answered 403: .*Check the keys") as caught:
        newest(f"s3://{bucket}/x")
    for text in (str(caught.value), repr(client(bucket)), repr(open_s3(f"s3://{bucket}/x"))):
        assert not any(word in text for word in (SECRET, KEY, "wrong-secret"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(CheckpointError, match=r"no keys\. Set AWS_ACCESS_KEY_ID"):
        newest(f"s3://{bucket}/x")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:80")
    with pytest.raises(CheckpointError, match="AWS_ENDPOINT_URL got 'localhost:80'"):
        newest(f"s3://{bucket}/x")
    with pytest.raises(CheckpointError, match="expected s3://bucket/prefix"):
        newest("s3://")


def flaky(listener: socket.socket, port: int, answers: list[bytes]) -> None:
    """Stands before the server: closes or answers for it as often as told, then passes everything on."""
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        if answers:
            near.recv(1 << 16)
            near.sendall(answers.pop(0))
            near.close()
            continue
        far = socket.create_connection(("127.0.0.1", port))
        for a, b in ((near, far), (far, near)):
            threading.Thread(target=pump, args=(a, b), daemon=True).start()


def pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        pass
    finally:
        for each in (source, sink):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        source.close()


def test_what_goes_wrong_for_a_moment_is_tried_again(bucket, s3, monkeypatch):
    busy = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answers = [busy, b"", busy]
        thread = threading.Thread(target=flaky, args=(listener, s3.port, answers), daemon=True)
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        save(f"s3://{bucket}/flaky", 1)
        assert answers == []
        check_loads(newest(f"s3://{bucket}/flaky"), 1)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def test_a_server_that_is_gone_is_an_error_with_its_address(bucket, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    store = open_s3(f"s3://{bucket}/x")
    store.client.tries = 2
    with pytest.raises(CheckpointError, match=rf"at http://127.0.0.1:{port}: .*refused.* after 2 tries"):
        store.committed()


def test_there_is_no_folder_of_that_name(bucket, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(f"s3://{bucket}/x", 1)
    assert list(Path(tmp_path).iterdir()) == []
