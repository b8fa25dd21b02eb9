"""The reader of settings: tables of `config.toml`, read strictly, with every mistake in one error.

    table = Table("engines.slurm", given)
    nice = table.whole("nice_scale", 100)
    table.finish()                            # raises ConfigError: unknown names, and values of the wrong kind

A value that is wrong is reported, and its default is returned, so that the rest can still be read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from muster.core.errors import ConfigError
from muster.core.suggest import did_you_mean
from muster.core.units import PRIORITIES, InvalidValue, parse_duration, parse_size

T = TypeVar("T")
CORRECT = "Correct it in config.toml."


@dataclass(slots=True)
class Mistakes:
    """What is wrong in a file, each with what to do."""

    found: list[tuple[str, str]] = field(default_factory=list)

    def add(self, message: str, hint: str = CORRECT) -> None:
        self.found.append((message, hint))

    @contextmanager
    def taken(self) -> Iterator[None]:
        """A ConfigError that is raised inside is one more mistake."""
        try:
            yield
        except ConfigError as error:
            self.add(error.message, error.hint or CORRECT)

    def check(self) -> None:
        """Raises ConfigError if there are any."""
        if len(self.found) == 1:
            raise ConfigError(*self.found[0])
        if self.found:
            lines = "".join(f"\n  - {message} {hint}" for message, hint in self.found)
            raise ConfigError(f"{len(self.found)} settings are wrong:{lines}", "Correct each of them.")


@dataclass(slots=True)
class Table:
    """One table of the file. A method for each kind of value; each name may be asked for once or more."""

    where: str  # its name in messages; "" for the whole file
    given: Mapping[str, Any]
    mistakes: Mistakes = field(default_factory=Mistakes)
    source: str = ""  # the file's name, for names in it that don't exist
    _known: dict[str, None] = field(default_factory=dict)  # names that were asked for

    def finish(self) -> None:
        """Raises ConfigError with every mistake, names that nobody asked for among them."""
        self.refuse_others()
        self.mistakes.check()

    def refuse_others(self) -> None:
        for key in self.given:
            if key not in self._known:
                where = self.where or self.source
                name = f"{where}: `{key}`" if where else f"`{key}`"
                self.mistakes.add(f"{name} is not a setting.", did_you_mean(str(key), sorted(self._known)))

    def know(self, *names: str) -> None:
        """Names that somebody else reads."""
        self._known.update(dict.fromkeys(names))

    def wrong(self, key: str, expected: str, hint: str = CORRECT) -> None:
        """Reports a value."""
        self.mistakes.add(f"{self._place(key)} is {self.given.get(key)!r}; {expected} is expected.", hint)

    def value(self, key: str, default: T, fits: Callable[[Any], bool], expected: str, hint: str = CORRECT) -> T:
        self._known[key] = None
        if key not in self.given:
            return default
        found = self.given[key]
        if not fits(found):
            self.wrong(key, expected, hint)
            return default
        result: T = found
        return result

    def text(self, key: str, default: str = "", *, among: Collection[str] = ()) -> str:
        found = self.value(key, default, lambda one: isinstance(one, str), "a text", "Put it in quotes.")
        if among and found not in among:
            *first, last = (f"`{word}`" for word in among)
            self.wrong(key, f"{', '.join(first)} or {last}", did_you_mean(found, among))
            return default
        return found

    def texts(self, key: str, default: Sequence[str] = ()) -> tuple[str, ...]:
        return tuple(self.value(key, default, _are_texts, 'a list such as ["a", "b"]'))

    def words(self, key: str) -> dict[str, str]:
        fits = 'a table such as {"key" = "value"}'
        return dict(self.value(key, {}, lambda one: isinstance(one, Mapping) and _are_texts([*one.values()]), fits))

    def by_priority(self, key: str) -> dict[str, str]:
        """Texts by the lowest priority that they are for: its name or its number."""
        found = self.words(key)
        for level in found:
            if level not in PRIORITIES and not (level.isdigit() and int(level) <= 100):
                hint = f"Use {', '.join(PRIORITIES)} or a number to 100."
                self.mistakes.add(f"{self._place(key)}: {level!r} is no priority.", hint)
        return found

    def flag(self, key: str, default: bool = False) -> bool:
        return self.value(key, default, lambda one: isinstance(one, bool), "`true` or `false`")

    def number(self, key: str, default: float, least: float, most: float) -> float:
        wanted = f"a number from {least:g} to {most:g}"
        return float(self.value(key, default, lambda one: _is_number(one) and least <= one <= most, wanted))

    def whole(self, key: str, default: int, least: int = -(2**53), most: int = 2**53) -> int:
        def fits(one: Any) -> bool:
            return isinstance(one, int) and not isinstance(one, bool) and least <= one <= most

        bounds = "" if (least, most) == (-(2**53), 2**53) else f" from {least} to {most}"
        return self.value(key, default, fits, f"a whole number{bounds}")

    def duration(self, key: str, default: float, least: float = 0.0, most: float = 1e12) -> float:
        """In seconds; above `least`, at most `most`."""
        wanted, hint = "a duration", "Write it like `90s` or `5m`."
        found = self.parsed(key, default, lambda one: parse_duration(str(one)), wanted, hint)
        if not least < found <= most and found != default:
            self.wrong(key, f"a duration above {least:g} s and up to {most:g} s")
            return default
        return found

    def size(self, key: str, default: int, least: int = 0) -> int:
        """In bytes."""
        found = self.parsed(key, default, parse_size, f"a size of {least} bytes or more", 'Write it like "64MB".')
        if found < least:
            self.wrong(key, f"a size of {least} bytes or more", 'Write it like "64MB".')
            return default
        return found

    def table(self, key: str, example: str = "") -> Table:
        hint = f"Write {example}." if example else f"Write [{self._place(key)}]."
        nothing: Mapping[str, Any] = {}
        found = self.value(key, nothing, lambda one: isinstance(one, Mapping), "a table", hint)
        return Table(self._place(key), found, self.mistakes)

    def tables(self, key: str) -> dict[str, Table]:
        """The tables of a table, by name."""
        outer = self.table(key, f"tables such as [{self._place(key)}.NAME]")
        return {str(name): outer.table(name) for name in outer.given}

    def parsed(self, key: str, default: T, parse: Callable[[Any], T], expected: str, hint: str) -> T:
        raw: Any = self.value(key, None, lambda one: not isinstance(one, bool), expected, hint)
        if raw is None:
            return default
        try:
            return parse(raw)
        except (InvalidValue, TypeError, AttributeError):
            self.wrong(key, expected, hint)
            return default

    def _place(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(one, str) for one in values)
