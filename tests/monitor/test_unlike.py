"""Which ranks are unlike the others: one that stands out, never half of them, and nothing of two."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.monitor.unlike import MEASURES, unlike

FIGURES = st.fixed_dictionaries({name: st.none() | st.floats(0, 1e6) for name in MEASURES})


def test_the_rank_that_is_unlike_the_others_is_named_with_what_is_unlike() -> None:
    ranks = {rank: {"device_use": 0.95, "cpu": 1.0, "power": 600.0} for rank in range(8)}
    ranks[3] = {"device_use": 0.12, "cpu": 1.1, "power": 120.0}
    assert unlike(ranks) == {3: ["device use 12%, the others 95%", "power 120 W, the others 600 W"]}


def test_small_differences_and_two_halves_say_nothing() -> None:
    assert unlike({rank: {"cpu": 1.0 + 0.05 * rank, "device_use": 0.9 - 0.01 * rank} for rank in range(8)}) == {}
    assert unlike({rank: {"device_use": 0.1 if rank % 2 else 0.9} for rank in range(8)}) == {}
    assert unlike({0: {"cpu": 0.0}, 1: {"cpu": 9.0}}) == {}


@given(st.dictionaries(st.integers(0, 20), FIGURES, max_size=12))
def test_fewer_than_half_stand_out_by_each_figure(ranks: dict[int, dict[str, float | None]]) -> None:
    for name in MEASURES:
        alone = {rank: {name: one[name]} for rank, one in ranks.items()}
        assert 2 * len(unlike(alone)) < max(1, len(ranks))
