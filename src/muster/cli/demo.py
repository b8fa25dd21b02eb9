"""`muster demo`: a server, a training job on two ranks, one of them killed halfway, and the recovery of the run."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from muster import wire
from muster.api.jobs import AttemptPoints, AttemptView
from muster.api.numbers import JsonFloat, number
from muster.cli import daemon
from muster.cli.call import Json, home_folder
from muster.cli.demo_view import Doc, Line, Result, Screen, last_screen, progress_line, tell, write_picture
from muster.cli.init import copy, find
from muster.cli.open import link_line
from muster.cli.output import SafeConsole, emit
from muster.client import Client, Job
from muster.core.errors import ConfigError, MusterError, NotFound, Unavailable

POLL: Final = 0.2  # seconds between two queries of the job
SLOW_POLL: Final = 1.0  # seconds between two queries of its curve and output, or between two lines without a terminal
PATIENCE: Final = 180.0  # seconds without anything new after which the demo gives up
FELL: Final = 0.7  # the loss fell if the last tenth of the steps is below this share of the first tenth


@dataclass(frozen=True, slots=True)
class Plan:
    steps: int
    drill: bool

    @property
    def save_every(self) -> int:
        return max(5, min(25, self.steps // 8))

    def kill_now(self, job: Job) -> bool:
        """Past the middle, with a checkpoint to return to and a few steps since then to repeat."""
        if not self.drill or job.phase != "running" or job.attempt != 1 or not job.progress or not job.checkpoint:
            return False
        step = job.progress["step"] or 0
        return bool(step >= self.steps / 2 and step >= job.checkpoint["step"] + self.save_every // 3)


def demo(
    drill: Annotated[bool, typer.Option(help="Kill one rank halfway and watch the run recover.")] = True,
    steps: Annotated[int, typer.Option(min=60, max=100_000, help="Training steps.")] = 350,
    keep_server: Annotated[bool, typer.Option("--keep-server", help="Leave the server running afterwards.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Write the last screen to this SVG file.")] = None,
    json_: Json = False,
) -> None:
    """Train a small transformer on two ranks, kill one of them and see the run recover, in about a minute."""
    if importlib.util.find_spec("torch") is None:
        hint = f"Install it: {sys.executable} -m pip install 'muster-ml[train]'."
        raise ConfigError("The demo trains with PyTorch, which this Python has not.", hint)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whatever ends the demo, it leaves nothing running
    console = SafeConsole(stderr=json_, highlight=False)
    home = home_folder() / "demo"
    plan = Plan(steps, drill)
    stays = keep_server or daemon.find(home) is not None  # a server that was already running is not stopped
    what = "one is killed halfway" if drill else "nothing goes wrong"
    screen = Screen(f"Muster demo: two ranks train a small transformer, {what}", time.time())
    try:
        with _server(home, stays, console) as client:
            job = _submit(client, home, plan)
            killed = _watch_until_end(client, job, plan, screen, console)
            result = _result(client, job, plan, screen, _commands(home, job.id, stays))
            link = (
                link_line(home, client.target.urls[0])
                if stays
                else Text("`muster up -d` prints a link to the web page.", "dim")
            )
    except KeyboardInterrupt:
        console.print("Interrupted.", style="yellow")
        raise typer.Exit(130) from None
    content = last_screen(screen, result, console.width)
    console.print(content)
    if link is not None:
        console.print(link, soft_wrap=True)
    if picture is not None:
        write_picture(picture, last_screen(screen, result, 100), "muster demo")
    if json_:
        emit(_document(result, home, killed))
    raise typer.Exit(0 if result.ok else 1)


@contextlib.contextmanager
def _server(home: Path, stays: bool, console: Console) -> Iterator[Client]:
    """A client of this home's server. Starts the server if none runs, and stops it afterwards unless it `stays`."""
    server = daemon.find(home)
    if server is None:
        console.print(Text(f"Starting Muster on this machine, in {_tilde(home)} …", "dim"))
        server = daemon.start(home, ["--port", "0"], on_wait=lambda line: console.print(Text(line, "dim")))
    try:
        # Both given explicitly: MUSTER_URL and MUSTER_TOKEN may be set for another server.
        with Client(",".join(server.urls), (home / "token").read_text().strip(), home) as client:
            yield client
    finally:
        if not stays:
            daemon.stop(server)


