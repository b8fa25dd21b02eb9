"""What every store must do, whatever it keeps things in: one suite over memory, SQLite and a real PostgreSQL."""

from __future__ import annotations

import random
import threading
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from muster.core.entities.node import NodeHealth
from muster.core.entities.pool import PoolSet
from muster.core.errors import Conflict, Invalid
from muster.core.event import Event
from muster.core.payload import decode
from muster.core.reasons import reason
from muster.core.rules import Rules
from muster.core.server_events import SecretSet, ServerLeads
from muster.core.state import State
from muster.store.base import Column, Entry, EventFilter, JobFilter, LogSize, RunPatch, SecretWrite, Store, StreamWrite
from muster.store.past import LevelFilter, Rollup, targets_of
from muster.store.registry import open_store
from scheduler_kit import job_event, node_event
from store_kit import History, check_against_log, picture

NOTE = Event(ServerLeads(holder="a", epoch=1), 5.0)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    urls = {"memory": lambda: "memory:", "sqlite": lambda: f"sqlite:///{tmp_path}/muster.db"}
    url = urls.get(request.param, lambda: request.getfixturevalue("tables_url"))()
    opened = open_store(url)
    yield opened
    opened.close()


def submit(store: Store, count: int = 1, **spec: object) -> list[str]:
    ids = []
    for _ in range(count):
        (event,) = store.append([job_event(store.state().next_number, **spec)])
        ids.append(event.job)
    return ids


def start(store: Store, job_id: str, attempt: int = 1) -> None:
    if "n1" not in store.state().nodes:
        store.append([node_event("n1", 0, 64)])
    seats = [{"node": "n1", "devices": []}]
    store.append([of(job_id, "attempt.planned", attempt, seats=seats)])


def finish(store: Store, job_id: str, kind: str = "job.failed") -> None:
    why = reason("user_error").to_dict()
    store.append([of(job_id, "attempt.ended", 1, outcome="failed", reason=why), of(job_id, kind, 0, reason=why)])


def of(job_id: str, kind: str, attempt: int, **data: object) -> Event:
    return Event(decode(kind, data), 50.0, "muster", "default", job_id, attempt)


def log(start: int, text: bytes, rank: int = 0, keep: int | None = None, attempt: int = 1) -> StreamWrite:
    return StreamWrite("j", attempt, rank, "log", start, start + len(text), log=text, keep=keep)


def spool(start: int, end: int, rank: int = 0, attempt: int = 1, **points: list[tuple[int, float]]) -> StreamWrite:
    columns = {
        name: Column(
            array("q", [step for step, _ in rows]),
            array("d", [100.0 + step for step, _ in rows]),
            array("d", [value for _, value in rows]),
        )
        for name, rows in points.items()
    }
    return StreamWrite("j", attempt, rank, "spool", start, end, columns=columns, shapes={3: tuple(points)})


def write(store: Store, *streams: StreamWrite) -> list[Event] | Exception:
    (result,) = store.transact([lambda state: Entry(streams=streams)])
    return result


class TestAppend:
    def test_stamps_in_order(self, store: Store) -> None:
        first = store.append([NOTE, NOTE])
        (third,) = store.append([NOTE])
        assert [event.seq for event in (*first, third)] == [1, 2, 3]
        assert store.state().version == 3

    def test_what_is_read_is_what_was_appended(self, store: Store) -> None:
        appended = store.append([job_event(1, envs={"A": "é\u2028 ' \" \\u0000"}), NOTE, node_event("n", 4, 8)])
        assert store.events(EventFilter()) == appended

    def test_time_never_runs_backwards(self, store: Store) -> None:
        store.append([Event(ServerLeads(), 90.0)])
        assert [event.time for event in store.append([Event(ServerLeads(), 20.0), Event(ServerLeads(), 95.0)])] == [
            90,
            95,
        ]
        assert store.state().time == 95

    def test_expected_version(self, store: Store) -> None:
        store.append([NOTE], expected_version=0)
        with pytest.raises(Conflict, match="version 1"):
            store.append([job_event(1)], expected_version=0)
        assert store.state().version == 1
        assert not store.state().jobs
        assert len(store.events(EventFilter())) == 1
        store.append([NOTE], expected_version=1)

    def test_nothing_is_something(self, store: Store) -> None:
        assert store.append([]) == []
        assert store.state().version == 0

    def test_from_many_threads(self, store: Store) -> None:
        def work() -> None:
            for _ in range(10):
                store.append([NOTE])
                store.events(EventFilter(last=True, limit=3))

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [event.seq for event in store.events(EventFilter())] == list(range(1, 61))


