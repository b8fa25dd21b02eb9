"""Checks what may be reported: returns the numbers and names of a call, or raises an error that names the bad one."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Final, SupportsFloat, SupportsIndex

from muster import wire
from muster.runtime.plain import text

KEY_MAX: Final = 250  # characters in the name of a parameter, tag or medium
VALUE_MAX: Final = 8000  # characters in a tag's value

Number = SupportsFloat | SupportsIndex


def explain(step: SupportsIndex, metrics: dict[str, Number]) -> tuple[int, list[float]]:
    """The numbers of a report; raises an error that says which value is not a number."""
    return whole(step), [_number(step, name, value) for name, value in metrics.items()]


def _number(step: SupportsIndex, name: str, value: Number) -> float:
    try:
        if isinstance(value, str | bytes | bytearray):
            raise TypeError("text is not converted")
        return float(value)
    except OverflowError:
        raise ValueError(f"report(step={step}): metric {name!r} is past the range of a 64-bit float.") from None
    except Exception as error:
        raise TypeError(
            f"report(step={step}): metric {name!r} got {short(value)} ({type(value).__name__}); expected one number. "
            f"Pass a float, or leave it out. ({error})"
        ) from error


def whole(step: SupportsIndex) -> int:
    try:
        number = index(step)
    except TypeError:
        raise TypeError(
            f"step got {short(step)} ({type(step).__name__}); expected a whole number. Pass int(step)."
        ) from None
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"step got {short(step)}; expected a number of 64 bits. Count steps from 0.")
    return number


def mapping(values: Mapping[str, Number]) -> dict[str, Number]:
    try:
        found = dict(values)
    except (TypeError, ValueError):
        raise TypeError(
            f"log() got {short(values)} ({type(values).__name__}); expected a mapping of names to numbers."
        ) from None
    if wrong := [name for name in found if not isinstance(name, str)]:
        raise TypeError(f"log(): a metric's name got {short(wrong[0])}; expected text.")
    return found


def check_keys(where: str, values: Mapping[str, object]) -> None:
    for key in values:
        if not isinstance(key, str) or not 0 < len(key) <= KEY_MAX or key != text(key):
            raise ValueError(
                f"{where}: a name got {short(key)}; expected a text of 1 to {KEY_MAX} characters without NUL."
            )


def check_name(name: str) -> None:
    if not 0 < len(name) <= wire.NAME_MAX:
        raise ValueError(
            f"report(): a metric's name of {len(name)} characters, {short(name)}; expected 1 to {wire.NAME_MAX}."
        )
    if name != text(name):
        raise ValueError(
            f"report(): metric {short(name)} has a NUL or half a surrogate pair in its name. Use other characters."
        )


def short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
