"""The syntax tree of a query: conditions on fields, joined by and, or and not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from muster.api.search import FieldKind

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~", "!~", "in", "not in", "like", "not like", "ilike", "not ilike"]
MetricPart = Literal["last", "min", "max", "step", "time", "points", "nans"]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a run; `name` is the column, or the key of a parameter, metric, tag or package."""

    kind: FieldKind
    name: str
    part: MetricPart = "last"  # of a metric

    def __str__(self) -> str:
        """The field as a query can contain it."""
        if self.kind in ("param", "tag"):
            return f"{self.kind}s.{quoted(self.name)}"
        if self.kind == "metric":
            odd = self.part == "last" and self.name.rpartition(".")[2] in get_args(MetricPart)
            return f"metrics.{quoted(self.name, odd)}{'' if self.part == 'last' else f'.{self.part}'}"
        if self.kind in ("env", "version"):
            space, dot, name = self.name.partition(".")
            return f"env.{space}{dot}{quoted(name) if name else ''}"
        return self.name.removesuffix("_at").replace("code_", "code.", 1)


@dataclass(frozen=True, slots=True)
class Span:
    """A time span in seconds since the epoch: a day, a minute, or a moment if both ends are equal."""

    start: float
    end: float


Operand = str | float | bool | Span


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison. `operands` have the field's type: one, or several for `in`."""

    field: Field
    operator: Operator
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Has:
    """The run has the field at all."""

    field: Field


@dataclass(frozen=True, slots=True)
class Not:
    node: Node


@dataclass(frozen=True, slots=True)
class And:
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Sort:
    field: Field
    down: bool = False


Node = Compare | Has | Not | And | Or
EVERYTHING = And(())


def quoted(name: str, force: bool = False) -> str:
    """A name as a query can contain it."""
    return f"`{name}`" if force or not name or set(name) & set(" ()<>=!~,'\"`\t\n") else name
