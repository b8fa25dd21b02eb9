"""The events of the server itself: secrets, leases, sign-ins and messages. They are only logged."""

from __future__ import annotations

from muster.core.payload import Audit, Payload, payload


@payload("secret.set")
class SecretSet(Payload):
    """A secret of the project was set. Its value is never logged."""

    name: str


@payload("secret.removed")
class SecretRemoved(Payload):
    """A secret of the project was removed."""

    name: str


@payload("server.leads")
class ServerLeads(Payload):
    """A server took the lease and leads from here on."""

    holder: str = ""
    epoch: int = 0


@payload("messages.given_up")
class MessagesGivenUp(Audit):
    """Outgoing messages that were not accepted for days."""

    receiver: str
    count: int


@payload("exec.opened")
class ExecOpened(Audit):
    """A user runs a command beside the ranks of a worker. Its bytes are not logged, and secrets in it are masked."""

    exec: str
    worker: int
    node: str
    command: str
    tty: bool = False


@payload("exec.ended")
class ExecEnded(Audit):
    """Such a command ended, after so many seconds: with this exit code, or for this cause."""

    exec: str
    worker: int
    code: int | None
    cause: str
    seconds: float


@payload("stacks.ordered")
class StacksOrdered(Audit):
    """The Python stacks of a running job's ranks were asked for, of so many ranks."""

    stacks: int
    ranks: int


@payload("auth.failed")
class AuthFailed(Audit):
    """Failed sign-ins from an address since a time; `token` is the id of the token, if it is known."""

    address: str
    count: int
    token: str
    since: float
