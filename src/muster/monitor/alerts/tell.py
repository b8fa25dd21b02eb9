"""Which alerts are told to whom, and when: silences, inhibition and groups. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from muster.core.entities.alert import Alert, Silence
from muster.monitor.alerts.rule import RuleSet


@dataclass(frozen=True, slots=True)
class Notice:
    """One message: alerts of one group that fire, and some that have ended."""

    group: str
    firing: tuple[Alert, ...]
    resolved: tuple[Alert, ...]

    @property
    def keys(self) -> list[str]:
        return [alert.key for alert in (*self.firing, *self.resolved)]


def muted(rules: RuleSet, alerts: Mapping[str, Alert], silences: Iterable[Silence], now: float) -> dict[str, str]:
    """Alerts that are not told and not acted on, each with why."""
    live = [silence for silence in silences if silence.until > now]
    found = {
        alert.key: f"silenced by {silence.by}: {silence.why}"
        for alert in alerts.values()
        for silence in live
        if silence.covers(alert)
    }
    return found | _inhibited(rules, alerts, found)


def _inhibited(rules: RuleSet, alerts: Mapping[str, Alert], silenced: Mapping[str, str]) -> dict[str, str]:
    """Alerts on the subject, or on a node, of one that fires and explains them. A silenced one explains them too."""
    stronger: dict[tuple[str, str], Alert] = {}  # (rule, subject or node) → the alert that inhibits it
    for alert in alerts.values():
        rule = rules.rules.get(alert.rule)
        if rule is None or alert.resolved_at is not None:
            continue
        about = _subject(alert)
        places = [about, *(f"node/{node}" for node in alert.subject["nodes"])] if about.startswith("node/") else [about]
        for name in rule.inhibits:
            for place in places:
                stronger[(name, place)] = alert
    found = {}
    for alert in alerts.values():
        for place in (_subject(alert), *(f"node/{node}" for node in alert.subject["nodes"])):
            by = stronger.get((alert.rule, place))
            if by is not None and by.key != alert.key and alert.key not in silenced:
                found[alert.key] = f"explained by {by.rule} of {by.subject['title']}"
    return found


def due(rules: RuleSet, alerts: Mapping[str, Alert], quiet: Mapping[str, str], now: float) -> list[Notice]:
    """The messages that are due now. `quiet`: alerts that are not told; see `muted`.

    A group is told `wait` after its first alert, again when it changes but not sooner than after `interval`, and every
    `repeat` while something of it fires that nobody has acknowledged. Its end is told at once when nothing of it fires
    any more.
    """
    groups: defaultdict[str, list[Alert]] = defaultdict(list)
    for alert in alerts.values():
        if alert.key not in quiet or (alert.told_at is not None and alert.resolved_at is not None):
            groups[alert.group].append(alert)
    return [notice for name, group in groups.items() if (notice := _notice(rules, name, group, now)) is not None]


def _notice(rules: RuleSet, name: str, group: Sequence[Alert], now: float) -> Notice | None:
    times = rules.groups
    firing = [alert for alert in group if alert.resolved_at is None]
    resolved = [alert for alert in group if alert.resolved_at is not None]
    new = [alert for alert in firing if alert.told_at is None]
    last = max((alert.told_at for alert in group if alert.told_at is not None), default=None)
    rested = last is None or now - last >= times.interval or now < last
    if new and rested and now - min(alert.fired_at for alert in new) >= times.wait:
        return Notice(name, tuple(firing), tuple(resolved))
    if resolved and (rested or not firing):
        return Notice(name, tuple(firing), tuple(resolved))
    unseen = any(alert.acked_at is None for alert in firing)
    if unseen and not new and last is not None and now - last >= times.repeat:
        return Notice(name, tuple(firing), ())
    return None


def _subject(alert: Alert) -> str:
    return f"{alert.subject['kind']}/{alert.subject['name']}"
