"""A payload: what one kind of event says. A dataclass for each kind, with its encoding, its version and its fold.

The JSON of a payload is an object with its fields. Logs of older releases may lack fields, which then have their
defaults, or have more, which are dropped. A change that defaults can't express raises the version of the payload: the
JSON then names the version, and `upgrade` turns older JSON into the present one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, dataclass_transform

from muster.core.errors import ConfigError
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.core.seat import Seat, seat_from

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State

Doc = dict[str, Any]  # JSON
Seats = tuple[Seat, ...]
_Coding = tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]  # into JSON, and back; None: as it is
P = TypeVar("P", bound="Payload")

VERSION: Final = "_version"  # the key of the version in the JSON, which no field can have


class Payload:
    """`payload` makes a subclass the payload of a kind. Instances are treated as immutable, like their event."""

    __slots__ = ()
    KIND: ClassVar[str] = ""
    VERSION: ClassVar[int] = 1
    AUDIT: ClassVar[bool] = False  # whether it only logs an action; see `Audit`
    CODING: ClassVar[tuple[tuple[str, *_Coding], ...]] = ()  # for each field: its name, into JSON, and back

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        """Changes the state, and adds to `changes` what it changed. An event that is only logged changes nothing."""

    def columns(self) -> tuple[str | None, ...]:
        """Texts that a table keeps in a column of its own, so that they must be valid in every database."""
        return (getattr(self, "name", None), getattr(self, "id", None))

    def to_doc(self) -> Doc:
        """Its fields as JSON."""
        return {
            name: getattr(self, name) if encode is None else encode(getattr(self, name))
            for name, encode, _ in self.CODING
        }

    def to_log(self) -> Doc:
        """Its JSON in the log, which names the version."""
        return self.to_doc() if self.VERSION == 1 else {**self.to_doc(), VERSION: self.VERSION}

    @classmethod
    def from_doc(cls: type[P], doc: Doc) -> P:
        """Inverse of `to_log`, for JSON of this version. Raises KeyError, TypeError or ValueError."""
        try:
            return cls(*[doc[name] if decode is None else decode(doc[name]) for name, _, decode in cls.CODING])
        except KeyError:  # a field is missing, and has its default
            known = ((name, decode) for name, _, decode in cls.CODING if name in doc)
            return cls(**{name: doc[name] if decode is None else decode(doc[name]) for name, decode in known})

    @classmethod
    def upgrade(cls, doc: Doc, version: int) -> Doc:
        """The JSON of an older version as JSON of this one."""
        raise NotImplementedError


class Audit(Payload):
    """Logs an action of a user in the record, or a failed one. It changes nothing, and no decision depends on it."""

    __slots__ = ()
    AUDIT = True


@dataclass(slots=True)
class Unreadable(Payload):
    """What a newer release logged, or a damaged log holds. It can be listed as it is, but not folded."""

    doc: Doc
    why: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        raise ConfigError(
            f"Event {event.seq} of the log ({event.kind}) can't be read: {self.why}.",
            "Use the version of Muster that last used the database, or restore it from a backup.",
        )

    def to_doc(self) -> Doc:
        return self.doc


KINDS: Final[dict[str, type[Payload]]] = {}  # every kind of event, by name


@dataclass_transform(field_specifiers=(field,))
def payload(kind: str, version: int = 1) -> Callable[[type[P]], type[P]]:
    """Makes a class the payload of this kind of event: a dataclass with slots, in `KINDS`.

    It is not frozen because creating a frozen instance takes five times as long, and a simulated year has tens of
    millions of events.
    """

    def register(cls: type[P]) -> type[P]:
        made = dataclass(slots=True)(cls)
        made.KIND, made.VERSION = kind, version
        made.CODING = tuple((one.name, *_CODINGS.get(str(one.type), _PLAIN)) for one in fields(made))  # type: ignore[arg-type]
        assert kind not in KINDS, f"two payloads of the kind {kind}"
        KINDS[kind] = made
        return made

    return register


def decode(kind: str, doc: Doc) -> Payload:
    """The payload from its JSON, of whatever version. What can't be read is `Unreadable`."""
    cls = KINDS.get(kind)
    if cls is None:
        return _unreadable(kind, doc, "this version of Muster does not know the kind")
    version = doc.get(VERSION, 1)
    if version > cls.VERSION:
        return _unreadable(kind, doc, f"it has version {version}; this version of Muster knows up to {cls.VERSION}")
    try:
        return cls.from_doc(doc if version == cls.VERSION else cls.upgrade(doc, version))
    except (KeyError, TypeError, ValueError) as error:
        return _unreadable(kind, doc, repr(error))


def _unreadable(kind: str, doc: Doc, why: str) -> Payload:
    cls: type[Unreadable] = type("Unreadable", (Unreadable,), {"__slots__": (), "KIND": kind})
    return cls(doc, why)


_PLAIN: Final[_Coding] = (None, None)
# By the annotation of a field. Every other field holds JSON values.
_CODINGS: Final[dict[str, _Coding]] = {
    "Reason": (Reason.to_dict, Reason.of),
    "Seats": (lambda seats: [seat.to_doc() for seat in seats], lambda docs: tuple([seat_from(doc) for doc in docs])),
    "Resources": (asdict, lambda doc: Resources(**doc)),
}
