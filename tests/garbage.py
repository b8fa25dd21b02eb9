"""The garbage collector while tests run: it leaves alone what collecting the tests has made, which stays to the end.

A replay has the collector look through everything before it begins, and leaves nothing frozen behind: with two million
objects of torch and of the tests themselves in the process, that took it ten times as long as its work.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_thaw = gc.unfreeze


def settle() -> None:
    """What there is now is not looked at again, whoever thaws what he froze."""
    gc.collect()
    gc.freeze()
    gc.unfreeze = _nothing


@contextmanager
def as_in_other_processes() -> Iterator[None]:
    """Nothing is frozen, and thawing thaws."""
    gc.unfreeze = _thaw
    gc.unfreeze()
    try:
        yield
    finally:
        settle()


def _nothing() -> None:
    pass
