"""Preset policies for comparison: the behaviour of other schedulers, written as Muster rules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from muster.core.errors import Problem, SpecError
from muster.core.policy_file import parse_rules
from muster.core.registry import Registry
from muster.core.rules import Backfill, Preemption, QueueRules, Rules
from muster.core.suggest import did_you_mean
from muster.sched.policies import POLICIES


@dataclass(frozen=True, slots=True)
class Preset:
    about: str
    rules: Rules
    exact: bool = False  # it knows true run times: an oracle, which no real cluster has


_NEVER: Final = Preemption(enabled=False)


def _still(order: str, backfill: Backfill) -> Rules:
    """Rules with one order for all queues, without preemption and without learnt estimates."""
    queue = QueueRules(
        order=order, backfill=backfill, ageing=None, overdue=None, preempts=False, preemptible=False
    )  # fmt: skip
    return Rules(estimates="declared", preemption=_NEVER, defaults=queue)


PRESETS: Final[Registry[Preset]] = Registry(
    "preset",
    {
        "default": Preset("Muster as it comes", Rules()),
        "fifo": Preset("first come first served: nobody passes a job that does not fit yet", _still("fifo", "none")),
        "easy": Preset("first come first served with EASY backfill on declared run times", _still("fifo", "easy")),
        "conservative": Preset(
            "first come first served with conservative backfill on declared run times", _still("fifo", "conservative")
        ),
        "sjf": Preset(
            "shortest job first with true run times: an oracle, for comparison only",
            _still("shortest", "none"),
            exact=True,
        ),
        "tiresias": Preset(
            "least attained service, two levels, chosen anew every 60 s",
            Rules(
                round=60.0,
                reselect=True,
                estimates="declared",
                defaults=QueueRules(order="attained", levels=(18_000.0,), ageing=None, overdue=None),
            ),
        ),
        "fair": Preset("fair shares between queues, then as Muster comes", Rules(between="fair")),
    },
)


def find_policy(word: str) -> tuple[str, Preset]:
    """A preset by name, or a policy file, with a name for it. SpecError where it is neither."""
    if word in PRESETS:
        return word, PRESETS.get(word)
    path = Path(word)
    try:
        text = path.read_bytes()
    except OSError as error:
        hint = did_you_mean(word, PRESETS, f"Presets are: {', '.join(PRESETS)}.", quote="'")
        given = "no preset of that name, and no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise SpecError([Problem(f"--policy {word}", given, "a preset or a policy file", hint)], "--policy") from None
    rules = parse_rules(text, source=word, orders=list(POLICIES))
    return path.stem, Preset(f"the policy file {word}", rules)
