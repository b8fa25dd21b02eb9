"""Streams over broken connections, restarted servers and servers that never come back."""

from __future__ import annotations

import threading

import pytest
from fake_server import TOKEN, fake_server, refusal, view
from starlette.responses import JSONResponse

from live import PATIENCE, until
from muster import Client
from muster.core.errors import NotFound, Unavailable

CHUNKS = [(n, 1, n % 2, f"{n}a\n{n}b\n") for n in range(1, 11)]
LINES = [f"{n}{part}" for n in range(1, 11) for part in "ab"]


@pytest.fixture
def server():
    with fake_server(jobs=[view(1, "succeeded", finished_at=2.0)], chunks=list(CHUNKS)) as made:
        yield made


def _client(server, **settings):
    return Client(server.url, TOKEN, **{"retry_for": PATIENCE, **settings})


def test_output_is_neither_lost_nor_repeated_over_broken_connections(server):
    server.cuts += [0, 3, 1, 4]
    with _client(server) as client:
        assert [line.text for line in client.logs("job-1", follow=True)] == LINES
    began = [seen.headers.get("last-event-id") for seen in server.seen]
    assert began == [None, None, "3", "4", "8"]


def test_a_server_that_repeats_what_was_sent_is_not_believed_twice(server):
    server.cuts += [3, 7]
    server.replays = True
    with _client(server) as client:
        assert [line.text for line in client.logs("job-1", follow=True)] == LINES


def test_a_tail_is_asked_for_once(server):
    server.cuts.append(2)
    with _client(server) as client:
        list(client.logs("job-1", follow=True, tail=5))
    assert [seen.query.get("tail") for seen in server.seen] == ["5", None]


def test_the_stream_goes_on_after_the_server_was_started_again(server):
    server.cuts.append(4)
    link, found = [], []
    with _client(server, on_link=link.append) as client:
        lines = client.logs("job-1", follow=True)
        found += [next(lines).text for _ in range(8)]
        server.stop()
        reading = threading.Thread(target=lambda: found.extend(line.text for line in lines))
        reading.start()
        until(lambda: link == [False], "the client to see that the server is gone")
        server.start()
        reading.join(PATIENCE)
    assert found == LINES
    assert link == [False, True]


def test_a_server_that_does_not_come_back_is_given_up_after_the_time_given(server):
    server.cuts.append(2)
    link = []
    with _client(server, retry_for=0.3, on_link=link.append) as client:
        lines = client.logs("job-1", follow=True)
        found = [next(lines).text for _ in range(4)]
        server.stop()
        with pytest.raises(Unavailable, match="connection refused"):
            next(lines)
    server.start()
    assert found == LINES[:4]
    assert link == [False]


def test_a_stream_that_is_silent_for_long_is_no_lost_server(server, monkeypatch):
    monkeypatch.setattr("muster.client.stream.READ_TIMEOUT", 0.5)
    server.silent = True
    link, found = [], []
    with _client(server, on_link=link.append) as client:
        reading = threading.Thread(target=lambda: found.extend(client.logs("job-1", follow=True)))
        reading.start()
        until(lambda: len(server.seen) > 3, "the client to open the stream again and again")
        server.silent = False
        reading.join(PATIENCE)
    assert [line.text for line in found] == LINES
    assert link == []


def test_a_server_that_takes_the_stream_and_says_nothing_at_all_is_lost(server, monkeypatch):
    monkeypatch.setattr("muster.client.stream.READ_TIMEOUT", 0.5)
    server.silent = server.mute = True
    link, found = [], []
    with _client(server, on_link=link.append) as client:
        reading = threading.Thread(target=lambda: found.extend(client.logs("job-1", follow=True)))
        reading.start()
        until(lambda: link == [False], "the client to take the server for lost")
        server.silent = server.mute = False
        reading.join(PATIENCE)
    assert [line.text for line in found] == LINES
    assert link == [False, True]


def test_an_error_of_the_server_ends_the_stream_at_once(server):
    server.cuts.append(2)
    with _client(server) as client:
        lines = client.logs("job-1", follow=True)
        next(lines)
        server.failures.append(refusal(404, "not_found"))
        with pytest.raises(NotFound):
            list(lines)


def test_output_is_paged_through_when_it_is_not_followed(server):
    with _client(server) as client:
        assert [line.text for line in client.logs("job-1")] == LINES
    assert len(server.seen) == len(CHUNKS) / 2


def test_waiting_sees_every_change_and_returns_the_end(server):
    server.jobs[:] = [view(1, "queued"), view(1, "running"), view(1, "failed")]
    seen = []
    with _client(server) as client:
        job = client.wait("job-1", timeout=180, on_change=lambda job: seen.append(job.phase))
    assert job.phase == "failed"
    assert seen == ["queued", "running", "failed", "failed"]


def test_waiting_ends_at_the_timeout(server):
    server.silent = True
    server.jobs[-1] = view(1, "running")
    with _client(server) as client, pytest.raises(TimeoutError, match=r"job-1 is still running after 0\.2 s"):
        client.wait("job-1", timeout=0.2)


def test_waiting_goes_on_while_the_user_has_no_stream_left(server, monkeypatch):
    monkeypatch.setattr("muster.client.watch_calls.LOOK_EVERY", 0.01)
    busy = refusal(429, "too_many")
    found = JSONResponse(view(1, "running"))
    server.jobs[:] = [view(1, "running"), view(1, "succeeded")]
    with _client(server) as client:
        server.failures += [found, busy, found, busy, found]
        assert client.wait("job-1", timeout=PATIENCE).phase == "succeeded"
        assert [seen.path.rpartition("/")[2] for seen in server.seen] == ["job-1", "stream"] * 3
        server.failures += [found, busy, JSONResponse(view(1, "failed"))]
        assert client.wait("job-1").phase == "failed"
        server.failures += [found, busy, found]
        with pytest.raises(TimeoutError, match="job-1 is still running"):
            client.wait("job-1", timeout=0)


def test_watching_gives_lines_and_the_ended_job_once_at_last(server):
    with _client(server) as client:
        *lines, job = client.watch("job-1")
    assert [line.text for line in lines] == LINES
    assert (job.id, job.phase) == ("job-1", "succeeded")


def test_events_go_on_where_the_last_ones_ended(server):
    server.events[:] = [{"seq": n, "kind": "k"} for n in range(1, 6)]
    server.cuts += [1, 1]
    with _client(server) as client:
        found = client.events(last=2, follow=True)
        seen = [next(found)["seq"], next(found)["seq"]]
        server.events += [{"seq": n, "kind": "k"} for n in (6, 7, 8)]
        seen += [next(found)["seq"] for _ in range(3)]
        found.close()
    assert seen == [4, 5, 6, 7, 8]
