"""What a pickle would import and call, found by following its operations on a stack of stand-ins."""

from __future__ import annotations

import _compat_pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from muster.scan.allowed import is_allowed
from muster.scan.joblib_arrays import array_after
from muster.scan.limits import Budget
from muster.scan.pickle_ops import Skipped, operations
from muster.scan.reader import Reader
from muster.scan.stand_ins import Global, Made, Opaque

TORCH_MAGIC: Final = 0x1950A86A20F9469CFC6C  # the first pickle of a file of torch.save before 1.6
_KEPT: Final = 64  # items of a tuple or mapping that are kept


@dataclass(slots=True)
class Report:
    bad: list[str] = field(default_factory=list)  # what is named or done that is not allowed
    acts: bool = False  # something that is not allowed would have been called or built
    names: int = 0  # globals of any kind
    broken: str = ""
    value: Any = None  # what STOP returned, if it is plain
    nested: list[bytes] = field(default_factory=list)  # pickles or archives within, that loading would load


MARK: Final = Opaque()
ANY: Final = Opaque()


def follow(reader: Reader, budget: Budget) -> Report:
    """Follows one pickle up to its STOP, or to where it breaks."""
    machine = _Machine(reader, budget)
    try:
        for name, argument in operations(reader):
            budget.opcode()
            machine.step(name, argument)
    except (EOFError, ValueError, IndexError, KeyError) as error:
        machine.report.broken = str(error) if type(error) is ValueError else "it ends or breaks in the middle"
    return machine.report


class _Machine:
    def __init__(self, reader: Reader, budget: Budget) -> None:
        self.reader, self.budget, self.report = reader, budget, Report()
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.protocol = 0

    def step(self, name: str, argument: Any) -> None:
        simple = _PUSHES.get(name)
        if simple is not None:
            self.stack.append(simple(argument))
        else:
            getattr(self, f"_{name.lower()}")(argument)

    # --- names and calls ----------------------------------------------------------------------------------------------
    def _name(self, module: Any, name: Any) -> Global:
        self.report.names += 1
        if not isinstance(module, str) or not isinstance(name, str):
            self._object("a name that is made while it is loaded", acts=True)
            return Global("?", "?", False)
        if self.protocol < 3:  # as the unpickler does
            module, name = _compat_pickle.NAME_MAPPING.get((module, name), (module, name))
            module = _compat_pickle.IMPORT_MAPPING.get(module, module)
        found = Global(module, name, is_allowed(module, name))
        if not found.allowed:
            self._object(str(found)[:200])
        return found

    def _object(self, what: str, acts: bool = False) -> None:
        self.report.acts |= acts
        if what not in self.report.bad and len(self.report.bad) < 50:
            self.report.bad.append(what)

    def _call(self, function: Any, args: Any) -> Made:
        if not isinstance(function, Global):
            self._object("a call of something that is made while it is loaded", acts=True)
            return Made(None, args)
        if not function.allowed:
            self.report.acts = True
        given = args if isinstance(args, tuple) else ()
        if (function.module, function.name) == ("torch.storage", "_load_from_bytes"):
            if given and isinstance(given[0], bytes):
                self.report.nested.append(given[0])
            else:
                self._object("torch.storage._load_from_bytes of content that can't be seen", acts=True)
        if (function.module, function.name) == ("_codecs", "encode") and given[1:] not in (("latin1",), ("latin-1",)):
            self._object("_codecs.encode with another encoding than latin1", acts=True)
        return Made(function, args)

    def _global(self, argument: tuple[bytes, bytes]) -> None:
        self.stack.append(self._name(*(_text(one) for one in argument)))

    def _stack_global(self, argument: None) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(self._name(module, name))

    def _inst(self, argument: tuple[bytes, bytes]) -> None:
        args = self._to_mark()
        self.stack.append(self._call(self._name(*(_text(one) for one in argument)), tuple(args)))

    def _obj(self, argument: None) -> None:
        function, *args = self._to_mark()
        self.stack.append(self._call(function, tuple(args)))

    def _reduce(self, argument: None) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        self.stack.append(self._call(function, args))

    _newobj = _reduce

    def _newobj_ex(self, argument: None) -> None:
        self.stack.pop()
        self._reduce(argument)

    def _build(self, argument: None) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, Made):
            if isinstance(state, dict):
                target.state.update(list(state.items())[:_KEPT])
            if array_after(target, self.reader):
                self._within()
            return
        # Building sets attributes, of a class or a function too.
        self._object("attributes of a class, function or unknown object are set", acts=True)

    def _within(self) -> None:
        """A whole pickle stands here, of an array of objects."""
        self.budget.nested()
        found = follow(self.reader, self.budget)
        for what in found.bad:
            self._object(what, acts=found.acts)
        self.report.names += found.names
        self.report.nested += found.nested
        if found.broken:
            raise ValueError(found.broken)

    def _ext(self, argument: int) -> None:
        # To call it acts, to name it does not: it is imported already. Random content begins with this one at times.
        self._object("a name from the extension registry")
        self.stack.append(Global("?", "?", False))

    _ext1 = _ext2 = _ext4 = _ext

    # --- the stack ----------------------------------------------------------------------------------------------------
    def _to_mark(self) -> list[Any]:
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is MARK:
                items = self.stack[at + 1 :]
                del self.stack[at:]
                return items
        raise IndexError

    def _mark(self, argument: None) -> None:
        self.stack.append(MARK)

    def _pop(self, argument: None) -> None:
        self.stack.pop()

    def _pop_mark(self, argument: None) -> None:
        self._to_mark()

    def _dup(self, argument: None) -> None:
        self.stack.append(self.stack[-1])

    def _tuple(self, argument: None) -> None:
        self.stack.append(tuple(self._to_mark()[:_KEPT]))

    def _take(self, count: int) -> None:
        if len(self.stack) < count:
            raise IndexError
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.stack.append(items)

    def _tuple1(self, argument: None) -> None:
        self._take(1)

    def _tuple2(self, argument: None) -> None:
        self._take(2)

    def _tuple3(self, argument: None) -> None:
        self._take(3)

    def _list(self, argument: None) -> None:
        self._to_mark()
        self.stack.append(Made(None))

    _frozenset = _list

    def _dict(self, argument: None) -> None:
        self.stack.append(_mapping(self._to_mark()))

    def _setitem(self, argument: None) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._put_items(self.stack[-1], [key, value])

    def _setitems(self, argument: None) -> None:
        items = self._to_mark()
        self._put_items(self.stack[-1], items)

    def _put_items(self, target: Any, items: list[Any]) -> None:
        self._hold(target)
        if isinstance(target, dict) and len(target) < _KEPT:
            target.update(_mapping(items))

    def _append(self, argument: None) -> None:
        self.stack.pop()
        self._hold(self.stack[-1])

    def _appends(self, argument: None) -> None:
        self._to_mark()
        self._hold(self.stack[-1])

    _additems = _appends

    def _hold(self, target: Any) -> None:
        """Items are put into containers that the pickle made, and into nothing else."""
        if isinstance(target, Global):
            self._object("items are put into a class or function", acts=True)

    # --- the memo and the rest ----------------------------------------------------------------------------------------
    def _get(self, argument: Any) -> None:
        self.stack.append(self.memo[_number(argument)])

    _binget = _long_binget = _get

    def _put(self, argument: Any) -> None:
        self.memo[_number(argument)] = self.stack[-1]

    _binput = _long_binput = _put

    def _memoize(self, argument: None) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _proto(self, argument: int) -> None:
        if argument > 5:
            raise ValueError(f"there is no protocol {argument}")
        self.protocol = argument

    def _frame(self, argument: int) -> None:
        """What it says of sizes does not matter."""

    def _readonly_buffer(self, argument: None) -> None:
        if not self.stack:
            raise IndexError

    def _binpersid(self, argument: None) -> None:
        self.stack[-1] = ANY

    def _stop(self, argument: None) -> None:
        value = self.stack.pop()
        self.report.value = value if isinstance(value, int | str) else None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _quoted(raw: bytes) -> str:
    """The argument of STRING, as far as a name could be in it."""
    inner = raw.strip()
    if len(inner) >= 2 and inner[:1] == inner[-1:] and inner[:1] in b"'\"":
        inner = inner[1:-1]
    try:
        return inner.decode("unicode_escape")
    except UnicodeDecodeError:
        return _text(inner)


