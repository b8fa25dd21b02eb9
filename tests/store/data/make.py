"""Makes the database of an older release: starts its server, drives it by its own commands, and kills it.

    python tests/store/data/make.py CHECKOUT NAME

CHECKOUT is a work tree of the older commit. Writes NAME.db.gz and NAME.json, with what the older server said of its
jobs, next to this file.
"""

# ruff: noqa: T201 - a script
from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TRAIN = """python3 -c "
from muster.runtime import report
for step in range(1, 41): report(step=step, loss=1 / step)
print('done')
" """
HOLDS = "while true; do sleep 0.2; done"


def main(checkout: str, name: str) -> None:
    home = Path(tempfile.mkdtemp())
    python = Path(checkout).resolve() / "src"
    env = {**os.environ, "MUSTER_SNAPSHOT": "0", "MUSTER_HOME": str(home), "PYTHONPATH": str(python)}

    def muster(*words: str, needed: bool = True) -> str:
        command = [sys.executable, "-m", "muster", *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, cwd="/", timeout=120)
        if done.returncode and needed:
            raise SystemExit(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        if done.returncode:
            print(f"left out: {' '.join(words)}: {done.stderr.strip().splitlines()[:1]}")
        return done.stdout

    def job(ref: str) -> dict[str, Any]:
        found = json.loads(muster("status", ref, "--json"))
        return found.get("job", found)

    def wait(ref: str, phase: str) -> None:
        for _ in range(300):
            if job(ref)["phase"] == phase:
                return
            time.sleep(0.2)
        raise SystemExit(f"{ref} did not become {phase}: {job(ref)}")

    command = [sys.executable, "-m", "muster", "up", "--nodes", "2", "--accelerators", "H100:1", "--port", "0"]
    server = subprocess.Popen(command, env=env, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            if '"jobs"' in muster("ls", "--json", needed=False):
                break
            time.sleep(0.2)
        muster("run", "-d", "--name", "trains", "--", "bash", "-c", TRAIN)
        wait("1", "succeeded")
        muster("run", "-d", "--name", "fails", "--", "bash", "-c", "echo gone wrong; exit 3")
        wait("2", "failed")
        muster("run", "-d", "--name", "halts", "--", "bash", "-c", HOLDS)
        wait("3", "running")
        muster("stop", "3")
        wait("3", "stopped")
        muster("run", "-d", "--name", "gang", "--nodes", "2", "--gpus", "1", "--", "bash", "-c", HOLDS)
        wait("4", "running")
        muster("run", "-d", "--name", "waits", "--nodes", "2", "--gpus", "1", "--", "bash", "-c", "echo at last")
        muster("project", "create", "research", needed=False)
        muster("queue", "create", "papers", "--project", "research", needed=False)
        muster("token", "create", "robot", needed=False)
        muster("note", "1", "the first of its kind", needed=False)
        muster("runs", "tag", "1", "team=blue", needed=False)
        said = {one["id"]: one["phase"] for one in json.loads(muster("ls", "--all", "--json"))["jobs"]}
        time.sleep(3)  # folds and the record follow the log
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
        for pid in (path.name for path in Path("/proc").iterdir() if path.name.isdigit()):
            try:
                if str(home).encode() in Path("/proc", pid, "environ").read_bytes():
                    os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass
    path = home / "muster.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("PRAGMA journal_mode=DELETE")
        (schema,) = db.execute("SELECT version_num FROM schema_version").fetchone()
    db.execute("VACUUM")
    db.close()
    here = Path(__file__).parent
    (here / f"{name}.db.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    commit = subprocess.run(["git", "-C", checkout, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    document = {"commit": commit.stdout.strip(), "schema": schema, "phases": said}
    (here / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    shutil.rmtree(home)
    print(document)


main(*sys.argv[1:])
