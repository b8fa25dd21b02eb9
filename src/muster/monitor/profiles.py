"""Merges the profiles of ranks: how often each stack was seen, and in which functions the time goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from muster.api.stacks import RankStacks

Stack = tuple["Frame", ...]  # the outermost frame first


class Frame(NamedTuple):
    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


@dataclass(frozen=True, slots=True)
class Function:
    """`own`: samples in which it was the innermost; `whole`: in which it was on the stack at all."""

    name: str
    file: str
    own: int
    whole: int
    lines: Sequence[tuple[int, int]]  # the lines of it that were on the stack, and how often; the most frequent first


def merged(ranks: Iterable[RankStacks]) -> Counter[Stack]:
    found: Counter[Stack] = Counter()
    for one in ranks:
        if (profile := one.get("profile")) is not None:
            frames = [Frame(each["function"], each["file"], each["line"]) for each in profile["frames"]]
            for stack in profile["stacks"]:
                found[tuple(frames[at] for at in stack["at"])] += stack["count"]
    return found


def functions(stacks: Counter[Stack]) -> list[Function]:
    """Those in which a stack ended first, then those that called them; each once, however deep it recurs."""
    own: Counter[tuple[str, str]] = Counter()
    whole: Counter[tuple[str, str]] = Counter()
    lines: dict[tuple[str, str], Counter[int]] = {}
    for stack, count in stacks.items():
        if stack:
            own[stack[-1].function, stack[-1].file] += count
        for key in {(one.function, one.file) for one in stack}:
            whole[key] += count
        for one in set(stack):
            lines.setdefault((one.function, one.file), Counter())[one.line] += count
    ordered = sorted(whole, key=lambda key: (-own[key], -whole[key], key))
    return [Function(*key, own[key], whole[key], lines[key].most_common()) for key in ordered]


def folded(stacks: Counter[Stack]) -> str:
    """A line for each stack, as flamegraph.pl, speedscope and inferno read it."""
    ordered = sorted(stacks.items(), key=lambda one: (-one[1], one[0]))
    return "".join(f"{';'.join(str(one).replace(';', ':') for one in stack)} {count}\n" for stack, count in ordered)
