"""Gathers the evidence for the diagnosis of a run from its record: times, metrics, stacks, checkpoints and events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, nan
from statistics import median
from typing import Any, Final

from sqlalchemy import select

from muster.core.attempt_events import AttemptHung, AttemptStraggler
from muster.core.entities.node_record import NODE_RECORDS
from muster.core.event import Event
from muster.core.job import Job
from muster.core.spec import ranks_per_node
from muster.monitor.damage import LOSSES, NORMS
from muster.monitor.diagnose.evidence import Evidence, RankFigures, Save, Series, SlowRanks, mean
from muster.monitor.diagnose.samples import sampled
from muster.monitor.time_ledger import SECOND
from muster.store.base import EventFilter, Store
from muster.store.codec import loads
from muster.store.record_tables import checkpoints
from muster.track.goodput_rows import HeldDay
from muster.track.metrics.shapes import Summary
from muster.track.phase_rows import read_phases
from muster.track.tracking import Tracking

POINTS: Final = 20_000  # of a curve; of a longer one, as many buckets
BUCKETS: Final = 10_000
RANKS: Final = 64  # whose figures are read
LATELY: Final = 300.0  # seconds of figures that count
ENOUGH: Final = 3  # figures since stacks were looked at
SAVES: Final = 1000
NAME: Final = 100  # characters of a device's name
STALE: Final = 900.0  # seconds between the newest look and another one that counts together with it
FINDINGS: Final = 3  # of the run's nodes, the newest
_RATES: Final = frozenset({"lr", "learning_rate", "train/lr", "train/learning_rate"})


@dataclass(frozen=True, slots=True)
class Gatherer:
    """Reads one run. `held`: the ledger's days of it."""

    store: Store
    track: Tracking
    run: str
    job: Job | None
    held: Sequence[HeldDay]

    def evidence(self) -> Evidence:
        attempts = self.track.runs.attempts(self.run)
        newest: dict[str, Any] = attempts[-1] if attempts else {"attempt": 0}
        number, job = int(newest["attempt"]), self.job
        curves = self.track.metrics.summaries([self.run]).get(self.run, {})
        nodes = 1 if job is None or job.attempt is None else len(job.attempt.workers)
        looks = list(self._looks(number))
        return Evidence(
            job=self.run,
            running=job is not None and job.phase == "running",
            world=max(1, nodes * ranks_per_node(job.spec)) if job is not None else 1,
            times=self._times(number),
            stated=self._stated(number),
            samples=sampled(looks),
            ranks=list(self._ranks(number, _begin(looks))),
            cpus=job.ask.milli_cpus / 1000 if job is not None else None,
            ranks_per_node=ranks_per_node(job.spec) if job is not None else 1,
            accelerators=job.ask.accelerators if job is not None else 0,
            accelerator=_accelerator(job, newest),
            params=self.track.runs.params([self.run]).get(self.run, {}),
            step_seconds=self._median(curves.get("step_s"), "step_s", number),
            wait_seconds=self._median(curves.get("wait_s"), "wait_s", number),
            losses=self._first(sorted(LOSSES & curves.keys()), number),
            norms=self._first(sorted(NORMS & curves.keys()), number),
            rate=self._first(sorted(_RATES & curves.keys()), number),
            changes=self._changes(attempts),
            saves=self._saves(number),
            slow=self._slow(number),
            hung=self._hung(number),
            node_findings=self._node_findings(),
        )

    def _times(self, number: int) -> dict[str, float]:
        found: dict[str, float] = {}
        for one in self.held:
            if one.attempt == number:
                for kind, spent in one.time.parts.items():
                    found[kind] = found.get(kind, 0.0) + spent / SECOND
        return found

    def _stated(self, number: int) -> frozenset[str]:
        with self.track.db.reading() as connection:
            entries = read_phases(connection, [self.run]).get((self.run, number), [])
        return frozenset(name for _, current, spent in entries for name in (current, *spent) if name)

    def _looks(self, number: int) -> Iterator[Any]:
        """The looks at the newest attempt that belong together."""
        kept = [one for one in self.track.stacks.orders(self.run) if one["attempt"] == number]
        for one in kept:
            if kept[0]["time"] - one["time"] <= STALE:
                yield self.track.stacks.get(self.run, one["id"])

    def _ranks(self, number: int, looked: float) -> Iterator[RankFigures]:
        """`looked`: since when stacks were looked at. Figures of that time tell more than those of the start before."""
        by_rank: dict[int, dict[str, float]] = {}  # → name → when it was heard last
        for one in self.track.metrics.series(self.run):
            if one.name.startswith("system/"):
                by_rank.setdefault(one.rank, {})[one.name] = one.summary.last_time
        for rank, names in sorted(by_rank.items())[:RANKS]:
            values = {name: self._lately(name, rank, number, last, looked) for name, last in names.items()}
            clocks = _of(values, "gpu_clock")
            yield RankFigures(
                rank,
                cpu=mean(values.get("system/cpu", ())),
                device_use=mean(_of(values, "gpu")),
                memory_share=_most(values, "gpu_memory_share"),
                throttled=_most(values, "gpu_throttled"),
                temperature=mean(_of(values, "gpu_temperature")),
                clock=mean(clocks),
                clock_best=max(clocks, default=None),
            )

    def _lately(self, name: str, rank: int | None, number: int, last: float, looked: float = -inf) -> list[float]:
        """The values of the last minutes, or since it was `looked` if that are enough. Older blocks are not read."""
        since = last - LATELY
        found = self.track.metrics.points(self.run, name, rank=rank, attempt=number, start=since, axis="time")
        newest = found.value[found.time >= looked]
        return [float(value) for value in (newest if len(newest) >= ENOUGH else found.value)]

    def _median(self, known: Summary | None, name: str, number: int) -> float | None:
        found = [] if known is None else self._lately(name, None, number, known.last_time)
        return median(found) if found else None

    def _first(self, names: Sequence[str], number: int) -> Series | None:
        return self._series(names[0], number) if names else None

    def _series(self, name: str, number: int) -> Series:
        known = self.track.metrics.summaries([self.run])[self.run].get(name)
        if known is not None and known.points > POINTS:
            found = self.track.metrics.curve(self.run, name, attempt=number, buckets=BUCKETS).buckets
            highs = [nan if nans else float(high) for high, nans in zip(found.high, found.nans, strict=True)]
            return Series(name, found.first_step.tolist(), highs)
        points = self.track.metrics.points(self.run, name, attempt=number)
        return Series(name, points.step.tolist(), points.value.tolist())

    def _changes(self, attempts: Sequence[dict[str, Any]]) -> list[tuple[int, str]]:
        first = {one["attempt"]: one["first_step"] for one in attempts if one.get("first_step") is not None}
        found = [(step, f"attempt {number} began") for number, step in first.items() if number > 1]
        for one in self.track.runs.changes(self.run):
            if one.space == "params" and one.attempt in first:
                found.append((first[one.attempt], f"the parameter {one.key} changed from {one.old} to {one.new}"))
        return found

    def _saves(self, number: int) -> list[Save]:
        query = (
            select(checkpoints.c.step, checkpoints.c.time, checkpoints.c.doc)
            .where(checkpoints.c.run == self.run, checkpoints.c.attempt == number)
            .order_by(checkpoints.c.time.desc())
            .limit(SAVES)
        )
        with self.track.db.reading() as connection:
            rows = connection.execute(query).all()
        return [Save(row.step, row.time, _seconds(loads(row.doc).get("seconds"))) for row in reversed(rows)]

    def _slow(self, number: int) -> SlowRanks | None:
        event = self._last("attempt.straggler", "attempt.steady", number)
        if event is None or not isinstance(data := event.data, AttemptStraggler):
            return None
        verdict = data.verdict
        sure = verdict.get("evidence") == "waiting"
        return SlowRanks(tuple(verdict["ranks"]), float(verdict["lost"]), sure, data.reason.message)

    def _hung(self, number: int) -> str:
        event = self._last("attempt.hung", "attempt.moves", number)
        return event.data.reason.message if event is not None and isinstance(event.data, AttemptHung) else ""

    def _last(self, kind: str, ended_by: str, number: int) -> Event | None:
        """The newest event of a kind, if it is of this attempt and no newer one has ended it."""
        found, over = (
            next(iter(self.store.events(EventFilter(job=self.run, kind=one, last=True, limit=1))), None)
            for one in (kind, ended_by)
        )
        if found is None or found.attempt != number or (over is not None and over.seq > found.seq):
            return None
        return found

    def _node_findings(self) -> list[str]:
        """What was seen of the run's nodes, without what belongs to other projects."""
        if self.job is None or self.job.attempt is None:
            return []
        records = NODE_RECORDS.all(self.store.state())
        found = [
            (entry["time"], f"{record.name}: {entry['text']}")
            for name in dict.fromkeys(worker.node for worker in self.job.attempt.workers)
            if (record := records.get(name)) is not None
            for entry in record.history
            if entry["project"] in ("", self.job.project) and entry["time"] >= self.job.attempt.planned_at
        ]
        return [text for _, text in sorted(found)[-FINDINGS:]]


