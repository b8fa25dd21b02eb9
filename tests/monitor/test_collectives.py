"""Which ranks are behind in their collectives: on any program whose ranks begin the same ones in the same order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.monitor.activity import RankActivity
from muster.monitor.collectives import late_ranks

SIDE = 3  # a mesh of 3 × 3 ranks, with groups by row, by column and of all
DIMENSIONS = ("row", "column", "all")


def members(dimension: str, rank: int) -> tuple[str, list[int]]:
    """The name of a rank's group, and its ranks."""
    row, column = divmod(rank, SIDE)
    if dimension == "row":
        return f"r{row}", [row * SIDE + each for each in range(SIDE)]
    if dimension == "column":
        return f"c{column}", [each * SIDE + column for each in range(SIDE)]
    return "all", list(range(SIDE * SIDE))


def begun_until_all_wait(program: list[str], stuck: int, at: int) -> list[int]:
    """How many collectives of the program each rank has begun, if one begins no more than `at`."""
    begun = [0] * (SIDE * SIDE)
    moved = True
    while moved:
        moved = False
        for rank, count in enumerate(begun):
            waits = count > 0 and any(begun[other] < count for other in members(program[count - 1], rank)[1])
            if count < (at if rank == stuck else len(program)) and not waits:
                begun[rank], moved = count + 1, True
    return begun


def activity(rank: int, counts: dict[str, int], steps: int = 0) -> RankActivity:
    return RankActivity(rank, 0, steps=steps, collectives=counts, no_collective=60.0)


@given(st.lists(st.sampled_from(DIMENSIONS), min_size=1, max_size=12), st.integers(0, SIDE**2 - 1), st.data())
def test_the_rank_that_begins_no_more_is_found_in_groups_of_any_shape(
    program: list[str], stuck: int, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(program) - 1))
    ranks = []
    for rank, count in enumerate(begun_until_all_wait(program, stuck, at)):
        counts = {members(dimension, rank)[0]: 1000 for dimension in DIMENSIONS}
        for dimension in program[:count]:
            counts[members(dimension, rank)[0]] += 1
        ranks.append(activity(rank, counts))
    assert set(late_ranks(ranks)) == {stuck}


def test_counts_that_grow_apart_are_no_sign() -> None:
    pipeline = [activity(rank, {"pp": count}, steps=100) for rank, count in enumerate([800, 900, 900, 800])]
    assert late_ranks(pipeline) == {}
    assert late_ranks([activity(rank, {"pp": count}) for rank, count in enumerate([400, 800, 800, 400])]) == {}


def test_a_count_that_is_not_known_now_is_left_out() -> None:
    ranks = [activity(rank, {"0": count}) for rank, count in enumerate([10, 12, 12])]
    assert late_ranks(ranks) == {0: 2}
    ranks[0].no_collective = None
    assert late_ranks(ranks) == {}