class TestTransact:
    def test_each_sees_those_before(self, store: Store) -> None:
        def propose(state: State) -> Entry:
            return Entry([job_event(state.next_number)])

        results = store.transact([propose] * 3)
        assert [event.job for result in results if isinstance(result, list) for event in result] == [
            "job-1", "job-2", "job-3",
        ]  # fmt: skip
        check_against_log(store)

    def test_one_that_raises_is_refused_alone(self, store: Store) -> None:
        def refuse(state: State) -> Entry:
            raise Invalid("not like this")

        before, refused, after = store.transact([lambda s: Entry([NOTE]), refuse, lambda s: Entry([NOTE])])
        assert isinstance(refused, Invalid)
        assert [event.seq for result in (before, after) if isinstance(result, list) for event in result] == [1, 2]

    def test_an_event_that_makes_no_sense_is_refused_with_its_entry(self, store: Store) -> None:
        submit(store)
        nonsense = [job_event(3), of("nobody", "attempt.planned", 1, seats=[]), job_event(4)]
        results = store.transact([
            lambda s: Entry([job_event(2)], streams=[spool(0, 8, loss=[(1, 1.0)])]),
            lambda s: Entry(nonsense, streams=[spool(8, 16, loss=[(2, 2.0)])]),
            lambda s: Entry([job_event(s.next_number)], streams=[spool(8, 16, loss=[(3, 3.0)])]),
        ])  # fmt: skip
        assert [type(result) for result in results] == [list, KeyError, list]
        assert [job.id for job in store.jobs(JobFilter())] == ["job-3", "job-2", "job-1"]
        assert store.streams("j", 1)[(0, "spool")].acked == 16
        check_against_log(store)

    def test_an_id_that_is_taken_is_refused_alone(self, store: Store) -> None:
        submit(store)
        again, fine = store.transact([lambda s: Entry([job_event(1)]), lambda s: Entry([job_event(2)])])
        assert isinstance(again, Invalid)
        assert isinstance(fine, list)

    def test_what_no_column_can_hold_is_refused_alone(self, store: Store) -> None:
        bad = [
            Entry([Event(ServerLeads(), 1.0, actor="a\0")]),
            Entry([Event(ServerLeads(object()), 1.0)]),
            Entry([Event(PoolSet(name="\0"), 1.0)]),
            Entry(streams=[spool(0, 8, **{"lo\0ss": [(1, 1.0)]})]),
            Entry(streams=[spool(0, 8, **{"lo\ud800ss": [(1, 1.0)]})]),
            Entry(streams=[StreamWrite("j", 1, 0, "log", 0, 2**63, log=b"x")]),
            Entry(streams=[StreamWrite("j", 1, 2**31, "log", 0, 1, log=b"x")]),
            Entry(patches=[RunPatch("j", {"a\0": 1})]),
            Entry(secrets=[SecretWrite("p", "\0", b"x")]),
        ]
        *refused, fine = store.transact([lambda s, e=entry: e for entry in [*bad, Entry([NOTE])]])
        assert all(isinstance(result, Exception) for result in refused), refused
        assert isinstance(fine, list)
        assert len(store.events(EventFilter())) == 1
        assert not store.streams("j", 1)

    def test_half_a_surrogate_pair_in_data_is_replaced(self, store: Store) -> None:
        store.append([Event(ServerLeads("bad \udc80 bytes and \0"), 1.0)])
        (event,) = store.events(EventFilter())
        assert event.data == ServerLeads("bad ? bytes and \0")

    def test_empty_entries_write_nothing(self, store: Store) -> None:
        assert store.transact([lambda s: Entry(), lambda s: Entry()]) == [[], []]
        assert store.transact([]) == []
        assert store.state().version == 0


class TestPast:
    """More of it in tests/store/test_rollups.py."""

    def test_jobs_by_their_ids(self, store: Store) -> None:
        ids = submit(store, 4)
        wanted = [ids[2], "nobody", ids[0], ids[0]]
        assert [job.id for job in store.jobs(JobFilter(ids=wanted))] == [ids[2], ids[0]]
        assert [job.id for job in store.jobs(JobFilter(ids=wanted, before=3))] == [ids[0]]
        assert store.jobs(JobFilter(ids=[])) == []

    def test_waits_are_those_to_the_first_start(self, store: Store) -> None:
        first, second = submit(store, 2)
        start(store, first)
        store.append([of(first, "attempt.running", 1)])
        began, submitted = store.job(first), store.job(second)
        assert began is not None
        assert submitted is not None
        assert began.started_at is not None
        want = LevelFilter(0.0, submitted.submitted_at + 2000.0, targets_of(Rules()))
        (level,) = store.levels(want)
        wait = began.started_at - began.submitted_at
        assert (level.work, level.started, level.p50, level.p90) == ("single", 1, wait, wait)
        assert (level.waiting, level.late) == (1, 1)

    def test_roll_ups_are_replaced_and_forgotten(self, store: Store) -> None:
        rows = [Rollup(60, start, "main", 2, "{}") for start in (0, 60, 120)]
        store.transact([lambda state: Entry(rollups=rows)])
        newer = Rollup(60, 120, "main", 4, '{"ms":1}')
        store.transact([lambda state: Entry(rollups=[newer], forget={60: 60})])
        assert store.rollups(60, None, 0, 1000) == [rows[1], newer]
        assert store.rolled_up_until(60) == 4


