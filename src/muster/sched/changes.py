"""What has changed since the last round, so that a round looks only at jobs whose situation may be different."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.sched.queued_jobs import Shape


@dataclass(slots=True)
class Changes:
    shapes: dict[Shape, None] = field(default_factory=dict)  # requests that may fit now
    pools: dict[str, None] = field(default_factory=dict)  # pools in which preemption may have a new result
    limits_eased: bool = False  # less counts against limits and quotas: any waiting job may be allowed to start
