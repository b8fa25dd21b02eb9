"""MLflow's client against MLflow's own server on SQLite, and against Muster: the same runs, the same calls.

`mlflow.search_runs` of whole frames and of filtered ones, `log_metric`, `log_batch` of 1,000 metrics, and 200 small
files by `log_artifacts` and `log_text`. Muster is asked by http, with the client as it is, and by `muster://`, whose
store makes MLflow's objects without protobuf.
The client's own share of a search is measured too: the same answer, parsed again from memory.
"""

from __future__ import annotations

import argparse
import os
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import select

from _machine import write
from muster.store import record_tables as tables
from submit_latency import muster_server
from track_search import fill, open_record_db

GOAL = 10
FILES = 200
FILTER = "metrics.m3 < 0.5 and params.s4 = 'b' and tags.t1 = 'v3'"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dry", action="store_true", help="print, and write no results")
    given = parser.parse_args()
    results: dict[str, Any] = {"goal": f"search_runs at least {GOAL} times faster", "filter": FILTER}
    for count in given.runs:
        results[str(count)] = found = compare(count, given.rounds)
        for way in ("muster_http", "muster_scheme"):
            ratios = {name: round(found["mlflow"][name] / found[way][name], 1) for name in found[way]}
            found[f"times_faster_{way}"] = ratios
            print(f"{count:,} runs, {way}: {ratios}")
    if not given.dry:
        write("track_mlflow", results)


