"""The metrics of the server and of its work, as families of prometheus-client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from muster import __version__
from muster.control.cost_pending import pending_of
from muster.control.counters import Counters, Durations, Labels
from muster.core.entities.price_book import book_zone
from muster.core.money import MICRO
from muster.cost.ledger import local_day
from muster.cost.report.sums import Sum, hours
from muster.monitor import families, rollup
from muster.monitor.families import Family
from muster.server.leader import Leader
from muster.server.prometheus.requests import Requests
from muster.server.prometheus.snapshot import Snapshot, bounded
from muster.track.cost_reads import CostFilter, read_sums

ASIDE_MAX: Final = 100
_THOUSANDTHS: Final = {
    families.ACCELERATORS: rollup.THERE,
    families.ACCELERATORS_USED: rollup.USED,
    families.ACCELERATORS_OUT: rollup.OUT,
    families.ACCELERATORS_ASKED: rollup.ASKED,
    families.CPUS: rollup.CPUS,
    families.CPUS_USED: rollup.CPUS_USED,
}


class Families(Collector):
    """What `generate_latest` takes in place of a registry: families that were made for this one scrape."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def process() -> Iterable[Metric]:
    return ProcessCollector(registry=None).collect()


def server(leader: Leader | None, requests: Requests) -> Iterator[Metric]:
    """`leader` is None on a server that does not lead."""
    yield _of(families.BUILD, {(__version__,): 1})
    yield _of(families.LEADER, {(): int(leader is not None)})
    yield _of(families.REQUESTS, requests.answers.read())
    yield _histogram(families.REQUEST_TIME, requests.times)
    if leader is None:
        return
    lags = [follower.lag() for follower in leader.followers]
    yield _of(families.LAG, {(lag.name,): lag.behind for lag in lags})
    yield _of(families.FAILING, {(lag.name,): int(bool(lag.trouble)) for lag in lags})
    yield _of(families.ASIDE, {(): len(leader.store.set_aside(ASIDE_MAX))})
    if leader.outbox is not None:
        status = leader.outbox.status()
        age = leader.clock.now() - status["oldest"] if status["oldest"] is not None else 0.0
        yield _of(families.OUTBOX, {(): status["waiting"]})
        yield _of(families.OUTBOX_AGE, {(): max(0.0, age)})
        yield _of(families.OUTBOX_LOST, {(): status["given_up"]})


def work(counters: Counters, found: Snapshot) -> Iterator[Metric]:
    yield _of(families.EVENTS, {(): found.version})
    yield _histogram(families.TICK, counters.ticks)
    yield _of(families.TICKS_FAILED, {(): counters.ticks_failed})
    yield _of(families.BATCHES, {(): counters.batches})
    yield _of(families.BYTES, {(stream,): size for stream, size in counters.bytes.items()})
    yield _of(families.POINTS, {(): counters.points})
    yield _of(families.JOBS, found.jobs)
    yield _of(families.WAITING, found.waiting)
    yield _of(families.SUBMITTED, counters.submitted.read())
    yield _of(families.ENDED, counters.ended.read())
    yield _of(families.RESTARTS, counters.restarts.read())
    yield _of(families.FAILURES, counters.failures.read())
    yield _histogram(families.DELAY, counters.delays)
    pools = {pool: sample for pool, sample in found.pools.items() if pool != rollup.ALL}
    for family, name in _THOUSANDTHS.items():
        yield _of(family, {(pool,): sample[name] / 1000 for pool, sample in pools.items()})
    yield _of(families.NODES, found.nodes)
    yield _of(families.ALERTS, found.alerts)
    for family, counts in ((families.NODES_BLIND, found.blind.nodes), (families.DEVICES_BLIND, found.blind.devices)):
        yield _of(family, {(pool,): counts.get(pool, 0) for pool in {**pools, **counts}})


def costs(leader: Leader) -> Iterator[Metric]:
    """One query of the sums of today, and what runs now; nothing where the store keeps no record."""
    if leader.track is None:
        return
    now, state = leader.clock.now(), leader.store.state()
    today = local_day(now, book_zone(state))
    by = ("project", "pool", "account")
    with leader.track.db.reading() as connection:
        rows = [Sum(keys, *sums) for keys, sums in read_sums(connection, CostFilter(today, today), by)]
    charged: Counter[Labels] = Counter()
    unpriced: Counter[Labels] = Counter()
    for one in rows:
        charged[(*one.keys, one.currency)] += one.amount
        if one.unpriced:
            unpriced[one.keys[:2]] += one.unpriced
    pending: Counter[Labels] = Counter()
    for each in leader.look(lambda state: pending_of(state, now, None)):
        pending[each.payer.project, each.payer.pool, each.currency] += each.amount
    yield _of(families.COST_TODAY, {key: amount / MICRO for key, amount in bounded(charged).items()})
    yield _of(families.COST_PENDING, {key: amount / MICRO for key, amount in bounded(pending).items()})
    yield _of(families.COST_UNPRICED, {key: hours(held) for key, held in bounded(unpriced).items()})


def _of(family: Family, values: Mapping[Labels, float]) -> Metric:
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    made = make(family.name, family.help, labels=family.labels)
    for labels, value in values.items():
        made.add_metric(labels, value)
    return made


def _histogram(family: Family, durations: Durations) -> Metric:
    made = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    bounds = [*map(str, durations.bounds), "+Inf"]
    for labels, (counts, seconds) in durations.read().items():
        made.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), seconds)
    return made
