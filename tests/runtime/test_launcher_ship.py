"""Shipping: everything arrives once, in order, whatever the server does meanwhile; secrets never arrive."""

from __future__ import annotations

import hashlib
import json
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from certificate import self_signed
from ingest_kit import PATIENCE, wait_for
from launcher_kit import LauncherFixture, launcher_fixture, read_exit
from muster import wire
from muster.runtime.streams import filler

REPORTING = f"""{sys.executable} -c '
from muster import runtime
for step in range(300):
    runtime.report(step=step, loss=1 / (step + 1))
print("reported")
'"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LauncherFixture]:
    with launcher_fixture(tmp_path) as made:
        yield made


def rows(stream: bytes) -> int:
    """Rows in a spool stream; raises when it is not whole records end to end."""
    at = count = 0
    while at < len(stream):
        kind, _, size = wire.RECORD_HEADER.unpack_from(stream, at)
        count += kind == wire.KIND_ROW
        at += size
    assert at == len(stream)
    return count


def test_reports_arrive_whole(shop: LauncherFixture) -> None:
    assert shop.run(shop.folder(REPORTING, nproc=2)).reason == "completed"
    for rank in (0, 1):
        assert rows(bytes(shop.server.attempt().streams[rank, "spool"])) == 300
        assert shop.server.log(rank) == "reported\n"


def test_a_job_runs_and_ends_while_the_server_is_away_and_all_of_it_arrives(shop: LauncherFixture) -> None:
    shop.server.go_away()
    folder = shop.folder(f"seq 100000; {REPORTING}; exit 4", log_limit=8 << 20)
    launcher = shop.start(folder)
    ended = wait_for(lambda: read_exit(folder))
    assert ended.exit_code == 4
    assert launcher.poll() is None
    shop.server.come()
    assert launcher.wait(PATIENCE) == 0
    assert shop.ended(folder) == ended
    assert shop.server.log() == "".join(f"{n}\n" for n in range(1, 100001)) + "reported\n"
    assert rows(bytes(shop.server.attempt().streams[0, "spool"])) == 300


def test_replies_that_are_lost_and_servers_that_are_busy_change_nothing(shop: LauncherFixture) -> None:
    turns = iter(["drop", 503, None, "drop", 500, 429, "drop", None] * 50)
    shop.server.fault = lambda batch: next(turns)
    ended = shop.run(shop.folder("for i in $(seq 2000); do echo line $i; done"))
    assert ended.reason == "completed"
    assert shop.server.log() == "".join(f"line {n}\n" for n in range(1, 2001))


def test_the_end_is_told_with_the_last_bytes_and_not_before(shop: LauncherFixture) -> None:
    size = 9 << 20  # more than two batches
    ended_with: list[int] = []

    def look(batch: wire.Batch) -> None:
        if batch.state == "ended":
            have = len(shop.server.attempt().streams.get((0, "log"), b""))
            ended_with.append(have + sum(len(p.data) for p in batch.pieces if p.stream == "log"))

    shop.server.fault = look
    assert shop.run(shop.folder(f"head -c {size} /dev/zero", log_limit=64 << 20)).reason == "completed"
    assert set(ended_with) == {size}  # it may be told more than once, while records of the machine are on their way


def test_batches_that_are_too_large_are_cut_down(shop: LauncherFixture) -> None:
    shop.server.fault = lambda batch: 413 if sum(len(p.data) for p in batch.pieces) > 10_000 else None
    run = f"{sys.executable} -c 'print(\"x\" * 99_999)'; {REPORTING}"
    assert shop.run(shop.folder(run)).reason == "completed"
    assert shop.server.log() == "x" * 99_999 + "\nreported\n"
    assert rows(bytes(shop.server.attempt().streams[0, "spool"])) == 300


def test_what_the_server_refuses_for_good_is_left_out_and_said_so(shop: LauncherFixture) -> None:
    poison = b"poisoned"

    def refuse(batch: wire.Batch) -> int | None:
        return 400 if any(p.stream == "spool" and poison in p.data for p in batch.pieces) else None

    shop.server.fault = refuse
    code = (
        "from muster import runtime\n"
        "for step in range(2000): runtime.report(step=step, loss=1.0)\n"
        'runtime.note("poisoned")\n'
        "for step in range(2000): runtime.report(step=step, loss=2.0)\n"
    )
    (shop.root / "train.py").write_text(code)
    assert shop.run(shop.folder(f"{sys.executable} {shop.root}/train.py")).reason == "completed"
    stream = bytes(shop.server.attempt().streams[0, "spool"])
    assert 3800 < rows(stream) < 4000  # only the neighbours of what was refused are missing
    assert b"were damaged and are left out" in stream
    assert "bytes of the spool" in shop.server.log()


@pytest.mark.parametrize("size", [16, 24, 160, 4096, 1 << 20, (4 << 20) - 64])
def test_a_filler_is_whole_records_of_the_size_that_it_replaces(size: int) -> None:
    assert len(filler(size)) == size
    assert rows(filler(size)) == 0


def test_a_server_that_moved_is_found_by_the_file(shop: LauncherFixture) -> None:
    moved = shop.root / "server.json"
    moved.write_text("half a fi")
    folder = shop.folder("echo here", urls=("http://127.0.0.1:9",), urls_file=str(moved))
    launcher = shop.start(folder)
    wait_for(lambda: read_exit(folder))
    moved.write_text(json.dumps({"urls": [shop.server.url]}))
    assert launcher.wait(PATIENCE) == 0
    assert shop.server.log() == "here\n"


def test_secrets_reach_the_ranks_and_nothing_else(shop: LauncherFixture) -> None:
    shop.server.secrets = {
        "HF_TOKEN": "hf_abcdefghij",
        "KEY": "line-one-of-it\nline-two-of-it",
        "OTHER": "not asked for",
    }
    (shop.root / "train.py").write_text(
        "import os, sys, time\n"
        "token = os.environ['HF_TOKEN']\n"
        "print('len', len(token), 'OTHER' in os.environ)\n"
        "for c in token: sys.stdout.write(c); sys.stdout.flush(); time.sleep(0.01)\n"  # across many chunks
        "print()\n"
        "print(os.environ['KEY'].splitlines()[1])\n"
        "raise RuntimeError('bad token ' + token)\n"
    )
    folder = shop.folder(f"{sys.executable} {shop.root}/train.py", secrets=("HF_TOKEN", "KEY"))
    ended = shop.run(folder)
    assert ended.detail.endswith("RuntimeError: bad token ***")
    assert shop.server.log().startswith("len 13 False\n***\n***\nTraceback")
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and "pkg" not in path.parts:
            assert b"hf_abcdefghij" not in path.read_bytes(), path


@pytest.mark.parametrize(("status", "have"), [(404, {}), (410, {}), (200, {"ELSE": "x"})])
def test_a_secret_that_is_gone_ends_the_worker_before_it_starts(
    shop: LauncherFixture, status: int, have: dict[str, str]
) -> None:
    shop.server.secrets, shop.server.secrets_status = have, status
    ended = shop.run(shop.folder("touch started", secrets=("KEY",)))
    assert (ended.outcome, ended.reason) == ("failed", "secret_missing")
    assert not (shop.root / "work" / "started").exists()


def test_a_rank_that_shouts_is_heard_whole_and_starves_nobody(shop: LauncherFixture) -> None:
    size = 64 << 20
    loud = f"head -c {size} /dev/zero | tr '\\0' x"
    run = f"if [ $RANK = 0 ]; then {loud}; else for i in $(seq 20); do echo tick $i; sleep 0.02; done; fi"
    folder = shop.folder(run, nproc=2, log_limit=128 << 20)
    assert shop.run(folder).reason == "completed"
    heard = shop.server.attempt().streams[0, "log"]
    assert len(heard) == size
    assert hashlib.md5(heard).digest() == hashlib.md5(b"x" * size).digest()
    assert shop.server.log(1) == "".join(f"tick {n}\n" for n in range(1, 21))


def test_of_output_beyond_the_limit_the_first_and_the_last_part_arrive(shop: LauncherFixture) -> None:
    shop.server.go_away()
    limit, lines = 256 << 10, 200_000
    folder = shop.folder(f"seq -f 'line %07.0f' {lines}", log_limit=limit)
    launcher = shop.start(folder)
    wait_for(lambda: read_exit(folder))
    assert sum(path.stat().st_size for path in (folder / "rank-0").glob("log.*")) <= limit * 11 / 8
    shop.server.come()
    assert launcher.wait(PATIENCE) == 0
    numbers = [int(line.removeprefix("line ")) for line in shop.server.log().splitlines()]  # all of them are whole
    head = next(place for place, number in enumerate(numbers) if number != place + 1)
    assert numbers[head:] == list(range(numbers[head], lines + 1))
    assert min(head, len(numbers) - head) * 13 >= limit // 2
    assert shop.server.attempt().missing[0] == 13 * (numbers[head] - head - 1)


def test_a_server_with_a_certificate_of_its_own_is_trusted_by_the_file_and_by_nothing_else(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with launcher_fixture(tmp_path, context) as shop:
        stranger = shop.folder("echo never told", attempt=2, token="stranger")
        launcher = shop.start(stranger)
        assert shop.run(shop.folder("echo told", ca_file=str(certificate))).reason == "completed"
        assert shop.server.log() == "told\n"
        wait_for(lambda: "CERTIFICATE_VERIFY_FAILED" in (stranger / "launcher.log").read_text())
        assert launcher.poll() is None
        assert not shop.server.attempt("stranger").states