def _submit(client: Client, home: Path, plan: Plan) -> Job:
    folder = home / "ddp"
    template = find("ddp")
    for name in template.files:  # files of an older Muster may differ
        (folder / name).unlink(missing_ok=True)
    copy(template, folder)
    free = max(node["total"]["cpus"] for node in client.nodes())
    return client.submit(
        folder / "job.yaml",
        name="demo",
        purpose="the demo: a small transformer on two ranks" + (", one of which is killed" if plan.drill else ""),
        # This Python: it has what Muster needs, and may not be the one in PATH.
        run=f"{shlex.quote(sys.executable)} train.py --steps $STEPS --save-every $SAVE_EVERY",
        envs={"STEPS": str(plan.steps), "SAVE_EVERY": str(plan.save_every)},
        resources={"cpus": min(2, free)},
        retry={"max_restarts": 3, "on": ["worker", "node", "preempted"], "backoff": "1s"},
    )


def _watch_until_end(client: Client, job: Job, plan: Plan, screen: Screen, console: Console) -> Doc | None:
    """Shows the job until it has ended; stops it first on Ctrl-C or when it doesn't move. Returns what was killed."""
    try:
        if not console.is_terminal:
            return _watch(client, job, plan, screen, console)
        with Live(screen, console=console, refresh_per_second=6, transient=True):
            return _watch(client, job, plan, screen, None)
    except (KeyboardInterrupt, Unavailable):
        console.print("Stopping the job …", style="yellow")
        with contextlib.suppress(MusterError, TimeoutError):
            client.stop(job.id, grace=5)
            client.wait(job.id, timeout=20)
        raise


def _watch(client: Client, job: Job, plan: Plan, screen: Screen, lines_to: Console | None) -> Doc | None:
    killed: Doc | None = None
    seen, shown, news_at, slow_at = 0, "", time.monotonic(), float("-inf")
    while True:
        now = time.monotonic()
        screen.job = job = client.job(job.id)
        fresh, seen = _news(client, job, seen)
        if killed is None and plan.kill_now(job) and (pid := _kill_rank(job.id, 1)):
            step = job.progress["step"] if job.progress else None
            killed = {"rank": 1, "pid": pid, "step": step}
            fresh.append(Line(time.time(), f"drill: killed rank 1 (pid {pid}) with SIGKILL at step {step}", "bold red"))
        screen.lines += fresh
        if lines_to is not None:
            for line in fresh:
                lines_to.print(line.render(screen.began), soft_wrap=True)
        if now - slow_at >= SLOW_POLL or job.final:
            slow_at = now
            shown = _look_closer(client, job, screen, shown, lines_to)
        if job.final:
            return killed
        reported_at = (job.progress["time"] if job.progress else None) or 0.0
        news_at = now if fresh or reported_at > time.time() - POLL * 4 else news_at
        if now - news_at > PATIENCE:
            raise Unavailable(
                f"{job.id} has not moved for {PATIENCE:.0f} s: {progress_line(job)}.", "See `muster why`."
            )
        time.sleep(POLL)


def _news(client: Client, job: Job, seen: int) -> tuple[list[Line], int]:
    """The events of the job after `seen`, as sentences, and the number of the last one."""
    lines = []
    for event in client.events(job=job.id, after=seen):
        seen = event["seq"]
        planned = event["kind"] == "attempt.planned"
        from_step = client.attempts(job.id)[event["attempt"] - 1]["from_step"] if planned else None
        if line := tell(event, from_step):
            lines.append(line)
    return lines, seen


def _look_closer(client: Client, job: Job, screen: Screen, shown: str, lines_to: Console | None) -> str:
    """Updates curve and output, or, without a terminal, prints a line when something is new."""
    with contextlib.suppress(NotFound):  # nothing reported yet
        found: Mapping[str, Any] = client.metrics(job.id, "loss")
        screen.curves = found["attempts"]
    if lines_to is None:
        screen.output = next((line.text for line in client.logs(job.id, rank=0, tail=1)), screen.output)
        return shown
    if (words := progress_line(job)) != shown:
        lines_to.print(Line(time.time(), words, "dim").render(screen.began), soft_wrap=True)
    return words


