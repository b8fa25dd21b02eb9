"""The Slurm client for slurmrestd: JSON over a socket or HTTP, for a server without Slurm installed.

What REST can't do, such as draining, is left to the tools if they are installed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx

from muster.core.errors import EngineError
from muster.engines.slurm.model import (
    Cluster,
    JobRow,
    MachineRow,
    PartitionRow,
    PastRow,
    SlurmBusy,
    SlurmRefused,
    Submission,
    count_gpus,
    expand,
    tres,
)
from muster.engines.slurm.settings import SlurmSettings
from muster.engines.slurm.tools import Tools

PATIENCE: Final = 60.0  # seconds
_BUSY: Final = re.compile(r"submit limit|MaxJobCount|Max\w*Submit", re.IGNORECASE)
_TROUBLE: Final = re.compile(r"contact|timed out|communication|temporarily|connect", re.IGNORECASE)


class Rest:
    """See `muster.engines.slurm.model.SlurmClient`."""

    def __init__(self, settings: SlurmSettings, environment: Mapping[str, str], tools: Tools) -> None:
        self._settings, self._environment, self._tools = settings, environment, tools
        self._http: httpx.Client | None = None

    def describe(self) -> Cluster:
        """Describes the cluster. Settings that REST does not report have Slurm's defaults."""
        answer = self._call("GET", "slurm", "ping")
        version = answer.get("meta", {}).get("Slurm", {}).get("release", "?")
        down = [ping for ping in answer.get("pings", []) if ping.get("ping") != "UP"]
        if down and len(down) == len(answer["pings"]):
            raise EngineError("slurmrestd answers, but slurmctld does not.", "Is slurmctld up?")
        # REST lists a pending array as one row without its tasks, so each job is submitted alone.
        return Cluster("by slurmrestd", version, max_array=2, accounting=self._has_accounting())

    def jobs(self) -> list[JobRow]:
        return [_job(raw) for raw in self._call("GET", "slurm", "jobs")["jobs"]]

    def machines(self) -> list[MachineRow]:
        return [_machine(raw) for raw in self._call("GET", "slurm", "nodes")["nodes"]]

    def partitions(self) -> list[PartitionRow]:
        found = self._call("GET", "slurm", "partitions")["partitions"]
        return [
            PartitionRow(raw["name"], "default" in raw.get("flags", []), raw.get("state") != "DOWN") for raw in found
        ]

    def submit(self, wanted: Submission) -> str:
        if wanted.extra:
            raise SlurmRefused("Through slurmrestd no further options of sbatch can be given.", "Leave `extra` out.")
        script = Path(wanted.script).read_text().split("\n", 1)
        # REST has no arguments for a script, so they become its first line.
        words = " ".join(_quote(word) for word in wanted.arguments)
        body: dict[str, Any] = {
            "script": f"{script[0]}\nset -- {words}\n{script[1]}",
            "job": _properties(wanted, self._environment, self._settings.rest_version),
        }
        try:
            answer = self._call("POST", "slurm", "job/submit", body, refusable=True)
        except SlurmRefused as error:
            # Slurm 22.05 accepts no signal for the batch script;
            # then a job only gets SIGTERM, KillWait seconds before the end.
            if "SIGNAL" not in error.message or "signal" not in body["job"]:
                raise
            del body["job"]["signal"]
            answer = self._call("POST", "slurm", "job/submit", body, refusable=True)
        return str(answer["job_id"])

    def cancel(self, ids: Sequence[str], pending: bool = False) -> None:
        states = {row.id: row for row in self.jobs()} if pending else {}
        for id in ids:
            row = states.get(id)
            if not pending or (row is not None and row.state == "PENDING"):
                self._call("DELETE", "slurm", f"job/{id}", gone=True)

    def signal_scripts(self, ids: Sequence[str]) -> None:
        """Signals the job with SIGURG, because REST can't signal the batch script alone. Ranks ignore it, and launchers
        read their orders. A launcher that the signal does not reach learns of the order in the server's next answer."""
        for id in ids:
            self._call("DELETE", "slurm", f"job/{id}?signal=SIGURG", gone=True)

    def limit(self, id: str, minutes: int) -> None:
        self._call("POST", "slurm", f"job/{id}", {"time_limit": minutes})

    def drain(self, node: str, why: str) -> None:
        self._tools.drain(node, why)

    def resume(self, node: str) -> None:
        self._tools.resume(node)

    def past(self, since: float, ids: Sequence[str] = ()) -> list[PastRow]:
        answer = self._call("GET", "slurmdb", f"jobs?start_time={int(since)}")
        rows = [_past(raw) for raw in answer["jobs"]]
        return [row for row in rows if not ids or row.id in ids]

    def _has_accounting(self) -> bool:
        try:
            return bool(self._call("GET", "slurmdb", "clusters").get("clusters"))
        except EngineError:
            return False

    def _call(
        self, method: str, part: str, what: str, body: Any = None, refusable: bool = False, gone: bool = False
    ) -> dict[str, Any]:
        path = f"/{part}/{self._settings.rest_version}/{what}"
        try:
            answer = self._client().request(method, path, json=body, headers=self._headers())
            document: dict[str, Any] = answer.json()
        except httpx.HTTPError as error:
            raise EngineError(f"slurmrestd at {self._settings.rest}: {error}", "Is slurmrestd up?") from error
        except ValueError as error:
            raise EngineError(
                f"slurmrestd answered {answer.status_code} to {method} {what}.", "Is `rest_version` one that it has?"
            ) from error
        errors = [str(e.get("error") or e.get("description") or e) for e in document.get("errors", [])]
        errors = [words for words in errors if words not in ("No error", "")]
        if (errors or answer.status_code >= 400) and not gone:
            words = "; ".join(errors) or f"status {answer.status_code}"
            if refusable and _BUSY.search(words):
                raise SlurmBusy(words)
            if refusable and not _TROUBLE.search(words):
                raise SlurmRefused(f"Slurm refuses the job: {words}", "See `sinfo` and `sacctmgr show assoc`.")
            raise EngineError(f"slurmrestd: {words}", "See slurmrestd's log.")
        return document

    def _client(self) -> httpx.Client:
        if self._http is None:
            place = self._settings.rest
            unix = place.startswith("unix:")
            transport = httpx.HTTPTransport(uds=place.removeprefix("unix:") if unix else None)
            base = "http://localhost" if unix else place
            self._http = httpx.Client(base_url=base, transport=transport, timeout=PATIENCE)
        return self._http

    def _headers(self) -> dict[str, str]:
        """Reads the token each time, because it is renewed from outside."""
        if not self._settings.token_file:
            return {}
        try:
            token = Path(self._settings.token_file).read_text().strip()
        except OSError as error:
            raise EngineError(f"The token file can't be read: {error}", "See `token_file`.") from error
        user = self._settings.rest_user or os.environ.get("USER", "root")
        return {"X-SLURM-USER-NAME": user, "X-SLURM-USER-TOKEN": token.removeprefix("SLURM_JWT=")}


