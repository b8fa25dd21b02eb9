"""The newest samples of nodes: whose word counts, what is stale, what is missing, and how many are kept."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rig import Rig, nodes

from muster.control import node_samples
from muster.control.counters import Counters, Durations, Tally
from muster.control.ingest import Ingest
from muster.control.node_health import FAULTS_MINUTE
from muster.control.node_samples import PERIOD, PERIODS, NodeSamples
from muster.core.entities.node_record import NODE_RECORDS
from muster.monitor.families import OTHER, VALUES_MAX
from muster.wire import DEVICES_MAX, Batch, NodeSample, Piece, doc_record
from sample_kit import device, node

STALE = PERIODS * PERIOD


def blind(samples: NodeSamples, rig: Rig) -> tuple[int, int]:
    found = samples.blind(rig.state, rig.clock.now())
    assert {*found.nodes, *found.devices} <= {"main"}
    return found.nodes.get("main", 0), found.devices.get("main", 0)


def test_a_sample_is_of_the_node_that_the_worker_is_on_and_shows_until_it_is_stale() -> None:
    rig, samples, counters = Rig(nodes(3)), NodeSamples(), Counters()
    ingest = Ingest(rig.store, rig.commit, rig.clock, 1 << 20, counters=counters, samples=samples)
    job = rig.submit(resources={"accelerators": "H100:4"})
    rig.tick()
    (at,) = (worker.node for worker in rig.job(job).attempt.workers)
    began = rig.clock.now()
    ingest.accept(job, 1, Batch(0, "running", node="n2", sample=node(*map(device, range(4)))))
    shown, devices = samples.fresh(began)
    assert [one.labels for one in shown] == [f'{{node="{at}",pool="main"}} ']
    assert len(devices) == 4
    assert samples.fresh(began + STALE) == ([], [])
    assert blind(samples, rig) == (0, 0)
    rig.clock.time += STALE + 1
    assert blind(samples, rig) == (1, 4), "nobody sees the machine of a job that runs"
    ingest.accept(job, 1, Batch(0, "running", sample=node(device(0), device(1), device(3))))
    assert blind(samples, rig) == (0, 1), "one of the four is gone"
    ingest.accept(job, 1, Batch(0, "running", sample=node(device(2), every=60.0)))
    assert blind(samples, rig) == (0, 0)
    rig.end(job)
    rig.tick(3)
    rig.clock.time += 1000
    assert blind(samples, rig) == (0, 0), "nothing runs there"
    with pytest.raises(Exception, match="There is no attempt"):
        ingest.accept(job, 2, Batch(0, "running", sample=node()))
    ingest.accept(job, 1, Batch(0, "running", sample=node(device(5))))
    assert samples.fresh(rig.clock.now()) == ([], []), "a worker of an attempt that is over has no node"
    assert counters.batches == 4
    rig.close()


def test_a_machine_without_a_driver_is_seen_and_its_accelerators_are_not_missed() -> None:
    rig, samples = Rig(nodes(1)), NodeSamples()
    job = rig.submit(resources={"accelerators": "H100:4"})
    rig.tick()
    rig.clock.time += STALE + 1
    samples.take(rig.job(job).attempt.workers[0].node, "main", node(), rig.clock.now())
    assert blind(samples, rig) == (0, 0)
    rig.close()


def test_samples_and_devices_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_samples, "NODES_MAX", 3)
    samples = NodeSamples()
    for name in ("a", "b", "c", "a", "d"):
        samples.take(name, "main", node(), 1.0)
    assert [one.labels.partition(",")[0] for one in samples.fresh(2.0)[0]] == ['{node="c"', '{node="a"', '{node="d"']
    slices = [device(7, instance=number) for number in range(DEVICES_MAX)]
    samples.take("a", "main", node(*slices), 1.0, accelerators=8)
    samples.take("a", "main", node(device(1)), 2.0, accelerators=8)
    assert len(samples.fresh(2.0)[1]) == 8 * node_samples.SLICES
    samples.take("a", "main", node(device(1)), 1.0 + STALE, accelerators=8)
    assert len(samples.fresh(1.0 + STALE)[1]) == 1, "a stale one makes room"


def test_pods_that_number_their_devices_from_0_are_told_apart() -> None:
    samples = NodeSamples()
    for uuid in ("GPU-a", "GPU-b", "GPU-a"):
        samples.take("n", "main", node(device(0, uuid=uuid)), 1.0, accelerators=2)
    devices = samples.fresh(2.0)[1]
    assert sorted(one.sample.uuid for one in devices) == ["GPU-a", "GPU-b"]
    assert len({one.own for one in devices}) == len({one.dcgm for one in devices}) == 2, "no series is there twice"


def test_a_fault_counts_once_and_a_second_one_counts_too() -> None:
    rig = Rig(nodes(2))
    ingest = Ingest(rig.store, rig.commit, rig.clock, 1 << 20)
    jobs = [rig.submit(resources={"accelerators": "H100:2"}, placement="pack") for _ in range(2)]
    rig.tick()
    at = {rig.job(job).attempt.workers[0].node for job in jobs}
    assert len(at) == 1
    (name,) = at
    written: dict[tuple[str, str], int] = {}

    def tell(job: str, number: int, stream: str = "host", code: object = "79", gpu: object = 1) -> dict[str, int]:
        doc = {"type": "fault", "time": 1.0, "gpu": gpu, "code": code, "number": number, "boot": "b-1"}
        data, offset = doc_record(doc), written.get((job, stream), 0)
        written[job, stream] = offset + len(data)
        ingest.accept(job, 1, Batch(0, "running", pieces=(Piece(0, stream, offset, data),)))
        record = NODE_RECORDS.all(rig.state).get(name)
        return dict(record.faults) if record is not None else {}

    assert tell(jobs[0], 7, stream="spool") == {}, "a rank's program has no say"
    assert tell(jobs[0], 7) == {"1/79": 1}
    assert tell(jobs[1], 7) == {"1/79": 1}, "two launchers saw the same one"
    assert tell(jobs[1], 8) == {"1/79": 2}
    assert tell(jobs[1], 3, code="ecc", gpu=0) == {"1/79": 2, "0/ecc": 1}
    for wrong in ({"code": "79; x"}, {"code": None}, {"gpu": "1"}, {"gpu": 5000}):
        assert tell(jobs[0], 9, **wrong) == {"1/79": 2, "0/ecc": 1}
    history = [entry["text"] for entry in NODE_RECORDS.all(rig.state)[name].history]
    assert history == ["Xid 79 of accelerator 1", "memory errors that could not be corrected of accelerator 0"]
    assert rig.state.nodes[name].health == "healthy"
    for number in range(100, 200):
        found = tell(jobs[0], number, code="13")
    assert found["1/13"] == FAULTS_MINUTE - 3, "a storm is cut short"
    rig.clock.time += 61
    assert tell(jobs[0], 300, code="13")["1/13"] == FAULTS_MINUTE - 2
    rig.restart()
    assert NODE_RECORDS.all(rig.state)[name].faults["1/79"] == 2
    rig.close()


def test_starts_restarts_and_ends_are_counted_as_they_are_committed() -> None:
    rig, counters = Rig(nodes(1)), Counters()
    before = rig.commit._on_commit
    rig.commit._on_commit = lambda events: (before(events), counters.committed(events, rig.state))
    first, second = (rig.submit(resources={"cpus": 8}) for _ in range(2))
    rig.tick()
    rig.clock.time += 20
    rig.end(first)
    rig.tick(3)
    assert rig.job(second).phase == "running"
    delays = counters.delays.read()["default", "main"]
    assert sum(delays[0]) == 2
    assert delays[1] == 20.0
    rig.end(second)
    rig.tick(3)
    assert counters.submitted.read() == {("default",): 2}
    assert counters.ended.read() == {("default", "succeeded"): 2}
    rig.close()


def test_counts_by_label_are_bounded_and_nothing_is_lost() -> None:
    tally, times = Tally(), Durations((1.0, 2.0))
    for number in range(VALUES_MAX + 5):
        tally.add((f"p{number}", "x"))
        times.observe((f"p{number}",), 1.0)
    assert sum(tally.read().values()) == VALUES_MAX + 5
    assert tally.read()[OTHER, OTHER] == 5
    assert times.read()[OTHER,] == ([5, 0, 0], 5.0)
    times.observe(("p0",), 2.5)
    assert times.read()["p0",] == ([1, 0, 1], 3.5), "a value at a bound is in its bucket"


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=30))
def test_a_sample_that_no_launcher_would_send_is_refused(raw: object) -> None:
    sample = node(device(), device(1, None))
    good = json.loads(json.dumps(sample))
    assert NodeSample.from_list(good) == sample
    assert Batch.decode(Batch(0, "running", sample=sample).encode()).sample == sample
    most, last = good[:9], good[9][0]
    for made in (raw, [*most, raw], [good[0], raw, *good[2:]], [*most, [[*last[:-1], raw]]], [*good[:-1], raw]):
        try:
            found = NodeSample.from_list(made)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
        for value in (*found[:9], *found[10:], *(value for one in found.devices for value in one[5:])):
            assert value is None or isinstance(float(repr(value)), float), "it is written as it is"


@pytest.mark.parametrize("raw", [True, "1", float("nan"), float("inf"), 10**400, [], {}])
def test_what_is_no_number_is_no_figure(raw: object) -> None:
    good = json.loads(json.dumps(node(device())))
    with pytest.raises((TypeError, ValueError)):
        NodeSample.from_list([good[0], raw, *good[2:]])
    with pytest.raises((TypeError, ValueError)):
        NodeSample.from_list([*good[:9], [[*good[9][0][:-1], raw]]])
    with pytest.raises((TypeError, ValueError)):
        NodeSample.from_list([*good[:9], [[raw, *good[9][0][1:]]]])
    with pytest.raises((TypeError, ValueError)):
        NodeSample.from_list([*good[:-1], raw])


def test_lost_packets_are_counted_from_one_launcher_of_a_node_at_a_time() -> None:
    samples = NodeSamples()

    def take(errors: int | None, now: float, source: str = "a") -> float | None:
        samples.take("n0", "main", node()._replace(errors=errors), now, source=source)
        return samples.machines(now)["n0"].lost

    assert take(1000, 100.0) is None, "one sample says nothing"
    assert take(1010, 110.0) == 60.0
    assert take(5, 111.0, "b") == 60.0, "another pod of the node counts its own interfaces"
    assert take(None, 112.0) == 60.0
    assert take(1010, 120.0) == 0.0
    assert take(3, 130.0) == 0.0, "the machine was started anew"
    assert take(8, 130.0 + STALE, "b") is None, "the first launcher is gone"
    assert take(9, 140.0 + STALE, "b") == 6.0
    assert samples.machines(140.0 + STALE)["n0"].disk == 0.5
    assert samples.machines(1e6) == {}, "old samples say nothing"
