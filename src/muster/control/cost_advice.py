"""Gathers what advice on cost is made from: charges, device use, saves and scores of runs, prices, and demand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, cast

import numpy as np

from muster.api.cost import AdviceList, AdviceView
from muster.control.node_health import is_spot
from muster.core.entities.price_book import prices_of
from muster.core.job import Job
from muster.core.money import MICRO, NANO
from muster.core.period import zone_of
from muster.core.prices import quantity
from muster.core.reasons import REASONS
from muster.core.resources import WHOLE
from muster.core.state import State
from muster.cost.advice import advise
from muster.cost.advice.facts import AdviceFacts, PoolFact, RunFact, SweepFact
from muster.cost.charge import accrued_at
from muster.cost.estimate import SpotRisk
from muster.cost.ledger import local_day
from muster.monitor.alerts.figures import HIGHER_IS_BETTER, LOWER_IS_BETTER
from muster.monitor.rollup import QUARTER, USED, from_text
from muster.store.base import JobFilter, Store
from muster.track.advice_rows import RunCost, Saves, read_codes, read_device_memory, read_run_costs, read_saves
from muster.track.failures import attempts_since
from muster.track.tracking import Tracking

DAY: Final = 86_400.0
DEVICE_RUNS: Final = 200  # whose device figures are read: those that cost most
SERIES: Final = 8  # devices of a run that are read
BUCKETS: Final = 200  # of a device's use
IDLE_USE: Final = 0.05  # of a device: less is idle
COUNTED: Final = ("node", "worker", "preempted")  # categories of ends that cost work
_NUMBERED: Final = re.compile(r"[-0-9]+$")
_DEVICE: Final = re.compile(r"system/gpu(\.|$)")
_MEMORY: Final = "system/gpu_memory_share"


@dataclass(frozen=True, slots=True)
class _Devices:
    use: float | None = None
    memory: float | None = None
    idle: float | None = None


@dataclass(frozen=True, slots=True)
class AdviceReader:
    """`projects`: those that count; None for all, with the demand of the pools."""

    store: Store
    track: Tracking
    risks: Mapping[str, SpotRisk]
    projects: Sequence[str] | None
    now: float
    since: float

    def advice(self, kind: str | None, reserve_price: int | None = None, buy_price: int | None = None) -> AdviceList:
        facts = replace(self.facts(), reserve_price=reserve_price, buy_price=buy_price)
        found = [cast(AdviceView, {**asdict(one), "evidence": list(one.evidence)}) for one in advise(facts, kind)]
        unpriced = sorted(one.name for one in facts.pools.values() if one.per_hour is None)
        return {
            "now": self.now, "since": self.since, "days": facts.days, "currency": facts.currency, "whole": facts.whole,
            "runs": len(facts.runs), "unpriced": unpriced if facts.whole else [], "advice": found,
        }  # fmt: skip

    def facts(self) -> AdviceFacts:
        state = self.store.state()
        prices, active = prices_of(state), self._active(state)
        first = local_day(self.since, zone_of(prices.book.timezone))
        with self.track.db.reading() as connection:
            costs = read_run_costs(connection, self.projects, first, prices.book.currency)
        ids = list(dict.fromkeys([*(one.run for one in costs), *active]))
        jobs = {job.id: job for job in self.store.jobs(JobFilter(ids=ids, limit=len(ids)))} if ids else {}
        with self.track.db.reading() as connection:
            codes, memory = read_codes(connection, ids), read_device_memory(connection, ids)
            saves = dict(read_saves(connection, ids))
        runs = [self._run(one, job, codes, saves) for one in self._with_active(costs, active, state)
                if (job := jobs.get(one.run)) is not None]  # fmt: skip
        runs = [self._measured(one, memory, number < DEVICE_RUNS) for number, one in enumerate(runs)]
        begin = min((one.begin for one in runs), default=self.now)
        demand, days = self._demand(), max(self.now - max(begin, self.since), 0.0) / DAY
        if demand:
            days = max(days, sum(hours for _, hours in max(demand.values(), key=len)) / 24)
        failures, node_hours = self._failures()
        parents = {one.parent for one in runs if one.parent}
        return AdviceFacts(
            self.now, min(max(days, 1.0), (self.now - self.since) / DAY), prices, tuple(runs),
            self._pools(state, runs, demand), self.risks, tuple(self._sweeps(sorted(parents))), failures, node_hours,
            self.projects is None,
        )  # fmt: skip

    def _active(self, state: State) -> list[str]:
        seen = (state.jobs[name] for name in state.active)
        return [job.id for job in seen if self.projects is None or job.project in self.projects]

    def _with_active(self, costs: Sequence[RunCost], active: Sequence[str], state: State) -> list[RunCost]:
        """Charges, and what attempts that still run have cost so far."""
        found, prices = {(one.run, one.pool): one for one in costs}, prices_of(state)
        for name in active:
            job = state.jobs.get(name)
            if job is None or job.attempt is None or not (spent := accrued_at(prices, job, self.now)):
                continue
            at, held = job.attempt.planned_at, quantity(job.ask, len(job.attempt.workers))
            units, unit = (held.accelerators, "accelerator") if held.accelerators else (held.workers * WHOLE, "worker")
            time = round(units * (self.now - at) * 1000)
            key = (name, job.attempt.pool)
            new = RunCost(name, job.project, job.attempt.pool, unit, 0, 0, round(at * MICRO))
            known = found.get(key, new)
            found[key] = known._replace(amount=known.amount + spent, held=known.held + time)
        return sorted(found.values(), key=lambda one: -one.amount)

    def _run(self, cost: RunCost, job: Job, codes: Mapping[str, str], saves: Mapping[str, Saves]) -> RunFact:
        spec, ask = job.spec, job.ask
        nodes = len(job.attempt.workers) if job.attempt is not None else spec.num_nodes
        held = quantity(ask, nodes)
        units = held.accelerators if cost.unit == "accelerator" else held.workers * WHOLE
        known = saves.get(job.id)
        return RunFact(
            job.id, job.project, _NUMBERED.sub("", spec.name) or spec.name, cost.pool, cost.amount,
            cost.begin / MICRO, cost.held / 3_600_000 / max(units, 1), kind=spec.kind, phase=job.phase,
            code=codes.get(job.id, ""), nodes=nodes, accelerators=ask.accelerators, accelerator=ask.accelerator,
            share=ask.share, priority=job.priority, deadline=spec.deadline is not None, use_spot=spec.use_spot,
            off_peak=spec.off_peak, parent=spec.parent or "", save_every=known.every if known else None,
            save_seconds=known.seconds if known else None,
        )  # fmt: skip

    def _measured(self, one: RunFact, memory: Mapping[str, int], read: bool) -> RunFact:
        devices = self._devices(one.run) if read and one.accelerators else _Devices()
        score = self._score(one.run) if one.parent else None
        return replace(
            one, device_use=devices.use, memory_share=devices.memory, idle_share=devices.idle, score=score,
            device_memory=memory.get(one.run),
        )  # fmt: skip

    def _devices(self, run: str) -> _Devices:
        """Mean use over the devices, the highest share of memory, and the time in which no device was busy."""
        series = self.track.metrics.series(run)
        shares = [one.summary.high for one in series if one.name.partition(".")[0] == _MEMORY]
        memory = max((share for share in shares if share is not None), default=None)
        means, busiest = list[float](), list[float]()
        for one in [one for one in series if _DEVICE.match(one.name)][:SERIES]:
            found = self.track.metrics.curve(run, one.name, rank=one.rank, buckets=BUCKETS, axis="time").buckets
            good = ~np.isnan(found.mean)
            if good.any():
                means.append(float(np.average(found.mean[good], weights=found.count[good])))
                busiest.append(float(np.average(found.high[good] >= IDLE_USE, weights=found.count[good])))
        if not means:
            return _Devices(memory=memory)
        return _Devices(sum(means) / len(means), memory, 1 - max(busiest))

    def _score(self, run: str) -> float | None:
        """The best value of an evaluation; lower is better."""
        for name, summary in sorted(self.track.metrics.summaries([run]).get(run, {}).items()):
            if name in LOWER_IS_BETTER and summary.low is not None:
                return summary.low
            if name in HIGHER_IS_BETTER and summary.high is not None:
                return -summary.high
        return None

    def _failures(self) -> tuple[int, float]:
        """Ends that cost work, and the node-hours in which they happened."""
        failures, hours = 0, 0.0
        for one, _ in attempts_since(self.track.db, self.projects, self.since):
            begin = max(one.running_at if one.running_at is not None else one.planned_at, self.since)
            end = self.now if one.ended_at is None else one.ended_at
            hours += len(one.workers) * max(end - begin, 0.0) / 3600
            code = one.reason.code if one.reason is not None and one.outcome != "succeeded" else ""
            failures += one.ended_at is not None and code in REASONS and REASONS[code].category in COUNTED
        return failures, hours

    def _sweeps(self, parents: Sequence[str]) -> list[SweepFact]:
        found = self.store.jobs(JobFilter(ids=parents, limit=len(parents))) if parents else []
        return [
            SweepFact(job.id, job.project, not job.final, job.spec.array is not None)
            for job in found
            if job.spec.kind == "sweep" or job.is_array
        ]

    def _demand(self) -> dict[str, list[tuple[float, float]]]:
        if self.projects is not None:
            return {}
        found: dict[str, list[tuple[float, float]]] = {}
        for one in self.store.rollups(QUARTER, None, int(self.since), int(self.now)):
            bucket = from_text(one.data)
            used = bucket.mean(USED)
            if used is not None and one.pool:
                found.setdefault(one.pool, []).append((used, bucket.ms / 3_600_000))
        return found

    def _pools(
        self, state: State, runs: Sequence[RunFact], demand: Mapping[str, list[tuple[float, float]]]
    ) -> dict[str, PoolFact]:
        prices, found = prices_of(state), dict[str, PoolFact]()
        for name, pool in state.pools.items():
            price, rule = prices.at(name, self.now), state.rules.pool(name)
            kinds = [total for (where, total), count in state.kinds.items() if where == name and count]
            sizes = [one.accelerator_memory for one in kinds if one.accelerator_memory]
            seen = [one.device_memory for one in runs if one.pool == name and one.device_memory is not None]
            rate = None if price is None else price.accelerator if price.accelerator is not None else price.worker
            found[name] = PoolFact(
                name, pool.accelerator or next((one.accelerator for one in kinds if one.accelerator), ""),
                min([*sizes, *seen], default=None), None if rate is None else rate * MICRO // NANO,
                price.kind if price is not None else "", is_spot(state, name), rule.slices, bool(rule.off_peak),
                tuple(demand.get(name, ())),
            )  # fmt: skip
        return found
