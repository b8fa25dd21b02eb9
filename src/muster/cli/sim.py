"""`muster sim`: the effect that other rules, other nodes or another load would have had on past work."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from muster.api.errors import ErrorView
from muster.cli import sim_options as options
from muster.cli.alerts import read_rules
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.jobs import FINISHED
from muster.cli.output import emit
from muster.cli.sim_view import document, progress, show
from muster.core.errors import SpecError
from muster.core.money import DEFAULT_CURRENCY
from muster.core.prices import PriceBook
from muster.cost.budget_file import parse_budgets
from muster.cost.price_file import parse_prices
from muster.monitor.alerts.rule import RuleSet
from muster.monitor.alerts.rule_file import default_rules, parse_alert_rules
from muster.sim.cluster import ClusterFile, Layout, cluster_file_of, read_cluster
from muster.sim.description import describe
from muster.sim.model import Costs, Setup
from muster.sim.money import at_one_time
from muster.sim.presets import Preset, find_policy
from muster.sim.report import ReportContent, report
from muster.sim.run import replay
from muster.sim.summary import summarise
from muster.sim.traces import READERS, Trace, read_history, read_trace
from muster.sim.traces.base import Options
from muster.sim.traces.history import cluster_of
from muster.sim.whatif import Changes, caveats, fitted, make_setup, with_load


class Unusable(Usage):
    """A file or option that the simulation can't use; reports the mistakes in it."""

    def __init__(self, error: SpecError) -> None:
        super().__init__(error.message, error.hint)
        self._document = error.to_dict()

    def to_dict(self) -> ErrorView:
        return self._document


def sim(
    trace: Annotated[
        str | None,
        typer.Argument(
            metavar="TRACE", help="CSV in the columns of the public traces, SWF, `sacct -P`, or Muster's JSON."
        ),
    ] = None,
    policy: options.Policies = None,
    cluster: options.ClusterPath = None,
    history: options.FromHistory = False,
    format: options.Format = None,
    max_bad: options.MaxBad = "1%",
    procs_per_node: options.Procs = None,
    first: options.First = None,
    confined: options.Confined = False,
    shared: options.Shared = False,
    add_nodes: options.AddNodes = None,
    remove_nodes: options.RemoveNodes = None,
    weight: options.Weights = None,
    quota: options.Quotas = None,
    set_: options.Settings = None,
    load: options.Load = 1.0,
    node_failures: options.NodeFailures = 0.0,
    repair: options.Repair = "1h",
    spot_interruptions: options.Spot = 0.0,
    checkpoint_every: options.SaveEvery = None,
    checkpoint_cost: options.SaveCost = "0s",
    restart_cost: options.RestartCost = None,
    seed: options.Seed = 0,
    alerts: options.Alerts = None,
    prices: options.Prices = None,
    budgets: options.Budgets = None,
    report_to: options.ReportPath = None,
    json: Json = False,
) -> None:
    """Replay a trace through the scheduler itself, on a clock of its own, and compare policies.

    No server is needed. `muster sim jobs.csv.gz -p fifo -p my-policy.yaml --add-nodes 4 --report out.html`
    """
    changes = Changes(
        options.node_counts(add_nodes, "--add-nodes", 1) + options.node_counts(remove_nodes, "--remove-nodes", -1),
        options.quotas(quota),
        options.settings(set_) + options.weights(weight),
        Costs(
            *options.restart_costs(restart_cost),
            checkpoint_every=options.seconds(checkpoint_every, "--checkpoint-every", 1) if checkpoint_every else None,
            checkpoint_cost=options.seconds(checkpoint_cost, "--checkpoint-cost"),
            node_failures=options.rate(node_failures, "--node-failures"),
            repair=options.seconds(repair, "--repair"),
            spot_interruptions=options.rate(spot_interruptions, "--spot-interruptions"),
            seed=seed,
        ),
    )
    wanted = Options(None, procs_per_node, options.share(max_bad, "--max-bad"))
    with _as_usage_error():
        _check_writable(report_to)
        if history and trace is not None:
            raise Usage(f"{trace} was given, and so was --history.", "Leave one of them out.")
        policies = _policies(policy or ["fifo", "default"])
        found, file = _from_server(cluster, wanted) if history else _from_file(trace, cluster, wanted, format)
        setups = _setups(policies, file, _layouts(file, confined, shared), changes)
        if alerts is not None:
            setups = [replace(setup, alerts=_alert_rules(alerts)) for setup in setups]
        if prices is not None:
            book = _price_book(prices)
            setups = [replace(setup, prices=book) for setup in setups]
        if budgets is not None:
            currency = book.currency if prices is not None else DEFAULT_CURRENCY
            limits = parse_budgets(_bytes_of(budgets, "--budgets", "budgets"), currency, source=budgets)
            setups = [replace(setup, budgets=limits) for setup in setups]
        jobs, notes = fitted(with_load(found.jobs, options.rate(load, "--load", above=0), first), file.cluster)
        notes = [*found.ledger.notes(), *notes, *(words for setup in setups for words in caveats(setup, jobs))]
    with progress([setup.name for setup in setups], json) as begin:
        results = [replay(jobs, setup, begin(setup.name)) for setup in setups]
    facts = describe(found, jobs, setups, policies, load)
    title = f"{len(jobs):,} jobs of {Path(found.ledger.source).name}"
    content = ReportContent(title, file.origin, facts, notes, results, [summarise(result) for result in results])
    if report_to:
        Path(report_to).write_text(report(content), encoding="utf-8")
    if json:
        emit(document(content, found))
    else:
        show(content, found, report_to)


