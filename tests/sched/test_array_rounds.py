"""Arrays under the scheduler: never more tasks at once than allowed, the same from the log alone, and all get done."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, note, settings
from hypothesis import strategies as st

from muster.core.array import array_of
from muster.core.plan import Plan
from muster.core.rules import QueueRules, Rules
from scheduler_kit import SchedulerLoop, fold
from streams import board_agrees, plan_is_sound

LONG = 20_000.0  # seconds


@dataclass
class Sweep:
    at: float
    tasks: int
    limit: int | None
    seconds: float
    gpus: int


sweeps = st.builds(
    Sweep,
    st.integers(0, 20).map(float),
    st.integers(1, 8),
    st.none() | st.integers(1, 3),
    st.integers(1, 30).map(float),
    st.integers(0, 2),
)
troubles = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from(["fail", "stop"]), st.integers(0, 2), st.integers(1, 8)), max_size=6
)


def array_limits_hold(loop: SchedulerLoop, plan: Plan) -> None:
    state, starts = loop.state, {start.job for start in plan.starts}
    for name in state.tasks:
        limit = array_of(state.jobs[name]).limit
        tasks = [job for job in state.jobs.values() if job.array == name]
        running = [job.id for job in tasks if job.active or job.id in starts]
        assert limit is None or len(running) <= limit, f"{running} of {name}"
        assert state.tasks[name].live == len(tasks)


@settings(max_examples=80, deadline=None)
@given(st.lists(sweeps, min_size=1, max_size=3), troubles)
def test_never_more_at_once_than_an_array_allows(case: list[Sweep], trouble: list[tuple[int, str, int, int]]):
    note(f"{case} {trouble}")
    loop = SchedulerLoop(
        Rules(defaults=QueueRules(order="fifo")), checks=[plan_is_sound, board_agrees, array_limits_hold]
    )
    loop.nodes(2, gpus=2)
    for number, sweep in enumerate(case):
        name = f"array-{number}"
        loop.after(sweep.at, lambda sweep=sweep, name=name: _submit(loop, sweep, name))
    for at, what, number, task in trouble:
        job = f"task-{number * 100 + task}"
        loop.after(float(at), {"fail": lambda job=job: loop.fail(job), "stop": lambda job=job: loop.stop(job)}[what])
    loop.run(until=40.0)
    again = fold(loop.log)
    assert (again.tasks, again.settled, again.live) == (loop.state.tasks, loop.state.settled, loop.state.live)
    loop.run(until=LONG)
    assert not loop.state.jobs, f"at {loop.now}: {loop.phases()}"
    assert not loop.state.tasks
    for number, sweep in enumerate(case):
        ends = [loop.ended[f"task-{number * 100 + i}"] for i in range(1, sweep.tasks + 1)]
        wanted = "failed" if "failed" in ends else "stopped" if "stopped" in ends else "succeeded"
        assert loop.ended[f"array-{number}"] == wanted


def _submit(loop: SchedulerLoop, sweep: Sweep, name: str) -> None:
    number = int(name.rpartition("-")[2])
    array = f"1-{sweep.tasks}" + (f"%{sweep.limit}" if sweep.limit else "")
    loop.submit(name, 0.0, array=array, gpus=sweep.gpus)
    for i in range(1, sweep.tasks + 1):
        task = f"task-{number * 100 + i}"
        loop.submit(task, sweep.seconds, array=array, gpus=sweep.gpus, parent=name, index=i)
