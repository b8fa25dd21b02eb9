"""Shell completion: fast and silent; offers nothing when the server can't be asked."""

from __future__ import annotations

from collections.abc import Callable

from muster.cli.connect import client
from muster.client import Client
from muster.core.errors import MusterError

_TIMEOUT = 2.0  # seconds


def jobs(incomplete: str) -> list[tuple[str, str]]:
    """The newest jobs, with their phases."""
    return _offered(incomplete, lambda to: [(job.id, job.phase) for job in to.jobs(limit=200)])


def studies(incomplete: str) -> list[tuple[str, str]]:
    return _offered(incomplete, lambda to: [(one["id"], one["phase"]) for one in to.studies(everything=True)])


def queues(incomplete: str) -> list[tuple[str, str]]:
    return _offered(incomplete, lambda to: [(queue["name"], queue["project"]) for queue in to.queues()])


def nodes(incomplete: str) -> list[tuple[str, str]]:
    return _offered(incomplete, lambda to: [(node["name"], node["health"]) for node in to.nodes()])


def engines(incomplete: str) -> list[tuple[str, str]]:
    return _offered(incomplete, lambda to: [(engine["name"], engine["kind"]) for engine in to.engines()])


def projects(incomplete: str) -> list[tuple[str, str]]:
    return _offered(incomplete, lambda to: [(project["name"], project["description"]) for project in to.projects()])


def _offered(incomplete: str, ask: Callable[[Client], list[tuple[str, str]]]) -> list[tuple[str, str]]:
    try:
        with client(timeout=_TIMEOUT) as to:
            return [offer for offer in ask(to) if offer[0].startswith(incomplete)]
    except MusterError:
        return []
