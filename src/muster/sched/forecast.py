"""Start-time forecasts for queued jobs: the real scheduler runs forward over many simulated futures.

Run times come from finished jobs and, for running jobs that report it, from their own progress. Future submissions and
node failures are left out, because they are unknown. The cost is limited by the number of jobs and of rounds, never by
a clock, so the same state gives the same answer. A forecast that was cut short says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from muster.api.why import ForecastView
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.draws import Draw, Draws
from muster.sched.future import GRAIN, LEAVES, Future
from muster.sched.snapshot import Snapshot, take

SAMPLES: Final = 16
ROUNDS: Final = 3_000  # over all samples, for a small cluster; a round of a large one counts more
HORIZON: Final = 30 * 86_400.0  # seconds
FEWEST: Final = 4  # minimum samples for a P90


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a job starts, in seconds since 1970: by `p50` in half of the futures, by `p90` in nine of ten.

    None where the job did not start in that many futures. Then it does not start before `after`, or, with `never`,
    not at all unless something else changes.
    """

    job: str
    at: float  # when this forecast was made
    p50: float | None
    p90: float | None
    samples: int
    after: float | None = None
    never: bool = False
    cut: tuple[str, ...] = ()  # what was cut short: "jobs" were left out, "rounds" ran out, the "horizon" was reached
    considered: int = 0  # jobs

    def to_dict(self) -> ForecastView:
        return {
            "job": self.job,
            "at": self.at,
            "p50": self.p50,
            "p90": self.p90,
            "samples": self.samples,
            "after": self.after,
            "never": self.never,
            "cut": list(self.cut),
            "considered": self.considered,
        }


def forecast(
    state: State,
    now: float,
    board: Board | None = None,
    jobs: Iterable[str] = (),
    samples: int = SAMPLES,
    horizon: float = HORIZON,
    rounds: int = ROUNDS,
) -> dict[str, Forecast]:
    """Forecasts for these queued jobs, from the same futures."""
    asked = list(jobs)
    snapshot = take(state, Board() if board is None else board, now, asked)
    return forecast_snapshot(snapshot, asked, samples, horizon, rounds)


def forecast_snapshot(
    snapshot: Snapshot,
    jobs: Sequence[str],
    samples: int = SAMPLES,
    horizon: float = HORIZON,
    rounds: int = ROUNDS,
    draw: Draw | None = None,
    leaves: float = LEAVES,
    grain: float = GRAIN,
) -> dict[str, Forecast]:
    """As `forecast`, from a snapshot, without the live state. `draw`: a better source of run times, if there is one."""
    learns = draw is not None
    left_of = {job: max(at - snapshot.now, 0.0) for job, at in snapshot.ends.items()}
    draw = draw or Draws(snapshot.history, samples, left_of)
    starts: dict[str, list[float]] = {name: [] for name in jobs}
    reached: list[float] = []
    left, cut = float(rounds), {"jobs"} if snapshot.left_out else set[str]()
    for sample in range(samples):
        future = Future(snapshot, draw, sample, leaves, grain, learns)
        done = future.run(set(jobs), snapshot.now + horizon, left)
        left -= future.cost
        for name in jobs:
            starts[name].append(future.started.get(name, inf))
        if not done:
            cut |= {"rounds"} if left <= 0 else {"horizon"} if future.now < inf else set()
            reached.append(future.now)
        if left <= 0 and sample + 1 < samples:
            cut.add("rounds")
            break
    return {name: _forecast(name, snapshot, found, reached, cut) for name, found in starts.items()}


def _forecast(name: str, snapshot: Snapshot, starts: list[float], reached: list[float], cut: set[str]) -> Forecast:
    ordered = sorted(starts)
    p50, p90 = (_quantile(ordered, share) for share in (0.5, 0.9))
    finite = [time for time in reached if time < inf]
    unseen = p90 is None
    never = unseen and bool(reached) and not finite
    after = min(finite) if unseen and finite else None
    if len(ordered) < FEWEST:
        p90 = None
    limits = tuple(one for one in ("jobs", "rounds", "horizon") if one in cut and (unseen or one != "horizon"))
    return Forecast(name, snapshot.now, p50, p90, len(ordered), after, never, limits, len(snapshot.jobs))


def _quantile(ordered: list[float], share: float) -> float | None:
    """Nearest-rank quantile, so the result is a start time that occurred; None if it is inf."""
    if not ordered:
        return None
    found = ordered[max(-(-int(share * 100) * len(ordered) // 100) - 1, 0)]
    return found if found < inf else None
