"""No steady clock is measured from 0: that is when the machine was started, which may be a moment ago."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import muster

SOURCES = sorted(Path(muster.__file__).parent.rglob("*.py"))
CLOCKS = {"monotonic", "perf_counter", "_clock", "_now"}


def measured_from_zero(source: str) -> list[int]:
    """Lines where the time since a moment is taken, and that moment is 0 before anything has happened.

    As a time from which something may be done, 0 is right: it is always past. As a time at which something was done
    it is wrong: `now - done_at < 60` holds in the first minute after a boot.
    """
    tree = ast.parse(source)
    if not any(
        isinstance(node, ast.Attribute) and node.attr in ("monotonic", "perf_counter") for node in ast.walk(tree)
    ):
        return []
    zeros = set(_zeros(tree))
    return [
        node.lineno
        for node in ast.walk(tree)
        for moment in _moments(node)
        if _is_zero(moment) or _name(moment) in zeros
    ]


def _moments(node: ast.AST) -> Iterator[ast.expr]:
    """What a clock's time is compared with, or has taken off it."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and _reads_clock(node.left):
        yield node.right
    if isinstance(node, ast.Compare) and len(node.comparators) == 1:
        sides = (node.left, node.comparators[0])
        for this, other in (sides, sides[::-1]):
            if isinstance(other, ast.BinOp) and isinstance(other.op, ast.Sub) and _reads_clock(other.left):
                yield this


def _reads_clock(node: ast.expr) -> bool:
    return _name(node) == "now" or (isinstance(node, ast.Call) and _name(node.func) in CLOCKS)


def _zeros(tree: ast.Module) -> Iterator[str]:
    """Names that are set to 0 somewhere in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _zeros_of(node.target, node.value)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _zeros_of(target, node.value)


def _zeros_of(target: ast.expr, value: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=False):
            yield from _zeros_of(one, its)
    elif _is_zero(value) and (name := _name(target)):
        yield name


def _is_zero(node: ast.expr) -> bool:
    """0, or what is 0 where nothing is known: `x.get(key, 0)`, `x or 0`."""
    if isinstance(node, ast.Call) and _name(node.func) in ("get", "pop", "setdefault", "getattr"):
        return bool(node.args) and _is_zero(node.args[-1])
    if isinstance(node, ast.BoolOp):
        return any(_is_zero(value) for value in node.values)
    return isinstance(node, ast.Constant) and node.value in (0, 0.0) and node.value is not False


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("told.get(key, 0.0) > time.monotonic() - HOUR", True),
        ("time.monotonic() - told.get(key, 0) < HOUR", True),
        ("self.at = 0.0; fresh = time.monotonic() - self.at < 3", True),
        ("began, at = 1.0, 0.0; now = time.monotonic(); slow = now - at >= 5", True),
        ("at: float = 0; time.perf_counter() - at", True),
        ("self.at = float('-inf'); fresh = time.monotonic() - self.at < 3", False),
        ("self.retry_at = 0.0; due = time.monotonic() >= self.retry_at", False),
        ("began = time.monotonic(); took = time.monotonic() - began", False),
        ("at = 0.0; age = now - at", False),  # no steady clock in this file
    ],
)
def test_the_search_tells_wrong_from_right(body: str, wrong: bool) -> None:
    assert bool(measured_from_zero(body.replace("; ", "\n"))) == wrong


def test_no_steady_clock_is_measured_from_zero() -> None:
    found = {path.name: lines for path in SOURCES if (lines := measured_from_zero(path.read_text()))}
    assert not found
