"""Small expressions of a study file: `model == 'deep' and depth > 4`, `memory < 70GB`, `value > 2 * best`.

The grammar is Python's, of which names, numbers (also `70GB` and `2h`), texts, lists, arithmetic, comparisons, `in`,
`and`, `or` and `not` are allowed, with `min`, `max` and `abs`. Nothing else can be written, so that a file can't run
code in the server.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from muster.core.suggest import did_you_mean
from muster.core.units import InvalidValue, parse_duration, parse_size

LONGEST: Final = 500  # characters
_DEEPEST: Final = 20


@dataclass(frozen=True, slots=True)
class Expression:
    text: str
    names: frozenset[str]  # of the values that it reads
    _tree: ast.expr

    def value(self, names: Mapping[str, Any]) -> Any:
        """Raises KeyError for a name without a value, TypeError or ArithmeticError for values that don't fit."""
        return _value(self._tree, names)

    def holds(self, names: Mapping[str, Any]) -> bool | None:
        """Whether it holds; None if a value is missing or does not fit."""
        try:
            return bool(self.value(names))
        except (KeyError, TypeError, ArithmeticError):
            return None


def parse_expression(text: str, known: frozenset[str] | None = None) -> Expression:
    """`known`: the names that it may read; None: any. Raises InvalidValue."""
    if len(text) > LONGEST:
        raise InvalidValue(f"An expression has at most {LONGEST} characters.")
    try:
        tree = ast.parse(_UNIT.sub(_plain, text.strip()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidValue(f"`{text}` is no expression: write, for example, `depth > 4 and model == 'deep'`.") from None
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - _FUNCTIONS.keys()
    _check(tree, 0)
    if known is not None and (unknown := sorted(names - known)):
        raise InvalidValue(f"There is no {unknown[0]!r} here. {did_you_mean(unknown[0], sorted(known))}".strip())
    return Expression(text.strip(), frozenset(names), tree)


def _plain(match: re.Match[str]) -> str:
    """The number of bytes or seconds; a name that begins like a number is left as it is, and refused later."""
    if match[0][0] in "'\"":
        return match[0]
    for parse in (parse_size, parse_duration):
        try:
            return repr(parse(match[0]))
        except InvalidValue:
            continue
    return match[0]


def _check(tree: ast.AST, depth: int) -> None:
    if depth > _DEEPEST:
        raise InvalidValue("It is nested too deeply.")
    if isinstance(tree, ast.Constant):
        fits = isinstance(tree.value, str | int | float | bool) and len(str(tree.value)) <= LONGEST
    elif isinstance(tree, ast.Call):
        fits = isinstance(tree.func, ast.Name) and tree.func.id in _FUNCTIONS and bool(tree.args) and not tree.keywords
    elif isinstance(tree, ast.BinOp):
        fits = type(tree.op) in _BINARY
    elif isinstance(tree, ast.UnaryOp):
        fits = type(tree.op) in _UNARY
    elif isinstance(tree, ast.Compare):
        fits = all(type(op) in _COMPARE for op in tree.ops)
    else:
        fits = isinstance(tree, ast.Name | ast.BoolOp | ast.List | ast.Tuple)
    if not fits:
        raise InvalidValue(f"`{ast.unparse(tree)}` is not allowed in an expression: compare names, numbers and texts.")
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.expr):
            _check(child, depth + 1)


def _value(tree: ast.expr, names: Mapping[str, Any]) -> Any:
    match tree:
        case ast.Constant():
            return tree.value
        case ast.Name():
            return names[tree.id]
        case ast.List() | ast.Tuple():
            return [_value(one, names) for one in tree.elts]
        case ast.UnaryOp():
            return _UNARY[type(tree.op)](_value(tree.operand, names))
        case ast.BinOp():
            return _BINARY[type(tree.op)](*_numbers(_value(tree.left, names), _value(tree.right, names)))
        case ast.Call():
            assert isinstance(tree.func, ast.Name)
            return _FUNCTIONS[tree.func.id](*[_value(one, names) for one in tree.args])
        case ast.BoolOp():
            every = isinstance(tree.op, ast.And)
            return (
                all(_value(one, names) for one in tree.values)
                if every
                else any(_value(one, names) for one in tree.values)
            )
        case ast.Compare():
            left = _value(tree.left, names)
            for op, right in zip(tree.ops, (_value(one, names) for one in tree.comparators), strict=True):
                if not _COMPARE[type(op)](left, right):
                    return False
                left = right
            return True
    raise TypeError(ast.dump(tree))


def _numbers(left: Any, right: Any) -> tuple[float, float]:
    """Texts can't be computed with: a long one, repeated, would fill the memory."""
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        raise TypeError("numbers")
    return float(left), float(right)


# Texts in quotes are passed over; then numbers with a unit, as in a job file.
_UNIT: Final = re.compile(r"'[^']*'|\"[^\"]*\"|(?<![\w.])[0-9]+(?:\.[0-9]+)?[A-Za-z]+(?![\w.])")
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {"min": min, "max": max, "abs": abs}
_BINARY: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_UNARY: Final[Mapping[type[ast.unaryop], Callable[[Any], Any]]] = {ast.Not: operator.not_, ast.USub: operator.neg}
_COMPARE: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda one, some: one in some, ast.NotIn: lambda one, some: one not in some,
}  # fmt: skip
