"""A registry of the plug-ins of one family by name. The error for an unknown name suggests the closest one."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar

from muster.core.errors import NotFound

T = TypeVar("T")


class Registry(Generic[T]):
    def __init__(self, family: str, members: dict[str, T]) -> None:
        self.family = family
        self._members = members

    def get(self, name: str) -> T:
        try:
            return self._members[name]
        except KeyError:
            near = get_close_matches(name, self._members, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(sorted(self._members))}."
            raise NotFound(f"There is no {self.family} named {name!r}.", hint) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members
