"""The options of `muster sim` that are more than one word or number: declarations, parsing and checks."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import yaml

from muster.cli.call import Usage
from muster.core.units import InvalidValue, parse_duration, parse_integer, parse_number
from muster.sim.model import Costs

_TRACE, _WHAT_IF, _SEARCH, _OUT = "The trace", "What if", "Search and evidence", "Output"
MANY = 8  # replays of a search, as far as can be known before
SMALL = 2_000  # replayed jobs, below which starting processes takes longer than they save
SEARCHED = ("default", "fifo", "easy", "conservative", "tiresias", "fair")  # policies, unless some are given


def option(help_: str, panel: str, *names: str, metavar: str | None = None, least: float | None = None) -> Any:
    return typer.Option(*names, help=help_, rich_help_panel=panel, metavar=metavar, min=least)


Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        "-p",
        metavar="NAME|FILE",
        help="What to try: a policy file, or default, fifo, easy, conservative, sjf (an oracle), tiresias or fair. "
        "Several are compared with the first. Unless given: fifo and default.",
    ),
]
ClusterPath = Annotated[
    str | None,
    option("Pools in YAML, or a trace's JSON; unless given, the .json or .yaml beside the trace.", _TRACE, "--cluster"),
]
FromHistory = Annotated[
    bool, option("Replay the finished jobs of the server, on its nodes unless --cluster is given.", _TRACE, "--history")
]
Format = Annotated[
    str | None, option("columns, swf, sacct or history, where it can't be told from the file.", _TRACE, "--format")
]
MaxBad = Annotated[str, option("Share of bad rows up to which a trace is still taken.", _TRACE, "--max-bad")]
Procs = Annotated[int | None, option("Of an SWF trace: processors of a node.", _TRACE, "--procs-per-node", least=1)]
First = Annotated[int | None, option("Only the first so many jobs.", _TRACE, "--first", least=1)]
Confined = Annotated[
    bool,
    option("Each virtual cluster is a pool of its own. This is how they are taken unless said.", _TRACE, "--confined"),
]
Shared = Annotated[
    bool,
    option(
        "One pool of all nodes, each virtual cluster a queue with its own nodes as quota. With --confined: both.",
        _TRACE,
        "--shared",
    ),
]
AddNodes = Annotated[
    list[str] | None, option("More nodes; the pool may be left out where it is one.", _WHAT_IF, metavar="POOL=N")
]
RemoveNodes = Annotated[list[str] | None, option("Fewer nodes.", _WHAT_IF, metavar="POOL=N")]
Weights = Annotated[list[str] | None, option("Another weight of a queue.", _WHAT_IF, "--weight", metavar="QUEUE=N")]
Quotas = Annotated[
    list[str] | None,
    option("Another quota of a queue, in accelerators.", _WHAT_IF, "--quota", metavar="QUEUE[:POOL]=N"),
]
Settings = Annotated[
    list[str] | None,
    option("Any field of the policy: --set preemption.grace=30s.", _WHAT_IF, "--set", metavar="KEY=VALUE"),
]
Load = Annotated[float, option("Jobs come so many times as fast.", _WHAT_IF, "--load")]
NodeFailures = Annotated[float, option("Failures of a node in a day.", _WHAT_IF, "--node-failures", least=0)]
Repair = Annotated[str, option("How long a failed node is away.", _WHAT_IF, "--repair")]
Spot = Annotated[float, option("Interruptions of a spot node in a day.", _WHAT_IF, "--spot-interruptions", least=0)]
SaveEvery = Annotated[
    str | None,
    option("Jobs save so often; unless given, whenever they are asked to stop.", _WHAT_IF, "--checkpoint-every"),
]
SaveCost = Annotated[str, option("How long a save holds the work up.", _WHAT_IF, "--checkpoint-cost")]
RestartCost = Annotated[
    str | None,
    option("How long a restart takes. Unless given: 40s, and 60s above 8 accelerators.", _WHAT_IF, "--restart-cost"),
]
Seed = Annotated[int, option("Of failures and interruptions.", _WHAT_IF, "--seed")]
Find = Annotated[
    str | None,
    option(
        "Search for what meets the targets: nodes[:POOL], quota:QUEUE[:POOL] or policy. The first two under each policy"
        " that is given, or under default.",
        _SEARCH,
        "--find",
        metavar="WHAT",
    ),
]
Targets = Annotated[
    list[str] | None,
    option(
        'What is to be met: "p90 wait <= 1h", "mean completion of vision <= 6h". p50 to p100, median, mean or max; '
        "wait (without any node), start or completion. Several must all be met.",
        _SEARCH,
        "--target",
        metavar="TARGET",
    ),
]
Replications = Annotated[
    int,
    option(
        "Compare in up to so many worlds, each with other failures and, with --resample, other work; until it is"
        " decided. A search asks that the targets are met in each.",
        _SEARCH,
        "--replications",
        least=1,
    ),
]
Resample = Annotated[
    str | None,
    option("Blocks of the trace, such as 1d, that worlds draw their work from.", _SEARCH, "--resample",
           metavar="DURATION"),
]  # fmt: skip
ToEnd = Annotated[
    bool,
    option("Stop neither when a comparison is decided nor when a target is certain.", _SEARCH, "--to-end"),
]
Processes = Annotated[
    int | None, option("Replays at a time; unless given, one for each core.", _SEARCH, "--processes", least=1)
]
Alerts = Annotated[
    str | None, option("Raise alerts: by a file of rules, or `default`.", _OUT, "--alerts", metavar="RULES.yaml")
]
Prices = Annotated[
    str | None,
    option("A price book: what each policy would cost, at the prices of today.", _OUT, "--prices", metavar="FILE"),
]
Budgets = Annotated[
    str | None,
    option("Budgets in force, in YAML: jobs that they refuse or stop count. With prices.", _OUT, "--budgets",
           metavar="FILE"),
]  # fmt: skip
ReportPath = Annotated[
    str | None, option("Also write a report, as one HTML file.", _OUT, "--report", metavar="FILE.html")
]


def seconds(text: str, name: str, least: float = 0.0) -> float:
    try:
        found = parse_duration(text)
    except InvalidValue as unfit:
        raise Usage(f"{name}: got {text!r}.", unfit.hint or "Expected a duration such as 30m or 90s.") from None
    if not least <= found < math.inf:
        raise Usage(f"{name}: got {text!r}.", f"Expected a duration of {least:g}s or more.")
    return found


def rate(value: float, name: str, *, above: float = -1.0) -> float:
    """A finite number; Typer accepts `nan` and `inf`."""
    if not above < value < math.inf:
        raise Usage(f"{name}: got {value:g}.", f"Expected a number {'above 0' if above == 0 else 'of 0 or more'}.")
    return value


def restart_costs(text: str | None) -> tuple[float, float]:
    """The costs of a gang and of a wide gang; a given value is used for both."""
    if text is None:
        return Costs().restart, Costs().restart_wide
    given = seconds(text, "--restart-cost")
    return given, given


def check_find(find: str | None, targets: Sequence[str] | None, report: str | None) -> None:
    if find and not targets:
        raise Usage("--find was given without --target.", 'Say what is to be met: --target "p90 wait <= 1h".')
    if targets and not find:
        raise Usage("--target was given without --find.", "Say what to search for: --find nodes.")
    if find and report:
        raise Usage("--report has no place for a search.", "Leave it out, or compare the policies without --find.")


def default_policies(find: str | None) -> Sequence[str]:
    """What is tried where no policy is given."""
    if find is None:
        return ("fifo", "default")
    return SEARCHED if find == "policy" else ("default",)


def processes(given: int | None, jobs: int, replays: int) -> int:
    """One for each core that this process may use, but not more than there are replays; one for little work."""
    if given is not None:
        return given
    return 1 if jobs * replays < SMALL else min(len(os.sched_getaffinity(0)), replays)


def share(text: str, name: str) -> float:
    """A share such as `1%` or `0.01`."""
    try:
        value = parse_number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except InvalidValue:
        value = -1.0
    if not 0 <= value <= 1:
        raise Usage(f"{name}: got {text!r}.", "Expected a share such as 1% or 0.01.")
    return value


def node_counts(pairs: Sequence[str] | None, name: str, sign: int) -> tuple[tuple[str, int], ...]:
    """`pool=4`, or `4` for the only pool; `sign` is -1 if nodes are removed."""
    return tuple((pool, sign * _positive(text, name, pair)) for pool, text, pair in map(_last_pair, pairs or ()))


def quotas(pairs: Sequence[str] | None) -> tuple[tuple[str, str, str], ...]:
    """`queue=16`, or `queue:pool=16` if there are several pools."""
    found = []
    for pair in pairs or ():
        queue, amount = _pair(pair, "--quota", "research=16, or research:a100=16 where there are several pools")
        name, _, pool = queue.partition(":")
        found.append((name, pool, amount))
    return tuple(found)


def weights(pairs: Sequence[str] | None) -> tuple[tuple[tuple[str, ...], Any], ...]:
    """Weights as settings of the policy."""
    split = (_pair(pair, "--weight", "research=2") for pair in pairs or ())
    return tuple((("queues", queue, "weight"), weight) for queue, weight in split)


def settings(pairs: Sequence[str] | None) -> tuple[tuple[tuple[str, ...], Any], ...]:
    """Paths in a policy file, and the values to set there."""
    found = []
    for pair in pairs or ():
        name, text = _pair(pair, "--set", "preemption.grace=30s")
        path = tuple(name.split("."))
        if not all(path):
            raise Usage(f"--set: got {pair!r}.", "Write the keys of a policy file with dots between.")
        found.append((path, _value(text, pair)))
    return tuple(found)


def _pair(pair: str, name: str, example: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals or not key or not value:
        raise Usage(f"{name}: got {pair!r}.", f"Write, for example, {name} {example}.")
    return key.strip(), value.strip()


def _last_pair(pair: str) -> tuple[str, str, str]:
    pool, _, text = pair.rpartition("=")
    return pool.strip(), text, pair


def _positive(text: str, name: str, pair: str) -> int:
    try:
        count = parse_integer(text)
    except InvalidValue:
        count = 0
    if count < 1:
        raise Usage(f"{name}: got {pair!r}.", f"Expected a pool and a number of nodes, as in {name} a100=4.")
    return count


def _value(text: str, pair: str) -> Any:
    """A list or mapping is parsed as YAML; everything else stays text, as in a policy file."""
    try:
        return yaml.load(text, yaml.BaseLoader) if text[:1] in "[{" else text  # noqa: S506  (strings, lists, mappings)
    except yaml.YAMLError:
        raise Usage(f"--set: got {pair!r}.", "Close the bracket, as in --set defaults.pools=[a100].") from None
