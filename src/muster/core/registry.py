"""A registry of the plug-ins of one family by name. The error for an unknown name suggests the closest one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from muster.core.errors import NotFound
from muster.core.suggest import did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    def __init__(self, family: str, members: dict[str, T]) -> None:
        self.family = family
        self._members = members

    def get(self, name: str) -> T:
        try:
            return self._members[name]
        except KeyError:
            hint = did_you_mean(name, sorted(self._members), quote="'")
            raise NotFound(f"There is no {self.family} named {name!r}.", hint) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members
