"""A real Ray cluster on loopback, in a network of its own: a head without resources and nodes of two logical H100."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from components import require
from live import below, until
from rigs import netns

HEAD = "127.0.0.1:6379"
NODES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")  # names too: a node without a label that says otherwise has its address
RAY = Path(sys.executable).parent / "ray"
CLIENTS = 10001  # a part of the head listens there; where it can't in time, the head goes
SLOW = ("timed out during startup", "Timed out waiting for node info")
TRIES = 4
# A node that dies is noticed within some three seconds in place of twenty; one on a busy machine is not given up.
QUICK = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "10000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_FAKE_CLUSTER": "1",  # of the autoscaler: its nodes are processes on this host
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    # Two cores are enough for a cluster of four nodes if none of them starts workers, or counts, in advance.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_enable_open_telemetry": "0",
}


class RayRig:
    """See `cluster_suite.Rig`. Every node is a process namespace of its own: with its first process goes everything."""

    name = "ray"
    pool = "ray"

    def __init__(self, dashboard: bool = True, nodes: int = len(NODES)) -> None:
        self.env: dict[str, str] = {}
        self.config = ""
        self._dashboard, self._names = dashboard, NODES[:nodes]
        self._network = -1
        self._session = Path()
        self.folder = Path()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._options: dict[str, list[str]] = {}
        self._tries: dict[str, int] = {}

    def start(self, folder: Path) -> None:
        require("Ray", importlib.util.find_spec("ray") is not None, "Install it: pip install 'ray[default]'.")
        self._network = netns.enter()
        self.folder = folder
        self._session = Path(tempfile.mkdtemp(prefix="mr-"))  # short: a socket's path has at most 107 characters
        self.config = textwrap.dedent(f"""
            [engines.ray]
            address = "{HEAD}"
            scratch = "{folder}/scratch"
            checkpoints = "{folder}/checkpoints"
            nodes_every = "1s"

            [engines.ray.pools.cloud]
            selector = {{rack = "cloud"}}
            node = {{cpus = 2, memory = "1GB"}}
            max_nodes = 2
        """)
        self._begin_all()

    def restore(self) -> None:
        for name in self._names:
            if name not in self._running:
                self._begin_node(name)
        until(lambda: all(self._is_up(name) for name in self._running), "every Ray node", patience=240)

    def kill_node(self, node: str) -> None:
        process = self._running.pop(node)
        process.kill()  # and with it, by --kill-child, the first process of the node's namespace: all of the node
        process.wait(180)

    def restart(self) -> None:
        """All of it at once, as after a power cut: nothing of the old cluster is known to the new one."""
        self._kill_all()
        shutil.rmtree(self._session, ignore_errors=True)  # what is being killed may still write there
        self._session = Path(tempfile.mkdtemp(prefix="mr-"))
        self._begin_all()

    def records(self) -> str:
        said = self.ask("""
            from ray.util import state
            asks = [state.list_actors, state.list_placement_groups, state.list_tasks, state.list_jobs,
                    state.list_workers, state.list_runtime_envs, state.list_objects]
            for ask in asks:
                for one in ask(detail=True, limit=10000, address="http://127.0.0.1:8265"):
                    print(one)
        """)
        files = [path for path in below(self._session) if "logs" in path.parts and path.is_file()]
        logs = "".join(path.read_bytes().decode(errors="replace") for path in files)
        return said + logs + self._command_lines()

    def cancel_outside(self, job: str) -> None:
        self.ask(f"""
            from ray.util import get_placement_group, placement_group_table, remove_placement_group
            [name] = [g["name"] for g in placement_group_table().values()
                      if {job!r} in g["name"] and g["state"] != "REMOVED"]
            ray.shutdown()
            ray.init("{HEAD}", namespace="muster-" + name.split(":")[1], log_to_driver=False)
            remove_placement_group(get_placement_group(name))
        """)

    def ask(self, program: str, **env: str) -> str:
        """What a program prints that is connected to the cluster."""
        start = f"import ray\nray.init('{HEAD}', namespace='others', log_to_driver=False)\n"
        command = [sys.executable, "-c", start + textwrap.dedent(program)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, env={**os.environ, **QUICK, **env})
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def close(self) -> None:
        self._kill_all()
        if self._network >= 0:
            netns.leave(self._network)
            self._network = -1
        shutil.rmtree(self._session, ignore_errors=True)

    def _kill_all(self) -> None:
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait(180)
        self._running.clear()

    def _begin_all(self) -> None:
        options = ["--head", "--port=6379", "--node-ip-address=127.0.0.1", "--num-cpus=0", "--num-gpus=0"]
        options += [f"--include-dashboard={str(self._dashboard).lower()}"]
        self._begin("head", [*options, "--dashboard-host=127.0.0.1"])
        until(lambda: self._is_up("head"), "Ray's head", patience=180)
        self.restore()

    def _begin_node(self, name: str) -> None:
        kind = json.dumps({"accelerator_type:H100": 1})
        given = [f"--address={HEAD}", f"--node-ip-address={name}", "--num-cpus=4", "--num-gpus=2"]
        self._begin(name, [*given, f"--resources={kind}", "--labels=rack=r1"])

    def _begin(self, name: str, options: list[str]) -> None:
        namespace = ["unshare", "--pid", "--fork", "--mount-proc", f"--kill-child={signal.SIGKILL.name}"]
        command = [*namespace, str(RAY), "start", "--block", "--disable-usage-stats", *options]
        command += [f"--temp-dir={self._session / name}"]  # as on machines of their own
        command += ["--include-log-monitor=false"]  # it would send workers' output to drivers, none of which wants it
        env = {**os.environ, **QUICK, "PWD": "/"}
        with (self.folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd="/")
        self._options[name] = options

    def _is_up(self, name: str) -> bool:
        said = (self.folder / f"{name}.log").read_text()
        if self._running[name].poll() is None:
            return "Ray runtime started" in said and (name != "head" or _listens(CLIENTS))
        # Ray gives itself and each of its parts 30 s to start, whatever else the machine does.
        self._tries[name] = self._tries.get(name, 0) + 1
        assert any(words in said for words in SLOW), said[-3000:]
        assert self._tries[name] < TRIES, said[-3000:]
        shutil.rmtree(self._session / name, ignore_errors=True)
        self._begin(name, self._options[name])
        return False

    def _command_lines(self) -> str:
        """As `ps` shows them to anybody."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
        return "\n".join(found)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
