"""`muster open`, and the links that `muster up` prints: each signs a browser in, once, and stands in no log."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from live import LiveServer, call_muster, stop_everything, until
from muster.cli import daemon, open
from muster.cli.main import main

LINK = re.compile(r"http://127\.0\.0\.1:\d+/sign-in#[\w-]{43}")


def sign_in(link: str) -> httpx.Response:
    address, _, code = link.partition("/sign-in#")
    return httpx.post(f"{address}/v1/session", json={"code": code}, trust_env=False, timeout=60)


def test_it_prints_a_link_that_signs_in_once(live: LiveServer, capsys, monkeypatch) -> None:
    monkeypatch.setattr(open.webbrowser, "open", pytest.fail)  # nobody looks: neither a screen nor a terminal
    assert main(["--home", str(live.home), "open", "runs/gpt-7?tab=logs"]) == 0
    told = capsys.readouterr()
    assert LINK.fullmatch(told.out.strip())
    assert "once, for 5 minutes" in told.err
    began = sign_in(told.out.strip())
    assert (began.status_code, began.json()["page"]) == (201, "/runs/gpt-7?tab=logs")
    assert sign_in(told.out.strip()).status_code == 401


def test_programs_get_the_link_as_json(live: LiveServer, capsys) -> None:
    assert main(["--home", str(live.home), "open", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"url", "expires_at"}
    assert sign_in(told["url"]).json()["page"] == "/"


def test_the_browser_gets_the_link_in_a_file_that_nobody_else_reads(live: LiveServer, capsys, monkeypatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(open, "_has_screen", lambda: True)
    monkeypatch.setattr(open.webbrowser, "open", lambda url: opened.append(url) or True)
    assert main(["--home", str(live.home), "open"]) == 0
    link = capsys.readouterr().out.strip()
    assert opened == [(live.home / "open.html").as_uri()]
    assert stat.S_IMODE((live.home / "open.html").stat().st_mode) == 0o600
    assert f"url={link}" in (live.home / "open.html").read_text()
    assert main(["--home", str(live.home), "open", "--no-browser"]) == 0
    assert len(opened) == 1


def test_without_a_server_it_says_how_to_start_one(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("MUSTER_URL", raising=False)
    assert main(["--home", str(tmp_path), "open"]) == 1
    assert "muster up -d" in capsys.readouterr().err


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    monkeypatch.setenv("MUSTER_HOME", str(folder))
    yield folder
    server = daemon.find(folder)
    if server is not None:
        daemon.stop(server)
    stop_everything(LiveServer(folder))


def test_up_apart_prints_a_link_and_logs_none(home: Path) -> None:
    told = call_muster("up", "-d", "--port", "0")
    assert told.returncode == 0, told.stderr
    (link,) = LINK.findall(told.stdout)
    assert sign_in(link).status_code == 201
    until(lambda: "`muster open` prints a link" in (home / "server.log").read_text(), "the address in the log")
    assert not LINK.search((home / "server.log").read_text())


def test_up_in_a_terminal_prints_a_link_once_it_is_up(home: Path) -> None:
    ours, its = pty.openpty()
    process = subprocess.Popen([sys.executable, "-m", "muster", "up", "--port", "0"], stdout=its, stderr=its)
    os.close(its)
    seen = ""
    try:
        while not (found := re.search(rf"Open .*?({LINK.pattern})", seen)):
            seen += os.read(ours, 4096).decode()
        assert sign_in(found[1]).status_code == 201
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        os.close(ours)
