"""Scalars into trackers: Muster on SQLite and PostgreSQL beside MLflow, TensorBoard, W&B offline and trackio.

Every tool logs from one process on this machine, one call after the other: single values and dictionaries of ten, as
fast as it goes, and paced as a training loop. A rate counts points from the first call until all of them are durable in
the tool's own sense (`DURABLE`). Processor time is that of all processes that the tool needs. Muster is also measured
with its server stopped, and what it reported meanwhile is counted when the server is back.

    python bench/track_ingest.py [--seconds 10] [--rounds 3] [--venv FOLDER] [--only muster-sqlite,trackio]

wandb and trackio live in an environment of their own, which is made in `--venv` when it is not there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _ingest_muster import MusterBench
from _ingest_processes import free_port, processor_time, rates, stopped, wait_for_url
from _machine import write

PEER = Path(__file__).parent / "_ingest_peer.py"
VENV = Path.home() / ".cache" / "muster-bench" / "trackers"
PACE = 0.002  # seconds a step
WIDTHS = (1, 10)
GOAL_TIMES, GOAL_LATENCY_US = 10.0, 1000.0
DURABLE = {
    "muster-sqlite": "committed in the server's SQLite database (synchronous WAL), counted by asking the server",
    "muster-postgresql": "committed in the server's PostgreSQL (fsync on), counted by asking the server",
    "mlflow": "committed in its server's SQLite database when the call returns",
    "mlflow-batch": "the same, in batches of 1,000 points a call, which its users make by hand",
    "tensorboard": "in its event file after close(), which the bench then flushes; nothing is promised before",
    "wandb": "in its offline log after finish(), which the bench then flushes; still to be synced to a server later",
    "trackio": "committed in its local SQLite database after finish()",
}
Result = dict[str, Any]


def main() -> None:
    ask = _options()
    load = os.getloadavg()[0]
    found: dict[str, Result] = {}
    for name in ask.only:
        rounds = [measure(name, ask) for _ in range(ask.rounds)]
        found[name] = {"durable_means": DURABLE[name], **_middle(rounds)}
        print(name, json.dumps(found[name]), flush=True)
    result: Result = {
        "claim": "at least 10 times the best peer's durable rate; no call over 1 ms at p99.9, the server down too",
        "load_before": round(load, 2),
        "seconds": ask.seconds,
        "rounds": ask.rounds,
        "tools": found,
    }
    result |= _judged(found)
    write("track_ingest", result)


def measure(name: str, ask: argparse.Namespace) -> Result:
    """One round of one tool."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-", ignore_cleanup_errors=True) as folder:
        if name.startswith("muster"):
            return MusterBench(Path(folder), name.removeprefix("muster-"), PEER).measure(WIDTHS, ask.seconds, PACE)
        if name.startswith("mlflow"):
            return _mlflow(Path(folder), name, ask)
        return _alone(Path(folder), name, ask)


def _alone(folder: Path, name: str, ask: argparse.Namespace) -> Result:
    """A tool without a server."""
    python = sys.executable if name == "tensorboard" else str(_venv(ask.venv) / "bin" / "python")
    result: Result = {}
    for width in WIDTHS:
        for way, pace in (("flood", 0.0), ("paced", PACE)):
            own = folder / f"{way}-{width}"
            made = _peer(python, {"tool": name, "width": width, "pace": pace, "seconds": ask.seconds}, own)
            size = sum(path.stat().st_size for path in own.rglob("*") if path.is_file() and path.name != "result.json")
            result[f"{way}_{width}"] = {**rates(made, made["durable_s"], made["cpu_s"]), **_bytes(way, size, made)}
    return {"version": made["version"], "server_down": "it has no server", **result}


def _mlflow(folder: Path, name: str, ask: argparse.Namespace) -> Result:
    port, batch = free_port(), 1000 if name == "mlflow-batch" else 1
    store = folder / "mlflow.db"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{store}", "--default-artifact-root", str(folder / "artifacts")]
    env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)
    result: Result = {}
    try:
        wait_for_url(f"http://127.0.0.1:{port}/health", 180)
        for width in WIDTHS:
            if batch > 1 and width > 1:
                continue  # a batch is one already
            asked = {"tool": "mlflow", "url": f"http://127.0.0.1:{port}", "width": width, "batch": batch, "pace": 0.0}
            before, size = processor_time(server.pid), store.stat().st_size
            made = _peer(sys.executable, {**asked, "seconds": ask.seconds}, folder / f"flood-{width}")
            spent = processor_time(server.pid) - before + made["cpu_s"]
            grown = store.stat().st_size - size
            result[f"flood_{width}"] = {**rates(made, made["durable_s"], spent), **_bytes("flood", grown, made)}
        result["version"] = made["version"]
        if batch == 1:
            result["server_down"] = _mlflow_down(folder, port, server)
    finally:
        stopped(server)
    return result


