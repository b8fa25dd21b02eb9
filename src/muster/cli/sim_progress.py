"""The progress of `muster sim`: bars with partial results on a terminal, now and then a line otherwise."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column

from muster.cli.output import err, note
from muster.sim.answers import Answer, Ask
from muster.sim.compare import Compared
from muster.sim.partial import Partial
from muster.sim.search import Tried
from muster.sim.table import count, span

_NAME, _BAR = 28, 12  # columns of a terminal, of which 80 are to hold all of it
EVERY: Final = 5.0  # seconds between two lines where there is no terminal


class Progress:
    """Says nothing by itself: what runs without anybody who looks."""

    def partial(self, ask: Ask, partial: Partial) -> None:
        """A replay goes on."""

    def done(self, ask: Ask, answer: Answer) -> None:
        """A replay has ended."""

    def world(self, compared: Compared) -> None:
        """All policies have been replayed in one more world."""

    def tried(self, tried: Tried) -> None:
        """A candidate of a search has been judged."""


class Lines(Progress):
    """Plain lines on standard error, for logs; the first when a replay takes longer than that."""

    def __init__(self, every: float = EVERY) -> None:
        self._every, self._said = every, time.monotonic()

    def partial(self, ask: Ask, partial: Partial) -> None:
        self._say(f"{ask.label}: {partial.share:.0%}, {partial_words(partial)}")

    def done(self, ask: Ask, answer: Answer) -> None:
        self._say(f"{ask.label}: {answer_words(answer)}")

    def world(self, compared: Compared) -> None:
        self._say(world_words(compared))

    def tried(self, tried: Tried) -> None:
        self._say(tried_words(tried))

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if text and now - self._said >= self._every:
            self._said = now
            note(text)


class OnTerminal(Progress):
    """A bar for each replay that runs, and a line above them for what is known so far."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._tasks: dict[tuple[str, int], TaskID] = {}

    def partial(self, ask: Ask, partial: Partial) -> None:
        task = self._tasks.get((ask.label, ask.world))
        if task is None:
            task = self._tasks[ask.label, ask.world] = self._bars.add_task(ask.label, total=1.0, words="")
        self._bars.update(task, completed=partial.share, words=partial_words(partial))

    def done(self, ask: Ask, answer: Answer) -> None:
        task = self._tasks.pop((ask.label, ask.world), None)
        if task is not None:
            self._bars.remove_task(task)
        self._bars.console.print(f"[dim]{ask.label}: {answer_words(answer)}[/]", highlight=False)

    def world(self, compared: Compared) -> None:
        if words := world_words(compared):
            self._bars.console.print(words, highlight=False)

    def tried(self, tried: Tried) -> None:
        self._bars.console.print(tried_words(tried), highlight=False)


@contextmanager
def progress(*, quiet: bool, console: Console | None = None) -> Iterator[Progress]:
    """Nothing for programs; never on standard output."""
    console = console or err()
    if quiet:
        yield Progress()
    elif console.is_terminal:
        name = TextColumn("{task.description}", table_column=Column(no_wrap=True, max_width=_NAME))
        words = TextColumn("[dim]{task.fields[words]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
        columns = (name, BarColumn(_BAR), TaskProgressColumn(), words)
        with Bars(*columns, console=console, transient=True, expand=True) as bars:
            yield OnTerminal(bars)
    else:
        yield Lines()


def partial_words(partial: Partial) -> str:
    """The figures so far."""
    if partial.completion is None:
        return f"{count(partial.running)} run, {count(partial.waiting)} wait"
    told = f"{count(partial.finished)} done in {span(partial.completion)} on average, {span(partial.queueing)} queueing"
    return f"{told}; {count(partial.running)} run, {count(partial.waiting)} wait"


def answer_words(answer: Answer) -> str:
    took = span(answer.watched.wall)
    if answer.summary is None:
        met = "met" if answer.watched.met else "missed"
        return f"targets {met} for certain when {answer.watched.share:.0%} of the jobs were done, in {took}"
    mean = answer.summary.completion.mean
    return f"completion {span(mean)}, queueing {span(answer.summary.queueing.mean)}, in {took}"


def world_words(compared: Compared) -> str:
    """How the comparison stands; nothing where there is only one world."""
    if compared.test is None or not compared.test.pairs:
        return ""
    pairs = ", ".join(f"{pair.less}:{pair.more}" for pair in compared.test.pairs)
    open_ = sum(pair.verdict == "open" for pair in compared.test.pairs)
    return f"world {len(compared.worlds)} of up to {compared.planned}: sooner:later {pairs}; {open_} not decided"


def tried_words(tried: Tried) -> str:
    size = "" if tried.size is None else f", {tried.size:,}"
    return f"{tried.policy}{size}: {'meets the targets' if tried.met else 'misses'}"
