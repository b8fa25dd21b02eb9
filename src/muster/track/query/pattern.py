"""Compiles a regular expression to a small program; `regex` runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

LONGEST: Final = 2000  # characters in a pattern
LARGEST: Final = 1000  # instructions in a program
MOST_MEMBERS: Final = 200  # per class
MOST_REPEATS: Final = 255  # PostgreSQL's own limit

# Gets a character, first unchanged, then in its other cases.
Test = Callable[[tuple[str, ...]], bool]
_CLASSES: Final[dict[str, Test]] = {
    "d": lambda cases: cases[0].isdecimal(),
    "w": lambda cases: cases[0].isalnum() or cases[0] == "_",
    "s": lambda cases: cases[0].isspace(),
}


class BadPattern(Exception):
    """An invalid pattern; `at` is the position in it."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.at = at


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction: test a character, continue at `first` (and at `second`), or check for an end of the text."""

    kind: str  # test, split, begin, end, match
    first: int = 0
    second: int = 0
    test: Test | None = None
    cost: int = 1  # tests per character: one for each member of a class


def program(pattern: str) -> list[Step]:
    """The program of a pattern; it starts at 0. Raises BadPattern if the pattern is invalid or too large."""
    if len(pattern) > LONGEST:
        raise BadPattern(f"more than {LONGEST:,} characters", LONGEST)
    return _Compiler(pattern).program()


# A part of a program without a fixed position: given the program so far and where to continue, it appends its
# instructions and returns its start.
_Piece = Callable[[list[Step], int], int]


class _Compiler:
    """Recursive descent parser. Writes instructions from the end to the front, so that every jump target is known."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at, self._size, self._depth, self._members = pattern, 0, 0, 0, 1

    def program(self) -> list[Step]:
        piece = self._choice()
        if self._at < len(self._pattern):
            raise BadPattern("a `)` without its `(`", self._at)
        steps = [Step("match")]
        start = piece(steps, 0)
        return _rooted(steps, start)

    def _choice(self) -> _Piece:
        self._depth += 1
        if self._depth > 50:
            raise BadPattern("groups nested more than 50 deep", self._at)
        branches = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._sequence())
        self._depth -= 1
        found = branches[-1]
        for branch in reversed(branches[:-1]):
            self._count(1)
            found = _either(branch, found)
        return found

    def _sequence(self) -> _Piece:
        pieces: list[_Piece] = []
        while self._peek() not in ("", "|", ")"):
            before, size = self._at, self._size
            piece, repeatable = self._atom()
            low, high = self._bounds()
            if (low, high) != (1, 1):
                if not repeatable:
                    raise BadPattern("nothing here that could be repeated", before)
                self._count((self._size - size + 1) * max(1, low if high is None else high))
                piece = _repeated(piece, low, high)
                if self._peek() and self._peek() in "*+?{":
                    raise BadPattern("a repetition of a repetition", self._at)
            pieces.append(piece)
        return _all(pieces)

    def _atom(self) -> tuple[_Piece, bool]:
        at, letter = self._at, self._peek()
        self._at += 1
        if letter == "(":
            if self._pattern.startswith("?:", self._at):
                self._at += 2
            elif self._peek() == "?":
                raise BadPattern("a group that begins with `(?`; only `(?:` is known", at)
            inner = self._choice()
            if self._peek() != ")":
                raise BadPattern("a `(` that is never closed", at)
            self._at += 1
            return inner, True
        if letter in "^$":
            self._count(1)
            return _one("begin" if letter == "^" else "end", None), False
        if letter in "*+?{":
            raise BadPattern("nothing before it that could be repeated; write a backslash before it to mean itself", at)
        self._count(1)
        self._members = 1
        test = self._test(letter, at)
        return _one("test", test, self._members), True

    def _test(self, letter: str, at: int) -> Test:
        if letter == ".":
            return lambda _: True
        if letter == "[":
            return self._class(at)
        if letter == "\\":
            return self._escape(at, in_class=False)
        return _letter(letter)

    def _escape(self, at: int, in_class: bool) -> Test:
        letter = self._peek()
        self._at += 1
        if letter in _CLASSES:
            return _CLASSES[letter]
        if letter.lower() in _CLASSES and letter and not in_class:
            return _none_of([_CLASSES[letter.lower()]])
        if letter in ("n", "t"):
            return _letter({"n": "\n", "t": "\t"}[letter])
        if not letter or letter.isalnum():
            raise BadPattern(f"an escape `\\{letter}` that is not known", at)
        return _letter(letter)

    def _class(self, at: int) -> Test:
        negative = self._peek() == "^"
        self._at += negative
        tests: list[Test] = []
        first = True
        while first or self._peek() != "]":
            first = False
            letter = self._peek()
            if not letter:
                raise BadPattern("a `[` that is never closed", at)
            if letter == "[" and self._pattern[self._at + 1 : self._at + 2] in (":", ".", "="):
                raise BadPattern("a named class; write \\d, \\w or \\s", self._at)
            tests.append(self._member(letter))
            if len(tests) > MOST_MEMBERS:
                raise BadPattern(f"a class of more than {MOST_MEMBERS} members", at)
        self._at += 1
        self._members = len(tests)
        return _none_of(tests) if negative else _any_of(tests)

    def _member(self, letter: str) -> Test:
        at = self._at
        self._at += 1
        if letter == "\\":
            return self._escape(at, in_class=True)
        rest = self._pattern[self._at : self._at + 2]
        if len(rest) < 2 or rest[0] != "-" or rest[1] == "]":
            return _letter(letter)
        if rest[1] in "\\[" or rest[1] < letter:
            raise BadPattern(f"a range `{letter}-{rest[1]}` that holds nothing", at)
        self._at += 2
        return lambda cases: any(letter <= one <= rest[1] for one in cases)

    def _bounds(self) -> tuple[int, int | None]:
        at, letter = self._at, self._peek()
        if letter == "" or letter not in "*+?{":
            return 1, 1
        self._at += 1
        if letter != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[letter]
        inside, closed, _ = self._pattern[self._at :].partition("}")
        low, comma, high = inside.partition(",")
        good = closed and low.isascii() and low.isdigit() and (not high or (high.isascii() and high.isdigit()))
        if not good or max(len(low), len(high)) > 3 or int(high or low) > MOST_REPEATS or int(high or low) < int(low):
            raise BadPattern(f"a repetition that is not like {{2,5}}, with at most {MOST_REPEATS}", at)
        self._at += len(inside) + 1
        return int(low), int(high) if high else None if comma else int(low)

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _count(self, steps: int) -> None:
        self._size += steps
        if self._size > LARGEST:
            raise BadPattern("too much: repetitions multiply", self._at)


