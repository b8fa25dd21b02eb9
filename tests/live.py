"""A real server process for tests: its own home, a free port, a client, and nothing left behind."""

from __future__ import annotations

import atexit
import functools
import importlib
import inspect
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeVar

import httpx

from warm_kit import Started, Warm, network

T = TypeVar("T")
# No import has seen these.
READ_LATE = {"MUSTER_FAULT", "MUSTER_DCGM_URL", "SLURM_CONF", "MYSQL_UNIX_PORT", "SLURMRESTD_SECURITY"}
WITHOUT_SHAPE = "ANSWER WITHOUT ITS SHAPE"  # in the log of a server whose answer was not as declared: see `shape_kit`
_ERR = "LIVE_ERR"  # where a command writes its errors
# What a server imports when it is asked for something.
_LATE = (
    "anyio._backends._asyncio",
    "fastapi.telemetry._runtime",
    "typer._adapters",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
)
PATIENCE = 180.0  # seconds: how long a test waits for something that should happen


def below(folder: Path, pattern: str = "*") -> list[Path]:
    """What is in a folder, at any depth; `Path.rglob` fails when somebody removes a folder meanwhile."""
    found = ((Path(place), name) for place, folders, files in os.walk(folder) for name in (*folders, *files))
    return [place / name for place, name in found if fnmatch(name, pattern)]


def until(check: Callable[[], T], what: str = "it", patience: float = PATIENCE) -> T:
    """Polls until `check` gives something true, and returns it; fails with what was last seen otherwise.

    What takes long is asked for less often: the machine has better things to do.
    """
    began = time.monotonic()
    while True:
        found = check()
        if found:
            return found
        waited = time.monotonic() - began
        if waited > patience:
            raise AssertionError(f"waited {patience:.0f} s for {what}; last seen: {found!r}")
        time.sleep(min(0.02 + waited / 10, 0.25))


