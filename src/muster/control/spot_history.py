"""How often nodes of spot pools were taken away lately, from the attempts that ran there; kept for some minutes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from muster.control.node_health import is_spot
from muster.core.entities.price_book import prices_of
from muster.core.job import Attempt
from muster.core.state import State
from muster.cost.estimate import HOUR, SpotRisk
from muster.track.failures import attempts_since
from muster.track.tracking import Tracking

LOOKED: Final = 30 * 86_400.0  # seconds back
KEPT_FOR: Final = 600.0  # seconds
# Ends for which the machine went away. Those that the scheduler or an alert decided say nothing of it.
INTERRUPTED: Final = frozenset({"spot_notice", "node_lost", "launcher_lost"})


class SpotHistory:
    def __init__(self, track: Tracking | None) -> None:
        self._track = track
        self._kept: tuple[float, Mapping[str, SpotRisk]] = (float("-inf"), {})

    def risks(self, state: State, now: float) -> Mapping[str, SpotRisk]:
        """Spot pool → its interruptions in the last month, of all projects; nothing where nothing has a price."""
        spot = {name for name in state.pools if is_spot(state, name)}
        if self._track is None or not spot or not prices_of(state).any:
            return {}
        at, known = self._kept
        if not 0 <= now - at < KEPT_FOR or set(known) != spot:
            attempts = [one for one, _ in attempts_since(self._track.db, None, now - LOOKED)]
            known = spot_risks(attempts, spot, now)
            self._kept = (now, known)
        return known


def spot_risks(attempts: Iterable[Attempt], spot: Iterable[str], now: float) -> dict[str, SpotRisk]:
    """Pool → interruptions and node-hours."""
    counts, hours = dict.fromkeys(spot, 0), dict.fromkeys(spot, 0.0)
    for one in attempts:
        if one.pool not in counts:
            continue
        end = now if one.ended_at is None else one.ended_at
        hours[one.pool] += len(one.workers) * max(end - one.planned_at, 0.0) / HOUR
        counts[one.pool] += one.ended_at is not None and one.reason is not None and one.reason.code in INTERRUPTED
    return {pool: SpotRisk(counts[pool], hours[pool]) for pool in counts}