class TestState:
    def test_reload_brings_the_same_state(self, store: Store) -> None:
        history = History(random.Random(7))
        for _ in range(60):
            store.append(history.entry(store))
        before, old = picture(store.state()), store.state()
        store.reload()
        assert picture(store.state()) == before
        assert store.state() is not old  # whoever keeps an index of the old one can tell
        check_against_log(store)

    def test_a_finished_job_leaves_the_state_and_stays_readable(self, store: Store) -> None:
        (job_id,) = submit(store)
        start(store, job_id)
        finish(store, job_id)
        assert job_id not in store.state().jobs
        job = store.job(job_id)
        assert job is not None
        assert (job.phase, job.attempt and job.attempt.outcome) == ("failed", "failed")
        assert store.state().next_number == 2
        store.reload()
        assert store.state().next_number == 2

    def test_a_resumed_job_comes_back_under_its_number(self, store: Store) -> None:
        (job_id,) = submit(store)
        start(store, job_id)
        finish(store, job_id)
        job = store.job(job_id)
        assert job is not None
        data = {"doc": job.to_doc(), "spec": job.spec.model_dump(mode="json"), "reason": reason("resumed").to_dict()}
        store.append([of(job_id, "job.resumed", 0, **data)])
        start(store, job_id, attempt=2)
        assert [attempt.number for attempt in store.attempts(job_id)] == [1, 2]
        assert [job.number for job in store.jobs(JobFilter())] == [1]
        check_against_log(store)


class TestJobs:
    def test_by_id_number_and_key(self, store: Store) -> None:
        event = job_event(1)
        store.append([Event(replace(event.data, key="once"), 1.0, "ada", "default", event.job)])
        job = store.job("job-1")
        assert job == store.job_by_number(1)
        assert store.jobs_by_key("ada", ["once", "twice"]) == {"once": "job-1"}
        assert (store.job("x"), store.job_by_number(9)) == (None, None)
        assert (store.jobs_by_key("bob", ["once"]), store.jobs_by_key("ada", [])) == ({}, {})

    def test_listing(self, store: Store) -> None:
        submit(store, 3)
        submit(store, 2, queue="q1", project="other", name="gpt")
        start(store, "job-2")

        def found(**want: object) -> list[int]:
            return [job.number for job in store.jobs(JobFilter(**want))]

        assert found() == [5, 4, 3, 2, 1]
        assert found(limit=2) == [5, 4]
        assert found(before=4, limit=2) == [3, 2]
        assert found(projects=["other"]) == [5, 4]
        assert found(projects=[]) == []
        assert found(projects=["other", "default"], queue="default") == [3, 2, 1]
        assert found(phases=["starting"]) == [2]
        assert found(phases=["starting", "queued"], name="job") == [3, 2, 1]
        assert found(user="ada", limit=1) == [5]
        assert found(user="bob") == []
        submit(store, 1, parent="job-1")
        assert (found(parent="job-1"), found(parent="job-2")) == ([6], [])

    def test_nobody_gets_hold_of_the_live_state(self, store: Store) -> None:
        (job_id,) = submit(store, envs={"A": "1"})
        start(store, job_id)
        before = picture(store.state())
        for job in (store.job(job_id), store.job_by_number(1), *store.jobs(JobFilter())):
            assert job is not None
            assert job.attempt is not None
            job.phase, job.attempt.outcome, job.attempt.workers[0].state = "failed", "x", "ended"
            job.charges["node"] = 9
            job.spec.envs["A"] = "2"
        store.attempts(job_id)[0].workers.clear()
        said = store.events(EventFilter(job=job_id))[0].data
        said.user, said.key = "eve", "twice"
        said.spec.clear()
        assert picture(store.state()) == before
        check_against_log(store)


