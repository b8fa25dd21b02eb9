"""The shipper: a thread that sends reports and output to the platform, at least once, and receives commands."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from muster import wire
from muster.runtime import processes
from muster.runtime.channel import BACKOFF_FIRST, BACKOFF_LAST, Away, Channel
from muster.runtime.pulse import PulseTaker
from muster.runtime.streams import Stream

BATCH_BYTES: Final = 4 << 20
BATCH_MIN: Final = 4096  # bytes; what the server refuses at this size is skipped
COALESCE: Final = 0.03  # seconds between two batches of a slow stream
SPOOL_LOOK: Final = 0.2  # seconds between two looks for reports, which arrive without notification
HEARTBEAT: Final = 2.0  # seconds
DONE_LOOK: Final = 0.05  # seconds before checking again whether the end is recorded, doubled up to HEARTBEAT
UNKNOWN_FIRST: Final = 5.0  # seconds before the retry with a server that does not know the token, doubled
UNKNOWN_LAST: Final = 30.0
OFFSET_EVERY: Final = 60.0  # seconds between two reports of the clock's offset
LINKS_TOLD: Final = 30.0  # seconds in which reports have what was measured of the gang's links


class _Final(NamedTuple):
    """Whether nothing more will come from the ranks, and on the host streams."""

    ranks: bool
    host: bool


class ClockOffset:
    """How far this machine's clock is ahead of the server's: the best of the last measurements.

    The server's time is of some moment between the request and the answer, so half of the time between is the error.
    """

    def __init__(self) -> None:
        self._best: tuple[float, float] | None = None
        self._told_at: float | None = None

    def measure(self, sent: float, server: float | None, received: float) -> None:
        if server is None or received < sent:
            return
        ahead, error = (sent + received) / 2 - server, (received - sent) / 2
        if self._best is None or error <= self._best[1]:
            self._best = ahead, error

    def take(self) -> tuple[float, float] | None:
        """The offset and its error, if it is time to tell them; then it is measured anew."""
        now = time.monotonic()
        if self._best is None or (self._told_at is not None and now - self._told_at < OFFSET_EVERY):
            return None
        self._told_at, best, self._best = now, self._best, None
        return round(best[0], 6), round(best[1], 6)


class Shipper:
    """The loop calls `notify` and `finish`; the shipper's thread calls `on_command`, `on_exec`, `on_end` and `say`."""

    def __init__(
        self,
        channel: Channel,
        worker: int,
        streams: Sequence[Stream],
        on_command: Callable[[wire.Command], None],
        on_exec: Callable[[str], None],
        on_end: Callable[[], None],
        say: Callable[[int, str], None],
        node: str = "",
        links: tuple[tuple[int, float, float], ...] = (),
        on_keep: Callable[[Sequence[int]], None] = lambda steps: None,
    ) -> None:
        self.result: Literal["", "done", "gone"] = ""
        self._channel = channel
        self._worker, self._node = worker, node
        self._streams = list(streams)
        self._on_command = on_command
        self._on_exec = on_exec
        self._on_end = on_end
        self._on_keep = on_keep
        self._say = say
        self._wake = threading.Event()
        self._finishing = threading.Event()
        self._host_closed = threading.Event()
        self._exit: wire.WorkerExit | None = None
        self._answered = False  # until the server has reported its offsets, only an empty batch is sent
        self._limit = BATCH_BYTES
        self._delay = 0.0
        self._trouble = ""
        self._data_at = 0.0
        self._beat_at = 0.0
        self._done_look = DONE_LOOK
        self._end_told = False
        self._last = False  # nothing is left to send after the current batch
        self._seen: dict[wire.CommandKind, int] = {}  # each kind has its own: a stop may be older than other commands
        self._pulses: PulseTaker | None = None
        self._take_sample: Callable[[], wire.NodeSample | None] = lambda: None
        self._leaves_at: float | None = None
        self._told = False
        self._offset = ClockOffset()
        # Told for a while: the server may learn only meanwhile on which machines a cluster put the others.
        self._links, self._links_until = links, time.monotonic() + LINKS_TOLD

    def leave(self, deadline: float, told: bool = False) -> None:
        """The machine is taken away at this (monotonic) time: the server is told at once, and with every report.
        `told`: by the cluster."""
        if self._leaves_at is not None:
            return
        self._leaves_at, self._told = deadline, told
        self._beat_at = 0.0
        self._wake.set()

    def watch(self, pulses: PulseTaker, take_sample: Callable[[], wire.NodeSample | None]) -> None:
        """Sends the ranks' pulses and samples of the machine with the reports from now on."""
        self._pulses, self._take_sample = pulses, take_sample

    def start(self) -> None:
        threading.Thread(target=self._run, name="shipper", daemon=True).start()

    def notify(self) -> None:
        """Wakes the thread: there may be new data."""
        self._wake.set()

    def finish(self, ended: wire.WorkerExit) -> None:
        """Nothing new will come: ships the rest and this exit, until the server has everything."""
        self._exit = ended
        self._finishing.set()
        self._wake.set()

    def close_host(self) -> None:
        """Nothing more will come on the host streams. That may be later than the end, because files take time."""
        self._host_closed.set()
        self._wake.set()

    def _run(self) -> None:
        while not self.result:
            try:
                self._round()
            except Away as error:
                self._back_off(str(error), error.slow)
            except Exception:
                self._back_off(traceback.format_exc(), slow=True)
        self._on_end()

    def _round(self) -> None:
        self._wake.wait(max(0.0, min(SPOOL_LOOK, self._beat_at - time.monotonic())))
        self._wake.clear()
        self._finishing.wait(max(0.0, self._data_at + COALESCE - time.monotonic()))
        ended = self._exit  # read before gathering: nothing is written after it was set
        final = _Final(ended is not None, ended is not None and self._host_closed.is_set())
        pieces, whole = self._gather(final) if self._answered else ([], _Final(False, False))
        # The end is sent with the last bytes, not before them: a client that follows the log stops reading at the end.
        end = ended if whole.ranks else None
        self._last = whole.ranks and whole.host
        if pieces or time.monotonic() >= self._beat_at or (end and (self._last or not self._end_told)):
            self._post(pieces, end)

    def _gather(self, final: _Final) -> tuple[list[wire.Piece], _Final]:
        """One batch, and whether that is everything. The stream order rotates, so that none is starved."""
        pieces: list[wire.Piece] = []
        room, ranks, host = self._limit, final.ranks, final.host
        for stream in self._streams:
            of_host = stream.name == "host"
            piece = stream.take(room, final.host if of_host else final.ranks) if room > 0 else None
            if piece:
                pieces.append(piece)
                # At the minimum size one piece at a time, to find the one that the server refuses.
                room = room - len(piece.data) if self._limit > BATCH_MIN else 0
            # Never everything while more may be written.
            if of_host:
                host = host and not stream.more_than(piece)
            else:
                ranks = ranks and not stream.more_than(piece)
        self._streams.append(self._streams.pop(0))
        return pieces, _Final(ranks, host)

    def _post(self, pieces: list[wire.Piece], ended: wire.WorkerExit | None) -> None:
        state: wire.WorkerState = "ended" if ended else "running"
        pulses = self._pulses.take(self._end_of) if self._pulses and self._answered and not self._exit else ()
        batch = wire.Batch(
            self._worker, state, ended, tuple(pieces), max(self._seen.values(), default=0), self._last, self._node,
            max(0.0, self._leaves_at - time.monotonic()) if self._leaves_at is not None else None,
            time.monotonic(), pulses, self._offset.take(),
            self._links if time.monotonic() < self._links_until else (),
            self._take_sample() if self._answered and not self._exit else None, self._told,
        )  # fmt: skip
        sent = time.time()
        status, body = self._channel.call("POST", "/v1/ingest", batch.encode())
        if status == 200:
            reply = wire.Reply.from_json(body)
            self._offset.measure(sent, reply.time, time.time())
            self._accept(reply, pieces, ended)
        elif status == 410:
            self.result = "gone"
        elif status in (400, 413) and pieces:
            self._shrink(pieces, f"status {status}: {body[:500].decode(errors='replace')}")
        else:
            self._channel.turn_away()
            unknown = status in (400, 401, 403, 404)  # perhaps permanently, but only 410 says so
            raise Away(f"status {status}: {body[:500].decode(errors='replace')}", slow=unknown)

    def _end_of(self, rank: int, name: wire.Stream) -> int:
        return next(stream.end() for stream in self._streams if (stream.rank, stream.name) == (rank, name))

    def _accept(self, reply: wire.Reply, pieces: list[wire.Piece], ended: wire.WorkerExit | None) -> None:
        now = time.monotonic()
        by_key = {(stream.rank, stream.name): stream for stream in self._streams}
        for key, offset in reply.acked.items():
            if stream := by_key.get(key):
                stream.settle(offset)
        if (command := reply.command) and command.id > self._seen.get(command.kind, 0):
            self._seen[command.kind] = command.id
            self._on_command(command)
        for ident in reply.execs:
            self._on_exec(ident)
        self._on_keep(reply.keep)
        if ended and reply.done and self._last:
            self.result = "done"
        if pieces and all(by_key[p.rank, p.stream].position <= p.offset for p in pieces):
            raise Away("the server answered but took nothing")
        if not self._answered or pieces:
            self._wake.set()  # there may be more already
        self._answered = True
        self._delay = 0.0
        self._limit = min(2 * self._limit, BATCH_BYTES)
        self._data_at = now if pieces else self._data_at
        self._beat_at = now + (self._done_look if ended else HEARTBEAT)
        if ended:
            self._end_told = True
            self._done_look = min(2 * self._done_look, HEARTBEAT)

    def _shrink(self, pieces: list[wire.Piece], why: str) -> None:
        """The batch is too large, or a piece is damaged:
        halves the batch until the bad piece is alone, and skips that."""
        self._wake.set()
        if self._limit > BATCH_MIN:
            self._limit = max(BATCH_MIN, min(self._limit, sum(len(p.data) for p in pieces)) // 2)
            return
        piece = pieces[0]
        next(s for s in self._streams if (s.rank, s.name) == (piece.rank, piece.stream)).skip(piece)
        text = f"{len(piece.data)} bytes of the {piece.stream} at offset {piece.offset} are left out"
        self._say(piece.rank, f"{text}: the server refused them with {why}")

    def _back_off(self, why: str, slow: bool) -> None:
        first, last = (UNKNOWN_FIRST, UNKNOWN_LAST) if slow else (BACKOFF_FIRST, BACKOFF_LAST)
        self._delay = min(max(2 * self._delay, first), last)
        if why != self._trouble:  # log once: it may stay the same for days
            processes.log_line(f"the server can't be told: {why}")
            self._trouble = why
        time.sleep(self._delay)
