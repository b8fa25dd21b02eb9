"""Calls that try a policy on past jobs, and compare environments with known vulnerabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from muster.client.connection import Anyone, run_path

if TYPE_CHECKING:
    from muster.api.rules import PolicyEffect, PolicyReplay
    from muster.api.runs import EnvironmentCheck

EXAMPLES: Final = 5  # jobs of each reason


async def check_policy(
    to: Anyone,
    /,
    text: str,
    since: float = 30 * 86_400,
    source: str = "The policy",
    progress: Callable[[PolicyReplay], None] | None = None,
) -> PolicyReplay:
    """Which jobs of the last `since` seconds a policy would have refused, and which that wait or run now.

    Nothing is changed. `progress` is called with what was found so far, after each page of 500 jobs.
    """
    body: dict[str, Any] = {"text": text, "since": max(0.0, await to._transport.clock() - since), "source": source}
    found: PolicyReplay | None = None
    while True:
        page: PolicyReplay = await to._send("POST", "/v1/rules/replay", body)
        found = page if found is None else _added(found, page)
        if progress is not None:
            progress(found)
        if page["next"] is None:
            return found
        body["next"] = page["next"]


async def check_packages(to: Anyone, /, packages: Mapping[str, Sequence[str]]) -> EnvironmentCheck:
    """Compares packages and their versions with the advisories of the server: "vulnerable" has those that it knows."""
    body = {"packages": {name: list(versions) for name, versions in packages.items()}}
    return await to._send("POST", "/v1/environments/check", body)


async def check_run_environment(to: Anyone, /, ref: str | int) -> EnvironmentCheck:
    """The same of the packages that a run captured."""
    return await to._get(run_path(ref, "environment/check"))


def _added(first: PolicyReplay, more: PolicyReplay) -> PolicyReplay:
    effects = {one["code"]: one for one in first["effects"]}
    for one in more["effects"]:
        known = effects.get(one["code"])
        effects[one["code"]] = one if known is None else _joined(known, one)
    return {
        "since": first["since"],
        "judged": first["judged"] + more["judged"],
        "live": first["live"] + more["live"],
        "refused": first["refused"] + more["refused"],
        "refused_live": first["refused_live"] + more["refused_live"],
        "freed": first["freed"] + more["freed"],
        "effects": sorted(effects.values(), key=lambda one: -one["jobs"]),
        "next": more["next"],
    }


def _joined(one: PolicyEffect, other: PolicyEffect) -> PolicyEffect:
    return {
        "code": one["code"],
        "jobs": one["jobs"] + other["jobs"],
        "live": one["live"] + other["live"],
        "users": dict((Counter(one["users"]) + Counter(other["users"])).most_common()),
        "projects": dict((Counter(one["projects"]) + Counter(other["projects"])).most_common()),
        "examples": [*one["examples"], *other["examples"]][:EXAMPLES],
    }
