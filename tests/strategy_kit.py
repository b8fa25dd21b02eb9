"""Strategies that are made once. One that is made while another draws from it is checked anew each time, which takes
longer than the drawing."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st


@cache
def pick(*options: Any) -> st.SearchStrategy[Any]:
    """One of these."""
    return st.sampled_from(options)
