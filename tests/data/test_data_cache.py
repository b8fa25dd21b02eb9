"""The cache of remote shards: its size is kept, whoever reads; nothing is fetched twice or read damaged."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest
from obstore import get

from muster.data import DataError, Loader, Order, ShardCache, Source, next_token, open_dataset
from muster.data.formats import tokens
from muster.object_store import open_object_store
from s3_kit import KEY, SECRET, S3Server, s3_server

SHARD, SHARDS, LENGTH = 1000, 8, 10  # tokens of a shard of u16, shards, tokens of a sample
BYTES = 64 + 2 * SHARD  # of a shard
ROW = np.arange(SHARD * SHARDS) % 5000


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """Shards in a folder that stands for what is far away."""
    tokens.write(tmp_path / "remote", [{"tokens": ROW}], vocab=5000, shard=SHARD)
    return tmp_path / "remote"


class Copies:
    """Fetches by copying a file; what it fetched."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.before: Callable[[], object] = lambda: None

    def __call__(self, address: str, path: Path) -> None:
        self.before()
        self.names.append(address.rpartition("/")[2])
        shutil.copy(address, path)

    @property
    def shards(self) -> list[str]:
        return [name for name in self.names if name != "index.json"]


def _open(remote: Path | str, cache: ShardCache) -> tokens.TokenShards:
    found = open_dataset("tokens", str(remote), length=LENGTH, cache=cache)
    assert isinstance(found, tokens.TokenShards)
    return found


def _size(cache: ShardCache) -> int:
    return sum(path.stat().st_size for path in cache.folder.rglob("*") if path.suffix in (".shard", ".part"))


def _window(index: int) -> list[int]:
    return ROW[index * LENGTH : index * LENGTH + LENGTH + 1].tolist()


