"""Checks of a node: what each finds, that none holds a start up, and that nothing is started after a fault."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ingest_kit import PATIENCE
from launcher_kit import LauncherFixture, launcher_fixture
from muster.runtime import node_checks, ship, xid_codes
from muster.runtime.kernel_log import parse_record
from muster.runtime.node_checks import CHECKS, Finding, failures, judge_log, run_checks
from muster.runtime.node_finding import Failed, Node, Unknown
from muster.runtime.ship import ClockOffset
from muster.runtime.xid_codes import ACTIONS, find_xid
from muster.wire import Batch, Reply


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LauncherFixture]:
    with launcher_fixture(tmp_path) as made:
        yield made


def fails(node: Node) -> str:
    raise Failed("a fault")


def cannot(node: Node) -> str:
    raise Unknown("not here")


def breaks(node: Node) -> str:
    raise ZeroDivisionError


def hangs(node: Node) -> str:
    while True:
        time.sleep(1000)


def dies(node: Node) -> str:
    os._exit(3)


def test_a_check_that_breaks_hangs_or_dies_says_nothing_of_the_node(tmp_path: Path) -> None:
    checks = {
        "good": lambda node: "all well",
        "bad": fails,
        "none": cannot,
        "broken": breaks,
        "late": hangs,
        "dead": dies,
    }
    before = dead_children()  # of other tests
    found = {one.check: (one.status, one.detail) for one in run_checks(Node(tmp_path), checks)}
    assert found == {
        "good": ("ok", "all well"),
        "bad": ("failed", "a fault"),
        "none": ("unknown", "not here"),
        "broken": ("unknown", "the check broke: ZeroDivisionError()"),
        "late": ("unknown", "no answer within 5 s"),
        "dead": ("unknown", "the check ended without an answer"),
    }
    assert not set(dead_children()) - set(before)


def dead_children() -> list[int]:
    """Children of this process that have ended and were not reaped."""
    found = []
    for line in Path("/proc/self/task").glob("*/children"):
        for pid in map(int, line.read_text().split()):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    found.append(pid)
    return found


def test_this_machine_has_no_fault_that_the_checks_see_wrongly(tmp_path: Path) -> None:
    found = {one.check: one for one in run_checks(Node(tmp_path))}
    assert set(found) == set(CHECKS)
    assert found["disk"].status == "ok"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [("other bytes", "is not what was written"), ("too large", "File too large"), ("no folder", "No such file")],
)
def test_a_disk_that_loses_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    def fsync(file: int) -> None:
        if fault == "too large":
            raise OSError(27, "File too large")
        os.pwrite(file, b"\0" * 100, 5000)

    monkeypatch.setattr(os, "fsync", fsync)
    folder = tmp_path / "absent" if fault == "no folder" else tmp_path
    with pytest.raises(Failed, match=said):
        node_checks.disk(Node(folder))
    assert list(tmp_path.iterdir()) == []


def test_a_disk_with_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_checks, "DISK_FREE", 1 << 60)
    with pytest.raises(Failed, match="MiB are free"):
        node_checks.disk(Node(tmp_path))


XID = "NVRM: Xid (PCI:0000:3b:00): {}, pid='<unknown>', name=<unknown>, text"


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ([XID.format(79)], "Xid 79 of PCI:0000:3b:00 (reboot)"),
        ([XID.format(95), XID.format(45)], "Xid 95 of PCI:0000:3b:00 (reset)"),
        ([XID.format(48)], "(procedure)"),
        (["EXT4-fs error (device nvme0n1p1): ext4_find_entry"], "EXT4-fs error"),
        (["mce: [Hardware Error]: Machine check events logged"], "Hardware Error"),
        ([XID.format(13), XID.format(31), XID.format(43), XID.format(45), XID.format(63), XID.format(94)], ""),
        ([XID.format(9999), "Out of memory: Killed process 7 (python)", "EDAC MC0: 1 CE memory read error"], ""),
        ([], ""),
    ],
)
def test_what_the_kernel_logged(lines: list[str], fault: str) -> None:
    if not fault:
        assert judge_log(lines)
        return
    with pytest.raises(Failed) as raised:
        judge_log(lines)
    assert fault in str(raised.value)


def test_the_table_of_xids_names_each_once() -> None:
    assert len(ACTIONS) == sum(len(codes) for codes in xid_codes._TABLE.values())
    found = find_xid("[123.4] " + XID.format(119))
    assert found is not None
    assert (found.code, found.device, found.action) == (119, "PCI:0000:3b:00", "reset")
    assert find_xid("Xid 79 in a line of another program") is None


def test_a_record_of_the_kernels_log() -> None:
    assert parse_record("4,1203,5500000,-;usb 1-1: new device\n SUBSYSTEM=usb\n") == (5.5, "usb 1-1: new device")
    assert parse_record("garbage") == (0.0, "")


def test_only_what_failed_is_told() -> None:
    found = [
        Finding("disk", "failed", "full", 0.1),
        Finding("devices", "unknown", "none", 0.1),
        Finding("x", "ok", "", 0),
    ]
    assert failures(found) == "disk: full"
    assert failures(found[1:]) == ""


def test_a_launcher_checks_a_node_that_failed_lately_and_no_other(shop: LauncherFixture) -> None:
    folder = shop.folder("echo started", check_nodes=("local-0",), accelerators=0)
    assert shop.run(folder).outcome == "succeeded"
    log = shop.server.log()
    assert "local-0 failed lately and was checked: disk ok" in log
    assert "started" in log

    other = shop.folder("echo again", check_nodes=("local-1",), attempt=2, token="second")
    assert shop.run(other).outcome == "succeeded"
    assert "checked" not in shop.server.log(token="second")


def test_no_rank_is_started_where_a_check_fails(shop: LauncherFixture) -> None:
    """The launcher may write files of 8 MiB at most, as if the disk took no more."""
    folder = shop.folder("echo started; touch started", check_nodes=("local-0",))
    launcher = f"ulimit -f 16384; exec {sys.executable} -m muster.runtime.launcher {folder}"
    assert shop.start_command(["sh", "-c", launcher]).wait(PATIENCE) == 0
    ended = shop.ended(folder)
    assert (ended.outcome, ended.reason) == ("failed", "node_check_failed")
    assert ended.detail.startswith("disk: ")
    assert "File too large" in ended.detail
    assert not (shop.root / "work" / "started").exists()


def test_the_offset_of_a_clock_is_the_best_measurement_and_told_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(ship, "time", SimpleNamespace(monotonic=lambda: now[0]))
    offset = ClockOffset()
    assert offset.take() is None
    offset.measure(50.0, None, 51.0)  # an older server
    assert offset.take() is None
    offset.measure(50.0, 47.0, 54.0)
    offset.measure(60.0, 55.2, 60.5)
    offset.measure(70.0, 60.0, 78.0)
    assert offset.take() == pytest.approx((5.05, 0.25))
    offset.measure(80.0, 75.0, 80.0)
    assert offset.take() is None
    now[0] += 60.0
    assert offset.take() == (5.0, 0.0)


def test_an_offset_travels_with_a_batch() -> None:
    for offset in (None, (0.0, 0.0), (-3.5, 0.25)):
        assert Batch.decode(Batch(0, "running", offset=offset).encode()).offset == offset
    with pytest.raises(ValueError, match="offset"):
        Batch.decode(Batch(0, "running", offset=(float("nan"), 0.0)).encode())
    assert Reply.from_json(Reply(time=12.5).to_json()).time == 12.5
