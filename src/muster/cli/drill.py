"""`muster drill`: faults on purpose in a job of one's own, and whether it recovers as it must."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from muster.cli import daemon, init
from muster.cli.call import CALL, Json, Usage, home_folder
from muster.cli.connect import client as connected
from muster.cli.connect import sees_our_files
from muster.cli.drill_view import Screen, show_list, show_results
from muster.cli.output import emit, note
from muster.cli.prepare import from_file, parse_overrides
from muster.cli.submit import Overrides
from muster.client import Client
from muster.core.parse import Overrides as Changes
from muster.core.parse import parse_job
from muster.core.spec import JobSpec
from muster.core.units import InvalidValue, parse_duration
from muster.drill import report
from muster.drill.drill import Drill
from muster.drill.measure import Result
from muster.drill.scenario import Scenario, Setting
from muster.drill.scenarios import SCENARIOS, find
from muster.drill.soak import Soak

_CPUS: Final = 16  # of each logical node of a private server: they share the machine
_SPARE: Final = 1  # nodes more than the job needs, for when one is lost


def names(incomplete: str) -> list[tuple[str, str]]:
    """The scenarios for shell completion."""
    offered = [("all", "every one"), *((one.name, one.breaks) for one in SCENARIOS)]
    return [one for one in offered if one[0].startswith(incomplete)]


def drill(
    what: Annotated[str | None, typer.Argument(metavar="FILE|JOB|TEMPLATE", help="What to run.")] = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option("--scenario", "-s", metavar="NAME|all", autocompletion=names, help="What to break; see --list."),
    ] = None,
    override: Overrides = None,
    every: Annotated[str | None, typer.Option(metavar="5s", help="Random faults at this interval.")] = None,
    lasts: Annotated[str, typer.Option("--for", metavar="10m", help="With --every: for how long.")] = "10m",
    seed: Annotated[int | None, typer.Option(help="With --every: repeat these faults.")] = None,
    reference: Annotated[
        bool, typer.Option("--reference/--no-reference", help="Run it undisturbed first and compare the weights.")
    ] = True,
    private: Annotated[
        bool, typer.Option("--private", help="On a server of its own on this machine, which may be broken too.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show the scenarios and stop.")] = False,
    json: Json = False,
) -> None:
    """Break a job on purpose, before a long run does: kill a rank, a launcher, a node, the server, and see it recover.

    The job is submitted under the drill's own names: once undisturbed, then once for each scenario. The exit code is 1
    if something did not hold. A template runs on a server of its own if none runs here."""
    if list_:
        show_list(SCENARIOS, json)
        return
    if what is None:
        raise Usage("drill: nothing to run was named.", "Give a job file, a job or a template: muster drill job.yaml.")
    chosen, interval, duration = find(scenario or ["kill-rank"]), _seconds(every, "--every"), _seconds(lasts, "--for")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whatever ends the drill, it leaves nothing running
    screen = Screen(json)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-drill-")))
        template = _template(what)
        own = private or (template is not None and CALL.url is None and not _server_here())
        spec = template_spec(template, folder, override) if template else None
        spec = spec or (_file_spec(what, override, own) if Path(what).exists() else None)
        if own:
            if spec is None:
                raise Usage(f"drill: {what!r} is a job of another server.", "Give its job file with --private.")
            screen.say("starting a server of its own")
            server = stack.enter_context(private_server(folder, spec))
            to = stack.enter_context(server.client())
        else:
            server, to = None, stack.enter_context(connected())
            spec = spec or _job_spec(to, what, override)
        setting = Setting(spec, _engine_kind(to, spec), sees_our_files(to), server)
        made = Drill(to, spec, setting, screen.say, screen.look)
        results, doc = _run(made, screen, chosen, interval, duration, seed, reference, scenario)
        if not own:
            for problem in filter(None, (report.keep(to, one, made.reference) for one in results)):
                note((problem, "yellow"))
    wrong = any(one.verdict == "did not hold" for one in results)
    if json:
        emit({"ok": not wrong, "reference": made.reference, **doc, "results": [one.to_dict() for one in results]})
    else:
        show_results(results)
    raise typer.Exit(1 if wrong else 0)


def _run(
    made: Drill,
    screen: Screen,
    chosen: list[Scenario],
    every: float | None,
    duration: float | None,
    seed: int | None,
    reference: bool,
    named: list[str] | None,
) -> tuple[list[Result], dict[str, Any]]:
    """The results, and what a soak has to say. Jobs that still run when it is interrupted are stopped."""
    try:
        with screen:
            if reference:
                made.run_reference()
            if every is None:
                return made.run(chosen, screen.result), {}
            pool = chosen if named and "all" not in named else [one for one in SCENARIOS if one.soak]
            usable = [one for one in pool if one.soak and not one.applies(made.setting)]
            if not usable:
                raise Usage("drill: none of these scenarios can be repeated here.", "Leave --scenario out.")
            soak = Soak(made, usable, every, duration or 0.0, secrets.randbelow(10**6) if seed is None else seed)
            screen.say(f"faults every {every:g} s for {duration:g} s, with --seed {soak.seed}")
            results = soak.run()
            return results, {"seed": soak.seed, "faults": dict(soak.done), "refused": dict(soak.refused)}
    except KeyboardInterrupt:
        note(("Stopping the jobs of the drill …", "yellow"))
        made.stop_all()
        raise typer.Exit(130) from None
    except BaseException:
        made.stop_all()
        raise


@dataclass(slots=True)
class PrivateServer:
    """A server in a folder of its own, on one port, so that it comes back where it was."""

    home: Path
    words: list[str]
    running: daemon.Running | None = None

    def start(self) -> None:
        self.running = daemon.start(self.home, self.words)

    def kill(self) -> None:
        if self.running is not None:
            os.kill(self.running.pid, signal.SIGKILL)

    def client(self) -> Client:
        assert self.running is not None
        return Client(",".join(self.running.urls), (self.home / "token").read_text().strip(), self.home)


@contextlib.contextmanager
def private_server(folder: Path, spec: JobSpec) -> Iterator[PrivateServer]:
    """A server of its own in this folder, with nodes for the job and one to spare."""
    home = folder / "home"
    nodes = spec.num_nodes + (0 if spec.resources.accelerators else _SPARE)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["--port", str(port), "--nodes", str(nodes), "--cpus", str(max(_CPUS, spec.resources.cpus or 0))]
    server = PrivateServer(home, words)
    server.start()
    try:
        yield server
    finally:
        if server.running is not None:
            daemon.stop(server.running)
        shutil.rmtree(home, ignore_errors=True)


def _server_here() -> bool:
    return bool(os.environ.get("MUSTER_URL")) or daemon.find(home_folder()) is not None


def _template(what: str) -> init.Template | None:
    known = {one.name: one for one in init.templates()}
    return None if Path(what).exists() else known.get(what)


def template_spec(template: init.Template, folder: Path, override: list[str] | None) -> JobSpec:
    """The template in a folder of its own, with this Python: the one in PATH may not have what it needs."""
    place = folder / template.name
    init.copy(template, place)
    prepared = from_file(str(place / "job.yaml"), parse_overrides(override or ()), True).spec
    python = shlex.quote(sys.executable)
    run = f"{python} {prepared.run.removeprefix('python ')}" if prepared.run.startswith("python ") else prepared.run
    return prepared.model_copy(update={"run": run})


def _file_spec(what: str, override: list[str] | None, own: bool) -> JobSpec:
    if own:
        return from_file(what, parse_overrides(override or ()), True).spec
    with connected() as to:
        return from_file(what, parse_overrides(override or ()), sees_our_files(to)).spec


def _job_spec(to: Client, ref: str, override: list[str] | None) -> JobSpec:
    """The job file of a job that was submitted before."""
    text = to.spec(ref)["yaml"]
    return parse_job(
        text, source=f"The job file of {ref}", overrides=Changes(parse_overrides(override or ()), base=Path.cwd())
    )


def _engine_kind(to: Client, spec: JobSpec) -> str:
    """The kind of the engine that would run it: that of its pool, or the only one."""
    found = to.engines()
    fits = [one["kind"] for one in found if spec.pool is None or spec.pool in one["pools"]]
    return fits[0] if fits else "unknown"


def _seconds(text: str | None, option: str) -> float | None:
    try:
        return None if text is None else parse_duration(text)
    except InvalidValue:
        raise Usage(f"{option}: got {text!r}.", "Expected a duration such as 5s or 10m.") from None
