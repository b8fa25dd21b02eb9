"""Known vulnerable packages of environments, as the API has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muster.api.runs import EnvironmentCheck, VulnerableView
from muster.core.advisories import BadAdvisories, captured_packages, vulnerable_views
from muster.core.errors import Invalid
from muster.server.leader import Leader


def check_packages(leader: Leader, packages: Mapping[str, Sequence[str] | str | None]) -> EnvironmentCheck:
    """Raises Invalid if the advisories of the settings can't be read: no answer would look like a good one."""
    try:
        known = leader.inspector.advisories.read()
    except BadAdvisories as error:
        raise Invalid(
            f"The packages can't be compared: {error}.", "Give a file: `muster environment check --advisories FILE`."
        ) from None
    found = known.check(packages)
    return {"packages": len(packages), "advisories": known.count, "vulnerable": vulnerable_views(found)}


def vulnerable_of(leader: Leader, doc: Mapping[str, Any]) -> list[VulnerableView] | None:
    """Of the environment that a run captured; None if nobody can say."""
    if leader.inspector.advisories.path is None:
        return None
    try:
        return check_packages(leader, captured_packages(doc))["vulnerable"]
    except Invalid:
        return None