class TestEvents:
    def test_filters(self, store: Store) -> None:
        submit(store, 2)
        store.append([Event(NodeHealth(name="x", health="healthy", reason=""), 9.0, "bob")])
        submit(store, 1, project="other")

        def found(**want: object) -> list[int]:
            return [event.seq for event in store.events(EventFilter(**want))]

        assert found() == [1, 2, 3, 4]
        assert found(projects=["default"]) == [1, 2]
        assert found(projects=["", "other"]) == [4]
        assert found(projects=[]) == []
        assert found(job="job-2") == [2]
        assert found(actor="bob") == [3]
        assert found(kind="job.submitted") == [1, 2, 4]
        assert found(kind="job.") == [1, 2, 4]
        assert found(kind="job") == []
        assert found(kind="Job.") == []
        assert found(after=2) == [3, 4]
        assert found(after=1, limit=2) == [2, 3]
        assert found(last=True, limit=2) == [3, 4]
        assert found(last=True, limit=5, after=3) == [4]
        assert found(last=True, limit=2, before=4) == [2, 3]
        assert found(last=True, limit=2, before=4, kind="job.") == [1, 2]
        assert found(last=True, before=1) == []
        assert found(before=3) == [1, 2]


class TestRuns:
    def test_patches_are_merged_key_by_key(self, store: Store) -> None:
        patches = [RunPatch("a", {"step": 1, "params": {"lr": 0.1, "x": [1, None]}}), RunPatch("b", {"step": 7})]
        store.transact([lambda s: Entry(patches=patches)])
        store.transact([lambda s: Entry(patches=[RunPatch("a", {"step": 2, "params": {"lr": 0.2}, "eta": None})])])
        assert store.run("a") == {"step": 2, "params": {"lr": 0.2}, "eta": None}
        assert store.runs(["b", "a", "c"]) == {"a": store.run("a"), "b": {"step": 7}}
        assert (store.run("c"), store.runs([])) == ({}, {})


class TestStreams:
    def test_offsets_and_shapes(self, store: Store) -> None:
        write(store, spool(0, 64, loss=[(1, 2.5)]), log(0, b"hello"))
        write(store, spool(64, 128, loss=[(2, 2.0)]))
        found = store.streams("j", 1)
        assert {key: state.acked for key, state in found.items()} == {(0, "spool"): 128, (0, "log"): 5}
        assert found[(0, "spool")].shapes == {3: ("loss",)}
        assert store.streams("j", 2) == {}

    @pytest.mark.parametrize("reloaded", [False, True])
    def test_a_repeated_delivery_is_stored_once(self, store: Store, reloaded: bool) -> None:
        for _ in range(2):
            assert write(store, spool(0, 64, loss=[(1, 2.5)]), log(0, b"hello")) == []
            if reloaded:
                store.reload()
        assert store.streams("j", 1)[(0, "spool")].acked == 64
        assert [chunk.data for chunk in store.logs("j", 1, None, 0, 10)] == [b"hello"]

    def test_twice_in_one_transaction(self, store: Store) -> None:
        entry = Entry(streams=[log(0, b"ab"), log(2, b"cd"), log(0, b"ab")])
        store.transact([lambda s: entry, lambda s: entry])
        assert b"".join(chunk.data for chunk in store.logs("j", 1, 0, 0, 10)) == b"abcd"

    @pytest.mark.parametrize("bad", [spool(8, 24), spool(24, 32), log(3, b"defg"), spool(20, 10), log(-1, b"a")])
    def test_an_overlap_or_a_gap_is_refused_alone(self, store: Store, bad: StreamWrite) -> None:
        write(store, spool(0, 16), log(0, b"abcde"))
        refused, fine = store.transact([
            lambda s: Entry([NOTE], streams=[spool(16, 24, rank=1), bad]),
            lambda s: Entry([NOTE]),
        ])  # fmt: skip
        assert isinstance(refused, Invalid)
        assert isinstance(fine, list)
        assert store.state().version == 1
        assert {key: state.acked for key, state in store.streams("j", 1).items()} == {(0, "spool"): 16, (0, "log"): 5}

    def test_a_log_may_have_gaps(self, store: Store) -> None:
        write(store, log(0, b"begin"))
        write(store, log(1000, b"end"))
        assert [(c.offset, c.data) for c in store.logs("j", 1, 0, 0, 9)] == [(0, b"begin"), (1000, b"end")]
        assert store.streams("j", 1)[(0, "log")].acked == 1003


