"""`muster runs` and its verbs. A first word that is not a verb starts a query."""

from __future__ import annotations

from typing import Final

from muster.cli.lazy import Verb, lazy_app

_ASK, _ONE, _OTHERS = "Asking", "One run", "Other tools and places"
VERBS: Final = (
    Verb("find", "muster.cli.run_table:find", "What `muster runs QUERY` does, with all its options.", _ASK),
    Verb("ls", "muster.cli.run_table:find", "The same.", _ASK),
    Verb("save", "muster.cli.runs_saved:save", "Keep a query under a name, for `muster runs @NAME`.", _ASK),
    Verb("queries", "muster.cli.runs_saved:queries", "List the queries that are kept, or remove one.", _ASK),
    Verb("failures", "muster.cli.runs_failures:failures", "What ended attempts, where, and how often to save.", _ASK),
    Verb("show", "muster.cli.runs_show:show", "Show everything that was captured of a run.", _ONE),
    Verb("goodput", "muster.cli.runs_goodput:goodput", "What the held time went to; also of a project.", _ONE),
    Verb("tag", "muster.cli.runs_tag:tag", "Set and remove tags of runs.", _ONE),
    Verb("lineage", "muster.cli.lineage:lineage", "What it was made from, and what was made from it.", _ONE),
    Verb("artifacts", "muster.cli.artifacts:app", "List, get and put the files of a run.", _ONE),
    Verb("reproduce", "muster.cli.runs_reproduce:reproduce", "Run it again exactly; says what can't be.", _ONE),
    Verb("rm", "muster.cli.runs_rm:rm", "Delete runs for good, or hide them.", _ONE),
    Verb("export", "muster.cli.runs_export:export", "Write runs as CSV, Parquet, TensorBoard or MLflow.", _OTHERS),
    Verb("import", "muster.cli.runs_import:import_", "Read runs of MLflow, W&B, TensorBoard, Optuna or Ray.", _OTHERS),
    Verb("sync", "muster.cli.runs_sync:sync", "Ship runs that were recorded while no server was there.", _OTHERS),
)
_HELP: Final = """Ask for runs: [bold]muster runs "metrics.val_loss < 2.1 and params.lr >= 3e-4 and data = c4-en@v3"[/].

Without a query it lists the newest. See `muster runs find --help` for sorting and columns, and docs/tracking.md for
the language."""

app = lazy_app(VERBS, bare="find", add_completion=False, rich_markup_mode="rich", help=_HELP,
               context_settings={"help_option_names": ["-h", "--help"]})  # fmt: skip
