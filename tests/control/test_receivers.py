"""Receivers of alerts: real HTTP, SMTP and command receivers that accept, refuse, hang or are away; their settings."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from email.message import Message as Mail
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message as Mailbox

from muster.control import receivers as module
from muster.control.outbox import ReceiverAway
from muster.control.outbox_rows import Message
from muster.control.receivers import KIND, Receiver, Receivers, read_receivers, text_of
from muster.core.errors import ConfigError
from muster.monitor.alerts.rule import Example, Rule

ALERT = {
    "number": 7, "title": "gpt", "subject": {"name": "gpt-1"}, "value": 0.1, "text": "its devices are idle",
    "fired_at": 1.0, "resolved_at": None,
}  # fmt: skip
NOTICE: dict[str, Any] = {
    "group": "device-idle language", "rule": "device-idle", "severity": "warning", "project": "language",
    "status": "firing", "firing": [ALERT], "firing_count": 3, "resolved": [], "resolved_count": 0,
    "runbook": "device-idle", "owner": "me", "time": 2.0,
}  # fmt: skip


def send(receiver: Receiver, notice: dict[str, Any] = NOTICE) -> None:
    Receivers({"ops": receiver}).deliver(Message(5, KIND, {"receiver": "ops", "notice": notice}, 1.0))


class Web(BaseHTTPRequestHandler):
    got: list[tuple[dict[str, str], Any]]
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), json.loads(body)))  # type: ignore[attr-defined]
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    server.got, server.status = [], 200
    server.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_gets_the_whole_notice_signed(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    send(Receiver("webhook", url=web.url, secret_env="SECRET"))
    ((headers, body),) = web.got
    assert body == NOTICE
    assert headers["Muster-Delivery"] == "5"
    assert headers["Muster-Signature"].startswith("sha256=")


def test_slack_and_teams_get_bodies_of_their_own(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URL", web.url)
    send(Receiver("slack", url_env="URL"))
    send(Receiver("teams", url=web.url))
    (_, slack), (_, teams) = web.got
    assert slack == {"text": text_of(NOTICE)}
    assert "[firing: 3] device-idle, project language" in slack["text"]
    assert "and 2 more" in slack["text"]
    assert "muster alerts show 7" in slack["text"]
    content = teams["attachments"][0]["content"]
    assert (content["type"], content["body"][0]["text"]) == ("AdaptiveCard", slack["text"])


@pytest.mark.parametrize(("status", "away"), [(500, False), (404, False), (302, False), (429, True), (503, True)])
def test_a_receiver_that_refuses(web: Any, status: int, away: bool) -> None:
    web.status = status
    with pytest.raises(ConnectionError, match=str(status)) as caught:
        send(Receiver("webhook", url=web.url))
    assert isinstance(caught.value, ReceiverAway) == away


def test_a_receiver_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with pytest.raises(ReceiverAway):
        send(Receiver("webhook", url=f"http://127.0.0.1:{port}/"))
    with pytest.raises(ReceiverAway):
        send(Receiver("email", to=("a@b.c",), sender="m@b.c", host="127.0.0.1", port=port, security="none"))
    with pytest.raises(ConfigError, match="NO_SUCH"):
        send(Receiver("slack", url_env="NO_SUCH"))
    with pytest.raises(ConfigError, match="no receiver"):
        Receivers({}).deliver(Message(5, KIND, {"receiver": "ops", "notice": NOTICE}, 1.0))


class Box(Mailbox):
    """Keeps mails; refuses those to `nobody`."""

    def __init__(self) -> None:
        super().__init__()
        self.mails: list[Mail] = []

    def handle_message(self, message: Mail) -> None:
        self.mails.append(message)

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address.startswith("nobody"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"


@pytest.fixture
def box() -> Iterator[tuple[Box, int]]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    made = Box()
    controller = Controller(made, "127.0.0.1", port)
    controller.start()
    yield made, port
    controller.stop()


def test_a_mail_arrives_with_the_same_id_at_every_try(box: tuple[Box, int]) -> None:
    made, port = box
    mail = Receiver("email", to=("ops@b.c", "x@b.c"), sender="m@b.c", host="127.0.0.1", port=port, security="none")
    send(mail)
    send(mail)
    first, second = made.mails
    assert first["Message-ID"] == second["Message-ID"] == "<muster-5@b.c>"
    assert first["Subject"] == "Muster [firing: 3] device-idle, project language"
    assert "its devices are idle" in first.get_payload()


def test_a_mail_that_is_refused_does_not_make_the_server_away(box: tuple[Box, int]) -> None:
    _, port = box
    with pytest.raises(ConnectionError, match="refused") as caught:
        send(Receiver("email", to=("nobody@b.c",), sender="m@b.c", host="127.0.0.1", port=port, security="none"))
    assert not isinstance(caught.value, ReceiverAway)


def test_a_server_without_tls_gets_nothing_if_tls_is_asked_for(box: tuple[Box, int]) -> None:
    made, port = box
    with pytest.raises(ConnectionError):
        send(Receiver("email", to=("ops@b.c",), sender="m@b.c", host="127.0.0.1", port=port))
    assert made.mails == []


def test_a_command_gets_the_notice_on_its_input(tmp_path: Path) -> None:
    script = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"
    send(Receiver("command", command=(sys.executable, "-c", script, str(tmp_path / "got"))))
    assert json.loads((tmp_path / "got").read_text()) == {**NOTICE, "delivery": 5}


def test_a_command_that_fails_or_hangs_or_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.5)
    with pytest.raises(ConnectionError, match="exit code 3: no"):
        send(Receiver("command", command=(sys.executable, "-c", "import sys; print('no'); sys.exit(3)")))
    with pytest.raises(ReceiverAway, match="longer"):
        send(Receiver("command", command=(sys.executable, "-c", "import time; time.sleep(60)")))
    with pytest.raises(ReceiverAway, match="started"):
        send(Receiver("command", command=("/no/such/program",)))


def test_who_is_told() -> None:
    named = Receivers({
        "all": Receiver("slack", "info", url="http://x/"), "usual": Receiver("slack", url="http://x/"),
        "critical": Receiver("slack", "critical", url="http://x/"), "own": Receiver("slack", takes="named"),
    })  # fmt: skip
    none = Example(())
    rule = Rule("r", "data_wait", "me", "x", none, none)
    assert named.of(rule, ["info"]) == ["all"]
    assert named.of(rule, ["warning", "info"]) == ["all", "usual"]
    assert named.of(None, ["critical"]) == ["all", "usual", "critical"]
    assert named.of(Rule("r", "data_wait", "me", "x", none, none, notify=("own", "gone")), ["info"]) == ["own"]


def test_settings_are_read_strictly() -> None:
    good = {"kind": "email", "to": ["a@b.c"], "sender": "m@b.c", "host": "smtp", "user": "m", "password_env": "P"}
    assert read_receivers({"mail": good})["mail"].port == 587
    for wrong in (
        {"kind": "carrier pigeon"},
        {"kind": "slack"},
        {"kind": "slack", "url": "ftp://x"},
        {"kind": "slack", "url": "http://x/", "url_env": "X"},
        {"kind": "webhook", "url": "http://x/", "least": "loud"},
        {"kind": "command", "command": ["page"]},
        {**good, "to": []},
        {**good, "password_env": ""},
        {**good, "url": "http://x/"},
    ):
        with pytest.raises(ConfigError, match=r"receivers\.ops"):
            read_receivers({"ops": wrong})