def _of_shard(number: int) -> int:
    """A sample in the middle of a shard."""
    return (number * SHARD + SHARD // 2) // LENGTH


def test_shards_are_fetched_once_when_they_are_first_read(remote: Path, tmp_path: Path) -> None:
    fetch = Copies()
    cache = ShardCache(tmp_path / "cache", SHARDS * BYTES, fetch)
    found = _open(remote, cache)
    assert fetch.shards == []
    assert len(found) == len(tokens.open(remote, length=LENGTH))
    for index in range(len(found)):
        assert found.read(index)["tokens"].tolist() == _window(index)
    every = np.arange(len(found))[::-1]
    assert found.gather(every)["tokens"].tolist() == [_window(index) for index in every]
    again = _open(remote, ShardCache(cache.folder, cache.limit, fetch))  # as another process
    assert again.read(3)["tokens"].tolist() == _window(3)
    again.verify()
    assert sorted(fetch.shards) == [f"shard-{number:05d}.tokens" for number in range(SHARDS)]


def test_the_size_is_kept_and_what_was_opened_longest_ago_goes_first(remote: Path, tmp_path: Path) -> None:
    fetch = Copies()
    cache = ShardCache(tmp_path / "cache", 3 * BYTES + BYTES // 2, fetch)
    found = _open(remote, cache)
    fetch.before = lambda: _size(cache) <= 2 * BYTES or pytest.fail("room is made before a shard is fetched")
    for number in (0, 1, 2):
        found.read(_of_shard(number))
        os.utime(cache.folder.glob(f"*/shard-0000{number}.tokens.shard").__next__(), ns=(number, number))
    fetch.before = lambda: None
    found.close()
    found.read(_of_shard(0))  # opened anew: now 1 is the oldest
    found.read(_of_shard(3))
    found.read(_of_shard(0))
    assert fetch.shards == [f"shard-0000{number}.tokens" for number in (0, 1, 2, 3)]
    assert not list(cache.folder.glob("*/shard-00001*.shard"))
    assert _size(cache) <= cache.limit


def test_a_loader_reads_the_same_through_a_cache_that_holds_two_shards(remote: Path, tmp_path: Path) -> None:
    local = tokens.open(remote, length=LENGTH)
    found = _open(remote, ShardCache(tmp_path / "cache", 2 * BYTES, Copies()))
    order = Order((Source("web", len(local)),), 6, seed=3)
    plain, cached = (Loader([each], order, collate=next_token, ahead=0) for each in (local, found))
    for step in (0, 1, 50, 51):
        one, two = plain.at(step)[0].arrays, cached.at(step)[0].arrays
        assert all(np.array_equal(one[name], two[name]) for name in ("inputs", "targets"))
        assert _size(ShardCache(tmp_path / "cache", 1, Copies())) <= 2 * BYTES


def test_what_another_process_reads_is_not_removed_until_that_process_ends(remote: Path, tmp_path: Path) -> None:
    cache = ShardCache(tmp_path / "cache", 2 * BYTES, Copies(), patience=0)
    mine, its = Pipe()
    reader = os.fork()
    if reader == 0:
        try:
            found = _open(remote, cache)
            kept = [found.read(_of_shard(number))["tokens"] for number in (0, 1)]
            its.send([int(window[0]) for window in kept])
            signal.pause()
        finally:
            os._exit(1)
    assert mine.poll(180)
    assert mine.recv() == [_window(_of_shard(number))[0] for number in (0, 1)]
    found = _open(remote, cache)
    assert found.read(_of_shard(0))["tokens"].tolist() == _window(_of_shard(0))
    with pytest.raises(DataError, match=rf"no room: of its limit of {2 * BYTES} bytes {2 * BYTES} are used"):
        found.read(_of_shard(2))
    os.kill(reader, signal.SIGKILL)
    os.waitpid(reader, 0)
    assert found.read(_of_shard(2))["tokens"].tolist() == _window(_of_shard(2))
    assert _size(cache) <= cache.limit


def test_many_processes_fetch_each_shard_once(remote: Path, tmp_path: Path) -> None:
    log = tmp_path / "fetched"

    def fetch(address: str, path: Path) -> None:
        with log.open("a") as file:
            file.write(address.rpartition("/")[2] + "\n")
        shutil.copy(address, path)

    cache = ShardCache(tmp_path / "cache", SHARDS * BYTES, fetch)
    readers = []
    for seed in range(4):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                found = _open(remote, cache)
                for index in np.random.default_rng(seed).permutation(len(found)).tolist():
                    assert found.read(index)["tokens"].tolist() == _window(index)
                code = 0
            finally:
                os._exit(code)
        readers.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in readers] == [0] * 4
    fetched = [name for name in log.read_text().split() if name != "index.json"]
    assert sorted(fetched) == [f"shard-{number:05d}.tokens" for number in range(SHARDS)]


def test_a_process_that_is_killed_while_it_fetches_leaves_neither_a_part_nor_a_claim(
    remote: Path, tmp_path: Path
) -> None:
    def killed(address: str, path: Path) -> None:
        if address.endswith(".json"):
            shutil.copy(address, path)
        else:
            path.write_bytes(bytes(BYTES // 2))
            os.kill(os.getpid(), signal.SIGKILL)

    folder, limit = tmp_path / "cache", BYTES + BYTES // 3
    fetcher = os.fork()
    if fetcher == 0:
        try:
            _open(remote, ShardCache(folder, limit, killed)).read(_of_shard(0))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(fetcher, 0)[1]) == -signal.SIGKILL
    assert list(folder.glob("*/*.part"))
    cache = ShardCache(folder, limit, Copies(), patience=0)
    assert _open(remote, cache).read(_of_shard(1))["tokens"].tolist() == _window(_of_shard(1))
    assert not list(folder.glob("*/*.part"))
    assert _open(remote, cache).read(_of_shard(0))["tokens"].tolist() == _window(_of_shard(0))
    assert _size(cache) <= limit


def test_a_full_disk_is_an_error_that_says_so_and_reading_goes_on_when_there_is_room(
    remote: Path, tmp_path: Path
) -> None:
    full = [True]

    def fetch(address: str, path: Path) -> None:
        if full[0] and not address.endswith(".json"):
            path.write_bytes(bytes(7))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        shutil.copy(address, path)

    cache = ShardCache(tmp_path / "cache", SHARDS * BYTES, fetch)
    found = _open(remote, cache)
    with pytest.raises(
        DataError, match=r"shard-00000\.tokens could not be fetched .* bytes are free there\): OSError: .*space"
    ):
        found.read(0)
    assert _size(cache) == 0
    full[0] = False
    assert found.read(0)["tokens"].tolist() == _window(0)
    huge = ShardCache(tmp_path / "small", BYTES - 1, Copies(), patience=0)
    with pytest.raises(DataError, match="Give a higher limit"):
        _open(remote, huge).read(0)


def test_a_damaged_shard_is_not_kept(remote: Path, tmp_path: Path) -> None:
    damage: list[Callable[[bytes], bytes]] = [lambda data: data[:-2], lambda data: data[:-1] + b"?"]

    def fetch(address: str, path: Path) -> None:
        data = Path(address).read_bytes()
        path.write_bytes(data if address.endswith(".json") or not damage else damage[0](data))

    cache = ShardCache(tmp_path / "cache", SHARDS * BYTES, fetch)
    found = _open(remote, cache)
    for says in ("is cut off", "is damaged: the CRC-32"):
        with pytest.raises(DataError, match=says):
            found.read(0)
        damage.pop(0)
    assert found.read(0)["tokens"].tolist() == _window(0)
    shard = next(cache.folder.glob("*/*.shard"))
    found.close()
    shard.write_bytes(b"cut off")  # by somebody else: it is fetched again
    assert found.read(0)["tokens"].tolist() == _window(0)


def test_a_dataset_that_was_written_anew_has_shards_of_its_own(remote: Path, tmp_path: Path) -> None:
    cache = ShardCache(tmp_path / "cache", 2 * SHARDS * BYTES, Copies())
    assert _open(remote, cache).read(0)["tokens"].tolist() == _window(0)
    shutil.rmtree(remote)
    tokens.write(remote, [{"tokens": ROW[::-1]}], vocab=5000, shard=SHARD)
    assert _open(remote, cache).read(0)["tokens"].tolist() == ROW[::-1][: LENGTH + 1].tolist()


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as found:
        yield found


def test_shards_from_s3(server: S3Server, remote: Path, tmp_path: Path) -> None:
    bucket, client = server.bucket(), server.client()
    for path in remote.iterdir():
        client.upload_file(str(path), bucket, f"c4/{path.name}") if hasattr(
            client, "upload_file"
        ) else client.put_object(Bucket=bucket, Key=f"c4/{path.name}", Body=path.read_bytes())
    store = open_object_store(
        f"s3://{bucket}", endpoint=server.endpoint, access_key_id=KEY, secret_access_key=SECRET, region="us-east-1",
        client_options={"allow_http": True},
    )  # fmt: skip

    def fetch(address: str, path: Path) -> None:
        with path.open("wb") as file:
            for part in get(store, address.removeprefix(f"s3://{bucket}/")).stream():
                file.write(part)

    cache = ShardCache(tmp_path / "cache", 3 * BYTES, fetch)
    found = _open(f"s3://{bucket}/c4", cache)
    for index in range(0, len(found), 37):
        assert found.read(index)["tokens"].tolist() == _window(index)
        assert _size(cache) <= cache.limit
    with pytest.raises(DataError, match=rf"s3://{bucket}/none/index\.json could not be fetched"):
        _open(f"s3://{bucket}/none", cache)