def _letter(letter: str) -> Test:
    return lambda cases: letter in cases


def _any_of(tests: list[Test]) -> Test:
    return lambda cases: any(test(cases) for test in tests)


def _none_of(tests: list[Test]) -> Test:
    return lambda cases: not any(test(cases) for test in tests)


def _add(steps: list[Step], step: Step) -> int:
    steps.append(step)
    return len(steps) - 1


def _one(kind: str, test: Test | None, cost: int = 1) -> _Piece:
    return lambda steps, after: _add(steps, Step(kind, after, test=test, cost=cost))


def _either(one: _Piece, other: _Piece) -> _Piece:
    return lambda steps, after: _add(steps, Step("split", one(steps, after), other(steps, after)))


def _all(pieces: list[_Piece]) -> _Piece:
    def write(steps: list[Step], after: int) -> int:
        for piece in reversed(pieces):
            after = piece(steps, after)
        return after

    return write


def _repeated(piece: _Piece, low: int, high: int | None) -> _Piece:
    def write(steps: list[Step], after: int) -> int:
        if high is None:
            loop = _add(steps, Step("split"))
            steps[loop] = Step("split", piece(steps, loop), after)
            after = loop
        else:
            for _ in range(high - low):
                after = _add(steps, Step("split", piece(steps, after), after))
        for _ in range(low):
            after = piece(steps, after)
        return after

    return write


def _rooted(steps: list[Step], start: int) -> list[Step]:
    """The same program, starting at 0: a jump replaces the first instruction, which moves to the end."""
    moved = len(steps)
    at = {index: index for index in range(len(steps))} | {0: moved}
    program = [*steps, steps[0]]
    program = [Step(step.kind, at[step.first], at[step.second], step.test, step.cost) for step in program]
    program[0] = Step("split", at[start], at[start])
    return program
