"""Checkpoints in object storage, against S3, Azure and the rules of Google's: whole or absent, whoever is killed."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import torch
from ckpt_kit import check_loads, save, snapshot

import azure_kit
import gcs_kit
import s3_kit
from gang_kit import GangFailure, gang
from muster.runtime import rank_info
from muster.train.checkpoint import Saver, Snapshot, export, newest, restore
from muster.train.checkpoint import bucket as bucket_module
from muster.train.checkpoint.bucket import Bucket, open_bucket
from muster.train.errors import CheckpointDamaged, CheckpointError, CheckpointHeld
from muster.train.models import safetensors

FILE = 1 << 20  # bytes of a file, in tests with several
SECRETS = (s3_kit.SECRET, s3_kit.KEY, gcs_kit.TOKEN, azure_kit.KEY)
ENDPOINTS = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL", "az": "AZURE_STORAGE_ENDPOINT"}
KEYS = {"s3": "AWS_SECRET_ACCESS_KEY", "gs": "GOOGLE_BEARER_TOKEN", "az": "AZURE_STORAGE_ACCOUNT_KEY"}


def objects(where: str) -> list[str]:
    return sorted(each["path"] for page in open_bucket(where).store.list() for each in page)


def test_what_was_saved_comes_back(bucket, tmp_path):
    where = f"{bucket}/runs/a"
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
    where = bucket
    save(where, 1, 2, 3, 4)
    store = open_bucket(where)
    data = bytearray(store.get("step-000000004/rank-00000-0.bin"))
    data[9] ^= 1
    store.put("step-000000004/rank-00000-0.bin", memoryview(data))
    store.put("step-000000003/shared.pt", memoryview(b"short"))
    store.drop("step-000000002/index.json")
    save(f"{bucket}/other", 1)
    assert newest(where) is None
    said = capfd.readouterr().err
    assert "step-000000004 is damaged and is not used: rank-00000-0.bin: its checksum is" in said
    assert "step-000000003 is damaged and is not used: shared.pt has 5 bytes" in said
    assert "step-000000002 is damaged and is not used: index.json is not there" in said


def test_objects_are_read_in_ranges(bucket):
    store = open_bucket(f"{bucket}/x")
    data = os.urandom((9 << 20) + 12345)
    store.put("step-000000001/big", memoryview(data))
    store.put("step-000000001/empty", memoryview(b""))
    assert store.files("step-000000001") == {"big": len(data), "empty": 0}
    into = bytearray((8 << 20) + 5)
    store.read("step-000000001/big", 1000, memoryview(into))
    assert into == data[1000 : 1000 + len(into)]
    into = bytearray(3000)
    for name, at in (("big", len(data) - 500), ("big", len(data) + 500), ("none", 0)):
        with pytest.raises(CheckpointDamaged, match=rf"step-000000001/{name} has no 3000 bytes from {at} on"):
            store.read(f"step-000000001/{name}", at, memoryview(into))


def big(step: int) -> Snapshot:
    """Larger than one file, in one tensor."""
    return Snapshot({"w": torch.full((3 * FILE // 4 + 1, 2), float(step)), "b": torch.ones(3)}, shared={"step": step})


def loads(where: str, step: int) -> None:
    state = Snapshot({"w": torch.zeros(3 * FILE // 4 + 1, 2), "b": torch.zeros(3)})
    assert restore(newest(where), state).step == step
    assert torch.equal(state.model["w"], big(step).model["w"])
    assert torch.equal(state.model["b"], torch.ones(3))


def test_a_large_tensor_is_divided_among_files(bucket, monkeypatch):
    monkeypatch.setattr(bucket_module, "FILE_BYTES", FILE)
    where = f"{bucket}/divided"
    with Saver(where) as saver:
        saver.save(big(1), wait=True)
    sizes = open_bucket(where).files("step-000000001")
    parts = [size for name, size in sizes.items() if name.endswith(".bin")]
    assert len(parts) >= 6
    assert max(parts) <= 2 * FILE
    loads(where, 1)


def cut_off(where: str, when: str) -> None:
    """Killed before a file, or just before the last object."""
    bucket_module.FILE_BYTES = FILE
    real, count, turn = Bucket.put, 0, threading.Lock()

    def put(self: Bucket, name: str, data: memoryview) -> int:
        nonlocal count
        with turn:  # one after the other, so that two files are there before the third
            count += name.endswith(".bin")
            if (when == "file" and count == 3) or (when == "commit" and name.endswith("manifest.json")):
                os.kill(os.getpid(), signal.SIGKILL)
            return real(self, name, data)

    Bucket.put = put  # type: ignore[method-assign]
    Path(os.environ["PID_FILE"]).write_text(str(os.getpid()))
    with Saver(where) as saver:
        saver.save(big(2), wait=True)


@pytest.mark.parametrize("when", ["file", "commit", "request"])
def test_a_save_that_is_cut_off_is_no_checkpoint(bucket, server, when, monkeypatch, tmp_path):
    where = f"{bucket}/cut"
    with Saver(where) as saver:
        saver.save(big(1), wait=True)
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))

    def kill(passed: int) -> None:
        if when == "request" and passed > FILE // 2:  # in the middle of a file
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    with proxy(server.port, [], kill) as port, monkeypatch.context() as patch:
        through(patch, bucket, server, port)
        with pytest.raises(GangFailure, match=r"exit status by rank {'0': -9}"):
            gang(1, cut_off, where, when, group=False)
    loads(where, 1)
    assert when == "request" or any(each.startswith("step-000000002") for each in objects(where))
    assert uploads(server, bucket) == []
    with Saver(where):  # the dead holder keeps nobody out, and its leavings go
        pass
    assert not any(each.startswith("step-000000002") for each in objects(where))
    loads(where, 1)


def uploads(server: object, bucket: str) -> list[str]:
    """What S3 keeps of uploads in parts that were not completed. The others have no list of them."""
    if not isinstance(server, s3_kit.S3Server):
        return []
    found = server.client().list_multipart_uploads(Bucket=bucket.removeprefix("s3://"))
    return [each["Key"] for each in found.get("Uploads", [])]


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
    assert gang(2, two_ranks, f"{bucket}/two") == [(2, 2 / 7)] * 2


def test_the_second_owner_is_refused(bucket):
    where = f"{bucket}/held"
    with Saver(where) as saver:
        with pytest.raises(CheckpointHeld, match=rf"held by another run \(process {os.getpid()} on .*is free in \d+ s"):
            Saver(where).open()
        saver.save(snapshot(1), wait=True)
        open_bucket(where).put(
            ".owner", memoryview(b'{"host": "elsewhere", "pid": 7, "since": "now"}')
        )  # as after a long sleep
        with pytest.raises(CheckpointHeld, match=r"step 2 was not saved: .*process 7 on elsewhere"):
            saver.save(snapshot(2), wait=True)
    assert newest(where).step == 1
    assert open_bucket(where).get(".owner").startswith(b'{"host": "elsewhere"')
    assert not any(name.startswith("step-000000002") for name in objects(where))


def test_keys_are_checked_and_never_shown(bucket, monkeypatch):
    scheme = bucket[:2]
    monkeypatch.setenv(KEYS[scheme], "d3Jvbmc=")
    wanted = {"s3": "403", "gs": "401", "az": "403"}[scheme]
    with pytest.raises(CheckpointError, match=rf"{wanted} .*Check {KEYS[scheme][:3]}") as caught:
        newest(f"{bucket}/x")
    for text in (str(caught.value), repr(open_bucket(f"{bucket}/x"))):
        assert not any(word in text for word in (*SECRETS, "d3Jvbmc="))
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("server", ["gcs", "azure"], indirect=True)  # SeaweedFS makes a bucket when it is used
def test_a_bucket_that_is_not_there_is_an_error(bucket):
    with pytest.raises(CheckpointError, match=r"nowhere/x: .*404"):
        Saver(f"{bucket[:2]}://nowhere/x").open()


@pytest.mark.parametrize("where", ["s3://", "gs:///", "az://", "http://host/x"])
def test_an_address_that_is_none_is_refused(where):
    with pytest.raises(
        CheckpointError, match=r"is no address of object storage\. Write it as s3://bucket/prefix, gs://"
    ):
        newest(where)


def test_an_endpoint_that_is_none_is_refused(bucket, monkeypatch):
    monkeypatch.setenv(ENDPOINTS[bucket[:2]], "localhost:80")
    with pytest.raises(CheckpointError, match=rf"{ENDPOINTS[bucket[:2]]} is 'localhost:80'.* Write http://host"):
        newest(f"{bucket}/x")


def test_without_obstore_the_command_that_installs_it_is_named(monkeypatch):
    for name in [each for each in sys.modules if each.partition(".")[0] == "obstore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(CheckpointError, match=r"Run `pip install 'muster-ml\[objects\]'`"):
        newest("gs://bucket/x")


def through(patch: pytest.MonkeyPatch, bucket: str, server: object, port: int) -> None:
    """Sends requests to a port in place of the server's."""
    parts = urlsplit(server.endpoint)  # type: ignore[attr-defined]
    patch.setenv(ENDPOINTS[bucket[:2]], f"http://127.0.0.1:{port}{parts.path}")


