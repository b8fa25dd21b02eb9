"""A cluster in a folder, behind the real `RemoteEngine`: what it has been told lies there in files, so that it outlives
the server, and a test says when it does not answer, what it refuses and what becomes of a gang."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from muster.core.errors import EngineError
from muster.core.resources import Resources
from muster.engines.base import Finding, GangLaunch, NodeInfo, Usage, Wait, WorkerReport
from muster.engines.describe import Home
from muster.engines.remote import Held, Key, Look, Order
from muster.wire import WorkerExit

BIG = Resources(8_000, 64 * 10**9, 2, "H100")


class Toy:
    """The cluster, as a test sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "gangs").mkdir(parents=True, exist_ok=True)

    def down(self, yes: bool = True) -> None:
        if yes:
            (self.folder / "down").touch()
        else:
            (self.folder / "down").unlink()

    def nodes(self, *nodes: NodeInfo) -> None:
        self._write("nodes.json", [asdict(node) for node in nodes])

    def refuse(self, *jobs: str) -> None:
        self._write("refuse.json", list(jobs))

    def grows(self, pool: str, most: int, node: Resources = BIG) -> None:
        self._write("most.json", {pool: [asdict(node), most]})

    def keep(self, job: str, attempt: int, node: str, began: float, ended: float, used: float) -> None:
        """In its own books."""
        self._write("books.json", [[job, attempt, node, began, ended, used]])

    def gangs(self) -> dict[str, dict[str, Any]]:
        """By `JOB.ATTEMPT`."""
        found = {}
        for path in sorted((self.folder / "gangs").glob("*.json")):
            with suppress(FileNotFoundError):  # it was forgotten just now
                found[path.stem] = json.loads(path.read_text())
        return found

    def becomes(self, key: str, status: str, node: str = "", outcome: str = "", reason: str = "completed") -> None:
        gang = self.gangs()[key]
        end = asdict(WorkerExit(outcome, reason, "", 1.0)) if outcome else None  # type: ignore[arg-type]
        self._write(f"gangs/{key}.json", {**gang, "status": status, "node": node, "exit": end})

    def calls(self, what: str) -> list[Any]:
        path = self.folder / "calls"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [about for name, about in lines if name == what]

    def _write(self, name: str, value: Any) -> None:
        path = self.folder / name
        path.with_suffix(".new").write_text(json.dumps(value))
        path.with_suffix(".new").replace(path)


class ToyAdapter:
    kind = "toy"
    abilities = ("holds gangs in a folder",)
    look_every = 0.02

    def __init__(self, folder: Path) -> None:
        self.toy = Toy(folder)
        self.hiccup = ""  # a call after which the answer is lost, once

    def open(self, changed: Callable[[], None]) -> str:
        self._there()
        return f"the folder {self.toy.folder.name}"

    def look(self, nodes: bool) -> Look:
        self._there()
        workers, waits = list[WorkerReport](), list[Wait]()
        for gang in self.toy.gangs().values():
            end = WorkerExit(**gang["exit"]) if gang["exit"] else None
            for worker in range(gang["workers"]):
                about = (gang["job"], gang["attempt"], worker, gang["status"])
                workers.append(WorkerReport(*about, end, gang["node"], sure=end is not None))
            if gang["status"] == "pending":
                waits.append(Wait(gang["job"], gang["attempt"], "Priority", "others go first", 2e9))
        return Look(workers, waits, self._nodes() if nodes else None)

    def launch(self, gangs: Sequence[GangLaunch], wanted: Callable[[Key], bool]) -> Mapping[Key, str | Held]:
        self._there()
        refused = self._read("refuse.json", [])
        for gang in gangs:
            if gang.job not in refused:
                self._log("launch", [gang.job, gang.attempt])
                about = {"job": gang.job, "attempt": gang.attempt, "workers": len(gang.seats), "status": "pending"}
                told = {"options": gang.options, "image": gang.image, "code": gang.code, "pool": gang.pool}
                seats = [seat.node for seat in gang.seats]
                doc = {**about, **told, "seats": seats, "token": gang.token, "node": "", "exit": None}
                self.toy._write(f"gangs/{gang.job}.{gang.attempt}.json", doc)
        self._lost("launch")
        return {(gang.job, gang.attempt): "it says no" for gang in gangs if gang.job in refused}

    def stop(self, orders: Sequence[Order]) -> None:
        self._there()
        for order in orders:
            self._log("stop", [order.job, order.attempt, order.grace, order.reason])
            if f"{order.job}.{order.attempt}" in self.toy.gangs():
                self.toy.becomes(f"{order.job}.{order.attempt}", "ended", outcome="stopped", reason=order.reason)
        self._lost("stop")

    def forget(self, attempts: Sequence[Key]) -> None:
        self._there()
        for job, attempt in attempts:
            self._log("forget", [job, attempt])
            (self.toy.folder / "gangs" / f"{job}.{attempt}.json").unlink(missing_ok=True)

    def drain(self, node: str, why: str) -> None:
        self._there()
        self._log("drain", [node, why])

    def undrain(self, node: str) -> None:
        self._there()
        self._log("undrain", [node])

    def want(self, waiting: Sequence[tuple[str, Resources, int]]) -> None:
        self._there()
        self._log("want", [[pool, ask.accelerators, workers] for pool, ask, workers in waiting])

    def most(self) -> Mapping[str, tuple[Resources, int]]:
        return {pool: (Resources(**node), most) for pool, (node, most) in self._read("most.json", {}).items()}

    def cause(self, job: str, attempt: int, worker: int) -> tuple[str, str] | None:
        return None

    def usage(self, since: float) -> Iterable[Usage]:
        for job, attempt, node, began, ended, used in self._read("books.json", []):
            yield Usage(job, attempt, "COMPLETED", (node,), began, ended, used, 0.0)

    def diagnose(self) -> Iterable[Finding]:
        yield Finding("ok", "folder", self.toy.folder.name)
        self._there()
        yield Finding("warn", "nodes", f"{len(self._nodes())} nodes", "Add some.")

    def close(self) -> None:
        pass

    def _there(self) -> None:
        if (self.toy.folder / "down").exists():
            raise EngineError("the toy cluster does not answer.", "Wake it.")

    def _lost(self, call: str) -> None:
        if self.hiccup == call:
            self.hiccup = ""
            raise EngineError("the answer was lost.")

    def _nodes(self) -> list[NodeInfo]:
        return [
            NodeInfo(
                **{**raw, "resources": Resources(**raw["resources"]), "used": raw["used"] and Resources(**raw["used"])}
            )
            for raw in self._read("nodes.json", [])
        ]

    def _read(self, name: str, default: Any) -> Any:
        path = self.toy.folder / name
        return json.loads(path.read_text()) if path.exists() else default

    def _log(self, what: str, about: Any) -> None:
        with (self.toy.folder / "calls").open("a") as file:
            file.write(json.dumps([what, about]) + "\n")


def read(name: str, settings: Mapping[str, Any], home: Home) -> ToyAdapter:
    return ToyAdapter(Path(settings["folder"]))


def node(name: str, pool: str = "gpu", **more: Any) -> NodeInfo:
    return NodeInfo(name, pool, BIG, **more)


def slots(pool: str, count: int) -> list[NodeInfo]:
    return [NodeInfo(f"{pool}/{number}", pool, BIG, role="slot") for number in range(1, count + 1)]
