"""The parts of exec sessions alone: frames of any bytes, bounded pipes, and why a session ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.errors import Conflict
from muster.exec_frames import DATA, END, STDERR, Decoder, Ended, decode_end, encode, encode_end
from muster.server.execs import CLAIM, GONE, ROOM, SILENT, UNHEARD, Exec, Execs, Pipe, Side
from muster.server.limits import Limits


@given(
    st.lists(st.tuples(st.sampled_from([DATA, STDERR]), st.binary(max_size=200_000)), max_size=5),
    st.integers(1, 70_000),
)
@settings(max_examples=30, deadline=None)
def test_frames_are_the_same_wherever_the_stream_is_cut(frames: list[tuple[int, bytes]], size: int) -> None:
    stream, decoder = b"".join(encode(*frame) for frame in frames), Decoder()
    found = [frame for at in range(0, len(stream), size) for frame in decoder.feed(stream[at : at + size])]
    for kind in (DATA, STDERR):
        assert b"".join(data for of, data in found if of == kind) == b"".join(data for of, data in frames if of == kind)


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_garbage_is_refused_or_waits_for_more(garbage: bytes) -> None:
    try:
        for frame in Decoder().feed(garbage):
            if frame.kind == END:
                decode_end(frame.data)
    except ValueError:
        pass


def test_an_end_is_read_as_it_was_written_and_nothing_else_is() -> None:
    (frame,) = Decoder().feed(encode_end(Ended(3, "")))
    assert decode_end(frame.data) == (3, "")
    for text in (b"[]", b"{}", b'{"code": "3", "error": ""}', b'{"code": 1, "error": 2}', b"\xff"):
        with pytest.raises(ValueError):
            decode_end(text)


def test_a_pipe_holds_so_much_and_waits_for_its_reader() -> None:
    async def run() -> None:
        pipe, data = Pipe(), bytes(range(256)) * 8192  # 2 MiB
        assert await pipe.write(0, data, 0) == ROOM
        assert await pipe.write(0, data, 0) == ROOM  # sent again: nothing is stored twice
        assert pipe.end == ROOM
        got = b""
        writing = asyncio.create_task(pipe.write(ROOM, data[ROOM:], 30))
        while len(got) < len(data):
            part = await pipe.read(len(got), 30)
            assert part == await pipe.read(len(got), 0)  # the answer was lost, and is asked for again
            got += part
        assert (await writing, got) == (len(data), data)
        for at in (0, len(data) + 1):
            with pytest.raises(Conflict):
                await pipe.read(at, 0)
        with pytest.raises(Conflict):
            await pipe.write(len(data) + 1, b"x", 0)
        pipe.close(b"end")
        assert await pipe.write(pipe.end, b"late", 30) == pipe.end
        assert await pipe.read(len(data), 0) == b"end"

    asyncio.run(run())


def session(execs: Execs, **fields: Any) -> Exec:
    one = Exec("i" * 32, "job-1", 1, 0, "ada", "default", {"tty": None}, Side(time.monotonic()))
    one.host = Side(time.monotonic())
    for name, value in fields.items():
        setattr(one, name, value)
    return one


@pytest.mark.parametrize(
    ("fields", "job", "cause"),
    [
        (lambda: {}, {}, ""),
        (lambda: {}, {"active": False}, "The job job-1 ended (failed)."),
        (lambda: {}, {"attempt": 2}, "Worker 0 of attempt 1 of job-1 ended."),
        (lambda: {}, {"state": "ended"}, "Worker 0 of attempt 1 of job-1 ended."),
        (
            lambda: {"host": None, "began": time.monotonic() - UNHEARD - 1},
            {},
            "did not report for 10 s",
        ),
        (lambda: {"host": None, "told": True, "began": time.monotonic() - UNHEARD - 1}, {}, ""),
        (lambda: {"host": None, "told": True, "began": time.monotonic() - CLAIM - 1}, {}, "did not answer"),
        (lambda: {"client": Side(time.monotonic() - SILENT - 1)}, {}, "The client went away."),
        (lambda: {"client": Side(time.monotonic(), time.monotonic() - GONE - 1)}, {}, "The client went away."),
        (lambda: {"host": Side(time.monotonic() - SILENT - 1)}, {}, "The connection to worker 0 of job-1 was lost."),
        (lambda: {"active": time.monotonic() - 101}, {}, "Nothing was sent for 100 s"),
    ],
)
def test_why_a_session_ends(fields: Callable[[], dict[str, Any]], job: dict[str, Any], cause: str) -> None:
    workers = [SimpleNamespace(state=job.get("state", "running"))]
    attempt = SimpleNamespace(number=job.get("attempt", 1), workers=workers)
    live = SimpleNamespace(active=job.get("active", True), phase="failed", attempt=attempt)
    execs = Execs(Limits(exec_idle=100), lambda ident: live, lambda one, seconds: None)  # type: ignore[arg-type, return-value]
    why = execs._why_ended(session(execs, **fields()), time.monotonic())
    assert cause in why
    assert bool(cause) == bool(why)
