"""The jobs' folders in memory: named for gangs that may use them, and removed with their job."""

from __future__ import annotations

from pathlib import Path

from local_shop import Shop

from ingest_kit import ingest_server, wait_for
from muster.engines.base import Seat
from muster.engines.local_memory import MemoryFolders


def test_a_folder_goes_with_its_job(tmp_path: Path) -> None:
    (tmp_path / "shm").mkdir()
    folders = MemoryFolders(tmp_path / "home", tmp_path / "shm")
    one, other = Path(folders.place("a-1")), Path(folders.place("b-2"))
    assert not folders.jobs()
    for place in (one, other):
        (place / "step").mkdir(parents=True)
    assert sorted(folders.jobs()) == ["a-1", "b-2"]
    folders.remove("a-1")
    assert not one.exists()
    assert list(folders.jobs()) == ["b-2"]
    folders.remove("b-2")
    assert list((tmp_path / "shm").iterdir()) == []
    assert MemoryFolders(tmp_path / "second", tmp_path / "shm").place("a-1") != str(one)


def test_a_gang_on_one_node_that_may_restart_is_told_its_folder(tmp_path: Path) -> None:
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
                (place,) = (Path(each) for each in found if each != "none")
                assert place.name == "one"
                (place / "step").mkdir(parents=True)
                engine.release("two")
                assert set(engine.kept()) == {"one"}
                engine.release("one")
                assert not place.exists()
                assert not engine.kept()
        finally:
            shop.close()