def compare(count: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        home, other = Path(folder) / "home", Path(folder) / "mlflow.db"
        home.mkdir()
        with open_record_db(f"sqlite:///{home}/muster.db") as db:
            fill(db, count)
            with db.reading() as connection:
                rows = {table: connection.execute(select(table)).mappings().all() for table in TABLES}
        copy(rows, other)
        with mlflow_server(other, Path(folder) / "artifacts") as url:
            theirs = measure(url, count, rounds)
        with muster_server(home) as client:
            target = client._transport.target()
            os.environ["MLFLOW_TRACKING_TOKEN"] = os.environ["MUSTER_TOKEN"] = str(target.token)
            ours = measure(f"{target.urls[0]}/mlflow", count, rounds)
            scheme = measure(target.urls[0].replace("http://", "muster://"), count, rounds)
            share = client_share(f"{target.urls[0]}/mlflow", count, rounds)
        for name in ("MLFLOW_TRACKING_TOKEN", "MUSTER_TOKEN"):
            del os.environ[name]
    return {"mlflow": theirs, "muster_http": ours, "muster_scheme": scheme, "client_share_of_http": share}


TABLES = (tables.runs, tables.run_params, tables.run_tags, tables.metric_series)


def copy(rows: dict[Any, Any], path: Path) -> None:
    """The same runs into a database of MLflow's, as its store keeps them."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    SqlAlchemyStore(f"sqlite:///{path}", "mlflow-artifacts:/").engine.dispose()
    status = {"succeeded": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
    runs, params, tags, series = (rows[table] for table in TABLES)
    with sqlite3.connect(path) as connection:
        connection.executemany(
            "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status, start_time,"
            " end_time, source_version, lifecycle_stage, artifact_uri, experiment_id)"
            " VALUES (?, ?, 'UNKNOWN', '', '', ?, ?, ?, ?, '', 'active', ?, 0)",
            [
                (
                    r.id,
                    r.name,
                    r.user,
                    status[r.phase],
                    int(r.started_at * 1000),
                    int(r.ended_at * 1000),
                    f"mlflow-artifacts:/0/{r.id}/artifacts",
                )
                for r in map(_Row, runs)
            ],
        )
        connection.executemany(
            "INSERT INTO params (key, value, run_uuid) VALUES (?, ?, ?)",
            [(r.key, r.value, r.run) for r in map(_Row, params)],
        )
        names = [("mlflow.runName", r.name, r.id) for r in map(_Row, runs)]
        given = [(r.key, r.value, r.run) for r in map(_Row, tags)]
        connection.executemany("INSERT INTO tags (key, value, run_uuid) VALUES (?, ?, ?)", given + names)
        last = [(r.name, r.last, int(r.last_time * 1000), r.last_step, r.run) for r in map(_Row, series)]
        for table in ("metrics", "latest_metrics"):
            connection.executemany(
                f"INSERT INTO {table} (key, value, timestamp, step, is_nan, run_uuid) VALUES (?, ?, ?, ?, 0, ?)", last
            )
        connection.execute("ANALYZE")


class _Row:
    def __init__(self, row: Any) -> None:
        self.__dict__.update(row)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@contextmanager
def mlflow_server(path: Path, artifacts: Path) -> Iterator[str]:
    """One process, as `mlflow server --workers 1` starts it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {
        **os.environ,
        "_MLFLOW_SERVER_FILE_STORE": f"sqlite:///{path}",
        "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
        "_MLFLOW_SERVER_ARTIFACT_DESTINATION": str(artifacts),
        "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    serve = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "uvicorn",
        "mlflow.server.fastapi_app:app",
        "--port",
        str(port),
        "--log-level",
        "error",
    ]
    process = subprocess.Popen(serve, env=env)
    try:
        wait(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def wait(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("MLflow's server did not start")


def measure(uri: str, count: int, rounds: int) -> dict[str, float]:
    """Milliseconds, the median of the rounds."""
    import mlflow
    from mlflow.entities import Metric

    mlflow.set_tracking_uri(uri)
    client = mlflow.MlflowClient()
    found = {
        "search_all": timed(lambda: _search(mlflow, count, "", None), rounds),
        "search_all_as_list": timed(lambda: _listed(mlflow, count), rounds),
        "search_filtered": timed(lambda: _search(mlflow, None, FILTER, None), rounds),
        "search_sorted_page_of_100": timed(lambda: _search(mlflow, None, "", ["metrics.m5 DESC"], 100), rounds),
    }
    run = client.create_run("0").info.run_id
    steps = iter(range(10_000_000))
    found["log_metric"] = timed(lambda: client.log_metric(run, "loss", 0.5, step=next(steps)), 20 * rounds)

    def batch() -> None:
        step = next(steps)
        client.log_batch(run, [Metric(f"b{i}", 0.5, 1_780_000_000_000, step) for i in range(1000)], [], [])

    found["log_batch_1000"] = timed(batch, rounds)
    with tempfile.TemporaryDirectory() as folder:
        found["log_artifacts_200"] = timed(lambda: _files(client, run, Path(folder), next(steps)), rounds)
    found["log_text_200"] = timed(lambda: _texts(client, run, next(steps)), rounds)
    client.delete_run(run)
    return found


def _search(mlflow: Any, expected: int | None, text: str, order: Any, limit: int = 100_000) -> None:
    frame = mlflow.search_runs(["0"], text, order_by=order, max_results=limit)
    assert expected is None or len(frame) == expected, len(frame)


def _listed(mlflow: Any, expected: int) -> None:
    """Without the frame, in which the client spends most of its time."""
    assert len(mlflow.search_runs(["0"], output_format="list")) == expected


def _files(client: Any, run: str, folder: Path, step: int) -> None:
    for number in range(FILES):
        (folder / f"{number}.txt").write_text(f"file {number} of {step}\n" * 50)
    client.log_artifacts(run, str(folder), f"at-{step}")


def _texts(client: Any, run: str, step: int) -> None:
    for number in range(FILES):
        client.log_text(run, f"text {number} of {step}\n" * 50, f"texts-{step}/{number}.txt")


def client_share(url: str, count: int, rounds: int) -> dict[str, Any]:
    """Of one page: what the client spends on the server's answer once it has it; no server can make this faster."""
    import json

    import httpx
    from mlflow.entities import Run
    from mlflow.protos.service_pb2 import SearchRuns
    from mlflow.utils.proto_json_utils import parse_dict

    headers = {"Authorization": f"Bearer {os.environ['MLFLOW_TRACKING_TOKEN']}"}
    body = {"experiment_ids": ["0"], "max_results": min(count, 1000)}
    with httpx.Client(headers=headers, timeout=60, trust_env=False) as http:
        asked = f"{url}/api/2.0/mlflow/runs/search"
        answer = http.post(asked, json=body).content
        server = timed(lambda: http.post(asked, json=body), rounds)

    def parse() -> None:
        message = SearchRuns.Response()
        parse_dict(json.loads(answer), message)
        assert len([Run.from_proto(run) for run in message.runs])

    return {"page_of": body["max_results"], "server_and_transfer_ms": server, "client_parsing_ms": timed(parse, rounds)}


def timed(call: Callable[[], Any], rounds: int) -> float:
    call()
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - begun))
    return round(statistics.median(taken), 2)


if __name__ == "__main__":
    main()
