"""Sets the rules: read from a policy file, checked against the live cluster, and set in one event or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from muster.core.entities import Queue
from muster.core.entities.queue import QueueSet
from muster.core.entities.rules_in_force import RulesSet
from muster.core.errors import ConfigError, Problem, SpecError
from muster.core.event import Event
from muster.core.policy_check import check_rules
from muster.core.policy_file import HINT, parse_rules
from muster.core.rules import Rules
from muster.core.state import State
from muster.sched.policies import POLICIES
from muster.store.base import Entry, Proposal


def read_rules(text: str, source: str = "The policy") -> Rules:
    """Parses the rules of a policy file; raises SpecError."""
    return parse_rules(text, source=source, orders=tuple(POLICIES))


def read_policy(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"The policy file {path} can't be read: {why}.", "Correct the path, or the file.") from None


def missing_queues(rules: Rules, state: State, project: str) -> list[Queue]:
    """The queues that the rules name and the cluster does not have, as queues of this project."""
    return [Queue(name, project) for name in rules.queues if name not in state.queues]


def problems_here(rules: Rules, state: State, new: Sequence[Queue] = ()) -> list[Problem]:
    """What in the rules does not fit the cluster as it is now, with these new queues."""
    pools = Counter(dict.fromkeys(state.pools, 0))
    for node in (*state.nodes.values(), *state.machines.values()):
        # For an engine that chooses the machines, the machines count, and not the slots of its queue.
        pools[node.pool] += node.total.accelerators if node.role != "slot" else 0
    queues = {queue.name: queue.project for queue in (*state.queues.values(), *new)}
    delegated = [pool.name for pool in state.pools.values() if pool.delegated]
    return check_rules(rules, pools=pools, queues=queues, projects=state.projects, delegated=delegated)


def set_rules(
    text: str, actor: str, now: float, *, source: str = "The policy", check: bool = True, create: str | None = None
) -> Proposal:
    """Sets the rules, if they differ from the current ones. Raises SpecError with every problem, and changes nothing.

    `create`: the project in which missing queues are created, in the same transaction.
    Without `check` they may name what does not exist yet: at the start of a server, its file is read before its queues
    exist.
    """
    rules = read_rules(text, source)

    def propose(state: State) -> Entry:
        new = missing_queues(rules, state, create) if create is not None else []
        problems = problems_here(rules, state, new) if check else []
        if problems:
            raise SpecError(problems, source, HINT)
        made = [Event(QueueSet(**asdict(queue)), now, actor, queue.project) for queue in new]
        if (rules, text) == (state.rules, state.in_force.text):
            return Entry(made)
        return Entry([*made, Event(RulesSet(rules.model_dump(mode="json"), text), now, actor)])

    return propose
