"""Several searchers that take turns. Each learns from all trials, whoever suggested them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from muster.tune.plugin import Option, Suggestion
from muster.tune.searchers.base import Searcher
from muster.tune.view import StudyView


class Portfolio:
    """Made from the list of a study file; it has no name of its own there."""

    NAME: ClassVar[str] = "portfolio"
    DESCRIPTION: ClassVar[str] = "several searchers that take turns"
    OPTIONS: ClassVar[tuple[Option, ...]] = ()
    OBJECTIVES: ClassVar[int] = 100  # each member has a limit of its own

    def __init__(self, members: Sequence[Searcher]) -> None:
        self._members = members

    def ask(self, view: StudyView, number: int) -> Suggestion | None:
        """One that has no point left is passed over."""
        first = number % len(self._members)
        for member in [*self._members[first:], *self._members[:first]]:
            if (found := member.ask(view, number)) is not None:
                return found
        return None
