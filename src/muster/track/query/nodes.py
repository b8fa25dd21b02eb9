"""What a query says, as data: conditions on fields, joined by and, or and not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

# column: a text of the run itself    number, time, flag: what they say    version: numbers with dots between
Kind = Literal[
    "column", "commit", "phase", "number", "duration", "time", "flag", "metric", "param", "tag", "data", "note",
    "experiment", "env", "version",
]  # fmt: skip
Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~", "!~", "in", "not in", "like", "not like", "ilike", "not ilike"]
MetricPart = Literal["last", "min", "max", "step", "time", "points", "nans"]


@dataclass(frozen=True, slots=True)
class Field:
    """Something that a run has; `name` is the column, or the key of a parameter, metric, tag or package."""

    kind: Kind
    name: str
    part: MetricPart = "last"  # of a metric

    def __str__(self) -> str:
        """As it may stand in a query."""
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
    """A stretch of time in seconds since the epoch: a day, a minute, or a moment when both ends are the same."""

    start: float
    end: float


Operand = str | float | bool | Span


@dataclass(frozen=True, slots=True)
class Compare:
    """`operands` are of the type that the field has: one, or several for `in`."""

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
    """A name as it may stand in a query."""
    return f"`{name}`" if force or not name or set(name) & set(" ()<>=!~,'\"`\t\n") else name
