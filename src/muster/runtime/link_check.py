"""Measures the links of a gang before its ranks start: bandwidth and round trip of each worker to the first one.

The first worker listens at a port of its own choice, and all meet through the server (`muster.control.meetings`): they
begin at the same time, or not at all. Both sides prove that they have the attempt's token. One link is measured at a
time, those of nodes that failed lately first; no worker goes on before all are done. Whatever goes wrong makes a link
unknown, and none delays a start by more than `LONGEST`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final

from muster import wire
from muster.runtime.channel import Away, Channel
from muster.runtime.node_checks import CAP
from muster.runtime.node_finding import Node, Unknown

MEET: Final = 20.0  # seconds that a worker asks for the meeting; the server decides sooner
ANSWERED: Final = 4.0  # seconds for each answer of the server
LISTEN: Final = 3.0  # seconds that the first worker gives the others; less than they wait for it
WAIT: Final = 4.5  # seconds until the others give up
LONGEST: Final = MEET + ANSWERED + CAP  # seconds by which a start is delayed, at most
SECONDS: Final = 1.0  # for one direction of a link, at most
BYTES: Final = 64 << 20  # in one direction of a link, at most
ANSWER: Final = 0.5  # seconds for an answer of a worker that is there
_AGAIN: Final = 0.05  # seconds between two tries to connect
_AWAY: Final = 1.0  # seconds before a server that did not answer is asked again
_CHUNK: Final = 1 << 18  # bytes
_PINGS: Final = 5
_NONCE: Final = 16  # bytes
_PING, _DOWN, _UP, _END = b"P", b"D", b"U", b"E"
_HELLO: Final = struct.Struct("<IB")  # worker, whether its node failed lately
_LENGTH: Final = struct.Struct("<I")  # of a chunk; 0 ends them
_FIGURE: Final = struct.Struct("<dd")

Figure = tuple[float, float]  # MB/s in the slower direction, round trip in ms


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the workers of an attempt meet, and what proves that they are of it."""

    address: str
    port: int
    workers: int
    key: bytes

    @classmethod
    def of(cls, launch: wire.Launch, port: int) -> Meeting:
        about = f"links\0{launch.job}\0{launch.attempt}".encode()
        key = hmac.digest(launch.token.encode(), about, hashlib.sha256)
        return cls(launch.master_addr, port, launch.num_nodes, key)

    def proof(self, side: bytes, *parts: bytes) -> bytes:
        return hmac.digest(self.key, b"\0".join([side, *parts]), hashlib.sha256)


class LinkCheck:
    """The check of one worker; see `node_checks`. It answers with figures for `read_figures`."""

    def __init__(self, meeting: Meeting, worker: int, late: bool, listener: socket.socket | None) -> None:
        self._meeting, self._worker, self._late, self._listener = meeting, worker, late, listener

    def __call__(self, node: Node) -> str:
        if self._listener is not None:
            return json.dumps(listen(self._meeting, self._listener))
        return json.dumps({self._worker: join(self._meeting, self._worker, self._late)})

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()


def meet(launch: wire.Launch, wait: Callable[[float], bool]) -> LinkCheck | None:
    """Returns when all workers of the gang are ready to be measured; None: they are not, or need not be.
    `wait(seconds)` is False if the worker was told to stop."""
    late, listener = launch.node in launch.check_nodes, None
    if launch.worker == 0:
        with suppress(OSError):  # without a port all are told to go on
            listener = _listener(launch)
    port = _agree(launch, late, listener.getsockname()[1] if listener is not None else 0, wait)
    check = LinkCheck(Meeting.of(launch, port or 0), launch.worker, late, listener)
    if port is not None:
        return check
    check.close()
    return None