@contextmanager
def _as_usage_error() -> Iterator[None]:
    """Turns errors in the input into usage errors."""
    try:
        yield
    except SpecError as error:
        raise Unusable(error) from None


def _policies(words: Sequence[str]) -> dict[str, Preset]:
    """The policies, each under a unique name."""
    found: dict[str, Preset] = {}
    for word in words:
        name, preset = find_policy(word)
        if name in found:
            name = word
        if name in found:
            raise Usage(f"--policy {word} was given twice.", "Give each policy once.")
        found[name] = preset
    return found


def _alert_rules(file: str) -> RuleSet:
    return default_rules() if file == "default" else parse_alert_rules(read_rules(file), source=file)


def _price_book(file: str) -> PriceBook:
    text = _bytes_of(file, "--prices", "a price book")
    return at_one_time(parse_prices(text, source=file), time.time())


def _bytes_of(file: str, option: str, what: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise Usage(f"{option}: {file} can't be read: {error.strerror}.", f"Name {what} in YAML.") from error


def _from_server(cluster: str | None, wanted: Options) -> tuple[Trace, ClusterFile]:
    with client() as to:
        source = to.target.urls[0]
        jobs = [job.raw for job in to.jobs(phase=FINISHED, limit=None)]
        nodes = [] if cluster else to.nodes()
    file = read_cluster(Path(cluster)) if cluster else ClusterFile(source, cluster_of(nodes))
    return read_history(jobs, source, wanted.max_bad), file


def _from_file(
    trace: str | None, cluster: str | None, wanted: Options, format: str | None
) -> tuple[Trace, ClusterFile]:
    if trace is None:
        raise Usage("No trace was given.", "Name a file, or replay the server's own jobs with --history.")
    if format is not None and format not in READERS:
        raise Usage(f"--format: got {format!r}.", f"Expected one of {', '.join(READERS)}.")
    path = Path(trace)
    where = Path(cluster) if cluster else cluster_file_of(path)
    file = read_cluster(where) if where else None
    found = read_trace(path, replace(wanted, per_node=file.per_node if file else None), format)
    if file is None and found.ledger.cluster is not None:
        file = ClusterFile(trace, found.ledger.cluster)
    if file is None:
        hint = 'Give --cluster with a file such as `pools: {a100: {nodes: 16, accelerators: "A100:8"}}`.'
        raise Usage(f"{trace} does not say what it ran on, and there is no cluster file beside it.", hint)
    return found, file


def _layouts(file: ClusterFile, confined: bool, shared: bool) -> list[Layout]:
    """Virtual clusters are confined, as in the original cluster, unless the options say otherwise."""
    if not file.virtual:
        if confined or shared:
            option = "--confined" if confined else "--shared"
            raise Usage(f"{option}: {file.source} has no virtual clusters.", "Leave it out.")
        return ["plain"]
    both: list[Layout] = ["confined", "shared"]
    return both if confined and shared else both[1:] if shared else both[:1]


def _setups(
    policies: Mapping[str, Preset], file: ClusterFile, layouts: Sequence[Layout], changes: Changes
) -> list[Setup]:
    return [
        make_setup(_label(name, preset, layout if len(layouts) > 1 else ""), preset, file, layout, changes)
        for layout in layouts
        for name, preset in policies.items()
    ]


def _label(name: str, preset: Preset, layout: str) -> str:
    words = ", ".join(filter(None, ["oracle" if preset.exact else "", layout]))
    return f"{name} ({words})" if words else name


def _check_writable(path: str | None) -> None:
    """Checked before the work, not after it."""
    if path is not None and (Path(path).is_dir() or not Path(path).absolute().parent.is_dir()):
        raise Usage(f"--report: {path} can't be written.", "Name a file in a folder that exists.")
