"""Parameters and other facts that a job's spec contains, and the conversion of parameter values to text and numbers."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

from muster.core.errors import Invalid
from muster.store.codec import check_text
from muster.wire import PARAMS, PARAMS_FILE

KEY_MAX: Final = 250  # characters in the name of a parameter or tag
VALUE_MAX: Final = 8000  # characters of its value
NAME_MAX: Final = 500  # characters in a run's name
_NUMBER_MAX: Final = 400  # characters of a text that is parsed as a number
_FLATTEN: Final = 8  # levels of nested mappings that become dotted names
_COMMANDS: Final = re.compile(r"\s*(?:\n|;|&&|\|\|?)\s*")
_ENV: Final = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_NUMBER: Final = re.compile(r"\s*[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?\s*\Z")
_FLAG: Final = re.compile(r"--?([A-Za-z][\w.\-/]*)(?:=(.*))?\Z", re.DOTALL)
_SETTING: Final = re.compile(r"\+{0,2}([A-Za-z_][\w.\-/@]*)=(.*)\Z", re.DOTALL)


def text_of(value: Any) -> str:
    """A parameter's value as it is stored: text unchanged, numbers as Python writes them, the rest as JSON."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    return json.dumps(value, separators=(",", ":"), default=str)  # escapes what UTF-8 can't encode


def number_of(text: str) -> float | None:
    """The text's value if it is a finite number; `True` and `nan` are text."""
    if len(text) > _NUMBER_MAX or not _NUMBER.match(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def same_value(one: str, other: str) -> bool:
    """Whether two texts are the same value: `3e-4` and `0.0003` are."""
    if one == other:
        return True
    first = number_of(one)
    return first is not None and first == number_of(other)


def flat(values: Mapping[str, Any], level: int = 0) -> dict[str, str]:
    """Nested mappings as one mapping with dotted names."""
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value and level < _FLATTEN:
            found |= {f"{key}.{below}": text for below, text in flat(value, level + 1).items()}
        else:
            found[str(key)] = text_of(value)
    return found


def checked(what: str, values: Mapping[str, str]) -> dict[str, str]:
    """The values unchanged. Raises Invalid for the first that can't be stored; `what` is "parameter" or "tag"."""
    for key, value in values.items():
        check_text(key, value)
        if not key or len(key) > KEY_MAX:
            raise Invalid(
                f"The name of a {what} has {len(key):,} characters: {key[:60]!r}.", f"Use 1 to {KEY_MAX} characters."
            )
        if len(value) > VALUE_MAX:
            raise Invalid(
                f"The {what} {key!r} has a value of {len(value):,} characters; {VALUE_MAX:,} are the most.",
                "Shorten it, or save it as an artifact.",
            )
    return dict(values)


def fitted(values: Mapping[str, str]) -> dict[str, str]:
    """The values, cut to the limits: values that a rank has sent can't be refused any more."""
    return {key[:KEY_MAX]: value[:VALUE_MAX] for key, value in values.items() if key}


def command_params(command: str, envs: Mapping[str, str]) -> dict[str, str]:
    """The parameters in a command line: `--lr 3e-4`, `--lr=3e-4` and `lr=3e-4`. Substitutes the job's own variables."""
    found: dict[str, str] = {}
    for arguments in _split(command):
        found |= dict(_settings([_filled(word, envs) for word in arguments]))
    found.pop(PARAMS_FILE, None)
    return fitted({**_of_trial(found.pop(PARAMS, "")), **found})


def code_columns(code: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of `runs` that a submission's `code` fills."""
    return {
        "code_commit": str(code.get("commit") or ""),
        "code_branch": str(code.get("branch") or ""),
        "code_dirty": bool(code.get("dirty")),
        "code_tree": str(code.get("tree") or ""),
    }


def data_ref(name: str, version: str | None = None) -> str:
    """`data:c4-en@v3`, the reference of a data set in lineage links. `name` may contain the version already."""
    return f"data:{name}@{version}" if version else f"data:{name}"


def _of_trial(text: str) -> dict[str, str]:
    """Parameters that a command gives as a study does: that of the winner of one, at the next scale."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return {str(name): text_of(value) for name, value in found.items()} if isinstance(found, dict) else {}


@lru_cache(1000)  # thousands of jobs share a command and differ in their variables
def _split(command: str) -> tuple[tuple[str, ...], ...]:
    """The arguments of each command in a command line."""
    found = []
    for one in _COMMANDS.split(command):
        with suppress(ValueError):  # an unclosed quote: the shell will report it
            found.append(tuple(_arguments(shlex.split(one, comments=True))))
    return tuple(found)


def _arguments(words: list[str]) -> list[str]:
    """The words after the program: a script, a module after `-m`, or else the first word that sets no variable."""
    for at, word in enumerate(words):
        if word.endswith((".py", ".sh")) and not word.startswith("-"):
            return words[at + 1 :]
        if word == "-m" and at + 1 < len(words) and at:
            return words[at + 2 :]
    start = next((at for at, word in enumerate(words) if not _SETTING.match(word)), len(words))
    return words[start + 1 :]


def _filled(word: str, envs: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return envs.get(name, found[0])

    return _ENV.sub(value, word)


def _settings(words: list[str]) -> Iterator[tuple[str, str]]:
    taken = False  # whether the word was the value of the flag before it
    for word, after in pairwise([*words, ""]):
        if taken:
            taken = False
            continue
        flag, setting = _FLAG.match(word), _SETTING.match(word)
        if flag:
            value = flag[2]
            if value is None and _is_value(after):
                value, taken = after, True
            yield _name(flag[1]), "True" if value is None else value
        elif setting:
            yield _name(setting[1]), setting[2]


def _is_value(word: str) -> bool:
    return bool(word) and (not word.startswith("-") or number_of(word) is not None) and not _SETTING.match(word)


def _name(flag: str) -> str:
    """The name that argparse uses, so that a script that reports its arguments has the same names."""
    return flag.replace("-", "_")


def shown(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)
