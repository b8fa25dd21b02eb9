"""`EntityType`: what a store and the state need to know of one noun, so that all of it is in the noun's own file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Generic, TypeVar

from muster.core.payload import Doc

if TYPE_CHECKING:
    from muster.core.state_data import Changes, State

E = TypeVar("E")


class EntityType(Generic[E]):
    """One noun of the state. Its entities have a name each, and are rows of the table `entities`.

    `decode` makes an entity from its JSON; `encode` returns what becomes its JSON: the entity itself, if that is a
    dataclass. `place` returns the field of the state that holds the entities by name, for a noun that other code reads
    directly. A noun without one is in `State.others`.
    """

    def __init__(
        self,
        kind: str,
        decode: Callable[[Doc], E],
        *,
        encode: Callable[[E], object] = lambda entity: entity,
        place: Callable[[State], dict[str, E]] | None = None,
    ) -> None:
        self.kind, self.decode, self.encode, self._place = kind, decode, encode, place

    def all(self, state: State) -> Mapping[str, E]:
        """The entities of the state, by name."""
        return self._place(state) if self._place is not None else state.others.get(self.kind, {})

    def load(self, state: State, name: str, entity: E) -> None:
        """Adds an entity that a store saved."""
        place = self._place(state) if self._place is not None else state.others.setdefault(self.kind, {})
        place[name] = entity

    def put(self, state: State, name: str, entity: E, changes: Changes) -> None:
        """Adds or replaces an entity, for a fold."""
        self.load(state, name, entity)
        changes.entities[(self.kind, name)] = entity

    def drop(self, state: State, name: str, changes: Changes) -> None:
        """Removes an entity, for a fold. One that does not exist is no error."""
        if self._place is not None:
            self._place(state).pop(name, None)
        elif name in (others := state.others.get(self.kind, {})):
            del others[name]
            if not others:  # so that the state is the same as one that never had any
                del state.others[self.kind]
        changes.entities[(self.kind, name)] = None


def from_fields(cls: Callable[..., E]) -> Callable[[Doc], E]:
    """Decodes a dataclass from its fields. Fields that it no longer has are dropped."""
    names = frozenset(one.name for one in fields(cls))  # type: ignore[arg-type]

    def decode(doc: Doc) -> E:
        return cls(**{name: value for name, value in doc.items() if name in names})

    return decode