def _kill_rank(job: str, rank: int) -> int | None:
    """Kills the process of this rank of the job and returns its id; None if there is none now."""
    pid = find_rank(job, rank)
    if pid is not None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None
    return pid


def find_rank(job: str, rank: int) -> int | None:
    """The process of this rank on this machine: of those with its variables, the one furthest from the launcher."""
    proc = Path("/proc")
    if not (proc / "self" / "environ").exists():
        raise ConfigError("The drill finds the rank's process in /proc, which this system has not.", "Give --no-drill.")
    marks = {f"{wire.JOB}={job}".encode(), f"{wire.RANK}={rank}".encode()}
    parents: dict[int, int] = {}
    for entry in proc.iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):  # ended meanwhile, another user's, or no process
            if marks <= set((entry / "environ").read_bytes().split(b"\0")):
                # After the command's name, which is in brackets and may contain anything: its state, then its parent.
                parents[int(entry.name)] = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
    leaves = parents.keys() - set(parents.values())
    return max(leaves, default=None)


def _result(client: Client, job: Job, plan: Plan, screen: Screen, commands: list[str]) -> Result:
    job, summary, attempts = client.job(job.id), client.summary(job.id), client.attempts(job.id)
    first, last = tenths(screen.curves)
    checks = {"the run succeeded": job.phase == "succeeded"}
    if plan.drill:
        checks["it recovered: one restart, from a committed checkpoint"] = recovered(attempts, screen.curves)
    else:
        checks["it took one attempt"] = summary["attempts"] == 1
    checks["the loss fell clearly"] = first is not None and last is not None and last < FELL * first
    return Result(job, summary, checks, first, last, same_again(screen.curves), commands)


def recovered(attempts: list[AttemptView], curves: list[AttemptPoints]) -> bool:
    """Whether there were two attempts, and the second continued with the step after a committed checkpoint."""
    if len(attempts) != 2 or len(curves) != 2 or not attempts[1]["from_step"] or not curves[1]["steps"]:
        return False
    return curves[1]["steps"][0] == attempts[1]["from_step"] + 1


def tenths(curves: list[AttemptPoints]) -> tuple[float | None, float | None]:
    """Mean loss over the first and the last tenth of the steps; of a repeated step only the last value counts."""
    by_step = {
        step: number(value)
        for curve in curves
        for step, value in zip(curve["steps"], curve["values"], strict=True)
        if math.isfinite(number(value))
    }
    values = [by_step[step] for step in sorted(by_step)]
    if not values:
        return None, None
    count = max(1, len(values) // 10)
    return sum(values[:count]) / count, sum(values[-count:]) / count


def same_again(curves: list[AttemptPoints]) -> bool:
    """Whether some steps were done by two attempts, and both got the same losses, to the last bit."""
    seen: dict[int, JsonFloat] = {}
    repeated = []
    for curve in curves:
        values = dict(zip(curve["steps"], curve["values"], strict=True))
        repeated += [seen[step] == value for step, value in values.items() if step in seen]
        seen |= values
    return bool(repeated) and all(repeated)


def _commands(home: Path, job: str, stays: bool) -> list[str]:
    looks = [f"muster status {job}", f"muster why {job}", f"muster events --job {job}", f"muster logs {job}"]
    up = [] if stays else ["muster up -d"]
    return [f"export MUSTER_HOME={_tilde(home)}", *up, *looks, "muster down"]


def _document(result: Result, home: Path, killed: Doc | None) -> dict[str, Any]:
    return {
        "ok": result.ok,
        "checks": result.checks,
        "job": result.job.id,
        "home": str(home),
        "killed": killed,
        "repeated_steps_are_identical": result.same,
        "loss": {"first": result.first_loss, "last": result.last_loss},
        "summary": result.summary,
        "commands": result.commands,
    }


def _tilde(path: Path) -> str:
    """The path as a user would type it."""
    user = Path.home()
    return f"~/{shlex.quote(str(path.relative_to(user)))}" if path.is_relative_to(user) else shlex.quote(str(path))
