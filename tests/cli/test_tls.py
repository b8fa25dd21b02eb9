"""A server with a certificate of its own: trusted on its own machine, named as what is wrong elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from certificate import self_signed
from live import PATIENCE, LiveServer, live_server, until
from muster.cli import daemon

RECORDS = "import muster\nwith muster.start_run(name='outside') as run:\n    run.log({'loss': 1.0}, step=1)\n"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Its certificate is for this address."""
    folder = tmp_path_factory.mktemp("tls")
    pem = str(self_signed(folder))
    with live_server(folder / "home", "--tls-cert", pem, "--tls-key", pem, ca=pem) as server:
        yield server


@pytest.fixture
def elsewhere(tls: LiveServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment of a user who knows the server by its address and a token alone."""
    monkeypatch.setenv("MUSTER_URL", tls.url)
    monkeypatch.setenv("MUSTER_TOKEN", tls.token)
    return tls.url


def test_a_certificate_of_ones_own_is_trusted_on_the_same_machine(muster, tmp_path, monkeypatch) -> None:
    """It is for another host, too: clients, launchers and scripts know it from the server's home."""
    pem = str(self_signed(tmp_path, host="train.example.org"))
    home = tmp_path / "home"
    monkeypatch.setenv("MUSTER_HOME", str(home))
    try:
        up = _up(pem)
        assert (up.returncode, up.stdout[:23]) == (0, "Muster is up at https:/"), up.stderr
        ran = muster("run", "--", "echo", "over tls")
        assert (ran.code, ran.out) == (0, "over tls\n"), ran.err
        subprocess.run([sys.executable, "-c", RECORDS], timeout=PATIENCE, check=True)
        asked = ("runs", "name = outside and metrics.loss = 1", "--json")
        until(lambda: muster(*asked).json["runs"], "a script's own run to be recorded")
        assert muster("down").code == 0
    finally:
        _kill(home)


@pytest.mark.usefixtures("without_torch")
def test_a_certificate_that_has_expired_is_told_at_once(muster, tmp_path, monkeypatch) -> None:
    pem = str(self_signed(tmp_path, days=(-9, -1)))
    home = tmp_path / "home"
    monkeypatch.setenv("MUSTER_HOME", str(home))
    try:
        up = _up(pem)
        assert up.returncode == 1
        assert "runs, but nothing can use it. The certificate of https://" in up.stderr
        assert "has expired" in up.stderr
        for found in (muster("ls"), muster("doctor")):
            said = found.out + found.err
            assert "has expired" in said
            assert "Renew it" in said
            assert "Start a server" not in said
        assert muster("down").code == 0
    finally:
        _kill(home)


def test_an_issuer_that_is_not_known_can_be_named(muster, elsewhere, tls, monkeypatch) -> None:
    found = muster("ls")
    assert found.code == 1
    assert f"The certificate of {elsewhere} has an issuer that is not trusted here" in found.err
    assert "MUSTER_CA_FILE" in found.err
    assert "Start a server" not in found.err
    assert muster("--ca-file", tls.ca, "ls").code == 0
    monkeypatch.setenv("MUSTER_CA_FILE", tls.ca)
    assert muster("ls").code == 0
    assert "nowhere.pem" in muster("--ca-file", "nowhere.pem", "ls").err
    Path("empty.pem").touch()
    assert "ca_file is empty.pem, which holds no certificate" in muster("--ca-file", "empty.pem", "ls").err


def test_a_certificate_for_another_host_is_told(muster, elsewhere, tls) -> None:
    found = muster("--ca-file", tls.ca, "--url", f"https://localhost:{urlsplit(elsewhere).port}", "ls")
    assert found.code == 1
    assert "is for another host: Hostname mismatch" in found.err
    assert "Start a server" not in found.err


def test_the_wrong_scheme_is_told(muster, elsewhere, live) -> None:
    found = muster("--url", live.url.replace("http:", "https:"), "ls")
    assert "answers, but not with TLS" in found.err
    assert "http://" in found.err
    found = muster("--url", elsewhere.replace("https:", "http:"), "ls")
    assert "write https://" in found.err
    assert "Start a server" not in found.err


def _up(pem: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which the server outlives."""
    command = [sys.executable, "-m", "muster", "up", "-d", "--port", "0", "--tls-cert", pem, "--tls-key", pem]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def _kill(home: Path) -> None:
    server = daemon.find(home)
    if server is not None:
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: not server.alive(), "the server to be gone")
