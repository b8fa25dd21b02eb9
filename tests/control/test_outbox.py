"""The outbox: at least once, with the same number at every try, over failures and restarts; and hooks on top of it."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from live import LiveServer, until
from muster.control import outbox as outbox_module
from muster.control.hooks import DELIVERY, KIND, SIGNATURE, Hook, Hooks, read_hooks
from muster.control.outbox import FORGET, GIVE_UP, Message, Outbox, message_row, pause
from muster.core.errors import ConfigError
from muster.core.event import Event
from muster.store.base import Entry
from muster.store.direct import DirectCommit
from muster.store.registry import open_store
from muster.store.sql import SqlStore


@dataclass
class HandClock:
    time: float = 1000.0

    def now(self) -> float:
        return self.time


class Bench:
    def __init__(self, url: str) -> None:
        store = open_store(url)
        assert isinstance(store, SqlStore)
        self.store, self.clock = store, HandClock()
        self.commit = DirectCommit(store, lambda events: None)
        self.seen: list[Message] = []
        self.broken = ""
        self.restart()

    def restart(self) -> None:
        assert self.store.database is not None
        self.outbox = Outbox(self.store.database, self.commit, self.clock, {"test": self.deliver}, lambda: True)

    def deliver(self, message: Message) -> None:
        self.seen.append(message)
        if self.broken:
            raise ConnectionError(self.broken)

    def put(self, **doc: Any) -> None:
        self.store.transact([lambda state: Entry(rows=[message_row("test", doc, self.clock.now())])])


@pytest.fixture(params=["sqlite", "postgresql"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    url = f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else request.getfixturevalue("tables_url")
    made = Bench(url)
    yield made
    made.store.close()


def test_a_message_is_delivered_once_and_is_gone(bench: Bench) -> None:
    bench.put(n=1)
    bench.put(n=2)
    bench.outbox.step()
    bench.outbox.step()
    assert sorted(one.doc["n"] for one in bench.seen) == [1, 2]
    assert bench.outbox.status() == {"waiting": 0, "oldest": None, "given_up": 0, "error": ""}


def test_it_comes_again_with_the_same_number_after_a_pause_that_grows(bench: Bench) -> None:
    bench.broken = "no answer"
    bench.put(n=1)
    for tries in range(1, 5):
        bench.outbox.step()
        bench.outbox.step()  # too early
        assert len(bench.seen) == tries
        bench.restart()
        bench.clock.time += pause(tries)
    assert bench.outbox.status() == {"waiting": 1, "oldest": 1000.0, "given_up": 0, "error": "no answer"}
    bench.broken = ""
    bench.outbox.step()
    assert len({one.id for one in bench.seen}) == 1
    assert bench.outbox.status()["waiting"] == 0
    assert [pause(tries) for tries in (1, 2, 3, 60)] == [1.0, 2.0, 4.0, 3600.0]


def test_one_that_is_killed_before_it_could_note_the_delivery_delivers_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put(n=1)
    with monkeypatch.context() as patch:
        patch.setattr(bench.commit, "submit", lambda proposal: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            bench.outbox.step()
    bench.restart()
    bench.outbox.step()
    assert [one.id for one in bench.seen] == [bench.seen[0].id] * 2
    assert bench.outbox.status()["waiting"] == 0


def test_it_is_given_up_after_days_and_forgotten_after_a_month(bench: Bench) -> None:
    bench.broken = "gone"
    bench.put(n=1)
    bench.clock.time += GIVE_UP + 1
    bench.outbox.step()
    assert bench.outbox.status() == {"waiting": 0, "oldest": None, "given_up": 1, "error": "gone"}
    bench.clock.time += FORGET + 1
    bench.outbox.step()
    assert len(bench.seen) == 1
    bench.broken = ""
    bench.put(n=2)
    bench.outbox.step()
    assert bench.outbox.status()["given_up"] == 0


def test_one_that_fails_holds_up_nobody(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "_PAGE", 4)
    together = threading.Barrier(4)

    def deliver(message: Message) -> None:
        if message.doc["n"] < 4:
            together.wait(20)
        bench.seen.append(message)
        if message.doc["n"] % 2:
            raise ConnectionError("odd")

    bench.deliver = deliver  # type: ignore[method-assign]
    bench.restart()
    for number in range(10):
        bench.put(n=number)
    bench.outbox.step()
    assert sorted(one.doc["n"] for one in bench.seen) == list(range(10))
    assert bench.outbox.status()["waiting"] == 5


def test_a_kind_that_nobody_delivers_waits_and_says_so(bench: Bench) -> None:
    bench.store.transact([lambda state: Entry(rows=[message_row("pigeon", {}, 1.0)])])
    bench.outbox.step()
    assert "'pigeon'" in bench.outbox.status()["error"]


# --- hooks ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "wrong",
    [
        {"chat": 1},
        {"chat": {"url": "https://x"}},
        {"chat": {"url": "ftp://x", "events": ["job."]}},
        {"chat": {"url": "https://x", "events": []}},
        {"chat": {"url": "https://x", "events": "job."}},
        {"chat": {"url": "https://x", "events": ["job."], "secret_env": 1}},
        {"chat": {"url": "https://x", "events": ["job."], "colour": "red"}},
        ["chat"],
    ],
)
def test_settings_that_make_no_sense(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        read_hooks(wrong)


def test_a_hook_takes_kinds_and_beginnings_of_kinds() -> None:
    hooks = Hooks({"a": Hook("https://x", ("job.failed", "node."))})
    kinds = ["job.failed", "job.succeeded", "node.joined", "nodes"]
    entry = hooks.fold([Event(kind, 1.0, seq=n) for n, kind in enumerate(kinds, start=1)])
    assert [json.loads(row["doc"])["event"]["kind"] for _, row in entry.rows] == ["job.failed", "node.joined"]
    assert hooks.fold([]).empty


class Receiver(ThreadingHTTPServer):
    """Refuses the first request."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes, int]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = 204 if receiver.got else 503
                receiver.got.append((dict(self.headers), body, status))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *words: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def test_a_hook_that_is_not_configured_any_more_waits(receiver: Receiver) -> None:
    with pytest.raises(ConfigError, match="no hook 'gone'"):
        Hooks({}).deliver(Message(1, KIND, {"hook": "gone", "event": {}}, 1.0))


def test_events_reach_a_receiver_that_was_away_and_across_a_kill(receiver: Receiver, tmp_path: Path) -> None:
    """A real server: the first delivery is refused, the server is killed, and the next one delivers."""
    config = f"""
[hooks.chat]
url = "http://127.0.0.1:{receiver.server_address[1]}/hook"
events = ["job.succeeded"]
secret_env = "CHAT_SECRET"
"""
    server = LiveServer(tmp_path / "home", config=config, env={"CHAT_SECRET": "s3cr3t-of-chat"})
    server.start()
    try:
        job = server.submit("true")["id"]
        assert server.wait(job)["phase"] == "succeeded"
        until(lambda: receiver.got, "the first try")
        server.kill()
        server.start()
        until(lambda: [one for one in receiver.got if one[2] == 204], "a delivery")
        assert {followed["name"] for followed in server.get("/v1/health")["followers"]} >= {"hooks", "record"}
    finally:
        server.stop()
    (_, _, first), *_, (headers, body, last) = receiver.got
    assert (first, last) == (503, 204)
    assert json.loads(body)["job"] == job
    assert headers[SIGNATURE] == "sha256=" + hmac.new(b"s3cr3t-of-chat", body, hashlib.sha256).hexdigest()
    assert len({headers[DELIVERY] for headers, _, _ in receiver.got}) == 1