def _agree(launch: wire.Launch, late: bool, port: int, wait: Callable[[float], bool]) -> int | None:
    """Where the gang meets; None if it does not, or if the server says nothing in time."""
    channel = Channel(launch.urls, launch.urls_file, launch.token, launch.ca_file, ANSWERED)
    body = json.dumps({"worker": launch.worker, "late": late, "port": port}).encode()
    until = time.monotonic() + MEET
    while time.monotonic() < until:
        again = _AWAY
        try:
            status, raw = channel.call("POST", "/v1/ingest/meet", body, "application/json")
            if status in (404, 405, 410, 422):
                return None  # an older server, or an attempt that is over
            if status == 200:
                told = json.loads(raw)
                if told["answer"] != "wait":
                    return int(told["port"]) or None
                again = float(told["again"])
        except (Away, ValueError, LookupError, TypeError):
            pass
        if not wait(again):
            return None
    return None


def read_figures(answer: str) -> dict[int, Figure]:
    return {int(worker): (float(speed), float(trip)) for worker, (speed, trip) in json.loads(answer).items()}


def describe(figures: dict[int, Figure]) -> str:
    told = [f"worker {worker} {speed:.0f} MB/s, {trip:.2f} ms" for worker, (speed, trip) in sorted(figures.items())]
    return "; ".join(told)


# --- the first worker -------------------------------------------------------------------------------------------------
def listen(meeting: Meeting, listener: socket.socket, seconds: float = LISTEN) -> dict[int, Figure]:
    """Measures the links of those who come in time, at most `wire.LINKS_MAX`. Closes the listener."""
    until, most = time.monotonic() + seconds, min(meeting.workers - 1, wire.LINKS_MAX)
    figures, waiting = dict[int, Figure](), dict[int, tuple[bool, socket.socket]]()
    tried = set[int]()
    with ExitStack() as links:
        with listener:
            while len(tried) < most and (left := until - time.monotonic()) > 0:
                listener.settimeout(0.0 if waiting.keys() - tried else left)
                try:
                    link = links.enter_context(listener.accept()[0])
                except OSError:  # nobody else is there now
                    if not (ready := waiting.keys() - tried):
                        break
                    worker = min(ready, key=lambda one: (not waiting[one][0], one))
                    tried.add(worker)
                    each = min(SECONDS, left / (2 * (most - len(tried) + 1)))
                    if (found := _measure(waiting[worker][1], each)) is not None:
                        figures[worker] = found
                    continue
                if (found_worker := _greet(link, meeting)) is None or found_worker[0] in waiting:
                    link.close()
                else:
                    waiting[found_worker[0]] = found_worker[1], link
        for worker, (_, link) in waiting.items():
            _end(link, figures.get(worker, (-1.0, -1.0)))
    if not figures:
        raise Unknown(f"none of {meeting.workers - 1} workers came to be measured within {seconds:g} s")
    return figures


def _listener(launch: wire.Launch) -> socket.socket:
    """At a port that the machine chooses. Those who come before the meeting wait in its queue."""
    family = socket.AF_INET6 if ":" in launch.master_addr else socket.AF_INET
    try:
        return socket.create_server((launch.master_addr, 0), family=family, backlog=launch.num_nodes)
    except OSError:  # the others may know this machine by a name that it does not know
        return socket.create_server(("", 0), backlog=launch.num_nodes)


def _greet(link: socket.socket, meeting: Meeting) -> tuple[int, bool] | None:
    """The number of a worker that proves to be of this attempt, and whether its node failed lately."""
    # Closed without waiting: what is still in its buffers is of no use.
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.settimeout(ANSWER)
    nonce = os.urandom(_NONCE)
    try:
        link.sendall(nonce)
        answer = _exactly(link, _NONCE + _HELLO.size + hashlib.sha256().digest_size)
        other, hello, proof = answer[:_NONCE], answer[_NONCE:][: _HELLO.size], answer[_NONCE + _HELLO.size :]
        worker, late = _HELLO.unpack(hello)
        if not hmac.compare_digest(proof, meeting.proof(b"other", nonce, other, hello)):
            return None
        link.sendall(meeting.proof(b"first", other, nonce))
    except OSError:
        return None
    return (worker, bool(late)) if 0 < worker < meeting.workers else None