def _properties(wanted: Submission, environment: Mapping[str, str], version: str) -> dict[str, Any]:
    given: dict[str, Any] = {
        "name": wanted.name,
        "comment": wanted.comment,
        "partition": wanted.partition,
        "nodes": [wanted.nodes, wanted.nodes],
        "tasks_per_node": 1,
        "tasks": wanted.nodes,
        "cpus_per_task": wanted.cpus,
        "current_working_directory": wanted.folder,
        "standard_output": wanted.output,
        "standard_error": wanted.output,
        "signal": f"B:USR1@{wanted.signal}",
        "requeue": wanted.requeue,
        "environment": dict(environment) or {"PATH": "/usr/bin:/bin"},
    }
    optional: dict[str, Any] = {
        "memory_per_node": wanted.memory,
        "gres": wanted.gres,
        "time_limit": wanted.minutes,
        "nice": str(wanted.nice) if wanted.nice else None,
        "qos": wanted.qos,
        "account": wanted.account,
        "constraints": wanted.constraint,
        "reservation": wanted.reservation,
        "dependency": wanted.dependency,
        **_chosen_nodes(wanted, version),
        "exclusive": "exclusive" if wanted.exclusive else None,
        "array": f"0-{wanted.array - 1}" if wanted.array else None,
    }
    return given | {name: value for name, value in optional.items() if value}


def _chosen_nodes(wanted: Submission, version: str) -> dict[str, Any]:
    """Nodes to use and to leave out, which have other names in older versions."""
    if version <= "v0.0.38":
        return {"nodelist": wanted.nodelist, "exclude_nodes": wanted.exclude}
    return {"required_nodes": expand(wanted.nodelist), "excluded_nodes": expand(wanted.exclude)}


def _job(raw: Mapping[str, Any]) -> JobRow:
    base, task = raw.get("array_job_id") or 0, raw.get("array_task_id")
    id = f"{base}_{task}" if base and task is not None else str(raw["job_id"])
    starts = raw.get("start_time") or 0
    return JobRow(
        id, str(raw["job_id"]), str(raw["job_state"]), int(raw.get("restart_cnt") or 0),
        str(raw.get("state_reason") or "None"), float(starts) if starts else None, expand(raw.get("nodes") or ""),
        int(raw.get("node_count") or 1), str(raw.get("comment") or ""),
    )  # fmt: skip


def _machine(raw: Mapping[str, Any]) -> MachineRow:
    used = tres(str(raw.get("tres_used") or ""))
    states = [str(raw.get("state", "unknown")).upper(), *(str(flag).upper() for flag in raw.get("state_flags") or [])]
    features = str(raw.get("active_features") or "")
    return MachineRow(
        raw["name"], tuple(states), int(raw.get("cpus") or 0), int(raw.get("real_memory") or 0),
        str(raw.get("gres") or ""), tuple(raw.get("partitions") or ()), str(raw.get("reason") or ""),
        tuple(name for name in features.split(",") if name), int(raw.get("alloc_cpus") or 0),
        int(raw.get("alloc_memory") or 0), used.get("gres/gpu") or count_gpus(str(raw.get("gres_used") or "")),
    )  # fmt: skip


def _past(raw: Mapping[str, Any]) -> PastRow:
    held = {f"{t['type']}/{t['name']}" if t.get("name") else t["type"]: t["count"] for t in raw["tres"]["allocated"]}
    times, array = raw["time"], raw.get("array") or {}
    base, task = array.get("job_id") or 0, array.get("task_id")
    id = f"{base}_{task}" if base and isinstance(task, int) else str(raw["job_id"])
    return PastRow(
        id, str(raw["state"]["current"]), expand(raw.get("nodes") or ""), float(times["start"]) or None,
        float(times["end"]) or None, float(times["elapsed"]), int(held.get("cpu", 0)), int(held.get("gres/gpu", 0)),
        str((raw.get("comment") or {}).get("job") or ""),
    )  # fmt: skip


def _quote(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"
