"""Known vulnerable packages in the lock files of the working directory."""

from __future__ import annotations

from typing import Final

from muster.control.admission.base import Context
from muster.control.admission.guarded import refusing
from muster.core.reasons import Reason, reason
from muster.core.rules import GuardRule
from muster.core.spec import JobSpec

_NAMED: Final = 5  # packages that a message names


def find(spec: JobSpec, context: Context, rule: GuardRule) -> Reason | None:
    found = context.inspected
    if found.trouble:
        message = f"its packages could not be compared with known vulnerabilities: {found.trouble}"
        return reason("advisories_unreadable", message)
    assert rule.severity is not None  # the rules fill it in
    counted = [one for one in found.vulnerable if one.advisory.counts(rule.severity)]
    if not counted:
        return None
    told = "; ".join(str(one) for one in counted[:_NAMED])
    more = f"; and {len(counted) - _NAMED} more" if len(counted) > _NAMED else ""
    listed = [{"package": one.package, "version": one.version, "advisory": one.advisory.id} for one in counted[:100]]
    return reason("vulnerable_packages", f"its lock file has vulnerable packages: {told}{more}", vulnerable=listed)


check = refusing("advisories", find)
