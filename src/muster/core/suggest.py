"""Suggestions for a name that is not known: the closest of the known ones, and the sentence that offers it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def close_matches(name: str, known: Iterable[str], most: int = 3, cutoff: float = 0.6) -> list[str]:
    """Known names that resemble this one, the closest first. `cutoff` is between 0 (any name) and 1 (the same)."""
    return get_close_matches(name, list(known), most, cutoff)


def closest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    return next(iter(close_matches(name, known, 1, cutoff)), None)


def did_you_mean(
    name: str, known: Iterable[str], otherwise: str | None = None, *, quote: str = "`", cutoff: float = 0.6
) -> str:
    """Offers the closest name; if there is none, says `otherwise`, or lists the known names in the given order."""
    names = list(known)
    near = closest(name, names, cutoff)
    if near is not None:
        return f"Did you mean {quote}{near}{quote}?"
    return f"There are: {', '.join(names)}." if otherwise is None else otherwise
