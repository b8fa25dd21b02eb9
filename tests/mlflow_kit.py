"""MLflow's calls without HTTP: a record, somebody who asks, and the real client in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forked_script_kit import Script
from live import LiveServer, warm_muster
from muster.core.entities import Role, at_least
from muster.core.errors import NotAllowed, NotFound
from muster.track.mlflow.calls import CALLS
from muster.track.mlflow.context import MlflowContext
from record_kit import Record, open_record
from warm_kit import network

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "GIT_PYTHON_REFRESH": "quiet"}  # as in `mlflow_imports`


@dataclass
class FakeCaller:
    """Who asks: a role in each of some projects."""

    user: str = "ada"
    roles: dict[str, Role] = field(default_factory=lambda: {"default": "admin"})
    writing: bool = False

    def projects(self) -> Sequence[str] | None:
        return list(self.roles)

    def sees(self, project: str) -> bool:
        return project in self.roles

    def need(self, project: str, role: Role) -> None:
        if project not in self.roles:
            raise NotFound(f"There is no project {project!r} that you can see.")
        if not at_least(self.roles[project], role):
            raise NotAllowed(f"This needs the role {role}.")

    def default_project(self) -> str:
        return next(iter(self.roles))

    def known_project(self, name: str) -> bool:
        return name in self.roles


@dataclass
class MlflowFixture:
    record: Record
    person: FakeCaller = field(default_factory=FakeCaller)

    def ask(self, method: str, path: str, person: FakeCaller | None = None, **request: Any) -> Any:
        context = MlflowContext(self.record.track, person or self.person)
        return json.loads(CALLS[method, path].run(context, request))

    def post(self, path: str, **request: Any) -> Any:
        return self.ask("POST", path, **request)

    def get(self, path: str, **request: Any) -> Any:
        return self.ask("GET", path, **request)

    def new_run(self, experiment: str = "0", **request: Any) -> str:
        return str(self.post("runs/create", experiment_id=experiment, **request)["run"]["info"]["run_id"])

    def run(self, run: str) -> Any:
        return self.get("runs/get", run_id=run)["run"]

    def found(self, text: str = "", order_by: Sequence[str] = (), **request: Any) -> list[str]:
        asked = {"experiment_ids": ["0"], "filter": text, "order_by": list(order_by), **request}
        return [run["info"]["run_name"] for run in self.post("runs/search", **asked).get("runs", ())]


@contextmanager
def open_mlflow(url: str, home: Path) -> Iterator[MlflowFixture]:
    with open_record(url, home) as record:
        yield MlflowFixture(record)


def with_client(server: LiveServer, code: str, uri: str = "http", load: str = "") -> Any:
    """Runs a script that has `mlflow` and `out`, with the server as its tracking server; what it left in `out`.

    `load`: a module that several scripts need and that takes long to import.
    """
    where = f"{server.url}/mlflow" if uri == "http" else server.url.replace("http://", "muster://")
    token = {"MLFLOW_TRACKING_TOKEN" if uri == "http" else "MUSTER_TOKEN": server.token}
    return with_uri(where, code, server.home, load, **token)


def with_uri(where: str, code: str, folder: Path, load: str = "", **env: str) -> Any:
    """The same with any tracking server, in a folder."""
    begin = "import json, warnings\nwarnings.simplefilter('ignore')\nimport mlflow\n"
    script = f"{begin}out = {{}}\n{textwrap.dedent(code)}\nprint('OUT' + json.dumps(out))"
    with tempfile.NamedTemporaryFile("w", suffix=".py", dir=folder) as file:
        file.write(script)
        file.flush()
        environment = {**os.environ, **QUIET, "MLFLOW_TRACKING_URI": where, **env}
        ran = _script(folder, file.name, env=environment, load=load)
        status, printed = ran.finish(300)
    assert status == 0, f"{printed[-2000:]}\n{ran.err.read_text()[-6000:]}"
    return json.loads(printed.rpartition("OUT")[2])


def _script(folder: Path, *words: str, env: dict[str, str], load: str = "") -> Script:
    """In a process that has imported MLflow already, which takes five seconds."""
    return Script(warm_muster(network()), folder, *words, env=env, load=f"mlflow_imports {load}")


# Requests that come before it is up wait in the socket's queue.
_SERVE = """
import socket, uvicorn
with socket.create_server(("127.0.0.1", 0)) as listening:
    print(listening.getsockname()[1], flush=True)
    uvicorn.run("mlflow.server.fastapi_app:app", fd=listening.fileno(), log_level="error")
"""


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """MLflow's own server on a database of its own."""
    environment = {
        **os.environ,
        **QUIET,
        "_MLFLOW_SERVER_FILE_STORE": f"sqlite:///{folder}/mlflow.db",
        "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
        "_MLFLOW_SERVER_ARTIFACT_DESTINATION": str(folder / "artifacts"),
        "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
    }
    (folder / "serve.py").write_text(_SERVE)
    server = _script(folder, str(folder / "serve.py"), env=environment)
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.process.send_signal(signal.SIGTERM)
        server.end(60)
