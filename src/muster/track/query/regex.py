"""Regular expressions in linear time, whatever the pattern, so that no pattern can hang a server.

The syntax is common to Python and PostgreSQL: literals, `.`, classes, `\\d \\w \\s`, groups, `|`, `* + ? {m,n}`, `^`
and `$` for the ends of the whole text. Matching ignores case. A pattern is compiled to a small program, which runs all
its threads at once; known sets of threads are cached as states. Every test and every step of a program is charged to a
budget, so that even the longest text ends within it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from muster.track.query.pattern import BadPattern, Step, program

__all__ = ["BadPattern", "Budget", "Matcher", "Spent", "check", "is_plain"]

_REMEMBERED: Final = 500  # cached states
_STEP: Final = 4  # cost of a test or a step of a program, relative to a character that is only skipped
_MOVES: Final = 20_000  # cached transitions between states
_SPECIAL: Final = frozenset("\\^$.|?*+()[]{}")


def is_plain(pattern: str) -> bool:
    """Whether it has no special characters."""
    return not set(pattern) & _SPECIAL


def check(pattern: str) -> None:
    """Raises BadPattern if the pattern is invalid or too large."""
    program(pattern)


class Spent(Exception):
    """The budget is used up."""


@dataclass(slots=True)
class Budget:
    """Remaining work, in skipped characters: about four million per second."""

    left: int

    def spend(self, work: int) -> None:
        self.left -= work
        if self.left < 0:
            raise Spent


@dataclass(slots=True)
class Matcher:
    """Tells whether a pattern occurs in a text. For one thread. Raises Spent if the budget is used up."""

    program: list[Step]
    budget: Budget
    _known: int = 0
    _numbers: dict[frozenset[int], int] = field(default_factory=dict)
    _sets: list[frozenset[int]] = field(default_factory=list)
    _next: list[dict[str, int]] = field(default_factory=list)

    @classmethod
    def of(cls, pattern: str, budget: Budget) -> Matcher:
        steps = program(pattern)
        budget.spend(_STEP * len(steps))
        return cls(steps, budget)

    def occurs(self, text: str) -> bool:
        self.budget.spend(len(text))
        state = self._number(self._closure({0}, begin=True))
        for letter in text:
            if self._accepts(state):
                return True
            after = self._next[state].get(letter)
            state = self._move(state, letter) if after is None else after
        return self._accepts(state) or self._ends(state, not text)

    def _accepts(self, state: int) -> bool:
        return -1 in self._sets[state]

    def _ends(self, state: int, begin: bool) -> bool:
        return -1 in self._closure(self._sets[state] - {-1}, begin=begin, end=True)

    def _move(self, state: int, letter: str) -> int:
        cases = (letter, letter.lower(), letter.upper())
        reached = {0}  # a match may begin anywhere
        work = 0
        for at in self._sets[state]:
            step = self.program[at] if at >= 0 else None
            if step is not None and step.test is not None:
                work += step.cost
                if step.test(cases):
                    reached.add(step.first)
        self.budget.spend(_STEP * work)
        closed = self._closure(reached)
        self._known += 1
        if len(self._sets) < _REMEMBERED and self._known < _MOVES:
            after = self._next[state][letter] = self._number(closed)
            return after
        self._numbers, self._sets, self._next, self._known = {}, [], [], 0
        return self._number(closed)

    def _number(self, threads: frozenset[int]) -> int:
        if threads not in self._numbers:
            self._numbers[threads] = len(self._sets)
            self._sets.append(threads)
            self._next.append({})
        return self._numbers[threads]

    def _closure(self, threads: set[int] | frozenset[int], begin: bool = False, end: bool = False) -> frozenset[int]:
        """The threads before the next character, after following all jumps; -1 stands for a match."""
        found: set[int] = set()
        seen: set[int] = set()
        waiting = list(threads)
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            step = self.program[at]
            if step.kind == "match":
                return frozenset({-1})
            if step.kind == "split":
                waiting += (step.first, step.second)
            elif (step.kind == "begin" and begin) or (step.kind == "end" and end):
                waiting.append(step.first)
            elif step.kind in ("test", "end"):
                found.add(at)
        self.budget.spend(_STEP * len(seen))
        return frozenset(found)
