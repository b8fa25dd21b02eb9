"""The program that a managed service runs on each node: starts the ranks as Muster's launcher would.

The request contains it line by line. So it is small, has lines under 256 characters and no dollar sign, and runs with
any Python from 3.7 on. Its input is a JSON document: `run` for the shell, `nproc`, `grace` in seconds, `port` and
`envs`. On SageMaker the document is in the hyperparameters, elsewhere in the arguments.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    config = Path(os.environ.get("SM_INPUT_CONFIG_DIR", "/opt/ml/input/config"))
    asked = document(config)
    hosts, node, port = nodes(config, asked["port"])
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, frame: told.append(143))
    signal.signal(signal.SIGINT, lambda signum, frame: told.append(130))
    shell = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
    ranks = []
    for local in range(asked["nproc"]):
        env = environment(asked, hosts, node, port, local)
        ranks.append(subprocess.Popen([shell, "-c", asked["run"]], env=env, start_new_session=True))
    kill_at = None
    while any(rank.poll() is None for rank in ranks):
        if kill_at is None and (told or failures(ranks)):
            told += failures(ranks)
            kill_at = time.monotonic() + asked["grace"]
            send(ranks, signal.SIGTERM)
        if kill_at is not None and time.monotonic() > kill_at:
            send(ranks, signal.SIGKILL)
        time.sleep(0.1)
    send(ranks, signal.SIGKILL)  # what they left behind in their process groups
    sys.exit((told + failures(ranks) + [0])[0])


def document(config: Path) -> Any:
    """The input document."""
    pieces = sys.argv[1:]
    if config.is_dir():
        found = json.loads((config / "hyperparameters.json").read_text(encoding="utf-8"))
        pieces = [found[name] for name in sorted(found) if name.startswith("muster_")]
    return json.loads("".join(pieces))


def nodes(config: Path, port: int) -> tuple[list[str], int, int]:
    """Addresses of the nodes in order, which of them this is, and the port of the first."""
    if config.is_dir():
        found = json.loads((config / "resourceconfig.json").read_text(encoding="utf-8"))
        hosts = sorted(found["hosts"])
        return hosts, hosts.index(found["current_host"]), port
    spec = json.loads(os.environ.get("CLUSTER_SPEC") or "{}")
    pools = spec.get("cluster", {})
    hosts = [host for pool in sorted(pools) for host in pools[pool]]
    if len(hosts) < 2:
        return ["127.0.0.1"], 0, port
    before = sum(len(pools[pool]) for pool in pools if pool < spec["task"]["type"])
    address, _, own = hosts[0].partition(":")
    return [address, *hosts[1:]], before + int(spec["task"]["index"]), int(own or port)


def environment(asked: Any, hosts: list[str], node: int, port: int, local: int) -> dict[str, str]:
    """The environment of a rank: torchrun's variables override the job's."""
    nproc = asked["nproc"]
    names = {
        "RANK": node * nproc + local,
        "WORLD_SIZE": len(hosts) * nproc,
        "LOCAL_RANK": local,
        "LOCAL_WORLD_SIZE": nproc,
        "GROUP_RANK": node,
        "NODE_RANK": node,
        "MASTER_ADDR": hosts[0] if len(hosts) > 1 else "127.0.0.1",
        "MASTER_PORT": port,
    }
    env = dict(os.environ, **asked["envs"])
    env.update((name, str(value)) for name, value in names.items())
    return env


def failures(ranks: Any) -> list[int]:
    """Exit codes of the failed ranks, with signals as a shell reports them."""
    codes = [rank.poll() for rank in ranks]
    return [code if code > 0 else 128 - code for code in codes if code]


def send(ranks: Any, signum: int) -> None:
    for rank in ranks:
        try:
            os.killpg(rank.pid, signum)
        except OSError:
            pass


if __name__ == "__main__":
    main()
