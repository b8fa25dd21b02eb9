"""`muster tune` and its verbs. A first word that is not a verb is the study file to start."""

from __future__ import annotations

from typing import Final

from muster.cli.lazy import Verb, lazy_app

_START, _LOOK, _STEER, _AFTER, _OTHERS = "Starting", "Looking", "Steering", "What came out", "Other tools"
VERBS: Final = (
    Verb("start", "muster.cli.tune_start:start", "What `muster tune FILE` does, with all its options.", _START),
    Verb("ls", "muster.cli.tune_list:ls", "List studies.", _LOOK),
    Verb("status", "muster.cli.tune_show:status", "How a study stands; --watch follows it.", _LOOK),
    Verb("trials", "muster.cli.tune_list:trials", "List the trials of a study.", _LOOK),
    Verb("stop", "muster.cli.tune_steer:stop", "Stop studies: their trials save, then leave.", _STEER),
    Verb("resume", "muster.cli.tune_steer:resume", "Continue studies that were stopped, or are over.", _STEER),
    Verb("extend", "muster.cli.tune_steer:extend", "Give a study more trials, money or time.", _STEER),
    Verb("change", "muster.cli.tune_change:change", "Put another study file in force.", _STEER),
    Verb("enqueue", "muster.cli.tune_steer:enqueue", "Try these parameters next.", _STEER),
    Verb("best", "muster.cli.tune_show:best", "The best parameters, and how they held up.", _AFTER),
    Verb("report", "muster.cli.tune_show:report", "The report of a study, also as HTML.", _AFTER),
    Verb("promote", "muster.cli.tune_promote:promote", "Submit the winner at the next scale.", _AFTER),
    Verb("export", "muster.cli.tune_export:export", "Write the trials as CSV, JSON, or a study of Optuna.", _AFTER),
    Verb("import", "muster.cli.tune_import:import_", "Read studies of Optuna or Ray Tune as runs.", _OTHERS),
    Verb("journals", "muster.cli.tune_journals:journals", "Where Optuna's studies are kept here.", _OTHERS),
)
_HELP: Final = """Search for good parameters: [bold]muster tune study.yaml[/].

Trials are ordinary jobs of the study's queue. See docs/tune.md."""

app = lazy_app(VERBS, bare="start", add_completion=False, rich_markup_mode="rich", help=_HELP,
               context_settings={"help_option_names": ["-h", "--help"]})  # fmt: skip