def _measure(link: socket.socket, seconds: float) -> Figure | None:
    link.settimeout(seconds + ANSWER)
    try:
        trip = min(_ping(link) for _ in range(_PINGS))
        link.sendall(_DOWN)
        began = time.monotonic()
        sent = _send(link, seconds)
        _exactly(link, 1)
        down = _speed(sent, time.monotonic() - began - trip)
        link.sendall(_UP + struct.pack("<d", seconds))
        began = time.monotonic()
        up = _speed(_receive(link), time.monotonic() - began - trip)
    except OSError:
        return None
    return round(min(down, up), 3), round(trip * 1000, 4)


def _ping(link: socket.socket) -> float:
    began = time.monotonic()
    link.sendall(_PING)
    _exactly(link, 1)
    return time.monotonic() - began


def _end(link: socket.socket, figure: Figure) -> None:
    """Tells a worker that the port is closed, and waits until it has gone."""
    try:
        link.settimeout(ANSWER)
        link.sendall(_END + _FIGURE.pack(*figure))
        link.recv(1)
    except OSError:
        pass


# --- the others -------------------------------------------------------------------------------------------------------
def join(meeting: Meeting, worker: int, late: bool, seconds: float = WAIT) -> Figure:
    """The figure of this worker's link, once the first worker has closed its port."""
    until = time.monotonic() + seconds
    with _connected(meeting, until) as link:
        link.settimeout(max(until - time.monotonic(), ANSWER))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            nonce, own, hello = _exactly(link, _NONCE), os.urandom(_NONCE), _HELLO.pack(worker, late)
            link.sendall(own + hello + meeting.proof(b"other", nonce, own, hello))
            proof = _exactly(link, hashlib.sha256().digest_size)
            if not hmac.compare_digest(proof, meeting.proof(b"first", own, nonce)):
                raise Unknown("who listens there is not of this attempt")
            speed, trip = _serve(link)
        except OSError as error:
            raise Unknown(f"the gang's first worker did not go on: {error}") from None
    if speed < 0:
        raise Unknown("there was no time for this link, or it broke")
    return speed, trip


def _connected(meeting: Meeting, until: float) -> socket.socket:
    while True:
        try:
            return socket.create_connection((meeting.address, meeting.port), max(until - time.monotonic(), _AGAIN))
        except OSError as error:
            if time.monotonic() + _AGAIN >= until:
                raise Unknown(f"the gang's first worker does not listen: {error}") from None
            time.sleep(_AGAIN)


def _serve(link: socket.socket) -> Figure:
    """Does what the first worker asks for, until it is done."""
    while True:
        asked = _exactly(link, 1)
        if asked == _PING:
            link.sendall(_PING)
        elif asked == _DOWN:
            _receive(link)
            link.sendall(_DOWN)
        elif asked == _UP:
            _send(link, min(struct.unpack("<d", _exactly(link, 8))[0], SECONDS))
        else:
            speed, trip = _FIGURE.unpack(_exactly(link, _FIGURE.size))
            return speed, trip


# --- both sides -------------------------------------------------------------------------------------------------------
def _send(link: socket.socket, seconds: float) -> int:
    chunk, sent, until = _LENGTH.pack(_CHUNK) + bytes(_CHUNK), 0, time.monotonic() + seconds
    while sent < BYTES and time.monotonic() < until:
        link.sendall(chunk)
        sent += _CHUNK
    link.sendall(_LENGTH.pack(0))
    return sent


def _receive(link: socket.socket) -> int:
    got, room = 0, memoryview(bytearray(_CHUNK))
    while (length := _LENGTH.unpack(_exactly(link, _LENGTH.size))[0]) > 0:
        if length > _CHUNK or got > BYTES:
            raise OSError("more than was agreed on")
        left = length
        while left:
            if not (count := link.recv_into(room, left)):
                raise OSError("the connection ended")
            left -= count
        got += length
    return got


def _exactly(link: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        if not (part := link.recv(count - len(found))):
            raise OSError("the connection ended")
        found += part
    return found


def _speed(count: int, seconds: float) -> float:
    return count / 1e6 / max(seconds, 1e-6)
