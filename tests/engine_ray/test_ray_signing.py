"""What an agent takes for its server's word, and a bridge for its agent: what the shared key has signed, once."""

from __future__ import annotations

import json

import pytest

from muster.engines.ray.signing import BadSignature, Signer, Verifier, WrongKey, agent_key

KEY = agent_key("00" * 32, "node-1", "plain")


def _line(key: str = KEY) -> tuple[Signer, Verifier]:
    signer, agent = Signer(key), Verifier(KEY)
    signer.check_proof(agent.session, agent.prove(signer.nonce))
    return signer, agent


def test_what_is_signed_is_taken_once() -> None:
    signer, agent = _line()
    sealed = signer.seal("hello", (["https://muster"], "certificate"))
    assert agent.open(*sealed) == ("hello", [["https://muster"], "certificate"])
    with pytest.raises(BadSignature, match="before"):
        agent.open(*sealed)
    assert agent.open(*signer.seal("hello", (["https://muster"], "certificate")))


def test_nothing_that_was_changed_or_never_signed_is_taken() -> None:
    signer, agent = _line()
    message, signature = signer.seal("hello", (["https://muster"], ""))
    for changed in (message.replace("https://muster", "https://evil"), json.dumps({"method": "hello"}), ""):
        with pytest.raises(BadSignature):
            agent.open(changed, signature)
    for forged in ("", "0" * 64, signature[:-1]):
        with pytest.raises(BadSignature):
            agent.open(message, forged)


def test_words_for_one_process_or_one_agent_are_no_words_for_another() -> None:
    signer, _ = _line()
    again = Verifier(KEY)  # the same agent, started anew
    with pytest.raises(BadSignature, match="session"):
        again.open(*signer.seal("stop", ("a-1", 1, 0.0, "x")))
    other = Verifier(agent_key("00" * 32, "node-2", "plain"))
    with pytest.raises(BadSignature):
        other.open(*signer.seal("stop", ("a-1", 1, 0.0, "x")))


def test_who_has_an_agents_name_and_not_its_key_is_a_stranger() -> None:
    for stranger in (
        Verifier(agent_key("11" * 32, "node-1", "plain")),
        Verifier(agent_key("00" * 32, "node-1", "env")),
    ):
        signer = Signer(KEY)
        with pytest.raises(WrongKey):
            signer.check_proof(stranger.session, stranger.prove(signer.nonce))
    signer, agent = Signer(KEY), Verifier(KEY)
    with pytest.raises(WrongKey):
        signer.check_proof(agent.session, agent.prove("another nonce"))
