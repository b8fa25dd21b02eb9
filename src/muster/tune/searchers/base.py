"""The searcher interface: which point of the space a study tries next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from muster.tune.plugin import Named, Suggestion
from muster.tune.spec import StudySpec
from muster.tune.view import StudyView


class Searcher(Named, Protocol):
    """Made for one study, from its spec and the options of its file, with their defaults.

    `ask` is a function of the view and the number alone: a searcher that was made anew suggests what one would that has
    followed the study from its beginning. It may keep what it computed from trials that have ended, which never change
    again. Trials that run are in the view: a searcher that is asked many times in a row avoids what it suggested.
    """

    OBJECTIVES: ClassVar[int]  # how many it can search by at once

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None: ...

    def ask(self, view: StudyView, number: int) -> Suggestion | None:
        """The point of trial `number`; None if there is none left to try. It never suggests a point more often than
        `replicates` of the spec allows, if the space has points left."""
