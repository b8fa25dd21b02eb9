"""Calls for journals of Optuna. `muster.optuna_storage` is made of them; see `optuna`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.client.connection import Anyone, part

if TYPE_CHECKING:
    from muster.api.optuna import (
        OptunaAppended,
        OptunaJournalDeleted,
        OptunaJournalView,
        OptunaLogs,
        OptunaSnapshotSaved,
    )

_SLOWEST = 60.0  # seconds without a byte of a snapshot


async def optuna_journals(to: Anyone, /, project: str = "default") -> list[OptunaJournalView]:
    """The journals in which a project's Optuna studies are kept: see `muster.optuna_storage`."""
    return (await to._get(f"/v1/projects/{part(project)}/optuna"))["journals"]


async def delete_optuna_journal(to: Anyone, /, name: str, project: str = "default") -> OptunaJournalDeleted:
    """Deletes a journal with all of its studies. One study is deleted with `optuna.delete_study`."""
    return await to._send("DELETE", _path(project, name))


async def read_logs(to: Anyone, /, project: str, name: str, after: int, journal: int) -> OptunaLogs:
    return await to._get(_path(project, name, "/logs"), after=after, id=journal)


async def append_logs(
    to: Anyone, /, project: str, name: str, logs: Sequence[str], key: str, after: int, journal: int
) -> OptunaAppended:
    body = {"key": key, "logs": list(logs), "after": after, "id": journal}
    return await to._send("POST", _path(project, name, "/logs"), body, key)


async def read_snapshot(to: Anyone, /, project: str, name: str, format: str) -> bytes:
    """Empty if there is none."""
    return await to._transport.read(_path(project, name, "/snapshot"), {"format": format}, _SLOWEST)


async def save_snapshot(
    to: Anyone, /, project: str, name: str, format: str, data: bytes, logs: int, journal: int
) -> OptunaSnapshotSaved:
    asked = {"format": format, "logs": logs, "id": journal}
    return await to._transport.send_content("PUT", _path(project, name, "/snapshot"), data, len(data), asked)


def _path(project: str, name: str, rest: str = "") -> str:
    return f"/v1/projects/{part(project)}/optuna/{part(name)}{rest}"
