"""The history of run times: what it keeps between two ends is what it would compute afresh."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from muster.core.history import History, groups_of
from muster.core.spec import JobSpec

USERS, NAMES = ("ada", "bob"), ("train", "train-1", "sweep-12-7", "eval")


def spec(name: str, nodes: int = 1) -> JobSpec:
    return JobSpec(name=name, project="vision", run="true", num_nodes=nodes)


def test_groups_go_from_wide_to_narrow_and_ignore_numbers_at_the_end_of_a_name() -> None:
    who, size = ("vision", "ada"), ("vision", "ada", "train 2x0")
    assert groups_of("ada", spec("sweep-12-7", 2)) == (who, size, (*size, "sweep"))
    assert groups_of("ada", spec("sweep-9", 2)) == groups_of("ada", spec("sweep", 2))
    assert groups_of("bob", spec("sweep", 2)) != groups_of("ada", spec("sweep", 2))
    assert groups_of("ada", spec("a1b-2", 2))[-1] == (*size, "a1b")


jobs = st.tuples(st.sampled_from(USERS), st.sampled_from(NAMES), st.floats(0.5, 1e6))


@given(steps=st.lists(st.tuples(jobs, st.booleans()), min_size=1, max_size=60), step=st.integers(0, 22))
def test_what_is_kept_between_two_ends_is_what_would_be_computed(
    steps: list[tuple[tuple[str, str, float], bool]], step: int
) -> None:
    kept = History()
    for (user, name, seconds), ends in steps:
        groups = groups_of(user, spec(name))
        if ends:
            kept.observe(groups, seconds)
            continue
        fresh = deepcopy(kept)
        fresh._cached.clear()
        fresh._hazards.clear()
        assert kept.value(groups, step) == fresh.value(groups, step)
        assert kept.quantile(groups, 0.5) == fresh.quantile(groups, 0.5)
        assert kept.hazards(groups, step) == fresh.hazards(groups, step) == fresh.hazards(groups)[step:]
