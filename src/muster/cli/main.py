"""The entry point of `muster`: the table of verbs, and the reporting of errors without a traceback."""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from muster import __version__
from muster.cli import call
from muster.cli.call import CALL, Usage
from muster.cli.lazy import Verb, lazy_app, light_command, load
from muster.cli.run_words import RunCommand
from muster.cli.terminal import plain
from muster.core.errors import MusterError

# The command of HTTPX itself, which loads Click, Pygments and parts of Rich: a seventh of the start, for nothing here.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

_JOBS, _PLATFORM, _PEOPLE, _START = "Jobs", "What jobs run on", "Who may do what", "Begin here"
# What follows the first word of the command belongs to the command, not to `muster run`.
_COMMAND_LINE: Final = {"allow_interspersed_args": False}
VERBS: Final = (
    Verb("demo", "muster.cli.demo:demo", "See a job fail, recover and finish, in about a minute.", _START),
    Verb("init", "muster.cli.init:init", "Copy a starter template: a job file and a script that runs.", _START),
    Verb("up", "muster.cli.server:up", "Start a server on this machine.", _START),
    Verb("open", "muster.cli.open:open_", "Open the web page in a browser, signed in.", _START),
    Verb("down", "muster.cli.server:down", "Stop the server; running jobs go on.", _START),
    Verb("doctor", "muster.cli.doctor:doctor", "Check this machine and the server, and say what to mend.", _START),
    Verb("run", "muster.cli.run:run", "Run a command or a job file, and watch it.", _JOBS, _COMMAND_LINE, RunCommand),
    Verb("check", "muster.cli.check_file:check", "Tell every mistake in job files, without a server.", _JOBS),
    Verb("scan", "muster.cli.scan:scan", "Look for secrets in code, and for unsafe artifacts.", _JOBS),
    Verb("submit", "muster.cli.submit:submit", "Submit job files.", _JOBS),
    Verb("ls", "muster.cli.jobs:ls", "List jobs.", _JOBS),
    Verb("status", "muster.cli.status:status", "Show one job: where it stands, its attempts, its checkpoint.", _JOBS),
    Verb("why", "muster.cli.status:why", "Say why a job waits, restarted or ended, and what would change it.", _JOBS),
    Verb("logs", "muster.cli.logs:logs", "Print what a job wrote.", _JOBS),
    Verb("exec", "muster.cli.exec_:exec_", "Run a command beside a running job's ranks.", _JOBS),
    Verb("stacks", "muster.cli.stacks:stacks", "What every rank of a running job is doing, merged.", _JOBS),
    Verb("profile", "muster.cli.profile:profile", "Where the ranks of a running job spend their time.", _JOBS),
    Verb("diagnose", "muster.cli.diagnose:diagnose", "Say why a run is slow, idle, stuck or not learning.", _JOBS),
    Verb("attach", "muster.cli.exec_:attach", "Open a shell beside a running job's ranks.", _JOBS),
    Verb("cp", "muster.cli.cp:cp", "Copy files to and from a running job.", _JOBS),
    Verb("stop", "muster.cli.jobs:stop", "Stop jobs: they save, then leave.", _JOBS),
    Verb("save", "muster.cli.save:save", "Have a running job save now and go on.", _JOBS),
    Verb("resume", "muster.cli.jobs:resume", "Continue a stopped or failed job from its checkpoint.", _JOBS),
    Verb("priority", "muster.cli.jobs:priority", "Change the priority of a job that waits or runs.", _JOBS),
    Verb("drill", "muster.cli.drill:drill", "Break a job on purpose, and see whether it recovers.", _JOBS),
    Verb("runs", "muster.cli.runs:app", "Ask for runs by what they were given and what came out.", _JOBS),
    Verb("watch", "muster.cli.watch_run:watch_run", "Curves, pace and alerts of a run, live.", _JOBS),
    Verb("compare", "muster.cli.compare:compare", "Runs side by side: what differs, and whether it matters.", _JOBS),
    Verb("plan", "muster.cli.plan:plan", "Memory, time and cost of a training, before it runs.", _JOBS),
    Verb("preflight", "muster.cli.preflight:app", "Test a job before it gets expensive hardware.", _JOBS),
    Verb("tune", "muster.cli.tune:app", "Search for good parameters, with trials that are jobs.", _JOBS),
    Verb("note", "muster.cli.note:note", "Write into the logbook of a run or a project.", _JOBS),
    Verb("logbook", "muster.cli.logbook:logbook", "Read, search and export a logbook.", _JOBS),
    Verb("data", "muster.cli.data_sets:data", "The data sets that runs have read and written.", _JOBS),
    Verb("models", "muster.cli.models:app", "The model registry: versions, stages and the evidence for them.", _JOBS),
    Verb("promote", "muster.cli.promote:promote", "Promote a run to a larger stage, by what it has shown.", _JOBS),
    Verb("schema", "muster.cli.schema:schema", "Print the JSON Schema of a job file.", _JOBS),
    Verb("render", "muster.cli.render:render", "Print a job as what a cluster or a managed service takes.", _JOBS),
    Verb("import", "muster.cli.import_:import_", "Turn an sbatch script into a job file.", _JOBS),
    Verb("queue", "muster.cli.queues:app", "List, show and create queues, and set their rules.", _PLATFORM),
    Verb("policy", "muster.cli.policy:app", "Test a policy, try it on past jobs, show and apply it.", _PLATFORM),
    Verb("environment", "muster.cli.environment:app", "Packages with known vulnerabilities.", _PLATFORM),
    Verb("nodes", "muster.cli.nodes:app", "List nodes, drain them and put them back.", _PLATFORM),
    Verb("engines", "muster.cli.engines:app", "List the clusters that jobs run on, and how they are.", _PLATFORM),
    Verb("top", "muster.cli.top:top", "Show nodes and jobs, or the ranks of a job, live.", _PLATFORM),
    Verb("cost", "muster.cli.cost:app", "What work costs: reports, prices, budgets, advice.", _PLATFORM),
    Verb("alerts", "muster.cli.alerts:app", "What fires, what to do about it, and the rules.", _PLATFORM),
    Verb(
        "report",
        "muster.cli.report:report",
        "Figures of a month against their targets, and what was wasted.",
        _PLATFORM,
    ),
    Verb("sim", "muster.cli.sim:sim", "Replay past work under other rules, nodes or loads, and compare.", _PLATFORM),
    Verb("events", "muster.cli.events:events", "Print the event log, which is the audit log.", _PLATFORM),
    Verb("backup", "muster.cli.backup:backup", "Copy all that the server keeps, while it runs.", _PLATFORM),
    Verb("project", "muster.cli.projects:app", "Projects, their members and their secrets.", _PEOPLE),
    Verb("token", "muster.cli.tokens:app", "Create, list and revoke access tokens.", _PEOPLE),
)
# What people type who come from other tools, and the verb here.
OTHER_VERBS: Final = {
    **dict.fromkeys(["cancel", "kill", "rm", "delete", "scancel", "abort", "terminate"], "stop JOB"),
    **dict.fromkeys(["ps", "list", "jobs", "squeue", "qstat"], "ls"),
    **dict.fromkeys(["sbatch", "launch", "apply", "create", "qsub"], "submit FILE"),
    **dict.fromkeys(["srun", "start"], "run -- COMMAND"),
    **dict.fromkeys(["describe", "show", "info", "get", "scontrol"], "status JOB"),
    **dict.fromkeys(["log", "tail", "output"], "logs -f JOB"),
    **dict.fromkeys(["restart", "continue", "requeue", "retry"], "resume JOB"),
    **dict.fromkeys(["sinfo", "node", "hosts"], "nodes"),
    **dict.fromkeys(["sacct", "history", "experiments"], "runs"),
    **dict.fromkeys(["ssh", "shell", "enter"], "attach JOB"),
    **dict.fromkeys(["validate", "lint"], "check FILE"),
    **dict.fromkeys(["sweep", "hpo", "agent", "optimize"], "tune FILE"),
    **dict.fromkeys(["login", "ui", "dashboard", "web"], "open"),
    "explain": "why JOB",
    "queues": "queue",
    "policies": "policy show",
}
# Typer's usage errors have names that change between its versions; the base class of this public one covers them all.
_UsageError: Final[type[Any]] = typer.BadParameter.__bases__[0]