def _accelerator(job: Job | None, attempt: dict[str, Any]) -> str:
    """The device's name by its driver, else as the job asked for it."""
    environment = attempt.get("environment")
    devices = environment.get("devices") if isinstance(environment, dict) else None
    if isinstance(devices, list) and devices and isinstance(devices[0], dict) and devices[0].get("name"):
        return str(devices[0]["name"])[:NAME]
    return job.ask.accelerator if job is not None else ""


def _of(values: dict[str, list[float]], name: str) -> list[float]:
    """The values of a figure of all devices of a rank."""
    return [value for key, some in values.items() if _plain(key) == name for value in some]


def _most(values: dict[str, list[float]], name: str) -> float | None:
    """The highest mean of a figure over the devices of a rank."""
    means = [mean(some) for key, some in values.items() if _plain(key) == name]
    return max((one for one in means if one is not None), default=None)


def _plain(name: str) -> str:
    """The name of a series without its prefix and the place of its device."""
    return name.removeprefix("system/").partition(".")[0]


def _seconds(value: object) -> float | None:
    """A program may have put anything there."""
    return float(value) if isinstance(value, int | float) and 0 <= value < 2**33 else None


def _begin(looks: Sequence[Any]) -> float:
    return min((float(rank["time"]) for look in looks for rank in look), default=-inf)
