"""The bridge's state of gangs: the gangs being launched, and the agents' reports on their workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Key = tuple[str, int]  # job, attempt
WITHHELD: Final = 60.0  # seconds for which a gang with missing workers may still be launched completely


@dataclass(slots=True)
class RayGang:
    """An attempt that this bridge was asked to launch."""

    job: str
    attempt: int
    nodes: list[str]  # of the workers, by id
    names: list[str]  # the same nodes by name
    launches: list[str]
    bundles: list[dict[str, float]]  # empty: nothing is reserved
    env: dict[str, Any]
    driver: bool
    bad: str = ""  # why its environment can't work
    stage: Literal["reserving", "starting", "started"] = "reserving"
    wait: tuple[str, str] | None = None  # Ray's reason and a sentence, while it is not placed
    placed: asyncio.Event = field(default_factory=asyncio.Event)
    launched: set[int] = field(default_factory=set)  # workers whose agents may have received their launch
    stop: tuple[float, str] | None = None  # grace in seconds and reason of a stop order received meanwhile
    task: asyncio.Task[None] | None = None

    @property
    def key(self) -> Key:
        return self.job, self.attempt

    def unlaunched(self) -> list[int]:
        """Workers whose agents were not told of them, so that they will not run."""
        if self.driver:
            return [] if self.launched else list(range(len(self.nodes)))
        return [worker for worker in range(len(self.nodes)) if worker not in self.launched]


def group_name(installation: str, key: Key) -> str:
    return f"{group_prefix(installation)}{key[0]}:{key[1]}"


def group_prefix(installation: str) -> str:
    return f"muster:{installation}:"


def group_key(installation: str, name: str) -> Key:
    job, _, attempt = name.removeprefix(group_prefix(installation)).rpartition(":")
    return job, int(attempt)


class Ledger:
    """Merges the reports of all agents, ends that only the bridge knows, and the gangs in progress into one list."""

    def __init__(self) -> None:
        self.gangs: dict[Key, RayGang] = {}
        self.ends: dict[Key, dict[int, dict[str, Any]]] = {}  # by worker: ends that no launcher is left to report
        self._reports: dict[tuple[str, str], list[dict[str, Any]]] = {}  # by agent: node and environment
        self._partial: dict[Key, float] = {}  # since when
        self.version = 0

    def record_reports(self, agent: tuple[str, str], reports: list[dict[str, Any]]) -> None:
        self._reports[agent] = reports
        self.version += 1

    def agents_of(self, key: Key) -> list[tuple[str, str]]:
        return [agent for agent, reports in self._reports.items() if any(_key(r) == key for r in reports)]

    def busy(self, agent: tuple[str, str]) -> bool:
        return bool(self._reports.get(agent))

    def end(self, key: Key, workers: Iterable[int], outcome: str, reason: str, detail: str) -> None:
        """Records the end of workers, unless one is recorded already."""
        ends = self.ends.setdefault(key, {})
        for worker in workers:
            ends.setdefault(worker, _exit(outcome, reason, detail))
        self.version += 1

    def lose_node(self, node: str, name: str) -> set[Key]:
        """Ends everything that ran on a lost node; returns the attempts that lost a worker."""
        detail = f"Ray lost the node {name}"
        lost: set[Key] = set()
        for agent in [agent for agent in self._reports if agent[0] == node]:
            for report in self._reports.pop(agent):
                # Workers that had ended keep their exit, because their launchers may not have reported it yet.
                ends = self.ends.setdefault(_key(report), {})
                ends.setdefault(report["worker"], report["exit"] or _exit("failed", "node_lost", detail))
                if report["driver"]:
                    self._mirror(_key(report), report["workers"], ends[report["worker"]])
                lost.add(_key(report))
        for gang in self.gangs.values():
            here = [worker for worker, seat in enumerate(gang.nodes) if seat == node]
            if here:
                self.end(gang.key, here, "failed", "node_lost", detail)
                lost.add(gang.key)
        self.version += 1
        return lost

    def forget(self, key: Key) -> None:
        self.gangs.pop(key, None)
        self.ends.pop(key, None)
        for agent, reports in self._reports.items():
            self._reports[agent] = [report for report in reports if _key(report) != key]
        self.version += 1

    def reports(self) -> list[dict[str, Any]]:
        """One report for every known worker; a gang with missing workers is withheld for a while."""
        found = self._workers()
        now, partial = time.monotonic(), {}
        for key, workers in list(found.items()):
            whole = next((r["workers"] for r in workers.values() if r.get("workers")), 0)
            if key not in self.gangs and key not in self.ends and len(workers) < whole:
                partial[key] = self._partial.get(key, now)
                if now - partial[key] < WITHHELD:
                    del found[key]
        self._partial = partial
        return [
            {"job": job, "attempt": attempt, "worker": worker, **_public(report)}
            for (job, attempt), workers in found.items()
            for worker, report in sorted(workers.items())
        ]

    def over(self) -> set[Key]:
        """Attempts whose known workers have all ended."""
        found = self._workers()
        return {key for key, workers in found.items() if all(r["exit"] is not None for r in workers.values())}

    def known(self) -> set[Key]:
        return {*self.gangs, *self._workers()}

    def _workers(self) -> dict[Key, dict[int, dict[str, Any]]]:
        found: dict[Key, dict[int, dict[str, Any]]] = {}
        for gang in self.gangs.values():
            status = "pending" if gang.stage == "reserving" else "starting"
            empty = {"status": status, "exit": None}
            found[gang.key] = {worker: dict(empty) for worker in range(len(gang.nodes))}
        for reports in self._reports.values():
            for report in reports:
                workers = found.setdefault(_key(report), {})
                workers[report["worker"]] = report
                if report["driver"]:  # only worker 0 runs; the others reserve their nodes and end with it
                    for worker in range(1, report["workers"]):
                        workers[worker] = {**report, "worker": worker, "sure": True}
        for key, ends in self.ends.items():
            for worker, end in ends.items():
                found.setdefault(key, {})[worker] = {"status": "ended", "exit": end, "sure": True}
        return found

    def _mirror(self, key: Key, workers: int, end: dict[str, Any]) -> None:
        for worker in range(1, workers):
            self.ends.setdefault(key, {}).setdefault(worker, end)


def _key(report: Mapping[str, Any]) -> Key:
    return report["job"], report["attempt"]


def _public(report: Mapping[str, Any]) -> dict[str, Any]:
    return {"status": report["status"], "exit": report["exit"], "sure": report.get("sure", False)}


def _exit(outcome: str, reason: str, detail: str) -> dict[str, Any]:
    """As `muster.wire.WorkerExit.to_dict` writes it."""
    return {
        "outcome": outcome, "reason": reason, "detail": detail, "time": time.time(), "rank": None, "exit_code": None,
        "signal": None, "ranks": (), "peak_memory": 0,
    }  # fmt: skip
