"""Every kind of event keeps its payload through JSON; older, newer and damaged JSON is read as far as it can be."""

from __future__ import annotations

from typing import Any

import pytest

from events_kit import doc_of
from muster.core.attempt_events import AttemptPlanned, CheckpointCommitted
from muster.core.entities.node import NodeHealth
from muster.core.errors import ConfigError
from muster.core.event import Event
from muster.core.job_events import JobStopping, JobSubmitted
from muster.core.payload import KINDS, Payload, Unreadable, decode, payload
from muster.core.reasons import reason
from muster.core.seat import Seat
from muster.core.state import Changes, State, apply
from muster.store import codec


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_json_keeps_all_of_it(kind: str) -> None:
    doc = doc_of(kind)
    made = decode(kind, doc)
    assert type(made) is KINDS[kind]
    assert made.to_doc() == doc
    same, text = codec.seal(made)
    assert same is made
    assert codec.payload_from(kind, text) == made
    assert Event(made, 1.0).kind == Event(made, 1.0).to_dict()["kind"] == kind


def test_what_is_not_json_is_typed() -> None:
    planned = decode("attempt.planned", doc_of("attempt.planned"))
    assert planned == AttemptPlanned((Seat("n0", (0, 1)), Seat("n1", (3,), 250)))
    stopping = decode("job.stopping", doc_of("job.stopping"))
    assert stopping == JobStopping(reason("preempted", "j2 goes first", "wait", for_job="j2"), "queued", 30.0)


def test_fields_that_an_older_release_did_not_write_have_their_defaults() -> None:
    known = {"number": 1, "queue": "q", "user": "ada", "spec": {}, "name": "gpt", "key": None}
    assert decode("job.submitted", known) == JobSubmitted(1, "q", "ada", {}, "gpt")
    saved = {"step": 1, "path": "a", "bytes": 2}
    assert decode("checkpoint.committed", saved) == CheckpointCommitted(1, "a", 2, 0)


def test_fields_that_are_gone_are_dropped() -> None:
    doc = {"name": "n0", "health": "healthy", "reason": "", "of_another_release": 1}
    assert decode("node.health", doc) == NodeHealth("n0", "healthy", "")


def test_the_first_releases_name_of_a_hint_is_read() -> None:
    old = {"code": "preempted", "message": "m", "mend": "wait", "data": None}
    assert decode("job.waits", {"reason": old}).to_doc()["reason"]["hint"] == "wait"


@pytest.mark.parametrize(
    ("kind", "doc", "why"),
    [
        ("budget.spent", {"project": "p"}, "does not know the kind"),
        ("node.left", {"name": "n0", "_version": 2}, "it has version 2; this version of Muster knows up to 1"),
        ("job.requeued", {"charge": "node"}, "missing"),
        ("attempt.planned", {"seats": [{"devices": []}]}, "KeyError"),
    ],
)
def test_what_can_not_be_read_is_listed_as_it_is_and_never_folded(kind: str, doc: dict[str, Any], why: str) -> None:
    event = Event(decode(kind, doc), 5.0, seq=91)
    assert isinstance(event.data, Unreadable)
    assert (event.kind, event.to_dict()["data"], codec.loads(codec.seal(event.data)[1])) == (kind, doc, doc)
    state = State()
    with pytest.raises(ConfigError, match=rf"Event 91 of the log \({kind}\) can't be read: .*{why}"):
        apply(state, event)
    assert state == State()


def test_an_older_version_is_upgraded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first version counted minutes; the second one renamed the field, too, which a default can't express."""

    @payload("pause.set", version=3)
    class PauseSet(Payload):
        seconds: float
        why: str = ""

        def fold(self, state: State, event: Event, changes: Changes) -> None:
            state.others["pause"] = {"": self.seconds}

        @classmethod
        def upgrade(cls, doc: dict[str, Any], version: int) -> dict[str, Any]:
            if version == 1:
                doc = {"seconds": 60.0 * doc["minutes"]}
            return {**doc, "why": "not told"}

    monkeypatch.setitem(KINDS, "pause.set", KINDS.pop("pause.set"))
    assert decode("pause.set", {"minutes": 2}) == PauseSet(120.0, "not told")
    assert decode("pause.set", {"seconds": 7.0, "_version": 2}) == PauseSet(7.0, "not told")
    assert PauseSet(1.0, "a test").to_doc() == {"seconds": 1.0, "why": "a test"}  # folds make entities of it
    assert PauseSet(1.0, "a test").to_log() == {"seconds": 1.0, "why": "a test", "_version": 3}
    assert codec.payload_from("pause.set", codec.seal(PauseSet(1.0))[1]) == PauseSet(1.0)
    assert apply(State(), Event(decode("pause.set", {"minutes": 2}), 1.0, seq=1)) == Changes()
    assert isinstance(decode("pause.set", {"_version": 4}), Unreadable)


def test_a_kind_has_one_payload() -> None:
    with pytest.raises(AssertionError, match=r"two payloads of the kind node\.left"):

        @payload("node.left")
        class Again(Payload):
            name: str