app = lazy_app(
    VERBS,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Muster: a training platform in one install. Begin with [bold]muster demo[/].",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code: 0, 1 for an error, 2 for a command line that is not valid."""
    gc.set_threshold(50_000)  # imports create many objects and no garbage: collecting costs a tenth of the start
    if argv is None:  # the process ends with this command: what it imported need not be searched for garbage
        atexit.register(gc.freeze)
    words = list(sys.argv[1:] if argv is None else argv)
    call.reset()
    try:
        code = _command()(words, prog_name="muster", standalone_mode=False)
        sys.stdout.flush()  # here, where a reader that has closed it is no error
        return code if isinstance(code, int) else 0
    except MusterError as error:
        load("muster.cli.output:show_error")(error.to_dict(), _json_wanted(words))
        return 2 if isinstance(error, Usage) else 1
    except _UsageError as error:
        return _usage(error, words)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # The reader of our output has closed it: what is still buffered must not raise again when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _crash(error, words)


@cache
def _command() -> Any:
    return light_command(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"muster {load('muster.version:described')()}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    url: Annotated[
        str | None, typer.Option(help="Server, or several with commas between; else MUSTER_URL, else this machine's.")
    ] = None,
    home: Annotated[Path | None, typer.Option(help="Home folder; else MUSTER_HOME, else ~/.muster.")] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="Certificates to trust, for a server elsewhere; else MUSTER_CA_FILE.")
    ] = None,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and its commit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    CALL.url, CALL.home, CALL.ca_file = url, home, ca_file
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def _usage(error: Any, words: list[str]) -> int:
    path = error.ctx.command_path if error.ctx else "muster"
    document = {"code": "usage", "message": error.format_message(), "hint": f"See `{path} --help`."}
    other = next((word for word in words if not word.startswith("-")), "")
    if path == "muster" and other in OTHER_VERBS:
        document |= {"message": f"There is no `muster {other}`.", "hint": f"Type `muster {OTHER_VERBS[other]}`."}
    load("muster.cli.output:show_error")(document, _json_wanted(words))
    return 2


