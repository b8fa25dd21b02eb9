"""What `muster plan` prints: the options, a picture of the answer's memory, what does not fit, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from muster.cli.output import out, show_table, table
from muster.planner.catalogue import GIB
from muster.planner.compare import Compared, factors
from muster.planner.search import Answer, Option, Refused, format_seconds
from muster.planner.setups import Setup, Traced

_COLOURS: Final = {
    "weights": "blue", "optimizer": "cyan", "gradients": "magenta", "activations": "green", "loss": "yellow",
    "buffers": "red", "reserve": "bright_black",
}  # fmt: skip
_WIDE: Final = 60  # characters of the picture
_REASONS: Final = 12


def show(
    answer: Answer, setup: Setup, tokens: float, limits: tuple[float | None, float | None], every: bool = False
) -> None:
    out().print(Text(describe(setup, tokens), style="bold"))
    _options(list(answer.options) if every else best_of(answer.options), setup)
    for line in conclusions(answer, limits):
        out().print(Text(line))
    if answer.simplest is not None:
        out().print(picture(answer.simplest))
    reasons = list(answer.refused) if every else smallest(answer)
    if reasons:
        out().print(Text("What does not fit, and why", style="bold"))
    for each in reasons if every else reasons[:_REASONS]:
        out().print(Text(f"  {each.devices} x {each.device}, {each.layout}: {each.why}"))
    out().print(Text("Predictions are formulas, fitted to an H200; see docs/planner.md.", style="dim"))


def describe(setup: Setup, tokens: float) -> str:
    model, unit = setup.model, unit_of(setup)
    length = "" if isinstance(model, Traced) else f" of {setup.sequence:,} tokens"
    compiled = ", compiled" if setup.compile else ""
    return (
        f"{model.parameters / 1e6:,.1f} M parameters, {setup.batch:,} samples{length} a step, {setup.compute}{compiled}"
        f", {tokens / 1e9:,.3g} billion {unit}"
    )


def unit_of(setup: Setup) -> str:
    return setup.model.unit if isinstance(setup.model, Traced) else "tokens"


def best_of(options: Sequence[Option]) -> list[Option]:
    """The fastest for each device and number."""
    best: dict[tuple[str, int], Option] = {}
    for each in options:
        key = (each.device.name, each.layout.devices)
        if key not in best or each.seconds < best[key].seconds:
            best[key] = each
    return list(best.values())


def smallest(answer: Answer) -> list[Refused]:
    """Of each device on which something does not fit, the first layout that doesn't, for want of memory if any."""
    first: dict[str, Refused] = {}
    for each in sorted(answer.refused, key=lambda each: not each.why.startswith("It needs")):
        first.setdefault(each.device, each)
    return list(first.values())


def conclusions(answer: Answer, limits: tuple[float | None, float | None]) -> Iterator[str]:
    deadline, budget = limits
    asked = [f"within {format_seconds(deadline)}"] if deadline is not None else []
    asked += [f"for {budget:,.0f} USD at most"] if budget is not None else []
    within = f" {' and '.join(asked)}" if asked else ""
    if answer.simplest is None:
        yield f"Nothing that fits trains it{within}."
    else:
        yield f"Simplest{within}: {sentence(answer.simplest)}."
        if answer.cheapest is not None and answer.cheapest is not answer.simplest:
            yield f"Cheapest{within}: {sentence(answer.cheapest)}."
    for device, text in answer.stops.items():
        yield f"{device} stops paying {text}."
    yield from answer.cheaper


def sentence(option: Option) -> str:
    corrected = f", corrected by {option.step.factor:.2f} from past runs" if option.step.factor != 1 else ""
    return (
        f"{option.layout.devices} x {option.device.name}, {option.words}: {format_seconds(option.seconds)}, "
        f"{option.cost:,.0f} USD{corrected}"
    )


def picture(option: Option) -> Text:
    """The memory of one device as a bar."""
    made = Text(
        f"Memory of each {option.device.name}: {option.memory.total / GIB:.1f} GiB of {option.device.memory_gib:.0f}\n"
    )
    drawn = 0
    parts = {name: size for name, size in option.memory.parts().items() if size}
    reached = 0.0
    for name, size in parts.items():
        reached += size
        cells = round(_WIDE * reached / option.device.memory) - drawn
        made.append("█" * cells, _COLOURS[name])
        drawn += cells
    made.append("░" * max(0, _WIDE - drawn), "bright_black")
    for name, size in parts.items():
        made.append("\n  █ ", _COLOURS[name])
        made.append(f"{name:<12}{size / GIB:7.1f} GiB")
    return made


def show_history(past: Sequence[Compared]) -> None:
    if not past:
        out().print(Text("No run of `muster.train` on a device of the catalogue has reported the time of its steps."))
        return
    numbers = ("devices", "step", "predicted", "ratio", "memory", "predicted memory")
    made = table("run", "device", *numbers, right=numbers)
    for each in past:
        made.add_row(
            each.run, each.device, str(each.devices), _ms(each.measured_s), _ms(each.predicted_s),
            f"{each.ratio:.2f}" if each.ratio else "", _gib(each.measured_gib), _gib(each.predicted_gib),
        )  # fmt: skip
    show_table(made)
    for device, factor in factors(past).items():
        out().print(Text(f"{device}: a step takes {factor:.2f} times what is predicted (median)."))


def _options(options: Sequence[Option], setup: Setup) -> None:
    numbers = ("n", "GiB", "of", "step", "MFU", f"{unit_of(setup)}/s", "USD/billion", "time", "USD")
    made = table("device", "n", "layout", *numbers[1:], right=numbers)
    for each in options:
        step = each.step
        made.add_row(
            each.device.name, str(each.layout.devices), each.words, f"{each.memory.total / GIB:.1f}",
            f"{each.device.memory_gib:.0f}", _ms(step.seconds), f"{step.mfu:.0%}", f"{step.rate:,.0f}",
            f"{step.per_billion:,.1f}", format_seconds(each.seconds), f"{each.cost:,.0f}",
        )  # fmt: skip
    show_table(made)


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:,.0f} ms"


def _gib(size: float | None) -> str:
    return "" if size is None else f"{size:.1f} GiB"
