"""What a command line sets, and how values become text and numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.track.facts import command_params, flat, number_of, same_value, text_of


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python train.py --lr 3e-4", {"lr": "3e-4"}),
        ("python train.py --lr=3e-4 --name 'a b'", {"lr": "3e-4", "name": "a b"}),
        ("python train.py --learning-rate $LR", {"learning_rate": "0.1"}),
        ("python train.py --out ${LR}x --fp16 --x -1.5 -b 4", {"out": "0.1x", "fp16": "True", "x": "-1.5", "b": "4"}),
        ("torchrun --nproc_per_node 4 train.py --lr 1", {"lr": "1"}),
        ("python -m muster.train config.yaml optim.lr=1 +model=gpt", {"optim.lr": "1", "model": "gpt"}),
        ("LR=1 ./train --a 1", {"a": "1"}),
        ("cd x && python a.py --a 1; python b.py --b 2", {"a": "1", "b": "2"}),
        ("python a.py --a 1 --no-bar --a 2", {"a": "2", "no_bar": "True"}),
        ("python a.py --unclosed 'quote", {}),
        ("python a.py # --lr 1", {}),
        (
            'export MUSTER_PARAMS=\'{"lr": 0.1, "act": "relu"}\'\npython a.py --a 1',
            {"lr": "0.1", "act": "relu", "a": "1"},
        ),
        ("export MUSTER_PARAMS='[1'\npython a.py --a 1", {"a": "1"}),
        ("true", {}),
        ("", {}),
    ],
)
def test_what_a_command_line_sets(command: str, found: dict[str, str]) -> None:
    assert command_params(command, {"LR": "0.1"}) == found


@given(st.text(max_size=200), st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
def test_no_command_line_breaks_it(command: str, envs: dict[str, str]) -> None:
    found = command_params(command, envs)
    assert all(0 < len(key) <= 250 for key in found)


@pytest.mark.parametrize(
    ("text", "number"),
    [("3e-4", 3e-4), ("-1", -1.0), (" 7 ", 7.0), (".5", 0.5), ("True", None), ("nan", None), ("inf", None),
     ("1_000", None), ("1e999", None), ("", None), ("0x10", None), ("9" * 500, None)],
)  # fmt: skip
def test_numbers(text: str, number: float | None) -> None:
    assert number_of(text) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_back(value: float) -> None:
    assert number_of(text_of(value)) == value
    assert same_value(text_of(value), repr(value))


def test_nested_values_get_dotted_names() -> None:
    given = {"a": {"b": 1, "c": {"d": [1, {"x": 2}]}}, "e": None, "f": {}, "g": True, "h": math.inf}
    assert flat(given) == {"a.b": "1", "a.c.d": '[1,{"x":2}]', "e": "None", "f": "{}", "g": "True", "h": "inf"}
