"""Patterns of queries: RE2 runs them beside SQLite, PostgreSQL runs them itself, and both see the same syntax.

The syntax is literals, `.`, classes, `\\d \\w \\s`, groups, `|`, `* + ? {m,n}`, `^` and `$` for the ends of the whole
text. Matching ignores case, takes time linear in the text and releases the interpreter's lock. Backreferences and
lookaround have no linear algorithm: they are refused.
"""

from __future__ import annotations

import re
from typing import Any, Final

import re2

LONGEST: Final = 2000  # characters in a pattern
LARGEST: Final = 1000  # instructions, each test of a character counted once
DEEPEST: Final = 50  # nested groups
MOST_REPEATS: Final = 255  # PostgreSQL's own limit
_MEMORY: Final = 8 << 20  # bytes per pattern, for its program and its cached states
_SPECIAL: Final = frozenset("\\^$.|?*+()[]{}")

_TOKEN: Final = re.compile(
    r"""(?P<escape>\\.?)
      | (?P<class>\[\^?(?P<members>\]?(?:\\.|[^\]\\])*)(?P<closed>\]?))
      | (?P<group>\((?:\?(?:<?[=!]|:|))?)
      | (?P<repeat>[*+?]|\{(?:(?P<low>[0-9]{1,3})(?P<upto>,(?P<high>[0-9]{0,3}))?\})?)
      | (?P<other>.)""",
    re.S | re.X,
)
_MEMBER: Final = re.compile(r"\\(?P<escape>.)|(?P<low>[^\\])-(?P<high>[^\]])|(?P<named>\[[:.=])|.", re.S)
# RE2's own \d, \w and \s are ASCII; Python's and PostgreSQL's are not. These are members of a class.
_KINDS: Final = {"d": r"\p{Nd}", "w": r"_\p{L}\p{N}", "s": r"\t-\r\x1c-\x20\x85\p{Z}"}
_BREAKS: Final = {"n": r"\n", "t": r"\t"}
_ERRORS: Final = {  # how RE2's messages begin
    "missing )": "a `(` that is never closed",
    "unexpected )": "a `)` without its `(`",
    "bad repetition operator": "a repetition of a repetition",
    "no argument for repetition": "a repetition with nothing before it; write a backslash before it to mean itself",
}
_TOO_LARGE: Final = "too much: repetitions multiply"


_LITERALLY: Final = "Write a backslash before a character that is meant as it is, such as \\( or \\. ."
_SEPARATELY: Final = "Join conditions instead, such as `name ~ a and not name ~ b`."


class BadPattern(Exception):
    """An invalid pattern; `at` is the position in it, where it is known."""

    def __init__(self, what: str, at: int | None = None, hint: str = _LITERALLY) -> None:
        super().__init__(what)
        self.at, self.hint = at, hint


class Pattern:
    """Tells whether a pattern occurs in a text. Raises BadPattern if the pattern is invalid or too large."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > LONGEST:
            raise BadPattern(f"more than {LONGEST:,} characters", LONGEST)
        theirs, bare = _translated(pattern)
        if _compiled(bare).programsize > LARGEST:
            raise BadPattern(_TOO_LARGE)
        self._made = _compiled(theirs)

    def occurs(self, text: str) -> bool:
        return self._made.search(text.encode()) is not None


def is_plain(pattern: str) -> bool:
    """Whether it has no special characters."""
    return not set(pattern) & _SPECIAL


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.max_mem, options.log_errors, options.never_capture = _MEMORY, False, True
    options.case_sensitive, options.dot_nl = False, True
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise BadPattern(_in_words(error)) from None
    finally:
        re2.purge()  # or it would keep the memory of the last 128 patterns


def _in_words(error: Exception) -> str:
    said = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
    if said.startswith(("pattern too large", "invalid repetition size")):
        return _TOO_LARGE
    return next((ours for theirs, ours in _ERRORS.items() if said.startswith(theirs)), f"a mistake ({said})")


def _translated(pattern: str) -> tuple[str, str]:
    """The pattern for RE2, and the same with one letter for each test of a character: its size.

    Raises BadPattern for what PostgreSQL refuses or understands otherwise.
    """
    theirs: list[str] = []
    bare: list[str] = []
    depth, anchored = 0, False
    for token in _TOKEN.finditer(pattern):
        at, kind, text = token.start(), token.lastgroup, token[0]
        if token["repeat"]:
            if anchored:
                raise BadPattern("a repetition of an end of the text", at)
            _check_bounds(token, at)
        elif token["group"]:
            _check_group(text, at)
            depth += 1
            if depth > DEEPEST:
                raise BadPattern(f"groups nested more than {DEEPEST} deep", at)
        elif token["class"]:
            text = _class(token, at)
        elif token["escape"]:
            text = _escape(text[1:], at)
        depth -= kind == "other" and text == ")"
        anchored = kind == "other" and text in ("^", "$")
        theirs.append(text)
        bare.append(text if token["repeat"] or token["group"] or text in ("|", ")", "^", "$") else "x")
    return "".join(theirs), "".join(bare)


def _check_bounds(token: re.Match[str], at: int) -> None:
    if not token[0].startswith("{"):
        return
    low, high = token["low"], token["high"]
    if low is None or not int(low) <= int(high or low) <= MOST_REPEATS:
        raise BadPattern(f"a repetition that is not like {{2,5}}, with at most {MOST_REPEATS}", at)


def _check_group(text: str, at: int) -> None:
    if text not in ("(", "(?:"):
        looks = text[-1] in "=!"
        named = f"`{text}`, a lookahead or lookbehind" if looks else f"`{text}`"
        raise BadPattern(
            f"a group that begins with {named}; only `(?:` is known", at, _SEPARATELY if looks else _LITERALLY
        )


def _escape(letter: str, at: int) -> str:
    kind = _KINDS.get(letter.lower()) if letter else None
    if kind:
        return f"[{kind}]" if letter.islower() else f"[^{kind}]"
    return _literal(letter, at)


def _literal(letter: str, at: int) -> str:
    if letter in _BREAKS:
        return _BREAKS[letter]
    if letter.isdecimal():
        raise BadPattern(f"a backreference `\\{letter}`; there are none", at, _SEPARATELY)
    if not letter or letter.isalnum():
        raise BadPattern(f"an escape `\\{letter}` that is not known", at)
    return f"\\{letter}" if letter.isascii() else letter


def _class(token: re.Match[str], start: int) -> str:
    if not token["closed"]:
        raise BadPattern("a `[` that is never closed", start)
    negative = "^" if token[0].startswith("[^") else ""
    members: list[str] = []
    for member in _MEMBER.finditer(token["members"]):
        at = token.start("members") + member.start()
        if member[0].startswith("-") and 0 < member.start() < len(token["members"]) - 1:
            raise BadPattern("a `-` in the middle of a class; put it at the end", at)
        if member["named"]:
            raise BadPattern("a named class; write \\d, \\w or \\s", at)
        if member["high"] and (member["high"] in "\\[" or member["high"] < member["low"]):
            raise BadPattern(f"a range `{member[0]}` that holds nothing", at)
        escape = member["escape"]
        members.append(member[0] if escape is None else _KINDS.get(escape) or _literal(escape, at))
    return f"[{negative}{''.join(members)}]"
