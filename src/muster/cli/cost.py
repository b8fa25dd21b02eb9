"""`muster cost` and its verbs. Without a verb it is the report."""

from __future__ import annotations

from typing import Final

from muster.cli.lazy import Verb, lazy_app

_REPORTS, _LIMITS, _PROOF, _OTHERS = "Reports", "Prices and budgets", "One figure", "Other tools"
VERBS: Final = (
    Verb("report", "muster.cli.cost_report:report", "What `muster cost` does, with all its options.", _REPORTS),
    Verb("families", "muster.cli.cost_figures:families", "What each success of a family cost.", _REPORTS),
    Verb("runs", "muster.cli.cost_figures:runs", "Runs by cost and metric, and what a point cost.", _REPORTS),
    Verb("waste", "muster.cli.cost_figures:waste", "What was charged for time that trained nothing.", _REPORTS),
    Verb("forecast", "muster.cli.cost_figures:forecast", "What the month will have cost, with a band.", _REPORTS),
    Verb("change", "muster.cli.cost_figures:change", "The change since the period before, explained.", _REPORTS),
    Verb("spot", "muster.cli.cost_figures:spot", "What spot saved net of its interruptions.", _REPORTS),
    Verb("hours", "muster.cli.cost_figures:hours", "What an accelerator-hour cost by pool.", _REPORTS),
    Verb("advice", "muster.cli.cost_advice:advice", "What would save money, and how to do it.", _REPORTS),
    Verb("prices", "muster.cli.cost_prices:prices", "What an hour of each pool costs.", _LIMITS),
    Verb("apply", "muster.cli.cost_prices:apply", "Put a price book in force.", _LIMITS),
    Verb("budget", "muster.cli.cost_budgets:budget", "How much jobs may cost.", _LIMITS),
    Verb("grant", "muster.cli.cost_budgets:grant", "Grant a budget more money.", _LIMITS),
    Verb("explain", "muster.cli.cost_explain:explain", "The events and prices that an amount is made of.", _PROOF),
    Verb("statement", "muster.cli.cost_export:statement", "What a project is charged, as CSV or HTML.", _OTHERS),
    Verb("focus", "muster.cli.cost_export:focus", "Write the entries as CSV in FOCUS 1.2.", _OTHERS),
    Verb("reconcile", "muster.cli.cost_reconcile:reconcile", "Compare with sacct or a provider's bill.", _OTHERS),
)
_HELP: Final = """What work cost: [bold]muster cost --by project,user --since 30d[/].

Without a verb it is the report of this month so far, by project. See docs/cost.md."""

app = lazy_app(VERBS, bare="report", add_completion=False, rich_markup_mode="rich", help=_HELP,
               context_settings={"help_option_names": ["-h", "--help"]})  # fmt: skip
