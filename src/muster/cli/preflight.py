"""`muster preflight` and its verbs. A first word that is not a verb is the job file to check."""

from __future__ import annotations

from typing import Final

from muster.cli.lazy import Verb, lazy_app

VERBS: Final = (
    Verb("run", "muster.cli.preflight_run:run", "What `muster preflight FILE` does, with all its options.", "Checking"),
    Verb("ls", "muster.cli.preflight_certificates:ls", "List certificates.", "Certificates"),
    Verb("waive", "muster.cli.preflight_certificates:waive", "Let a job run without a rung.", "Certificates"),
    Verb("revoke", "muster.cli.preflight_certificates:revoke", "Take a certificate back.", "Certificates"),
)
_HELP: Final = """Test a job before it gets expensive hardware: [bold]muster preflight job.yaml[/].

Five rungs, each an ordinary job: unit, resume, smoke, failure, canary. See docs/preflight.md."""

app = lazy_app(VERBS, bare="run", add_completion=False, rich_markup_mode="rich", help=_HELP,
               context_settings={"help_option_names": ["-h", "--help"]})  # fmt: skip
