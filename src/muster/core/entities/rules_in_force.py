"""The rules in force. There is one record of them, whose name is empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from muster.core.entities.base import EntityType
from muster.core.entities.price_book import note_policy_prices
from muster.core.payload import Doc, Payload, payload
from muster.core.rules import Rules

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State


@dataclass(frozen=True, slots=True)
class RulesInForce:
    """The rules, and the text that they were parsed from."""

    rules: Rules = field(default_factory=Rules)
    text: str = ""


class _RulesType(EntityType[RulesInForce]):
    def all(self, state: State) -> Mapping[str, RulesInForce]:
        return {"": state.in_force}

    def load(self, state: State, name: str, entity: RulesInForce) -> None:
        state.in_force = entity


def _decode(doc: Doc) -> RulesInForce:
    return RulesInForce(Rules.model_validate(doc["rules"]), doc["text"])


RULES = _RulesType("rules", _decode)


@payload("rules.set")
class RulesSet(Payload):
    """The rules of scheduling were set. `text` is what they were parsed from."""

    rules: Doc | Rules  # JSON; in a simulation, where nothing is encoded, the object itself
    text: str = ""

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        rules = Rules.model_validate(self.rules)
        RULES.put(state, "", RulesInForce(rules, self.text), changes)
        note_policy_prices(state, rules, event.time, changes)
        state.journal.note("entity", "rules")
