"""The interface of stopping rules: at which levels a study looks at a trial, and what follows.

A level is a number of steps or of reports, as the rule's option `by` says. When a trial passes one, the rule gives its
verdict. A paused trial has saved and left, and goes on from its checkpoint when the rule promotes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from muster.core.entities.study import Trial
from muster.tune.plugin import Named
from muster.tune.space import Value
from muster.tune.spec import By, StudySpec
from muster.tune.view import StudyView


@dataclass(frozen=True, slots=True)
class Verdict:
    """`exploit`: the trial ends, and another one goes on in its place with these parameters, from the checkpoint of the
    trial `source`."""

    do: Literal["go", "pause", "stop", "exploit"]
    note: str = ""
    source: int | None = None
    params: Mapping[str, Value] | None = None


@dataclass(frozen=True, slots=True)
class Promotion:
    """A paused trial that goes on."""

    number: int
    note: str


GO: Verdict = Verdict("go")


class Stopping(Named, Protocol):
    """Made for one study, from its spec and the options of its file, with their defaults. Options that contradict each
    other raise InvalidValue.

    Its methods are functions of their arguments: it may keep what it computed from a view, but a new instance decides
    the same.
    """

    ANY_ORDER: ClassVar[bool]  # whether the same trials go on, whichever of them reports first
    by: By

    def __init__(self, spec: StudySpec, options: Mapping[str, Any]) -> None: ...

    def next_level(self, trial: Trial) -> float | None:
        """The first level that the trial has not passed; None if there is none."""

    def verdict(self, view: StudyView, trial: Trial) -> Verdict:
        """What follows for a running trial that has just passed a level. The view has what it reported."""

    def promote(self, view: StudyView) -> Promotion | None:
        """The paused trial that goes on next, before a new one is asked for."""

    def bracket(self, view: StudyView, number: int) -> int:
        """The bracket of a new trial; 0 if the rule has none."""

    def may_ask(self, view: StudyView) -> bool:
        """Whether a new trial may start now. False: the rule waits for trials that run."""

    def rung_of(self, trial: Trial) -> int:
        """How many levels the trial is above the first, where it runs or will go on: 0 for a new one. For pools."""
