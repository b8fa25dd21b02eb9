"""Limits of what one user and one project may use of the server: live jobs, tokens and stored bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.core.errors import Refused
from muster.core.reasons import reason
from muster.core.state import State


@dataclass(frozen=True, slots=True)
class Quota:
    """None means no limit."""

    jobs_per_user: int | None = None
    jobs_per_project: int | None = None
    tokens_per_user: int | None = None
    bytes_per_project: int | None = None
    tasks_per_array: int | None = None
    own_bytes: Mapping[str, int] = field(default_factory=dict)  # project → own limit, in place of `bytes_per_project`

    @property
    def limits_bytes(self) -> bool:
        return self.bytes_per_project is not None or bool(self.own_bytes)

    def bytes_of(self, project: str) -> int | None:
        return self.own_bytes.get(project, self.bytes_per_project)


UNLIMITED = Quota()


def check_tokens(state: State, user: str, now: float, quota: Quota) -> None:
    """Raises Refused when the user has as many valid tokens as the server allows."""
    if quota.tokens_per_user is None:
        return
    valid = sum(
        1
        for token in state.tokens.values()
        if token.user == user and token.revoked_at is None and (token.expires_at is None or token.expires_at > now)
    )
    if valid >= quota.tokens_per_user:
        most = quota.tokens_per_user
        message = f"{user} has {valid:,} valid tokens, and may have {most:,}"
        hint = "Revoke some: `muster token ls`, `muster token revoke ID`."
        raise Refused([reason("over_quota", message, hint, used=valid, limit=most)])
