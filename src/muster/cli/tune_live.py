"""Follows a study to its end: a live picture on a terminal, else a line for each change, or JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, Protocol

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from muster.api.events import EventView
from muster.api.studies import StudyStatus
from muster.cli.connect import client, say_link
from muster.cli.event_words import words
from muster.cli.output import SafeConsole, emit, note, out, phase_text
from muster.cli.tune_words import status_line, status_screen
from muster.client import Client
from muster.core.errors import Unavailable

EVERY: Final = 1.0  # seconds between two looks
NEWS: Final = 5  # lines of it on the screen
FEW: Final = 3  # trials that end alike and still have a line each
_MOST: Final = 4  # parameters and levels on the screen
_EVENTS: Final = 2_000  # that are read at a look; of more, only those that come after them
_INTERRUPTED: Final = 130  # the exit code that a shell expects after Ctrl-C
# Told in lines; on the screen also those that begin and pass levels.
_TOLD: Final = frozenset({
    "study.changed", "study.enqueued", "study.waits", "study.stopped", "study.ended", "trial.paused", "trial.promoted",
    "trial.ended",
})  # fmt: skip
_END: Final = ("outcome", "note")
_LIVE: Final = ("queued", "running", "leaving")
_BAD: Final = frozenset({"failed", "infeasible", "diverged", "lost"})


class View(Protocol):
    def show(self, found: StudyStatus, news: Sequence[EventView]) -> None: ...
    def link(self, back: bool) -> None: ...
    def close(self) -> None: ...


def follow(to: Client, study: str, json: bool, every: float = EVERY, *, begun: bool = False) -> int:
    """Shows the study until it has ended or the user leaves; returns the exit code. `begun`: from its beginning on."""
    view: View = _Lines(json) if json or not sys.stdout.isatty() else _Screen()
    with client(on_link=view.link) as beside:
        try:
            news = _News(to, study, begun)
            for found in beside.watch_study(study, every):
                view.show(found, list(news.take()))
        except (KeyboardInterrupt, Unavailable) as left:
            view.close()
            note(f"{study} goes on. ", (f"Come back with `muster tune status --watch {study}`.", "green"))
            if isinstance(left, Unavailable):
                raise
            return _INTERRUPTED
        finally:
            view.close()
    return _end(to, study, json)


def screen(found: StudyStatus, news: Iterable[EventView] = (), width: int = 80, linked: bool = True) -> RenderableType:
    """How a study stands, how far it is, and what happened last."""
    lines = told(news)
    parts: list[RenderableType] = [status_screen(found, _MOST)]
    if (bar := _bar(found, width)) is not None:
        parts += [Text(""), bar]
    if lines:
        parts += [Text(""), *lines]
    if not linked:
        parts.append(Text("server away, retrying", style="yellow"))
    return Group(*parts)


def told(news: Iterable[EventView]) -> list[Text]:
    """A line for each event; trials that end in the same way for the same reason share one."""
    groups: list[list[EventView]] = []
    for event in news:
        last = groups[-1][-1] if groups else None
        if last is not None and event["kind"] == "trial.ended" and _same_end(last, event):
            groups[-1].append(event)
        else:
            groups.append([event])
    return [line for some in groups for line in (map(_line, some) if len(some) <= FEW else [_together(some)])]


class _News:
    """What happened to a study and its trials since the last look."""

    def __init__(self, to: Client, study: str, begun: bool) -> None:
        self._to, self._study = to, study
        job = to.job(study)
        self._project = job.project
        since = to.events(last=1, job=study, kind="study.started") if begun else to.events(last=1, project=job.project)
        self._after = max((event["seq"] for event in since), default=0)

    def take(self) -> Iterator[EventView]:
        found: list[EventView] = []
        with suppress(Unavailable):  # it is asked again at the next look
            found = list(islice(self._to.events(project=self._project, after=self._after), _EVENTS))
            self._after = found[-1]["seq"] if found else self._after
            if len(found) == _EVENTS:
                self._after = max((event["seq"] for event in self._to.events(project=self._project, last=1)), default=0)
        for event in found:
            of_it = event["job"] == self._study or event["data"].get("study") == self._study
            if of_it and event["kind"].startswith(("study.", "trial.")):
                yield event


class _Lines:
    def __init__(self, json: bool) -> None:
        self._json, self._states = json, ""
        self._best: object = self  # the number of the best trial that was shown last

    def show(self, found: StudyStatus, news: Sequence[EventView]) -> None:
        changed = [event for event in news if event["kind"] in _TOLD]
        states = repr((found["states"], found["best"]))
        if self._json:
            if changed or states != self._states:
                emit({"event": "status", "status": found, "news": changed})
        else:
            for line in told(changed):
                out().print(line)
            best = found["best"]["number"] if found["best"] is not None else None
            if best != self._best:
                out().print(Text(status_line(found), style="dim"))
            self._best = best
        self._states = states

    def link(self, back: bool) -> None:
        say_link(back)

    def close(self) -> None:
        pass


class _Screen:
    def __init__(self) -> None:
        self._console = SafeConsole(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False)
        self._news: list[EventView] = []
        self._found: StudyStatus | None = None
        self._live.start()

    def show(self, found: StudyStatus, news: Sequence[EventView]) -> None:
        self._found, self._news = found, [*self._news, *news][-NEWS:]
        self._draw(True)

    def link(self, back: bool) -> None:
        self._draw(back)

    def close(self) -> None:
        """The last picture stays."""
        self._live.stop()

    def _draw(self, linked: bool) -> None:
        if self._found is not None:
            self._live.update(screen(self._found, self._news, self._console.width, linked), refresh=True)


def _bar(found: StudyStatus, width: int) -> RenderableType | None:
    """Over the trials that have left their place."""
    trials = found["study"]["limits"]["trials"]
    if not trials["limit"]:
        return None
    live = sum(one["trials"] for one in found["states"] if one["state"] in _LIVE)
    done = max(0.0, min(trials["used"] - live, trials["limit"]))
    row = Table.grid(padding=(0, 2))
    told = f"{done:,.0f} of {trials['limit']:,.0f} trials"
    row.add_row(ProgressBar(total=trials["limit"], completed=done, width=max(10, min(40, width - 30))), told)
    return row


def _same_end(one: EventView, other: EventView) -> bool:
    mine, its = one["data"], other["data"]
    return one["kind"] == other["kind"] and bool(its.get("note")) and all(mine[key] == its[key] for key in _END)


def _together(some: Sequence[EventView]) -> Text:
    data, numbers = some[0]["data"], [event["data"]["number"] for event in some]
    note = f": {data['note']}" if data.get("note") else ""
    return _text(f"{len(some)} trials {data['outcome']}, {min(numbers)} to {max(numbers)}{note}", _style(some[0]))


def _line(event: EventView) -> Text:
    kind, data = event["kind"], event["data"]
    return _text(words(kind, data) or (data.get("reason") or {}).get("message", "") or kind, _style(event))


def _text(text: str, style: str) -> Text:
    return Text(" ".join(text.split()), style=style, no_wrap=True, overflow="ellipsis")


def _style(event: EventView) -> str:
    kind, outcome = event["kind"], event["data"].get("outcome")
    if kind == "trial.ended":
        return "red" if outcome in _BAD else "green" if outcome == "complete" else ""
    return "" if kind.startswith("trial.") else "bold"


def _end(to: Client, study: str, json: bool) -> int:
    """Says how it ended; 0 if it succeeded."""
    job = to.job(study)
    if json:
        emit({"event": "end", "phase": job.phase, "job": job.raw, "status": to.study_status(study)})
        return 0 if job.phase == "succeeded" else 1
    told = Text.assemble((study, "bold"), " ", phase_text(job.phase))
    if job.reason is not None:
        told.append(f": {job.reason.message}")
    next_ = f"muster tune best {study}" if job.phase == "succeeded" else f"muster tune trials {study}"
    more = f" · muster tune resume {study}" if job.phase == "stopped" else ""
    told.append(f"\n  {next_} · muster tune report {study} --html report.html{more}", style="green")
    out().print(told)
    return 0 if job.phase == "succeeded" else 1
