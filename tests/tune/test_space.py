"""Spaces: points, places and coordinates of any space, and expressions that can't do anything but compare."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.units import InvalidValue
from muster.tune.expression import parse_expression
from muster.tune.space import Parameter, Space, key_of

numbers = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))
floats = st.builds(
    lambda low, width, step: Parameter("x", "float", low, low + width, False, step),
    numbers, st.floats(0.5, 1e3), st.sampled_from([None, 0.1]),
)  # fmt: skip
logs = st.builds(
    lambda low, times: Parameter("x", "float", low, low * times, True), st.floats(1e-8, 1), st.floats(1.5, 1e6)
)
ints = st.builds(
    lambda low, width, step: Parameter("x", "int", low, low + width, False, float(step)),
    st.integers(-1000, 1000), st.integers(0, 1000), st.integers(1, 7),
)  # fmt: skip
int_logs = st.builds(
    lambda low, times: Parameter("x", "int", low, low * times, True), st.integers(1, 50), st.integers(1, 99)
)
choices = st.lists(
    st.one_of(st.booleans(), st.integers(-5, 5), numbers, st.text(max_size=3)), min_size=1, max_size=6, unique_by=repr
).map(lambda values: Parameter("x", "choice", choices=tuple(values)))  # fmt: skip
parameters = st.one_of(floats, logs, ints, int_logs, choices)


def named(found: list[Parameter]) -> Space:
    return Space(tuple(Parameter(**{**vars_of(one), "name": f"p{index}"}) for index, one in enumerate(found)))


def vars_of(one: Parameter) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__dataclass_fields__}


@given(parameters, st.floats(0, 1))
def test_any_place_is_a_value_of_the_parameter_and_stays_it(one: Parameter, place: float) -> None:
    value = one.at(place)
    assert one.fits(value)
    assert one.at(one.place(value)) == value
    assert all(0 <= each <= 1 for each in one.coordinates(value))
    assert len(one.coordinates(value)) == one.width


@given(st.lists(parameters, min_size=1, max_size=4), st.data())
def test_points_of_a_space_fit_it_and_its_json_keeps_it(found: list[Parameter], data: st.DataObject) -> None:
    space = named(found)
    places = data.draw(st.lists(st.floats(0, 1), min_size=len(found), max_size=len(found)))
    params = space.at(places)
    assert space.fits(params)
    assert len(space.coordinates(params)) == space.width
    assert Space.of(json.loads(json.dumps(space.to_doc()))) == space


@given(st.lists(parameters, min_size=1, max_size=3))
def test_a_space_that_can_be_counted_has_as_many_points(found: list[Parameter]) -> None:
    space = named(found)
    if space.size is not None and space.size <= 3000:
        points = [key_of(point) for point in space.points()]
        assert len(points) == len(set(points)) == space.size
        assert all(space.fits(point) for point in space.points())


def test_a_parameter_is_there_if_its_condition_holds() -> None:
    space = Space((
        Parameter("model", "choice", choices=("deep", "wide")),
        Parameter("depth", "int", 2, 4, step=1.0, when="model == 'deep'"),
        Parameter("extra", "choice", choices=(1, 2), when="depth > 3"),
    ))  # fmt: skip
    assert [dict(point) for point in space.points()] == [
        {"model": "deep", "depth": 2}, {"model": "deep", "depth": 3}, {"model": "deep", "depth": 4, "extra": 1},
        {"model": "deep", "depth": 4, "extra": 2}, {"model": "wide"},
    ]  # fmt: skip
    assert space.size == 5
    assert space.fits({"model": "wide"})
    assert not space.fits({"model": "wide", "depth": 2})
    assert not space.fits({"model": "deep"})
    assert space.at([0.9, 0.5, 0.5]) == {"model": "wide"}


def test_values_of_other_types_are_other_points() -> None:
    assert key_of({"a": 1}) != key_of({"a": True})
    assert key_of({"a": 1}) != key_of({"a": 1.0})
    one = Parameter("a", "choice", choices=(1, True, "1"))
    assert [one.fits(value) for value in (1, True, "1", 1.0, False)] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("text", "names", "value"),
    [
        ("model == 'deep' and depth > 4", {"model": "deep", "depth": 5}, True),
        ("memory < 70GB", {"memory": 71e9}, False),
        ("seconds < 2h", {"seconds": 7199}, True),
        ("not (a or b)", {"a": 0, "b": 0}, True),
        ("1 < a <= 3", {"a": 3}, True),
        ("a in [1, 2]", {"a": 2}, True),
        ("min(a, b) * 2 >= -b / 4", {"a": 1, "b": 4}, True),
        ("a < 1", {}, None),
        ("a / 0 < 1", {"a": 1}, None),
        ("'x' * 9 == 1", {}, None),
    ],
)
def test_an_expression_says_whether_it_holds(text: str, names: dict[str, Any], value: bool | None) -> None:
    assert parse_expression(text).holds(names) is value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('x')", "a.b == 1", "a[0] == 1", "(lambda: 1)()", "[x for x in a]", "a ** 9 > 1",
        "f'{a}'", "print(a)", "a if b else c", "a :=  1", "open('x')", "", "a >", "{'a': 1}", "min()", "a << 3",
        "(" * 60 + "a" + ")" * 60 + " > " * 0 + " + 1" * 300, "1" + " + 1" * 30,
    ],
)  # fmt: skip
def test_nothing_else_can_be_written(text: str) -> None:
    with pytest.raises(InvalidValue):
        parse_expression(text)


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_expression("modle == 1", frozenset({"model"}))
    assert "Did you mean `model`?" in caught.value.hint
