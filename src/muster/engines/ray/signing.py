"""Mutual authentication of a server's bridge and its agents in a shared cluster, by a key that both have.

Each agent has its own key, derived from the server's. Messages are signed for one session, which is one process of an
agent, and each is accepted once. This runs on nodes: standard library only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Final

REMEMBERED: Final = 65_536  # messages of a session that are not accepted a second time


class BadSignature(PermissionError):
    """The message is not from this agent's server, or not for this session, or was accepted before."""


class WrongKey(Exception):
    """The actor with an agent's name does not have the agent's key."""


def agent_key(key: str, node: str, name: str) -> str:
    """The key of one agent, derived from a node's id and an environment's name."""
    return _sign(key, "agent", node, name)


class Signer:
    """The bridge's side of a link to one agent."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._session = ""
        self.nonce = secrets.token_hex(16)

    def check_proof(self, session: str, proof: str) -> None:
        """Checks the agent's answer to `nonce`. Raises Stranger."""
        if not hmac.compare_digest(str(proof), _sign(self._key, "proof", self.nonce, str(session))):
            raise WrongKey("an actor with the agent's name does not have the agent's key")
        self._session = session

    def seal(self, method: str, given: tuple[Any, ...]) -> tuple[str, str]:
        """A message and its signature."""
        said = {"session": self._session, "id": secrets.token_hex(8), "method": method, "given": given}
        message = json.dumps(said)
        return message, _sign(self._key, "message", message)


class Verifier:
    """The agent's side of a link."""

    def __init__(self, key: str) -> None:
        self.session = secrets.token_hex(16)
        self._key = key
        self._lock = threading.Lock()
        self._order: deque[str] = deque()
        self._taken: set[str] = set()

    def prove(self, nonce: str) -> str:
        return _sign(self._key, "proof", str(nonce), self.session)

    def open(self, message: str, signature: str) -> tuple[str, list[Any]]:
        """Checks a message and returns its method and arguments. Raises BadSignature."""
        if not hmac.compare_digest(str(signature), _sign(self._key, "message", str(message))):
            raise BadSignature("this agent does what its server has signed, and nothing else")
        said = json.loads(message)
        if said["session"] != self.session:
            raise BadSignature("this is for another session of the agent")
        self._take(str(said["id"]))
        return str(said["method"]), list(said["given"])

    def _take(self, number: str) -> None:
        with self._lock:
            if number in self._taken:
                raise BadSignature("this was taken before")
            self._taken.add(number)
            self._order.append(number)
            if len(self._order) > REMEMBERED:
                self._taken.discard(self._order.popleft())


@dataclass(frozen=True, slots=True)
class SignedAgent:
    """An agent that has proved to have the key."""

    handle: Any  # Ray's
    signer: Signer

    def ask(self, method: str, *given: Any) -> Awaitable[Any]:
        """Calls the agent. Raises BadSignature when the agent's process has been replaced."""
        answer: Awaitable[Any] = self.handle.ask.remote(*self.signer.seal(method, given))
        return answer


async def authenticate(handle: Any, key: str) -> SignedAgent:
    """Asks an actor to prove that it is the agent with that key. Raises Stranger."""
    signer = Signer(key)
    answer = await handle.introduce.remote(signer.nonce)
    if not isinstance(answer, (list, tuple)) or len(answer) != len(("session", "proof")):
        raise WrongKey("an actor with the agent's name does not know how agents introduce themselves")
    signer.check_proof(str(answer[0]), str(answer[1]))
    return SignedAgent(handle, signer)


def _sign(key: str, *parts: str) -> str:
    return hmac.new(bytes.fromhex(key), json.dumps(parts).encode(), hashlib.sha256).hexdigest()
