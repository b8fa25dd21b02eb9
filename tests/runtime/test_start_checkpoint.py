"""A checkpoint of another run, taken: whole or not at all, whatever is pruned, damaged, planted or killed meanwhile."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components import small_disk
from muster import wire
from muster.runtime import checkpoint, last_checkpoint, manifest, processes
from muster.runtime.checkpoint_files import Owner, Stopped
from muster.runtime.start_checkpoint import NoStart, Taken, Taker, await_taken, take, taken

ORDINARY = 65534  # nobody: a user whom the modes of files hold back


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (wire.RANK, wire.RANK_DIR, wire.CHECKPOINT_DIR, wire.CHECKPOINT_KEEP, wire.ATTEMPT):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def as_user() -> Iterator[None]:
    """Not as root."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(ORDINARY)
    os.seteuid(ORDINARY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@contextmanager
def as_root() -> Iterator[None]:
    os.seteuid(0)
    try:
        yield
    finally:
        os.seteuid(ORDINARY)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of checkpoints with the run `new-2`, for a user who is not root."""
    root = Path(tempfile.mkdtemp(prefix="muster-start-", dir="/dev/shm"))  # a thousand tries flush a lot
    if os.geteuid() == 0:
        os.chown(root, ORDINARY, ORDINARY)
    try:
        with as_user():
            (root / "new-2").mkdir()
            yield root
    finally:
        shutil.rmtree(root)


def save(folder: Path, step: int, *names: str) -> Path:
    with checkpoint(step, folder) as at:
        for name in names or ("model.bin", "optim/shard.0"):
            (at / name).parent.mkdir(parents=True, exist_ok=True)
            (at / name).write_bytes(f"{name} of {step}".encode() * 50)
    found = last_checkpoint(folder)
    assert found is not None
    return found


def taker(place: Path, attempt: int = 1, links: bool = True, wait: Callable[[float], bool] = lambda _: True) -> Taker:
    return Taker(place / "new-2", attempt, Owner(os.geteuid(), os.getegid(), links), wait)


def start(step: int | None = None) -> wire.Start:
    return wire.Start("gpt-1", step, share=True)


def whole(folder: Path, step: int) -> None:
    """The only checkpoint of the run is that step, and its content is what was saved then."""
    found = last_checkpoint(folder)
    assert found == folder / f"step-{step:09d}"
    names = manifest.load(found).files
    assert {p.relative_to(found).as_posix() for p in found.rglob("*") if p.is_file()} == {*names, manifest.MANIFEST}
    assert all((found / name).read_bytes() == f"{name} of {step}".encode() * 50 for name in names)


def test_the_newest_is_linked_and_the_source_can_be_removed(place: Path) -> None:
    save(place / "gpt-1", 100)
    source = save(place / "gpt-1", 200)
    found = take(start(), taker(place))
    assert found == Taken(200, str(place / "new-2" / "step-000000200"), manifest.load(source).total, "link")
    for name in ("model.bin", "optim/shard.0"):
        mine, its = (place / "new-2" / "step-000000200" / name).stat(), (source / name).stat()
        assert (mine.st_ino, mine.st_nlink) == (its.st_ino, 2)
    shutil.rmtree(place / "gpt-1")
    whole(place / "new-2", 200)


def test_a_named_step_is_taken_and_another_is_not(place: Path) -> None:
    for step in (100, 200, 300):
        save(place / "gpt-1", step)
    with pytest.raises(NoStart, match=r"gpt-1 has no checkpoint of step 150 in .*/gpt-1; it has 300, 200, 100"):
        take(start(150), taker(place))
    assert take(start(200), taker(place)).step == 200
    whole(place / "new-2", 200)


def test_done_again_it_changes_nothing(place: Path) -> None:
    save(place / "gpt-1", 100)
    first = take(start(), taker(place))
    save(place / "gpt-1", 200)
    assert take(start(), taker(place, attempt=2)) == first == taken(place / "new-2")
    shutil.rmtree(place / "gpt-1")
    assert take(start(), taker(place, attempt=3)) == first
    whole(place / "new-2", 100)


def test_it_counts_like_one_that_the_attempt_has_saved(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(wire.ATTEMPT, "7")
    save(place / "gpt-1", 100)
    save(place / "gpt-1", 200)
    found = take(start(), taker(place, attempt=1))
    own = manifest.load(Path(found.path))
    assert (own.step, own.serial, own.attempt) == (200, 1, 1)
    monkeypatch.setenv(wire.CHECKPOINT_DIR, str(place / "new-2"))
    monkeypatch.setenv(wire.CHECKPOINT_SINCE, "2")  # `muster resume --from-scratch` after the first attempt
    assert last_checkpoint() is None
    monkeypatch.setenv(wire.CHECKPOINT_STEP, "200")  # or --checkpoint 200
    assert last_checkpoint() == Path(found.path)


def test_the_run_prunes_it_like_its_own_and_the_source_keeps_its_files(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(place / "gpt-1", 100)
    take(start(), taker(place))
    monkeypatch.setenv(wire.CHECKPOINT_KEEP, "1")
    save(place / "new-2", 10)  # a program may count its steps anew: the newest is that which was saved last
    assert last_checkpoint(place / "new-2") == place / "new-2" / "step-000000010"
    assert not (place / "new-2" / "step-000000100").exists()
    whole(place / "gpt-1", 100)


def test_neither_run_can_write_into_the_files_of_the_other(place: Path) -> None:
    source = save(place / "gpt-1", 100)
    found = take(start(), taker(place))
    for folder in (Path(found.path), source):
        for mode in ("r+b", "wb", "ab"):
            with pytest.raises(PermissionError):
                (folder / "model.bin").open(mode)
    whole(place / "gpt-1", 100)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write to read-only files")
def test_root_gets_a_copy_because_modes_do_not_hold_it_back(tmp_path: Path) -> None:
    (tmp_path / "new-2").mkdir()
    source = save(tmp_path / "gpt-1", 100)
    found = take(start(), taker(tmp_path))
    assert (found.how, found.why) == ("copy", "read-only files are open to its ranks for writing")
    (Path(found.path) / "model.bin").write_text("spoilt")
    assert (source / "model.bin").stat().st_nlink == 1
    whole(tmp_path / "gpt-1", 100)


def test_runs_that_may_not_share_files_get_copies(place: Path) -> None:
    source = save(place / "gpt-1", 100)
    found = take(start(), taker(place, links=False))
    assert (found.how, found.why) == ("copy", "the two runs may not share files")
    whole(place / "new-2", 100)
    assert (source / "model.bin").stat().st_nlink == 1
    (Path(found.path) / "model.bin").write_text("its own")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a file system of its own")
def test_what_can_not_be_linked_is_copied_and_the_reason_is_said(place: Path) -> None:
    save(place / "gpt-1", 100)
    with as_root(), small_disk(place / "mounted", "1m") as own:
        own.chmod(0o777)
        with as_user():
            found = take(start(), Taker(own, 1, taker(place).owner, lambda _: True))
            assert (found.how, found.why) == ("copy", "they are on different file systems")
            whole(own, 100)
            save(place / "gpt-1", 200, *(f"part-{i}/large" for i in range(2000)))
            shutil.rmtree(own / ".started")
            with pytest.raises(NoStart, match="No space left on device"):
                take(start(), Taker(own, 2, taker(place).owner, lambda _: True))
            whole(own, 100)


# --- what is damaged, and what is planted -----------------------------------------------------------------------------
def test_a_damaged_one_is_left_and_the_next_is_taken(place: Path) -> None:
    for step in (100, 200, 300):
        save(place / "gpt-1", step)
    spoilt = place / "gpt-1" / "step-000000300" / "model.bin"
    spoilt.write_bytes(b"\1" + spoilt.read_bytes()[1:])
    (place / "gpt-1" / "step-000000200" / manifest.MANIFEST).write_text("{")
    assert take(start(), taker(place)).step == 100
    whole(place / "new-2", 100)
    with pytest.raises(NoStart, match=r"step-000000300: model.bin: its checksum is"):
        take(start(300), Taker(place / "gpt-1", 1, taker(place).owner, lambda _: True))


def test_a_source_with_nothing_to_take_is_refused_with_where_it_was_looked_for(place: Path) -> None:
    with pytest.raises(NoStart, match=f"{place}/gpt-1 is not there"):
        take(start(), taker(place))
    (place / "gpt-1" / "step-000000001").mkdir(parents=True)
    with pytest.raises(NoStart, match=r"can be used: step-000000001: it has no manifest\.json"):
        take(start(), taker(place))
    for name in ("../gpt-1", "..", ".gpt-1", ""):
        with pytest.raises(NoStart, match="is no run's id"):
            take(wire.Start(name, share=True), taker(place))
    assert sorted(path.name for path in (place / "new-2").iterdir()) == []


SECRET = "of somebody else"


def _link_file(at: Path, secret: Path) -> None:
    (at / "model.bin").unlink()
    (at / "model.bin").symlink_to(secret)


def _link_folder(at: Path, secret: Path) -> None:
    shutil.rmtree(at / "optim")
    (at / "optim").symlink_to(secret.parent)


def _pipe(at: Path, secret: Path) -> None:
    (at / "model.bin").unlink()
    os.mkfifo(at / "model.bin")


def _names(*names: str) -> Callable[[Path, Path], None]:
    def plant(at: Path, secret: Path) -> None:
        doc = json.loads((at / manifest.MANIFEST).read_text())
        size, crc = len(secret.read_bytes()), 0
        doc["files"] |= {name.format(secret=secret): {"bytes": size, "crc32": crc} for name in names}
        (at / manifest.MANIFEST).write_text(json.dumps(doc))

    return plant


def _manifest_link(at: Path, secret: Path) -> None:
    (at / manifest.MANIFEST).rename(secret.parent / "planted.json")
    (at / manifest.MANIFEST).symlink_to(secret.parent / "planted.json")


def _manifest_pipe(at: Path, secret: Path) -> None:
    (at / manifest.MANIFEST).unlink()
    os.mkfifo(at / manifest.MANIFEST)


def _huge_manifest(at: Path, secret: Path) -> None:
    os.truncate(at / manifest.MANIFEST, 1 << 40)


def _whole_link(at: Path, secret: Path) -> None:
    at.rename(secret.parent / "moved")
    at.symlink_to(secret.parent / "moved")


def _folder_as_file(at: Path, secret: Path) -> None:
    (at / "model.bin").unlink()
    (at / "model.bin").mkdir()


def _other_step(at: Path, secret: Path) -> None:
    doc = json.loads((at / manifest.MANIFEST).read_text())
    (at / manifest.MANIFEST).write_text(json.dumps({**doc, "step": 10**15}))


PLANTS = [
    _link_file, _link_folder, _pipe, _manifest_link, _manifest_pipe, _huge_manifest, _whole_link, _folder_as_file,
    _other_step, _names("../../secret"), _names("{secret}"), _names("optim/../../../secret"), _names(""), _names("."),
    _names("a//b"), _names(manifest.MANIFEST), _names("a\0b"),
]  # fmt: skip


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__qualname__.split(".")[0])
def test_what_a_source_plants_leads_nowhere(place: Path, plant: Callable[[Path, Path], None], links: bool) -> None:
    (place / "theirs").mkdir()
    secret = place / "theirs" / "secret"
    secret.write_text(SECRET)
    save(place / "gpt-1", 100)
    plant(save(place / "gpt-1", 200), secret)
    assert take(start(), taker(place, links=links)).step == 100
    whole(place / "new-2", 100)
    assert all(path.is_symlink() is False for path in (place / "new-2").rglob("*"))
    assert secret.stat().st_nlink == 1
    assert not any(
        SECRET in path.read_text(errors="replace") for path in (place / "new-2").rglob("*") if path.is_file()
    )


def test_what_a_rank_of_the_run_itself_plants_moves_nothing_of_others(place: Path) -> None:
    save(place / "theirs", 100)
    (place / "new-2" / ".started").symlink_to(place / "theirs")
    with pytest.raises(NoStart):
        take(start(), taker(place))
    whole(place / "theirs", 100)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    names=st.lists(
        st.lists(st.text("abc.é ", min_size=1, max_size=5).filter(lambda part: part.strip(".")), min_size=1, max_size=4)
        .map("/".join).filter(lambda name: not name.startswith(manifest.MANIFEST)), min_size=1, max_size=20,
    ),
    steps=st.lists(st.integers(0, 10**12), min_size=1, max_size=5, unique=True),
    links=st.booleans(), pick=st.booleans(),
)  # fmt: skip
def test_any_tree_of_files_arrives_as_it_was(
    place: Path, names: list[str], steps: list[int], links: bool, pick: bool
) -> None:
    for name in ("gpt-1", "new-2"):
        shutil.rmtree(place / name, ignore_errors=True)
    (place / "new-2").mkdir()
    # A file can't be a folder too.
    kept = [name for name in dict.fromkeys(names) if not any(other.startswith(f"{name}/") for other in names)]
    os.environ[wire.CHECKPOINT_KEEP] = "10"
    try:
        for step in steps:
            save(place / "gpt-1", step, *kept)
    finally:
        del os.environ[wire.CHECKPOINT_KEEP]
    wanted = steps[0] if pick else None
    found = take(start(wanted), taker(place, links=links))
    assert (found.step, found.how) == (steps[0] if pick else steps[-1], "link" if links else "copy")
    whole(place / "new-2", found.step)


# --- what happens meanwhile -------------------------------------------------------------------------------------------
def test_who_is_told_to_stop_leaves_nothing(place: Path) -> None:
    save(place / "gpt-1", 100)
    for links, looks in ((True, 0), (True, 1), (True, 2), (False, 0), (False, 1)):
        left = iter([True] * looks)
        with pytest.raises(Stopped):
            take(start(), taker(place, links=links, wait=lambda _, left=left: next(left, False)))
        assert list((place / "new-2").iterdir()) == []


def test_the_other_workers_wait_for_the_first(place: Path) -> None:
    save(place / "gpt-1", 100)
    looks: list[float] = []

    def wait(seconds: float) -> bool:
        looks.append(seconds)
        if len(looks) == 3:
            take(start(), taker(place))
        return True

    assert await_taken(place / "new-2", wait, 3600).step == 100
    assert len(looks) == 3
    with pytest.raises(NoStart, match=r"has taken no checkpoint into .* all nodes have to share it"):
        await_taken(place / "gpt-1", wait, 0.0)
    with pytest.raises(Stopped):
        await_taken(place / "gpt-1", lambda _: False, 3600)


def forked(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    return pid


@pytest.fixture
def running(place: Path) -> Iterator[Path]:
    """A source that saves as fast as it can and keeps one checkpoint, as long as the test lasts."""
    over = place / "over"

    def trains() -> None:
        os.environ[wire.CHECKPOINT_KEEP] = "1"
        for step in range(10**9):
            if over.exists():
                return
            with checkpoint(step, place / "gpt-1") as at:
                for i in range(4):
                    (at / f"part-{i}").mkdir()
                    (at / f"part-{i}" / "data").write_bytes(f"part-{i}/data of {step}".encode() * 50)

    pid = forked(trains)
    while not list((place / "gpt-1").glob("step-*")):
        time.sleep(0.01)
    yield place
    over.touch()
    assert os.waitpid(pid, 0)[1] == 0
    newest = last_checkpoint(place / "gpt-1")
    assert newest is not None
    whole(place / "gpt-1", manifest.load(newest).step)


@pytest.mark.parametrize("links", [True, False])
def test_a_source_that_saves_and_prunes_all_the_time_is_never_taken_in_part(running: Path, links: bool) -> None:
    steps = set()
    for _ in range(100):
        found = take(start(), taker(running, links=links))
        whole(running / "new-2", found.step)
        steps.add(found.step)
        shutil.rmtree(running / "new-2")
        (running / "new-2").mkdir()
    assert len(steps) > 10


POINTS = ("start_linked_file", "start_verified", "start_taken", "start_settled")


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_each_step_the_next_attempt_finishes_or_repeats_it(
    place: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(place / "gpt-1", 100)
    monkeypatch.setenv(processes.FAULT, point)
    pid = forked(lambda: take(start(), taker(place)))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    monkeypatch.delenv(processes.FAULT)
    before = last_checkpoint(place / "new-2")
    assert (before is not None) == (point == "start_settled")
    save(place / "gpt-1", 200)
    found = take(start(), taker(place, attempt=2))
    assert found.step == (200 if point in POINTS[:2] else 100)
    whole(place / "new-2", found.step)
    monkeypatch.setenv(wire.ATTEMPT, "2")
    save(place / "new-2", 300)  # removes what a killed process left
    assert [path.name for path in (place / "new-2").glob(".saving*")] == []


def test_tries_that_are_killed_anywhere_lose_and_damage_nothing(running: Path) -> None:
    """Beside a source that saves and prunes. Every look at the folders between finds only what is whole."""
    own, kills, made, chance = running / "new-2", 0, 0, random.Random(7)
    began = time.monotonic()
    take(start(), taker(running))
    usual = time.monotonic() - began
    while kills < 40:
        shutil.rmtree(own)
        own.mkdir()
        for attempt in range(1, 10**6):
            pid = forked(lambda attempt=attempt: take(start(), taker(running, attempt, links=attempt % 4 > 0)))
            time.sleep(chance.random() * usual * (1 + attempt / 10))  # a busy machine needs longer for one
            os.kill(pid, signal.SIGKILL)
            ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            assert ended in (0, -signal.SIGKILL)
            kills += ended != 0
            for folder in own.glob("step-*"):
                assert manifest.damage(folder, manifest.load(folder), checksums=True) is None
            if ended == 0:
                break
        found = taken(own)
        assert found is not None
        whole(own, found.step)
        made += 1
    assert made
