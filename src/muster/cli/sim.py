"""`muster sim`: the effect that other rules, other nodes or another load would have had on past work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from muster.cli import sim_inputs as inputs
from muster.cli import sim_options as options
from muster.cli.call import Json, Usage
from muster.cli.output import emit
from muster.cli.sim_find import document as find_document
from muster.cli.sim_find import show as show_find
from muster.cli.sim_progress import Progress, progress
from muster.cli.sim_view import document, show
from muster.core.money import DEFAULT_CURRENCY
from muster.cost.budget_file import parse_budgets
from muster.sim.compare import compare
from muster.sim.description import describe
from muster.sim.model import Costs, Setup, TraceJob
from muster.sim.pool import Pool
from muster.sim.report import ReportContent, report
from muster.sim.search import Search, Searcher
from muster.sim.spaces import Space, space_of
from muster.sim.targets import Target, check_targets, parse_target
from muster.sim.traces.base import Options
from muster.sim.verdicts import notes_of
from muster.sim.whatif import Changes, caveats, fitted, with_load
from muster.sim.worlds import Worlds, check_blocks


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
    find: options.Find = None,
    target: options.Targets = None,
    replications: options.Replications = 1,
    resample: options.Resample = None,
    to_end: options.ToEnd = False,
    processes: options.Processes = None,
    alerts: options.Alerts = None,
    prices: options.Prices = None,
    budgets: options.Budgets = None,
    report_to: options.ReportPath = None,
    json: Json = False,
) -> None:
    """Replay a trace through the scheduler itself, on a clock of its own, and compare policies.

    No server is needed. `muster sim jobs.csv.gz -p fifo -p my-policy.yaml --add-nodes 4 --report out.html`

    With --find it searches: `muster sim jobs.csv.gz --find nodes --target "p90 wait <= 1h"`
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
    block = options.seconds(resample, "--resample", 1) if resample else None
    options.check_find(find, target, report_to)
    with inputs.as_usage_error():
        inputs.check_writable(report_to)
        if history and trace is not None:
            raise Usage(f"{trace} was given, and so was --history.", "Leave one of them out.")
        targets = tuple(map(parse_target, target or ()))
        policies = inputs.policies_of(policy or options.default_policies(find))
        if history:
            found, file = inputs.from_server(cluster, wanted)
        else:
            found, file = inputs.from_file(trace, cluster, wanted, format)
        setups = inputs.setups_of(policies, file, inputs.layouts_of(file, confined, shared), changes)
        setups = _with_files(setups, alerts, prices, budgets)
        jobs, notes = fitted(with_load(found.jobs, options.rate(load, "--load", above=0), first), file.cluster)
        notes = [*found.ledger.notes(), *notes, *(words for setup in setups for words in caveats(setup, jobs))]
        worlds = _worlds(replications, Worlds(seed, block), setups, jobs)
        check_targets(targets, jobs)
        space = space_of(find, setups, jobs, targets) if find else None
    facts = [*describe(found, jobs, setups, policies, load), *(worlds.facts() if worlds else [])]
    title = f"{len(jobs):,} jobs of {Path(found.ledger.source).name}"
    cores = options.processes(processes, len(jobs), len(setups) * replications if find is None else options.MANY)
    with progress(quiet=json) as bars, Pool(jobs, worlds, cores, bars.partial, bars.done) as pool:
        if find:
            searched = _search(pool, setups, space, targets, replications, to_end, bars)
        else:
            compared = compare(setups, pool, replications, to_end, bars.world)
    if find:
        given = find_document(searched, find, space, targets, facts, notes, found)
        emit(given) if json else show_find(searched, title, space, targets, notes)
        return
    notes += notes_of(compared, [setup.name for setup in setups])
    content = ReportContent(title, file.origin, facts, notes, compared.results, compared.summaries)
    if report_to:
        Path(report_to).write_text(report(content), encoding="utf-8")
    if json:
        emit(document(content, found, compared))
    else:
        show(content, found, report_to)


def _with_files(setups: list[Setup], alerts: str | None, prices: str | None, budgets: str | None) -> list[Setup]:
    """The setups with alerts, prices and budgets from their files."""
    if alerts is not None:
        setups = [replace(setup, alerts=inputs.alert_rules(alerts)) for setup in setups]
    currency = DEFAULT_CURRENCY
    if prices is not None:
        book = inputs.price_book(prices)
        currency, setups = book.currency, [replace(setup, prices=book) for setup in setups]
    if budgets is not None:
        limits = parse_budgets(inputs.bytes_of(budgets, "--budgets", "budgets"), currency, source=budgets)
        setups = [replace(setup, budgets=limits) for setup in setups]
    return setups


def _worlds(count: int, worlds: Worlds, setups: Sequence[Setup], jobs: Sequence[TraceJob]) -> Worlds | None:
    """None where the trace is replayed once, as it is."""
    if worlds.block is not None:
        check_blocks(jobs, worlds.block)
    elif count == 1:
        return None
    if not any(map(worlds.vary, setups)):
        raise Usage(
            f"--replications {count}: nothing varies. Without failures, a replay of the same trace always gives the"
            " same result, so repeating it is no evidence of anything.",
            "Give --node-failures, --spot-interruptions, or --resample 1d to draw the days of the trace anew.",
        )
    return worlds


def _search(
    pool: Pool, setups: Sequence[Setup], space: Space | None, targets: tuple[Target, ...], worlds: int, to_end: bool,
    bars: Progress,
) -> Search:  # fmt: skip
    return Searcher(pool, targets, worlds, to_end, bars.tried).search(setups, space)
