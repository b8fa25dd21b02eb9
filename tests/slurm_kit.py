"""A Slurm with accounting and a server on it, once for each file of tests; and programs that its jobs run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster_suite import nodes_of
from live import LiveServer, stop_everything, until
from rigs.slurm_rig import SlurmRig

# Until it is told to stop; then it saves a checkpoint, in its first attempt, and leaves.
KEEPS = textwrap.dedent("""
    import os, pathlib, sys, time
    from muster import runtime
    rank, attempt = os.environ["RANK"], int(os.environ["MUSTER_ATTEMPT"])
    runtime.report(step=attempt, loss=1.0)
    pathlib.Path(f"up-{attempt}-{rank}").touch()
    if attempt > 1:
        sys.exit(0)
    while not runtime.should_stop():
        time.sleep(0.05)
    pathlib.Path(f"saved-{attempt}-{rank}").touch()
    if os.environ.get("SAVES") and rank == "0":
        with runtime.checkpoint(attempt) as folder:
            (folder / "state").write_text("x")
    sys.exit(1)
""")


@contextmanager
def slurm_server(rig: SlurmRig, home: Path, config: str = "") -> Iterator[LiveServer]:
    server = LiveServer(home, config=config or rig.config, env=rig.env)
    server.start()
    try:
        until(lambda: len(nodes_of(server)) >= 4, "the cluster's nodes")
        yield server
    finally:
        stop_everything(server)


def first_attempt(server: LiveServer, job: str) -> dict[str, object]:
    found: dict[str, object] = server.get(f"/v1/jobs/{job}/attempts")["attempts"][0]
    return found


def rows_of(rig: SlurmRig, job: str) -> list[list[str]]:
    """Slurm's jobs of a job: state, restarts, comment."""
    lines = rig.tool("squeue", "-h", "-t", "all", "-O", "State:|,RestartCnt:|,Comment:").splitlines()
    rows = [line.split("|", 2) for line in lines]
    return [row for row in rows if f":{job}:" in row[2]]