def _crash(error: Exception, words: list[str]) -> int:
    """Reports a bug in Muster: one line for the user, the rest in a file that can be sent to us."""
    verb = next((word for word in words if not word.startswith("-")), "")
    path = call.home_folder() / "crash.log"
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    # Only the verb: the other words may contain private data.
    head = f"--- {when} muster {__version__} python {sys.version.split()[0]} verb {verb!r}\n"
    document = {"code": "bug", "message": f"Muster failed: {type(error).__name__}: {error}", "hint": ""}
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        with path.open("a") as file:
            file.write(head + "".join(traceback.format_exception(error)))
        document["hint"] = f"This is a bug of Muster's. Details are in {path}."
    except OSError as refused:
        document["hint"] = (
            f"This is a bug of Muster's. {path} can't be written ({refused.strerror}), so its details are lost."
        )
    if _json_wanted(words):
        sys.stdout.write(json.dumps({"error": document}) + "\n")
    else:
        sys.stderr.write(f"{plain(document['message'])}\n{document['hint']}\n")
    return 1


def _json_wanted(words: list[str]) -> bool:
    """Whether `--json` was given, even if the command line could not be parsed completely."""
    if CALL.json:
        return True
    if "--" in words:
        words = words[: words.index("--")]
    elif "run" in words:
        return False  # it may be an option of the command to be run
    return "--json" in words