@contextmanager
def proxy(port: int, answers: list[bytes], passed: Callable[[int], None] = lambda count: None) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=flaky, args=(listener, port, answers, passed), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def flaky(
    listener: socket.socket, port: int, answers: list[bytes], passed: Callable[[int], None] = lambda count: None
) -> None:
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
        threading.Thread(target=pump, args=(near, far, passed), daemon=True).start()
        threading.Thread(target=pump, args=(far, near), daemon=True).start()


def pump(source: socket.socket, sink: socket.socket, passed: Callable[[int], None] = lambda count: None) -> None:
    count = 0
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
            count += len(data)
            passed(count)
    except OSError:
        pass
    finally:
        for each in (source, sink):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        source.close()


def test_what_goes_wrong_for_a_moment_is_tried_again(bucket, server, monkeypatch):
    busy = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    answers = [busy, b"", busy]
    with proxy(server.port, answers) as port:
        through(monkeypatch, bucket, server, port)
        save(f"{bucket}/flaky", 1)
        assert answers == []
        check_loads(newest(f"{bucket}/flaky"), 1)


def test_a_server_that_is_gone_is_an_error_with_its_address(bucket, server, monkeypatch):
    monkeypatch.setattr("muster.object_store.TRIES", 2)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    through(monkeypatch, bucket, server, port)
    with pytest.raises(
        CheckpointError, match=rf"at? ?http://127.0.0.1:{port}.* after 1 retries.*refused|{port}.*refused"
    ):
        open_bucket(f"{bucket}/x").committed()


def test_the_machines_account_of_google_is_used_and_renewed(gcs, monkeypatch, tmp_path):
    for name, value in gcs.env.items():
        if name != "GOOGLE_BEARER_TOKEN":
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{gcs.port}")
    monkeypatch.setenv("HOME", str(tmp_path))  # without an account of the user's
    for name in [each for each in os.environ if each.startswith("GOOGLE_") and each not in gcs.env]:
        monkeypatch.delenv(name)
    gcs.tokens[:] = [1.0, 1.0, 1.0]
    where = f"{gcs.address()}/by-account"
    save(where, 1)
    check_loads(newest(where), 1)
    assert gcs.given >= 2


def test_there_is_no_folder_of_that_name(bucket, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(f"{bucket}/x", 1)
    assert list(Path(tmp_path).iterdir()) == []
