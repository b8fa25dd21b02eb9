"""The outbox: at least once, with the same number at every try, over failures and restarts; and hooks on top of it."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from live import LiveServer, until
from muster.control import outbox as outbox_module
from muster.control.delivery import DELIVERY, SIGNATURE
from muster.control.hooks import KIND, Hook, Hooks, read_hooks
from muster.control.outbox import Outbox, ReceiverAway
from muster.control.outbox_rows import FORGET, GIVE_UP, Message, message_row, pause
from muster.core.errors import ConfigError
from muster.core.event import Event
from muster.core.payload import decode
from muster.core.server_events import MessagesGivenUp
from muster.store.base import Entry, EventFilter
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

    def put(self, to: str = "", **doc: Any) -> None:
        self.store.transact([lambda state: Entry(rows=[message_row("test", doc, self.clock.now(), to)])])

    def numbers(self) -> list[int]:
        return [one.doc["n"] for one in self.seen]


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
    monkeypatch.setattr(outbox_module, "AT_ONCE", 4)
    together = threading.Barrier(4)

    def deliver(message: Message) -> None:
        if message.doc["n"] < 4:
            together.wait(180)
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


@pytest.mark.parametrize("stuck", ["begun", "later"])
def test_a_receiver_that_hangs_delays_no_other_and_no_shutdown(bench: Bench, stuck: str) -> None:
    hangs, let_go = threading.Event(), threading.Event()

    def deliver(message: Message) -> None:
        if message.doc["n"] < 20:
            hangs.set()
            assert let_go.wait(180)
        bench.seen.append(message)

    bench.deliver = deliver  # type: ignore[method-assign]
    bench.restart()
    for number in range(20):
        bench.put("away", n=number)
    try:
        bench.outbox.begin()
        assert hangs.wait(180)
        for number in range(20, 50):
            bench.put("there" if stuck == "later" else f"there {number % 3}", n=number)
        bench.outbox.begin()
        until(lambda: sorted(bench.numbers()) == list(range(20, 50)), "the others")
        until(lambda: bench.outbox.status()["waiting"] == 20, "that they are noted")
        bench.outbox.close()  # what hangs is not waited for: it can't go on before the close is over
    finally:
        let_go.set()
    assert bench.outbox.status()["waiting"] == 20, "a delivery that a shutdown cut off is repeated"
    bench.restart()
    bench.outbox.step()
    assert bench.outbox.status()["waiting"] == 0
    assert {*bench.numbers()} == {*range(50)}


def test_a_receiver_that_is_away_gets_one_message_after_each_pause(bench: Bench) -> None:
    def deliver(message: Message) -> None:
        bench.seen.append(message)
        if bench.broken:
            raise ReceiverAway(bench.broken)

    bench.deliver = deliver  # type: ignore[method-assign]
    bench.restart()
    bench.broken = "no answer"
    for number in range(30):
        bench.put(n=number)
    bench.outbox.step()
    assert len(bench.seen) == outbox_module.AT_ONCE
    for tries in range(1, 5):
        bench.outbox.step()  # too early
        bench.clock.time += pause(tries)
        bench.outbox.step()
        assert len(bench.seen) == outbox_module.AT_ONCE + tries
    assert len({*bench.numbers()}) > outbox_module.AT_ONCE, "the next try is of another message"
    bench.broken = ""
    bench.clock.time += 3600
    bench.outbox.step()
    assert bench.outbox.status()["waiting"] == 0


@pytest.mark.parametrize("error", [ConnectionError, ReceiverAway])
def test_a_message_that_is_never_accepted_holds_up_no_other(bench: Bench, error: type[Exception]) -> None:
    def deliver(message: Message) -> None:
        if message.doc["n"] in (1, 2):
            raise error("not this one")
        bench.seen.append(message)

    bench.deliver = deliver  # type: ignore[method-assign]
    bench.restart()
    for number in (1, 2):
        bench.put(n=number)
        bench.outbox.step()
    for number in range(3, 40):
        bench.put(n=number)
    for tries in range(1, 5):
        bench.clock.time += pause(tries)
        bench.outbox.step()
    assert sorted(bench.numbers()) == list(range(3, 40))
    assert bench.outbox.status() == {"waiting": 2, "oldest": 1000.0, "given_up": 0, "error": "not this one"}


def test_what_waits_for_days_is_given_up_together_and_the_log_says_so(bench: Bench) -> None:
    tried: list[Message] = []

    def deliver(message: Message) -> None:
        tried.append(message)
        raise ReceiverAway("no\0 \ud800answer")

    bench.deliver = deliver  # type: ignore[method-assign]
    for number in range(50):
        bench.put("chat", n=number)
    bench.restart()
    bench.outbox.step()
    bench.clock.time += GIVE_UP + 1
    bench.put("chat", n=50)
    bench.outbox.step()
    assert len(tried) == outbox_module.AT_ONCE + 1
    told = bench.outbox.status()
    assert (told["waiting"], told["given_up"], told["error"]) == (1, 50, "no\ufffd ?answer")
    (event,) = bench.store.events(EventFilter(kind="messages.given_up"))
    assert event.data == MessagesGivenUp("test chat", 50)


def test_a_delivery_without_an_end_has_failed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "LONGEST", 0.2)
    let_go = threading.Event()
    bench.deliver = lambda message: let_go.wait(180) and None  # type: ignore[method-assign]
    bench.restart()
    bench.put(n=1)
    try:
        bench.outbox.step()
        assert bench.outbox.status()["error"] == "no answer within 0.2 s"
    finally:
        let_go.set()


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
    entry = hooks.fold([Event(decode(kind, {}), 1.0, seq=n) for n, kind in enumerate(kinds, start=1)])
    assert [json.loads(row["doc"])["event"]["kind"] for _, row in entry.rows] == ["job.failed", "node.joined"]
    assert hooks.fold([]).empty


class Receiver(ThreadingHTTPServer):
    """Refuses the first request."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes, int]] = []
        self.refusal = 503
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = 204 if receiver.got else receiver.refusal
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


@pytest.mark.parametrize(("status", "away"), [(400, False), (500, False), (429, True), (503, True), (301, False)])
def test_a_receiver_that_asks_to_come_later_is_away(receiver: Receiver, status: int, away: bool) -> None:
    receiver.refusal = status
    with pytest.raises(ConnectionError, match=str(status)) as caught:
        hook_to(receiver.server_address[1])
    assert isinstance(caught.value, ReceiverAway) == away


def test_a_receiver_that_nobody_is_at_is_away() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # nobody listens
        with pytest.raises(ReceiverAway, match=r"127\.0\.0\.1 did not answer"):
            hook_to(held.getsockname()[1])


def hook_to(port: int) -> None:
    hooks = Hooks({"chat": Hook(f"http://127.0.0.1:{port}/hook", ("job.",))})
    hooks.deliver(Message(1, KIND, {"hook": "chat", "event": {}}, 1.0))


def test_events_reach_a_receiver_that_was_away_and_across_a_kill(receiver: Receiver, tmp_path: Path) -> None:
    """A real server: the first delivery is refused, the server is killed, and the next one delivers."""
    config = f"""
[hooks.chat]
url = "http://127.0.0.1:{receiver.server_address[1]}/hook"
events = ["job.succeeded"]
secret_env = "CHAT_SECRET"
"""
    env = {"CHAT_SECRET": "s3cr3t-of-chat"}  # pragma: allowlist secret
    server = LiveServer(tmp_path / "home", config=config, env=env)
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
