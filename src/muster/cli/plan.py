"""`muster plan`: what a training needs before it runs: memory, time and cost of each layout on each kind of device."""

from __future__ import annotations

import json as json_
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.lazy import load
from muster.cli.output import emit, note
from muster.cli.plan_view import show, show_history
from muster.core.money import parse_amount
from muster.core.units import InvalidValue, parse_duration
from muster.planner.apply import applied, settings
from muster.planner.catalogue import Device, chosen, read_catalogue
from muster.planner.compare import Compared, compared, corrected, factors
from muster.planner.search import Answer, search
from muster.planner.setups import Setup, changed, parse, read_file, setup_of, with_shape
from muster.planner.shapes import PlanError, shape_of_hub

_RUNS = 200  # runs that a history looks at, the newest


def plan(
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG", help="A file that `muster.train` reads: YAML, TOML or JSON.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: --set data.batch=64.")
    ] = None,
    hf: Annotated[Path | None, typer.Option("--hf", metavar="FILE", help="Take the model from a config.json.")] = None,
    task: Annotated[
        str | None, typer.Option(metavar="MODULE:CLASS", help="Trace a task of your own, with CONFIG for its settings.")
    ] = None,
    tokens: Annotated[float, typer.Option(help="Tokens to train on; the task's items with --task.")] = 20e9,
    on: Annotated[
        str | None, typer.Option(metavar="KINDS", help="Kinds of devices, as in H100,L4; all if left out.")
    ] = None,
    devices: Annotated[str, typer.Option(metavar="N..M", help="Numbers of devices: 8, 1..64 or 1,2,3.")] = "1..64",
    catalogue: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Devices and prices of your own, over the built-in ones.")
    ] = None,
    deadline: Annotated[str | None, typer.Option(help="Time that it may take, as in 3d.")] = None,
    budget: Annotated[str | None, typer.Option(help="What it may cost, as in 500.")] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Correct by past runs; without CONFIG, show predictions beside them.")
    ] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write one HTML file.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Write the answer's settings into CONFIG.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Every layout, and every reason why one does not fit.")] = False,
    json: Json = False,
) -> None:
    """Predict memory, time and cost of a training on every kind of device, before it runs.

    The answer is the simplest layout within --deadline and --budget. Nothing is trained, and no server is needed except
    for --history.
    """
    try:
        known: dict[str, Device] = read_catalogue(catalogue)
        past = _past(known) if history else []
        known = corrected(known, factors(past))
        if config is None and hf is None:
            if not history:
                raise Usage("There is no configuration.", "`muster plan config.yaml`, or `--hf config.json`.")
            emit(_history_doc(past)) if json else show_history(past)
            return
        setup = _setup(config, set_ or [], hf, task)
        kinds, counts = chosen(on, known), _counts(devices)
        limits = (_seconds(deadline), _amount(budget))
        answer = search(setup, kinds, counts, tokens, *limits)
        if html is not None:
            _write(html, load("muster.cli.plan_page:page")(answer, setup, tokens))
        if json:
            emit({"tokens": tokens, **answer.to_dict(), "history": _history_doc(past) if history else None})
        else:
            show(answer, setup, tokens, limits, every=all_)
        if apply:
            _apply(config, answer)
    except PlanError as error:
        raise Usage(str(error), "See `muster plan --help`.") from error


def _setup(config: Path | None, overrides: Sequence[str], hf: Path | None, task: str | None) -> Setup:
    raw: dict[str, Any] = {} if config is None else parse(read_file(config), config.suffix)
    raw = changed(raw, overrides)
    if task is not None:
        raw = {"steps": 1, **raw, "task": task}
    if raw.get("task", "language") != "language":
        return with_shape(raw, load("muster.planner.traced:trace_mapping")(raw), 1)
    if hf is None:
        return setup_of(raw)
    shape = shape_of_hub(parse(read_file(hf), ".json"))
    model: Mapping[str, Any] = raw.get("model") or {}
    if config is None:  # what people train such a model with
        raw = changed({"precision": "bf16", "parallel": {"compile": True}}, overrides)
    return with_shape(raw, shape, model.get("sequence") or min(shape.context, 4096))


def _past(known: Mapping[str, Device]) -> list[Compared]:
    """The server's runs of `muster.train` whose device the catalogue has."""
    found = []
    with client() as to:
        for run in to.runs("metrics.step_s > 0", limit=_RUNS):
            detail: Any = to.run(run.id)
            resources = (detail.doc.get("spec") or {}).get("resources") or {}
            made = compared(run.id, detail.params, detail.metrics, str(resources.get("accelerator") or ""), known)
            if made is not None:
                found.append(made)
    return found


def _history_doc(past: Sequence[Compared]) -> dict[str, Any]:
    return {"runs": [each.to_dict() for each in past], "factors": factors(past)}


def _apply(config: Path | None, answer: Answer) -> None:
    if config is None or answer.simplest is None:
        raise PlanError("There is nothing to apply: it takes CONFIG, and a layout that fits.")
    best = answer.simplest
    changes = settings(best)
    config.write_text(applied(read_file(config), config.suffix, changes), "utf-8")
    # Beside the configuration, so that the snapshot of a run's code has what was predicted of it.
    predicted = config.with_name(f"{config.stem}.plan.json")
    predicted.write_text(json_.dumps(best.to_dict(), indent=2) + "\n", "utf-8")
    told = ", ".join(f"{name}: {value}" for name, value in changes.items() if value is not None)
    note(f"{config} has {told}. {predicted} has what is predicted of it.")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise Usage(f"{path} can't be written: {error.strerror}.", "Give another file with --html.") from error
    note(f"Wrote {path}.")


def _counts(text: str) -> list[int]:
    """`1..64` is the powers of two in it, and its ends."""
    try:
        first, dots, last = text.partition("..")
        if not dots:
            found = sorted({int(each) for each in text.split(",")})
        else:
            low, high = int(first), int(last)
            found = sorted({low, high, *(2**n for n in range(20) if low <= 2**n <= high)})
    except ValueError:
        found = []
    if not found or found[0] < 1 or found[-1] > 100_000 or (dots and low > high):
        raise PlanError(f"--devices is {text!r}; expected 8, 1..64 or 1,2,3.")
    return found


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except InvalidValue as error:
        raise PlanError(f"--deadline is {text!r}; expected a duration such as 3d or 12h.") from error


def _amount(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_amount(text).micros / 1e6
    except InvalidValue as error:
        raise PlanError(f"--budget is {text!r}; expected an amount such as 500.") from error
