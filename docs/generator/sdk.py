"""The page of the Python client: every method of `muster.Client` with its signature and its docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

from generator.markdown import generated
from muster.client.asked import AskedTrial
from muster.client.client import Client
from muster.client.job import Job
from muster.client.run import Run
from muster.client.study import Study

ABOUT: Final = """\
`muster.Client` blocks; `muster.AsyncClient` has the same methods, to be awaited. [From Python](python.md) says how to
use them. Answers have the shapes of [the HTTP API](rest.md).

"""
_CLASSES: Final = {"J": "Job", "R": "Run", "S": "Study", "A": "AskedTrial"}
_GENERIC: Final = re.compile(r"\b[JRSA]\b")
_SECTION: Final = re.compile(r"^    # (.+)$|^    (\w+) = (?:blocking|iterating)\(", re.MULTILINE)


def sdk_page() -> str:
    parts = [generated("The Python client", "src/muster/client"), ABOUT]
    for title, name in _SECTION.findall(inspect.getsource(Client)):
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n" if title else _method(name, getattr(Client, name)))
    for title, kind in (("A job", Job), ("A run", Run), ("A study", Study), ("A trial that was asked for", AskedTrial)):
        parts += [f"## {title}\n\n", f"{_text(kind.__doc__)}\n\n", *_methods(kind)]
    return "".join(parts).rstrip() + "\n"


def _methods(kind: type[Any]) -> Iterator[str]:
    for name, found in vars(kind).items():
        if not name.startswith("_") and callable(getattr(found, "__func__", found)) and found.__doc__:
            yield _method(name, getattr(kind, name))


def _method(name: str, found: Any) -> str:
    signature = inspect.signature(found)
    kept = [one for one in signature.parameters.values() if one.name not in ("to", "self", "cls")][:]
    if kept and kept[0].name in ("job", "run", "study", "trial") and kept[0].kind is inspect.Parameter.POSITIONAL_ONLY:
        kept = kept[1:]
    shown = ", ".join(_parameter(one) for one in _marked(kept))
    return f"### {name}\n\n```text\n{name}({shown}){_result(signature)}\n```\n\n{_text(found.__doc__)}\n\n"


def _marked(kept: list[inspect.Parameter]) -> Iterator[inspect.Parameter | str]:
    """With the star that stands before parameters that must be named."""
    star = False
    for one in kept:
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        star = star or one.kind is inspect.Parameter.VAR_POSITIONAL
        yield one


def _parameter(one: inspect.Parameter | str) -> str:
    return one if isinstance(one, str) else str(one).replace("'", "")


def _result(signature: inspect.Signature) -> str:
    result = str(signature.return_annotation).replace("'", "")
    if signature.return_annotation is inspect.Signature.empty:
        return ""
    inner = re.fullmatch(r"(?:AsyncIterator|AsyncGenerator)\[(.+?)(?:, None)?\]", result)
    result = f"Iterator[{inner[1]}]" if inner else result
    return f" -> {_GENERIC.sub(lambda found: _CLASSES[found[0]], result)}"


def _text(doc: str | None) -> str:
    return inspect.cleandoc(doc or "")