def _mlflow_down(folder: Path, port: int, server: subprocess.Popen[bytes]) -> Result:
    """How long one call keeps the script when the server has gone."""
    gate, own = folder / "gate", folder / "down"
    asked = {"tool": "mlflow", "url": f"http://127.0.0.1:{port}", "width": 1, "pace": 0.0, "seconds": 1, "calls": 1}
    own.mkdir()
    child = subprocess.Popen(
        [sys.executable, str(PEER), json.dumps({**asked, "folder": str(own), "gate": str(gate)})],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not (own / "waiting").exists():
        if child.poll() is not None:
            raise SystemExit("the MLflow client ended before its server did")
        time.sleep(0.05)
    stopped(server)
    gate.touch()
    began, patience = time.perf_counter(), 60.0
    try:
        child.wait(patience)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return {"one_call_blocks_s": f"more than {patience:g}", "then": "still retrying when it was ended"}
    return {"one_call_blocks_s": round(time.perf_counter() - began, 1), "then": "it raises, and the value is lost"}


def _peer(python: str, asked: Result, folder: Path) -> Result:
    folder.mkdir(parents=True)
    command = [python, str(PEER), json.dumps({**asked, "folder": str(folder)})]
    done = subprocess.run(command, capture_output=True, cwd=folder, timeout=asked["seconds"] * 10 + 300)
    if done.returncode:
        raise SystemExit(f"{asked}: {done.stderr.decode()[-2000:]}")
    return dict(json.loads((folder / "result.json").read_text()))


def _bytes(way: str, size: int, made: Result) -> Result:
    return {"disk_bytes_per_point": round(size / made["points"], 1)} if way == "flood" else {}


def _middle(rounds: list[Result]) -> Result:
    """The round in the middle by its rate; the worst latencies of all."""
    ordered = sorted(rounds, key=lambda one: one["flood_1"]["points_per_s_durable"])
    middle = ordered[len(ordered) // 2]
    for name, part in middle.items():
        if isinstance(part, dict) and "latency_us" in part:
            every = [one[name]["latency_us"] for one in rounds]
            part["latency_us"] = {key: statistics.median(each[key] for each in every) for key in every[0]}
            part["latency_us"]["max"] = max(each["max"] for each in every)
    return middle


def _judged(found: dict[str, Result]) -> Result:
    peers = [name for name in found if not name.startswith("muster")]
    own = [name for name in found if name.startswith("muster")]
    if not peers or not own:
        return {}
    times: Result = {}
    for way in ("flood_1", "flood_10"):
        best = max(peers, key=lambda name: found[name].get(way, {}).get("points_per_s_durable", 0))
        rate = found[best][way]["points_per_s_durable"]
        times[way] = {"best_peer": best} | {
            name: round(found[name][way]["points_per_s_durable"] / rate, 1) for name in own
        }
    ratios = [value for each in times.values() for value in each.values() if not isinstance(value, str)]
    parts = [found[name][part] for name in own for part in found[name] if part.startswith(("paced", "down"))]
    worst = max(part["latency_us"]["p99.9"] for part in parts)
    lost = sum(part.get("lost", 0) for part in parts)
    held = {"rate": min(ratios) >= GOAL_TIMES, "latency": worst <= GOAL_LATENCY_US, "nothing lost": lost == 0}
    return {"times_the_best_peer": times, "worst_p99.9_us": worst, "held": held}


def _venv(folder: Path) -> Path:
    if not (folder / "bin" / "python").exists():
        print(f"making {folder} for wandb and trackio", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        try:
            subprocess.run([folder / "bin" / "pip", "install", "--quiet", "wandb", "trackio", "numpy"], check=True)
        except BaseException:
            shutil.rmtree(folder)
            raise
    return folder


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of every measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--venv", type=Path, default=VENV)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(DURABLE))
    return parser.parse_args()


if __name__ == "__main__":
    main()
