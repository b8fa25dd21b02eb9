"""The outbox: messages to receivers outside the server, stored with their cause and delivered at least once.

A message is a row that is written in the transaction of its cause and deleted after its delivery. A server that is
killed between a delivery and the deletion delivers again, with the same number.

Every receiver has turns of its own, in threads of its own: one that is away delays no other. A message that the
receiver refuses is retried after a pause that doubles each time, and the receiver's other messages go on. A receiver
that is away gets one message after each such pause until it accepts one. After some days messages are given up, those
of a receiver that is away together. The event log and `muster doctor` report it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final

from muster.api.health import OutboxStatus
from muster.control import outbox_rows
from muster.control.background import Background
from muster.control.clock import Clock
from muster.control.outbox_rows import Message, Tried, pause
from muster.core.errors import ConfigError, MusterError
from muster.core.event import Event
from muster.core.server_events import MessagesGivenUp
from muster.core.state import State
from muster.store.base import Entry, Record
from muster.store.commit import Commit
from muster.store.connect import Database

log = logging.getLogger("muster.control")

AT_ONCE: Final = 8  # parallel deliveries to one receiver
LONGEST: Final = 60.0  # seconds; a delivery that takes longer has failed, whatever it still does
GRACE: Final = 1.0  # seconds that a shutdown waits for deliveries; those that take longer are repeated
_PAUSE: Final = 1.0  # seconds between two looks for due messages
_LOOK: Final = 0.1  # seconds after which a turn looks whether the outbox was closed

Deliver = Callable[[Message], None]  # raises if the receiver did not accept it; ReceiverAway if it would accept none


class ReceiverAway(ConnectionError):
    """The receiver accepts no message at present, whatever it says."""


@dataclass(frozen=True, slots=True)
class _Away:
    tries: int  # without a delivery
    until: float  # the time of the next one


class Outbox:
    """Delivers messages in threads. `deliver` has one function for each kind of message."""

    def __init__(
        self,
        database: Database,
        commit: Commit,
        clock: Clock,
        deliver: Mapping[str, Deliver],
        may_act: Callable[[], bool],
    ) -> None:
        self._database, self._commit, self._clock, self._deliver = database, commit, clock, deliver
        self._may_act, self._stopped = may_act, threading.Event()
        self._thread = Background("outbox", self.begin, may_act, lambda spent: _PAUSE)
        self._turns: dict[str, Future[None]] = {}  # receiver → its last turn
        self._away: dict[str, _Away] = {}
        self.start = self._thread.start

    def close(self) -> None:
        """Waits `GRACE` seconds for deliveries in progress; the next start repeats those that take longer."""
        self._stopped.set()
        self._thread.close()
        wait(list(self._turns.values()), GRACE)

    def begin(self) -> None:
        """Starts a turn of every receiver that has waiting messages, unless it has one or is away."""
        for receiver in outbox_rows.receivers(self._database):
            turn, away = self._turns.get(receiver), self._away.get(receiver)
            if (turn is None or turn.done()) and (away is None or away.until <= self._clock.now()):
                new: Future[None] = Future()
                self._turns[receiver] = new
                _start(self._turn, receiver, new)

    def step(self) -> None:
        """Delivers everything that is due, and waits for it. Raises Unavailable if the database can't be reached."""
        self.begin()
        for turn in self._turns.values():
            turn.result()

    def status(self) -> OutboxStatus:
        """Number of waiting messages, number of messages that were given up, and the last error."""
        return outbox_rows.status(self._database)

    def _turn(self, receiver: str, turn: Future[None]) -> None:
        try:
            while not self._stopped.is_set() and self._may_act() and self._batch(receiver):
                pass
        except BaseException as error:
            if isinstance(error, MusterError):
                log.warning("outbox: nothing could be recorded for %s, it is tried again: %s", receiver, error)
            else:
                log.exception("outbox: a turn of %s failed; it is tried again", receiver)
            turn.set_exception(error)
        else:
            turn.set_result(None)

    def _batch(self, receiver: str) -> bool:
        """Delivers some messages; whether the receiver may get more now."""
        away = self._away.get(receiver)
        messages = outbox_rows.due(self._database, receiver, self._clock.now(), AT_ONCE if away is None else 1)
        tried = self._deliver_all(messages)
        if not tried:
            return False
        now = self._clock.now()
        records = [outbox_rows.settled(tried, now)]
        lost = sum(bool(one.error) and outbox_rows.is_overdue(one.message, now) for one in tried)
        gone = all(one.error for one in tried) and any(one.away for one in tried)
        if gone:
            tries = away.tries + 1 if away is not None else 1
            self._away[receiver] = _Away(tries, now + pause(tries))
            lost = outbox_rows.number_overdue(self._database, receiver, now)
            records.append(outbox_rows.given_up(receiver, tried[-1].error, now))
        else:
            self._away.pop(receiver, None)
        self._commit.submit(lambda state: _entry(state, records, receiver, lost, now)).result()
        return not gone

    def _deliver_all(self, messages: Sequence[Message]) -> list[Tried]:
        """Tries each message in a thread. Once the outbox is closed, only those that end soon are returned."""
        done: queue.SimpleQueue[Tried] = queue.SimpleQueue()
        left = {message.id: message for message in messages}
        for message in messages:
            _start(self._try, message, done)
        found: list[Tried] = []
        end, closed = time.monotonic() + LONGEST, False
        while left and time.monotonic() < end:
            try:
                found.append(done.get(timeout=_LOOK))
                del left[found[-1].message.id]
            except queue.Empty:
                if self._stopped.is_set() and not closed:
                    closed, end = True, time.monotonic() + GRACE / 2
        if not closed:
            found += [Tried(message, f"no answer within {LONGEST:g} s", away=True) for message in left.values()]
        return found

    def _try(self, message: Message, done: queue.SimpleQueue[Tried]) -> None:
        try:
            deliver = self._deliver.get(message.kind)
            if deliver is None:
                raise ReceiverAway(f"this server has no way to deliver messages of the kind {message.kind!r}")
            deliver(message)
        except Exception as error:
            log.warning("message %d (%s) was not delivered: %s", message.id, message.kind, error)
            # What is wrong with the settings is wrong for every message.
            away = isinstance(error, ReceiverAway | ConfigError)
            done.put(Tried(message, str(error) or type(error).__name__, away))
        else:
            done.put(Tried(message))


def _entry(state: State, records: Sequence[Record], receiver: str, lost: int, now: float) -> Entry:
    events = [Event(MessagesGivenUp(receiver, lost), max(now, state.time))] if lost else []
    return Entry(events, records=records)


def _start(function: Callable[..., None], *args: Any) -> None:
    """A thread that the end of the process does not wait for, unlike those of a pool."""
    threading.Thread(target=function, args=args, name="outbox-delivery", daemon=True).start()