class TestLogs:
    def test_pages_in_order_of_arrival(self, store: Store) -> None:
        big = b"0123456789" * 1000
        write(store, log(0, b"a", rank=1), log(0, b"b", rank=0))
        write(store, log(1, big, rank=1), log(0, b"other", attempt=2))
        everything = store.logs("j", 1, None, 0, 10)
        assert [(c.rank, c.data) for c in everything] == [(1, b"a"), (0, b"b"), (1, big)]
        assert [c.data for c in store.logs("j", 1, 1, 0, 10)] == [b"a", big]
        assert store.logs("j", 1, None, everything[0].id, 1) == everything[1:2]
        assert store.logs("j", 1, None, everything[2].id, 9) == []

    def test_pages_of_so_many_bytes_forwards_and_backwards(self, store: Store) -> None:
        write(store, *[log(index * 10, f"line {index:03}.\n".encode(), rank=index % 2) for index in range(20)])
        everything = store.logs("j", 1, None, 0, 99)
        assert store.logs("j", 1, None, 0, 99, most=35) == everything[:3]
        assert store.logs("j", 1, None, 0, 99, most=1) == everything[:1]
        assert store.logs("j", 1, None, everything[3].id, 99, before=everything[7].id) == everything[4:7]
        assert store.logs("j", 1, None, 0, 99, last=True, most=35) == everything[:-4:-1]
        assert store.logs("j", 1, 1, 0, 2, last=True, before=everything[9].id) == [everything[7], everything[5]]
        assert store.logs("j", 1, 7, 0, 9, last=True) == []

    def test_each_chunk_knows_where_the_one_before_it_ends(self, store: Store) -> None:
        write(store, log(0, b"begin\n"), log(0, b"other\n", rank=1), log(100, b"end\n"))
        write(store, log(104, b"more\n"))
        assert [(c.rank, c.offset, c.before) for c in store.logs("j", 1, None, 0, 9)] == [
            (0, 0, 0), (1, 0, 0), (0, 100, 6), (0, 104, 104),
        ]  # fmt: skip
        assert [c.before for c in store.logs("j", 1, 0, 3, 9)] == [104]
        assert store.log_sizes("j") == [LogSize(1, 0, 109, 15), LogSize(1, 1, 6, 6)]
        assert store.log_sizes("k") == []


class TestSecrets:
    def test_set_read_list_remove(self, store: Store) -> None:
        entries = [SecretWrite("p", "B", b"\x00\xff"), SecretWrite("p", "A", b"1"), SecretWrite("q", "C", b"2")]
        store.transact([lambda s: Entry([Event(SecretSet(name="B"), 1.0, project="p")], secrets=entries)])
        assert (store.secret("p", "B"), store.secret("q", "B")) == (b"\x00\xff", None)
        assert store.secret_names("p") == ["A", "B"]
        store.transact([lambda s: Entry(secrets=[SecretWrite("p", "A", None), SecretWrite("p", "B", b"new")])])
        assert store.secret_names("p") == ["B"]
        assert store.secret("p", "B") == b"new"


class TestLease:
    def test_one_takes_it(self, store: Store) -> None:
        assert store.lease() is None
        mine = store.take_lease("a", ["http://a"], None)
        assert mine is not None
        assert (mine.holder, mine.epoch, mine.urls) == ("a", 1, ("http://a",))
        assert store.lease() == mine
        assert store.take_lease("b", [], None) is None

    def test_a_renewal_shows_and_keeps_others_out(self, store: Store) -> None:
        mine = store.take_lease("a", [], None)
        assert mine is not None
        renewed = store.renew_lease(mine)
        assert renewed is not None
        assert (renewed.epoch, renewed.beat > mine.beat) == (mine.epoch, True)
        assert store.take_lease("b", [], mine) is None
        assert store.lease() == renewed

    def test_a_stale_one_changes_hands(self, store: Store) -> None:
        mine = store.take_lease("a", [], None)
        assert mine is not None
        theirs = store.take_lease("b", ["http://b"], mine)
        assert theirs is not None
        assert theirs.epoch == mine.epoch + 1
        assert store.renew_lease(mine) is None
        store.drop_lease(mine)
        assert store.lease() == theirs

    def test_an_epoch_is_never_given_twice(self, store: Store) -> None:
        mine = store.take_lease("a", [], None)
        assert mine is not None
        store.drop_lease(mine)
        assert store.lease() is None
        assert store.renew_lease(mine) is None
        again = store.take_lease("a", [], None)
        assert again is not None
        assert again.epoch == mine.epoch + 1

    def test_of_many_at_once_one_wins(self, store: Store) -> None:
        won: list[object] = []
        gate = threading.Barrier(8)

        def work(name: str) -> None:
            gate.wait()
            won.append(store.take_lease(name, [], None))

        threads = [threading.Thread(target=work, args=(f"server-{i}",)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [lease for lease in won if lease is not None] == [store.lease()]
