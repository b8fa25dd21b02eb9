"""The Ray adapter: passes the engine's requests to the bridge, and turns the bridge's answers into reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from muster.core.errors import EngineError
from muster.core.resources import Resources
from muster.engines.base import Finding, GangLaunch, NodeInfo, Usage, Wait, WorkerReport
from muster.engines.describe import Home, launch_of
from muster.engines.isolation import isolation_of
from muster.engines.ray.connect import RaySettings, connect
from muster.engines.ray.doctor import diagnose
from muster.engines.ray.link import Link
from muster.engines.ray.nodes import bundle_of, node_infos, requests_of
from muster.engines.remote import Held, Key, Look, Order
from muster.wire import WorkerExit

_OPEN: Final = (
    "a program that uses Ray itself, and one with a `runtime_env`, can run anything as Ray's user: members' jobs may "
    "do so only where the engine's settings have `trust_members = true`"
)
JOB_CONFIG: Final = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # the variable by which Ray passes a runtime environment to a driver


class RayAdapter:
    """See `muster.engines.adapter.Adapter`."""

    kind = "ray"
    abilities = (
        "Muster places",
        "gangs reserved whole (placement groups)",
        "runtime environments",
        "grows (autoscaler)",
        "Ray programs",
        "tells by itself",
    )
    look_every = 15.0  # the bridge reports changes by itself

    def __init__(self, name: str, settings: RaySettings, home: Home) -> None:
        self.name, self.settings, self.home = name, settings, home
        self._changed: Callable[[], None] = lambda: None
        self._link: Link | None = None
        self._detail = ""
        self._nodes: dict[str, dict[str, Any]] = {}  # by name, as the bridge last reported
        self._under_way: dict[Key, dict[str, Any]] = {}  # passed to the bridge, and not reported as started
        self._orders: dict[Key, Order] = {}  # given, and not reported as executed
        self._wanted: list[tuple[dict[str, float], dict[str, str]]] | None = None

    def open(self, changed: Callable[[], None]) -> str:
        self._changed = changed
        if self._link is None or not self._link.alive:
            if self._link is not None:
                self._link.close()
            self._link, about = connect(self.name, self.settings, self.home, changed)
            self._detail = f"Ray {about['version']} at {about['address']}"
            self._tell_again()
        return self._detail

    def look(self, nodes: bool) -> Look:
        try:
            told = self._call("look")
        except EngineError:
            self.close()  # a new bridge finds the cluster again, or reports the problem better
            raise
        self._nodes = {node["name"]: node for node in told["nodes"]}
        reports = [
            WorkerReport(
                raw["job"],
                raw["attempt"],
                raw["worker"],
                raw["status"],
                WorkerExit.from_dict(raw["exit"]) if raw["exit"] else None,
                sure=raw["sure"],
            )
            for raw in told["workers"]
        ]
        self._settle(reports)
        waits = [Wait(job, attempt, code, message) for job, attempt, code, message in told["waits"]]
        return Look(reports, waits, self._infos())

    def launch(self, gangs: Sequence[GangLaunch], wanted: Callable[[Key], bool]) -> Mapping[Key, str | Held]:
        asked: dict[Key, dict[str, Any]] = {}
        refused: dict[Key, str | Held] = {}
        for gang in gangs:
            try:
                asked[gang.job, gang.attempt] = self._described(gang)
            except EngineError as error:  # such as a project's account that does not exist
                refused[gang.job, gang.attempt] = str(error)
        self._under_way |= asked
        if asked:
            self._call("launch", gangs=list(asked.values()))
        return refused

    def stop(self, orders: Sequence[Order]) -> None:
        for order in orders:
            self._orders[order.job, order.attempt] = order
        self._call("stop", orders=[[o.job, o.attempt, o.grace, o.reason] for o in orders])

    def forget(self, attempts: Sequence[Key]) -> None:
        for key in attempts:
            self._under_way.pop(key, None)
            self._orders.pop(key, None)
        self._call("forget", attempts=[list(key) for key in attempts])

    def drain(self, node: str, why: str) -> None:
        """Nothing to do: Muster itself places nothing there, and Ray can't drain a node without losing it."""

    def undrain(self, node: str) -> None:
        """See `drain`."""

    def check_node(self, node: str, shared: bool) -> Sequence[Mapping[str, Any]] | None:
        """By the node's agent. None for a node that has none."""
        known = self._nodes.get(node)
        if known is None:
            return None
        found: list[dict[str, Any]] = self._call("check", node=known["id"], shared=shared)
        return found

    def want(self, waiting: Sequence[tuple[str, Resources, int]]) -> None:
        self._wanted = requests_of(waiting, self.settings.pools)
        self._call("want", bundles=self._wanted)

    def most(self) -> Mapping[str, tuple[Resources, int]]:
        return {pool.name: (pool.node, pool.max_nodes) for pool in self.settings.pools if pool.node is not None}

    def cause(self, job: str, attempt: int, worker: int) -> tuple[str, str] | None:
        """Always None: a launcher ends only with its raylet, and there is nothing to add to that."""
        return None

    def usage(self, since: float) -> Iterable[Usage]:
        """Always empty: Ray keeps no accounting."""
        return ()

    def diagnose(self) -> Iterable[Finding]:
        return diagnose(self.name, self.settings, self.home)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()

    def _call(self, do: str, **given: Any) -> Any:
        if self._link is None:
            raise EngineError("There is no connection to Ray yet.", "It is being made.")
        return self._link.call(do, **given)

    def _infos(self) -> list[NodeInfo]:
        return node_infos(self._nodes.values(), self.settings.pools, self.name)

    def _tell_again(self) -> None:
        """Repeats pending requests, because a new bridge does not know those of the previous one."""
        if self._under_way:
            self._call("launch", gangs=list(self._under_way.values()))
        if self._orders:
            self._call("stop", orders=[[o.job, o.attempt, o.grace, o.reason] for o in self._orders.values()])
        if self._wanted is not None:
            self._call("want", bundles=self._wanted)

    def _settle(self, reports: Sequence[WorkerReport]) -> None:
        waiting = {(r.job, r.attempt) for r in reports if r.status in ("pending", "starting")}
        living = {(r.job, r.attempt) for r in reports if r.status != "ended"}
        self._under_way = {key: gang for key, gang in self._under_way.items() if key in waiting}
        self._orders = {key: order for key, order in self._orders.items() if key in living}

    def _described(self, gang: GangLaunch) -> dict[str, Any]:
        driver = bool(gang.options.get("driver"))
        env = dict(gang.options.get("runtime_env") or {})
        seats = [self._nodes.get(seat.node) or {"id": "", "ip": ""} for seat in gang.seats]
        checkpoints = f"{self.settings.checkpoints.rstrip('/')}/{gang.job}" if self.settings.checkpoints else ""
        hidden = [*self.home.private, self.settings.checkpoints, self.settings.scratch]
        paths = [path for path in hidden if path.startswith("/")]
        apart = isolation_of(gang, self.settings.isolation, paths, self.home.folder / "users.json")
        asked = (str(name) for name in env.get("env_vars") or {})
        passed = (*(name for name in asked if name.isidentifier()), *self.settings.isolation.pass_env)
        launches = [
            replace(launch_of(gang, worker, seat.node, self.home, checkpoints), isolation=apart, pass_env=passed)
            for worker, seat in enumerate(gang.seats)
        ]
        if driver:
            envs = {"RAY_ADDRESS": self._gcs(), **_job_config(env, gang.job), **gang.envs}
            launches = [replace(launches[0], num_nodes=1, nproc=1, envs=envs)]
        return {
            "job": gang.job,
            "attempt": gang.attempt,
            "nodes": [seat["id"] for seat in seats],
            "names": [seat.node for seat in gang.seats],
            "launches": [launch.to_json() for launch in launches],
            "bundles": [] if driver else [bundle_of(gang.ask, seat["ip"] or "127.0.0.1") for seat in seats],
            "env": env,
            "driver": driver,
            "bad": _unfit(env) or (_OPEN if (driver or env) and apart is not None else ""),
        }

    def _gcs(self) -> str:
        return self._detail.rpartition(" ")[2]


def _job_config(env: Mapping[str, Any], job: str) -> dict[str, str]:
    config = {"runtime_env": dict(env), "metadata": {"muster_job": job}}
    return {JOB_CONFIG: json.dumps(config)}


def _unfit(env: Mapping[str, Any]) -> str:
    """Why a runtime environment can't work, as far as that can be told from here; "" if nothing is wrong."""
    local = [str(env["working_dir"])] if "working_dir" in env else []
    local += [str(module) for module in env.get("py_modules") or ()]
    wrong = [path for path in local if not urlsplit(path).scheme]
    if wrong:
        return (
            f"ray.runtime_env names {wrong[0]!r}, a path on some machine; Ray fetches only addresses such as s3://... "
            "for a job. Leave it out: the job's `workdir` is shipped by Muster."
        )
    return ""
