"""The jobs' folders in memory: private, one for each job, and removed with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_shop import Shop

from ingest_kit import ingest_server, wait_for
from muster.engines.base import Seat
from muster.engines.local_memory import MemoryFolders


def test_a_folder_is_private_and_goes_with_its_job(tmp_path: Path) -> None:
    (tmp_path / "shm").mkdir()
    folders = MemoryFolders(tmp_path / "home", tmp_path / "shm")
    one, other = Path(folders.create("a-1")), Path(folders.create("b-2"))
    assert folders.create("a-1") == str(one)
    assert {place.stat().st_mode & 0o777 for place in (one, one.parent)} == {0o700}
    assert sorted(folders.jobs()) == ["a-1", "b-2"]
    (one / "step").mkdir()
    folders.remove("a-1")
    assert not one.exists()
    folders.remove("b-2")
    assert not other.exists()
    assert list((tmp_path / "shm").iterdir()) == []
    assert MemoryFolders(tmp_path / "second", tmp_path / "shm").create("a-1") != str(one)


@pytest.mark.parametrize("what", ["link", "open", "file"])
def test_what_somebody_else_has_put_there_is_not_used(tmp_path: Path, what: str) -> None:
    (tmp_path / "shm").mkdir()
    folders = MemoryFolders(tmp_path / "home", tmp_path / "shm")
    place = Path(folders.create("a-1")).parent
    folders.remove("a-1")
    (tmp_path / "trap").mkdir(mode=0o700)
    if what == "link":
        place.symlink_to(tmp_path / "trap")
    elif what == "open":
        place.mkdir()
        place.chmod(0o777)
    else:
        place.touch()
    assert folders.create("a-1") == ""
    assert list((tmp_path / "trap").iterdir()) == []


def test_a_gang_on_one_node_that_may_restart_gets_one(tmp_path: Path) -> None:
    told = f"echo ${{MUSTER_CHECKPOINT_MEMORY:-none}} >> {tmp_path}/told"
    with ingest_server() as server:
        shop = Shop(tmp_path, server)
        try:
            with shop.engine() as engine:
                engine.launch(shop.gang(told, job="one", warm=True))
                engine.launch(shop.gang(told, job="off", token="off"))
                seats = [Seat("local-0"), Seat("local-1")]
                engine.launch(shop.gang(told, job="two", token="two", warm=True, seats=seats))
                wait_for(lambda: (tmp_path / "told").exists() and len((tmp_path / "told").read_text().split()) == 4)
                found = (tmp_path / "told").read_text().split()
                assert found.count("none") == 3
                (place,) = set(found) - {"none"}
                assert Path(place).name == "one"
                assert "one" in engine.kept()
                assert "two" in engine.kept(), "of its launchers that may wait for the next attempt"
                (Path(place) / "state").write_text("x")
                engine.release("one")
                assert not Path(place).exists()
                engine.release("two")
                assert not engine.kept()
        finally:
            shop.close()
