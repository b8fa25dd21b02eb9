"""Splits a shell script into simple commands and gives each word's position, so that edits touch only single words.

It accepts every script: a construct that it can't parse extends to the end of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]]*\])?\+?=")
_SPACE: Final = " \t\r"
_BREAKS: Final = " \t\r\n;&|()<>"
_CLOSERS: Final = {"(": ")", "{": "}"}


@dataclass(frozen=True, slots=True)
class Word:
    start: int
    end: int
    text: str  # as written, with its quotes

    @property
    def bare(self) -> str:
        """The text without quotes and backslashes; nothing is expanded."""
        return re.sub(r"\\(.)", r"\1", self.text.replace("'", "").replace('"', ""))


@dataclass(slots=True)
class Command:
    """One simple command. `after` is its terminator: `;`, `&`, `|`, `&&`, a line end..."""

    words: list[Word] = field(default_factory=list)
    after: str = ""


def commands(text: str) -> Iterator[Command]:
    """The simple commands of a script, in order. A `$(...)` is part of a word."""
    at, current, heredocs = 0, Command(), list[str]()
    while at < len(text):
        mark = text[at]
        if mark in _SPACE:
            at += 1
        elif text.startswith("\\\n", at):
            at += 2
        elif mark == "#":
            at = _line_end(text, at)
        elif mark == "\n":
            at = _past_heredocs(text, at + 1, heredocs)
            current.after = "\n"
            yield from _if_any(current)
            current = Command()
        elif mark in "<>" or text.startswith("&>", at):
            at = _past_redirection(text, at, heredocs)
        elif mark in ";&|()":
            current.after = text[at : at + 2] if text[at : at + 2] in ("&&", "||", ";;", "|&") else mark
            at += len(current.after)
            yield from _if_any(current)
            current = Command()
        else:
            end = word_end(text, at)
            # The number in a redirection such as `2>` is not a word.
            if not (text[at:end].isdigit() and text[end : end + 1] in ("<", ">") and end < len(text)):
                current.words.append(Word(at, end, text[at:end]))
            at = end
    yield from _if_any(current)


def word_end(text: str, at: int) -> int:
    """The end of the word that starts at `at`."""
    start = at
    while at < len(text) and text[at] not in _BREAKS:
        at = _past_piece(text, at)
        # An array: `nodes=( ... )`.
        if text[at : at + 1] == "(" and ASSIGNMENT.fullmatch(text[start:at]):
            at = _past_nested(text, at + 1, ")")
    return max(at, start + 1)


def names(text: str) -> frozenset[str]:
    """A set of names from text that separates them by blanks."""
    return frozenset(text.split())


def line_of(text: str, at: int) -> int:
    """The line number of an offset, from 1."""
    return text.count("\n", 0, at) + 1


def _if_any(command: Command) -> Iterator[Command]:
    if command.words:
        yield command


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _past_piece(text: str, at: int) -> int:
    mark = text[at]
    if mark == "\\":
        return at + 2
    if mark == "'":
        end = text.find("'", at + 1)
        return len(text) if end < 0 else end + 1
    if mark in '"`':
        return _past_quoted(text, at + 1, mark)
    if mark == "$" and text[at + 1 : at + 2] in ("(", "{"):
        return _past_nested(text, at + 2, _CLOSERS[text[at + 1]])
    return at + 1


def _past_quoted(text: str, at: int, quote: str) -> int:
    while at < len(text) and text[at] != quote:
        at = _past_piece(text, at) if text[at] in "\\$`" else at + 1
    return at + 1


def _past_nested(text: str, at: int, closer: str) -> int:
    """The offset after the bracket that closes the one before `at`."""
    while at < len(text) and text[at] != closer:
        at = _past_nested(text, at + 1, ")") if text[at] == "(" and closer == ")" else _past_piece(text, at)
    return at + 1


def _past_redirection(text: str, at: int, heredocs: list[str]) -> int:
    found = re.compile(r"&>>?|<<<|<<-?|<>|>>|>\||[<>]&?").match(text, at)
    assert found is not None
    at = found.end()
    if text[at : at + 1] == "(":  # <(...), process substitution
        return _past_nested(text, at + 1, ")")
    while at < len(text) and text[at] in _SPACE:
        at += 1
    if at >= len(text) or text[at] in _BREAKS:
        return at
    end = word_end(text, at)
    if found[0] in ("<<", "<<-"):
        heredocs.append(re.sub(r"['\"\\]", "", text[at:end]))
    return end


def _past_heredocs(text: str, at: int, heredocs: list[str]) -> int:
    """The offset after the here-documents that the last line began."""
    for mark in heredocs:
        while at < len(text):
            end = _line_end(text, at)
            line, at = text[at:end], end + 1
            if line.strip("\t") == mark:
                break
    heredocs.clear()
    return at