def _unicode(raw: bytes) -> str:
    try:
        return raw.decode("raw-unicode-escape")
    except UnicodeDecodeError:
        return _text(raw)


def _number(raw: Any) -> int:
    if isinstance(raw, int):
        return raw
    return int(raw)  # ValueError, as in the unpickler


def _integer(raw: bytes) -> Any:
    try:
        return int(raw.rstrip(b"L"), 0)
    except ValueError:
        return ANY


def _string(raw: bytes | Skipped) -> Any:
    return _text(raw) if isinstance(raw, bytes) else ANY


def _long(raw: bytes | Skipped) -> Any:
    return int.from_bytes(raw, "little", signed=True) if isinstance(raw, bytes) and len(raw) <= 256 else ANY


def _mapping(items: list[Any]) -> dict[str, Any]:
    pairs = zip(items[::2], items[1::2], strict=False)
    return {key: value for key, value in list(pairs)[:_KEPT] if isinstance(key, str)}


_PUSHES: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("BININT", "BININT1", "BININT2"), lambda raw: raw),
    "INT": _integer,
    "LONG": _integer,
    "LONG1": _long,
    "LONG4": _long,
    "STRING": _quoted,
    "UNICODE": _unicode,
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _string),
    **dict.fromkeys(
        ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), lambda raw: raw if isinstance(raw, bytes) else ANY
    ),
    "NONE": lambda raw: None,
    "NEWTRUE": lambda raw: True,
    "NEWFALSE": lambda raw: False,
    **dict.fromkeys(("FLOAT", "BINFLOAT", "NEXT_BUFFER", "PERSID"), lambda raw: ANY),
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_SET"), lambda raw: Made(None)),
    "EMPTY_TUPLE": lambda raw: (),
    "EMPTY_DICT": lambda raw: {},
}
