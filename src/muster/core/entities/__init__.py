"""The entities of the state, one file for each noun: its state, its events, its encoding, and how it is loaded.

To add a noun: one new file, and one line here. See "The state" in docs/architecture.md.
"""

from __future__ import annotations

from typing import Any, Final

from muster.api.words import ROLES, Health, NodeRole, Role
from muster.core.entities.account import ACCOUNTS
from muster.core.entities.alert import ACTION_LOGS, ALERT_RULES, ALERTS, PENDING_ALERTS, SILENCES
from muster.core.entities.base import EntityType
from muster.core.entities.budget import BUDGETS
from muster.core.entities.certificate import CERTIFICATES
from muster.core.entities.charged_day import CHARGED_DAYS
from muster.core.entities.demand import DEMANDS, TYPICAL_WORK
from muster.core.entities.ledger import LEDGERS
from muster.core.entities.node import ENGINE, NODES, Node
from muster.core.entities.node_record import NODE_RECORDS
from muster.core.entities.pool import POOLS, Pool
from muster.core.entities.price_book import POLICY_PRICES, PRICE_BOOKS
from muster.core.entities.project import PROJECTS, Project, at_least, lower
from muster.core.entities.provider_account import PROVIDER_ACCOUNTS
from muster.core.entities.queue import QUEUES, Queue
from muster.core.entities.rules_in_force import RULES, RulesInForce
from muster.core.entities.signing_key import SIGNING_KEYS
from muster.core.entities.study import PROGRESS, STUDIES, TRIALS
from muster.core.entities.token import RESERVED_USERS, TOKENS, Token, reserved, within

__all__ = [
    "ENGINE", "ENTITIES", "RESERVED_USERS", "ROLES", "EntityType", "Health", "Node", "NodeRole", "Pool", "Project",
    "Queue", "Role", "RulesInForce", "Token", "at_least", "lower", "reserved", "within",
]  # fmt: skip

ENTITIES: Final[dict[str, EntityType[Any]]] = {
    one.kind: one
    for one in (
        PROJECTS,
        QUEUES,
        POOLS,
        NODES,
        TOKENS,
        RULES,
        ACCOUNTS,
        LEDGERS,
        NODE_RECORDS,
        ALERTS,
        PENDING_ALERTS,
        SILENCES,
        ALERT_RULES,
        ACTION_LOGS,
        PRICE_BOOKS,
        POLICY_PRICES,
        BUDGETS,
        CHARGED_DAYS,
        STUDIES,
        TRIALS,
        PROGRESS,
        CERTIFICATES,
        SIGNING_KEYS,
        PROVIDER_ACCOUNTS,
        DEMANDS,
        TYPICAL_WORK,
    )
}