@dataclass
class LiveServer:
    """`muster up` in a process of its own."""

    home: Path
    options: Sequence[str] = ()
    config: str = ""  # of config.toml
    env: dict[str, str] = field(default_factory=dict)
    ca: str | None = None  # a certificate to trust
    around: Sequence[str] = ()  # stands before the command
    load: str = ""  # a module that it imports late and that takes long
    process: subprocess.Popen[bytes] | Started | None = None
    ends: list[int] = field(default_factory=list)  # how the processes before this one ended

    def start(self, wait: bool = True, **env: str) -> None:
        if self.process is not None:
            self.ends.append(self.process.wait(PATIENCE))
        self.home.mkdir(parents=True, exist_ok=True)
        if wait:  # what a killed server left; a second server beside a living one leaves its address alone
            (self.home / "server.json").unlink(missing_ok=True)
        (self.home / "config.toml").write_text(self.config)
        if not self.around:
            _share_listings(_listings(), self.home / "cache")
        environment = {**os.environ, **self.env, **env, "MUSTER_HOME": str(self.home), "PYTHONWARNINGS": "default"}
        for name in ("MUSTER_URL", "MUSTER_TOKEN"):
            environment.pop(name, None)
        words, log = ["up", "--port", "0", *self.options], self.home / "server.log"
        if self.around or not {*self.env, *env} <= READ_LATE:  # it is about the process itself: it gets a whole one
            with log.open("ab") as out:
                command = [*self.around, sys.executable, "-m", "muster", *words]
                self.process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=self.home)
        else:
            warm = warm_muster(network())
            self.process = warm.start("live:run_muster", words, log, environment, self.home, self.load)
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"the server left with {self.process.returncode}:\n{self.log()[-3000:]}")
            try:
                with self.http("none") as http:
                    return http.get("/readyz").status_code == 200
            except (FileNotFoundError, httpx.TransportError):
                return False

        until(ready, "the server to be ready")

    @property
    def url(self) -> str:
        return str(json.loads((self.home / "server.json").read_text())["urls"][0])

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def http(self, token: str | None = None) -> httpx.Client:
        trust = ssl.create_default_context(cafile=self.ca) if self.ca else False
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False, verify=trust)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def wait_dead(self) -> int:
        assert self.process is not None
        return self.process.wait(PATIENCE)

    def log(self) -> str:
        return (self.home / "server.log").read_text()

    def get(self, path: str, **params: Any) -> Any:
        """On a busy machine a server may lose its lease for a moment: as a client does, it is asked again."""
        with self.http() as http:
            found = http.get(path, params=params)
            for _ in range(60):
                if found.status_code != 503 or "hold the lease" not in found.text:
                    break
                time.sleep(0.5)
                found = http.get(path, params=params)
            return _json(found)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        with self.http() as http:
            return _json(http.post(path, json=body if body is not None else {}, headers=headers))

    def submit(self, run: str, **spec: Any) -> dict[str, Any]:
        body = {"spec": {"name": "job", "run": run, "workdir": str(self.home), **spec}}
        found: dict[str, Any] = self.post("/v1/jobs", body)
        return found

    def job(self, ref: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/v1/jobs/{ref}")
        return found

    def wait(self, ref: str, *phases: str) -> dict[str, Any]:
        """The job once it is in one of the phases; by default, once it is over."""
        wanted = phases or ("succeeded", "failed", "stopped")

        def there() -> dict[str, Any] | None:
            job = self.job(ref)
            return job if job["phase"] in wanted else None

        found = until(there, f"{ref} to be {' or '.join(wanted)}")
        assert found is not None
        return found

    def output(self, ref: str, **params: Any) -> str:
        return "".join(chunk["text"] for chunk in self.get(f"/v1/jobs/{ref}/logs", **params)["chunks"])

    def metric(self, ref: str, name: str) -> dict[int, tuple[list[int], list[float]]]:
        found = self.get(f"/v1/jobs/{ref}/metrics/{name}")["attempts"]
        return {item["attempt"]: (item["steps"], item["values"]) for item in found}


@functools.cache
def _listings() -> Path:
    """What the first server's launchers found out about the packages of each Python, for those of later servers."""
    folder = Path(tempfile.mkdtemp(prefix="muster-listings-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _share_listings(source: Path, target: Path) -> None:
    for path in source.glob("environment-*.json"):
        target.mkdir(mode=0o700, exist_ok=True)
        if not (target / path.name).exists():
            shutil.copy(path, target)


@functools.cache
def warm_muster(where: str) -> Warm:
    """Has all that a server imports, which is most of what starting one costs. One for each network."""
    return Warm(
        "muster.cli.main",
        "muster.cli.server",
        "muster.server.main",
        "live",
        "schema_kit:made",
        "live:prepare",
        OPENBLAS_NUM_THREADS="1",
        PYTHONWARNINGS="default",
    )


def prepare() -> None:
    """In that process: builds and imports what each server would when it first needs it."""
    for name in _LATE:
        importlib.import_module(name)
    inspect.getsourcelines(prepare)  # as FastAPI does for each route: compiles what cuts Python into tokens
    from muster.cli.main import _command  # noqa: PLC0415
    from shape_kit import adapter_of, all_routes  # noqa: PLC0415

    for route in all_routes():
        adapter_of(route.shape)
    command = _command()
    with command.make_context("muster", ["up"]) as context:
        command.resolve_command(context, ["up"])


def call_muster(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """`muster WORDS...`, as a process that has imported it already. Its end, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        environment = {**(os.environ if env is None else env), _ERR: str(err)}
        started = warm_muster(network()).start("live:run_command", words, out, environment, Path.cwd())
        try:
            status = started.wait(PATIENCE)
        finally:
            started.kill()
        return subprocess.CompletedProcess(["muster", *words], status, out.read_text(), err.read_text())


def run_command(*words: str) -> int:
    """In a process that was forked there."""
    from muster.cli.main import main  # noqa: PLC0415

    with Path(os.environ.pop(_ERR)).open("wb") as err:
        os.dup2(err.fileno(), 2)
    sys.argv[:] = ["muster", *words]
    return main(words)


def run_muster(*words: str) -> int:
    """In a process that was forked there."""
    from muster.cli.main import main  # noqa: PLC0415
    from muster.core import faults  # noqa: PLC0415
    from muster.server import main as serving  # noqa: PLC0415
    from schema_kit import install  # noqa: PLC0415
    from shape_kit import checked  # noqa: PLC0415

    install()
    made = serving.create_app
    serving.create_app = lambda service: checked(made(service))  # type: ignore[assignment, return-value]
    faults._FAULT = faults.parse(os.environ.get(faults.VARIABLE))  # type: ignore[misc]  # read before there was one
    return main(words)


def _json(response: httpx.Response) -> Any:
    assert response.status_code < 400, f"{response.status_code}: {response.text}"
    return response.json()


def marked_processes(home: Path) -> list[int]:
    """Processes that belong to workers of this home: launchers by their folder, ranks by their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"MUSTER_GANG=" in text and str(home).encode() in text:
                found.append(int(entry.name))
    return found


@contextmanager
def live_server(
    home: Path, *options: str, config: str = "", ca: str | None = None, load: str = ""
) -> Iterator[LiveServer]:
    server = LiveServer(home, options, config, ca=ca, load=load)
    server.start()
    try:
        yield server
    finally:
        stop_everything(server)


def stop_everything(server: LiveServer) -> None:
    """Stops the server and every worker that it left behind."""
    if server.process is not None and server.process.poll() is None:
        server.stop()
    _share_listings(server.home / "cache", _listings())
    for pid in marked_processes(server.home):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for path in (server.home / "local" / "attempts").glob("*/*/*/launcher.json"):
        try:
            os.kill(json.loads(path.read_text())["pid"], signal.SIGKILL)
        except (OSError, ValueError):
            pass
    log = server.home / "server.log"
    wrong = (
        [line for line in log.read_text(errors="replace").splitlines() if WITHOUT_SHAPE in line] if log.exists() else []
    )
    assert not wrong, "\n".join(wrong[:10])
