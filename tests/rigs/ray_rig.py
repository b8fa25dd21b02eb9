"""A real Ray cluster on loopback, in a network of its own: a head without resources and nodes of two logical H100."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import tempfile
import textwrap
from pathlib import Path

from components import require
from live import below, until
from rigs import netns, ray_processes
from warm_kit import Started, Warm

HEAD = "127.0.0.1:6379"
NODES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")  # names too: a node without a label that says otherwise has its address
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
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "180",
    # Two cores are enough for a cluster of four nodes if none of them starts workers, or counts, in advance.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_enable_open_telemetry": "0",
    # Agents are no children of the raylet: see `ray_processes`.
    "RAY_enable_pipe_based_agent_to_parent_health_check": "1",
}


class RayRig:
    """See `cluster_suite.Rig`. Every node is a process namespace of its own: with its first process goes everything."""

    name = "ray"
    pool = "ray"

    def __init__(self) -> None:
        self.env: dict[str, str] = {}
        self.config = ""
        self._network = -1
        self._warm: Warm | None = None
        self._session = Path()
        self.folder = Path()
        self._running: dict[str, Started] = {}
        self._options: dict[str, list[str]] = {}
        self._tries: dict[str, int] = {}

    def start(self, folder: Path) -> None:
        require("Ray", importlib.util.find_spec("ray") is not None, "Install it: pip install 'ray[default]'.")
        self._network = netns.enter()
        self._warm = Warm(*ray_processes.IMPORTED, "rigs.ray_processes", **QUICK, OPENBLAS_NUM_THREADS="1")
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
        self._begin_all(dashboard=True)

    def restore(self) -> None:
        for name in NODES:
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
        self._begin_all(dashboard=False)  # nobody asks for records any more

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

    def ask(self, program: str) -> str:
        """What a program prints that is connected to the cluster."""
        start = f"import ray\nray.init('{HEAD}', namespace='others', log_to_driver=False)\n"
        log, out = self.folder / "asked.log", self.folder / "asked.out"
        asked = self._fork("program", [str(out), start + textwrap.dedent(program)], log)
        if not asked.ended(240):
            asked.kill_session()
        assert asked.wait() == 0, log.read_text()[-3000:]
        return out.read_text()

    def close(self) -> None:
        self._kill_all()
        if self._warm is not None:
            self._warm.close()
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

    def _begin_all(self, dashboard: bool) -> None:
        options = ["--head", "--port=6379", "--node-ip-address=127.0.0.1", "--num-cpus=0", "--num-gpus=0"]
        options += [f"--include-dashboard={str(dashboard).lower()}", "--dashboard-host=127.0.0.1"]
        self._begin("head", options)
        until(lambda: self._is_up("head"), "Ray's head", patience=180)
        self.restore()

    def _begin_node(self, name: str) -> None:
        kind = json.dumps({"accelerator_type:H100": 1})
        given = [f"--address={HEAD}", f"--node-ip-address={name}", "--num-cpus=4", "--num-gpus=2"]
        self._begin(name, [*given, f"--resources={kind}", "--labels=rack=r1"])

    def _begin(self, name: str, options: list[str]) -> None:
        # A folder as on a machine of its own. The log monitor would send workers' output to drivers; none wants it.
        given = ["--block", "--disable-usage-stats", "--include-log-monitor=false"]
        given += [f"--temp-dir={self._session / name}", *options]
        log = self.folder / f"{name}.log"
        self._running[name] = self._fork("node", [str(self._session / f"{name}-forks"), *given], log)
        self._options[name] = options

    def _fork(self, function: str, args: list[str], log: Path) -> Started:
        assert self._warm is not None
        log.write_bytes(b"")
        env = {**os.environ, **QUICK, "PWD": "/"}
        return self._warm.start(f"rigs.ray_processes:{function}", args, log, env, Path("/"))

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
