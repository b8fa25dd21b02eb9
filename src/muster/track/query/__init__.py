"""The query language over runs: `parse` parses it, `sql.Compiler` translates it to SQL."""

from __future__ import annotations

from muster.track.query.errors import QueryError
from muster.track.query.nodes import EVERYTHING, And, Compare, Field, Has, Node, Not, Operator, Or, Sort, Span
from muster.track.query.parse import parse, parse_field, parse_sort

__all__ = [
    "EVERYTHING",
    "And",
    "Compare",
    "Field",
    "Has",
    "Node",
    "Not",
    "Operator",
    "Or",
    "QueryError",
    "Sort",
    "Span",
    "parse",
    "parse_field",
    "parse_sort",
]
