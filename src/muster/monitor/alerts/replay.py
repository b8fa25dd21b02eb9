"""Replays what happened through rules: which alerts they would have raised, for whom, and for how long. Pure.

The events rebuild the state at each look, as they did when they happened. Alerts that rules raised then are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from muster.core.entities.alert import Alert, AlertFired, AlertResolved
from muster.core.event import Event
from muster.core.state import State, apply
from muster.monitor.alerts.evaluate import evaluate, exists_in, read_signals
from muster.monitor.alerts.figures import Figures
from muster.monitor.alerts.recent import Recent
from muster.monitor.alerts.rule import RuleSet
from muster.monitor.alerts.signals.base import View
from muster.monitor.alerts.track import Track

LOOKS: Final = 10_000  # at most, about; a longer period is looked at less often
LEAST, MOST = 60.0, 300.0  # seconds between two looks
SOON: Final = 5.0  # seconds between two looks when something has happened
EXAMPLES: Final = 5  # of a rule
# They come from reports that are not kept, so that nothing can be said about them.
UNKNOWN: Final = frozenset({
    "data_wait", "rank_wait", "save_share", "node_disk", "node_network_errors", "server_behind", "server_disk",
    "messages_waiting", "budget_used", "budget_forecast", "cost_spike", "cost_without_improvement",
})  # fmt: skip
_LEFT_OUT: Final = ("alert.", "silence.")


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a metric of a rank."""

    time: float
    run: str
    attempt: int
    rank: int
    name: str
    step: int
    value: float


@dataclass(slots=True)
class Tested:
    """What one rule would have raised."""

    fired: int = 0
    subjects: set[str] = field(default_factory=set)
    projects: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0  # for which alerts fired
    accelerator_seconds: float = 0.0  # that their runs held meanwhile
    first: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Replayed:
    rules: dict[str, Tested]
    until: float  # the end of what was replayed
    events: int = 0


def replay(
    rules: RuleSet,
    events: Iterable[Event],
    points: Iterable[Point],
    since: float,
    until: float,
    enough: Callable[[], bool] = lambda: False,
) -> Replayed:
    """`events`: the whole log, `points`: in the order of time. `enough` ends it early, such as after a minute."""
    every = step_of(since, until)
    world = World(rules, Replayed({name: Tested() for name in rules.rules}, since), figures=Figures(2 * every))
    arriving = _Arriving(iter(points))
    look_at = since
    for event in events:
        while event.time > look_at and look_at <= until and not enough():
            world.take_points(arriving.until(look_at))
            world.look(look_at, 2 * every)
            look_at += every
        if look_at > until or enough():
            break
        happened = world.take(event)
        world.found.events += event.time >= since
        if happened and event.time >= max(since, world.looked + SOON):
            world.look(event.time, 2 * every)
    while look_at <= until and not enough():
        world.take_points(arriving.until(look_at))
        world.look(look_at, 2 * every)
        look_at += every
    world.found.until = min(until, look_at - every)
    return world.found


def step_of(since: float, until: float) -> float:
    """Seconds between two looks."""
    return min(MOST, max(LEAST, (until - since) / LOOKS))


class _Arriving:
    """Gives points as their time comes."""

    def __init__(self, points: Iterator[Point]) -> None:
        self._points = points
        self._next = next(points, None)

    def until(self, time: float) -> Iterator[Point]:
        while self._next is not None and self._next.time <= time:
            yield self._next
            self._next = next(self._points, None)


@dataclass(slots=True)
class World:
    """A state that is looked at as time passes."""

    rules: RuleSet
    found: Replayed
    state: State = field(default_factory=State)
    figures: Figures = field(default_factory=Figures)
    recent: Recent = field(default_factory=Recent)
    tracks: Mapping[str, Track] = field(default_factory=dict)
    alerts: dict[str, Alert] = field(default_factory=dict)
    quiet: bool = False  # nothing has happened and nothing was pending at the last look
    looked: float = 0.0

    def take(self, event: Event) -> bool:
        """Whether the event is one that signals count."""
        if event.kind.startswith(_LEFT_OUT):
            return False
        apply(self.state, event)
        return self.note(event)

    def note(self, event: Event) -> bool:
        """As `take`, for a state that has the event already."""
        self.quiet = False
        return self.recent.take(event)

    def take_points(self, points: Iterable[Point]) -> None:
        for one in points:
            columns = ([one.step], [one.time], [one.value])
            self.figures.take(one.run, one.attempt, one.rank, one.name, columns, one.time)
            self.quiet = False

    def look(self, now: float, gap: float) -> None:
        passed, self.looked = min(gap, now - self.looked), now
        if self.quiet and not self.state.active and not any(self.state.lines.values()):
            return  # nobody runs and nobody waits
        for alert in self.alerts.values():
            self._count(alert, passed)
        readings = read_signals(self.rules, View(self.state, now, self.figures, self.recent))
        out = evaluate(self.rules, readings, self.tracks, self.alerts, exists_in(self.state), now, gap)
        for fired in out.fired:
            self._fire(fired, now)
        for end in out.resolved:
            self._resolve(end)
        self.tracks, self.quiet = out.tracks, not out.tracks
        self.recent.forget(now)

    def _fire(self, fired: AlertFired, now: float) -> None:
        parts = (fired.rule, fired.severity, fired.subject, fired.value, fired.text, fired.facts, fired.since, now)
        self.alerts[fired.key] = Alert(fired.key, len(self.alerts) + 1, *parts)
        tested = self.found.rules[fired.rule]
        tested.fired += 1
        tested.subjects.add(fired.subject["name"])
        tested.projects[fired.subject["project"] or "-"] += 1
        if len(tested.first) < EXAMPLES:
            tested.first.append(f"{fired.subject['title']} ({fired.subject['name']}): {fired.text}")

    def _resolve(self, end: AlertResolved) -> None:
        del self.alerts[end.key]

    def _count(self, alert: Alert, seconds: float) -> None:
        tested = self.found.rules[alert.rule]
        tested.seconds += seconds
        job = self.state.jobs.get(alert.subject["name"]) if alert.subject["kind"] == "run" else None
        if job is not None and job.active:
            tested.accelerator_seconds += seconds * job.nodes * job.ask.accelerators
