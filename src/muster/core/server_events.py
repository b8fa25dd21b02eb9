"""The events of the server itself: secrets, leases, sign-ins, sessions and messages. They are only logged."""

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


@payload("save.ordered")
class SaveOrdered(Audit):
    """A running job was asked to save now, of so many ranks."""

    save: int
    ranks: int


@payload("auth.failed")
class AuthFailed(Audit):
    """Failed sign-ins from an address since a time; `token` is the id of the token, if it is known."""

    address: str
    count: int
    token: str
    since: float


@payload("session.began")
class SessionBegan(Audit):
    """A browser signed in for a token: by a one-time link, with the token, by the link of a share, or by a provider."""

    session: str
    token: str
    how: str
    address: str
    expires_at: float
    run: str = ""  # of the share, the only one that is shown


@payload("session.ended")
class SessionEnded(Audit):
    """A browser signed out. The session would have expired at that time."""

    session: str
    token: str
    expires_at: float


@payload("share.made")
class ShareMade(Audit):
    """A link was made that shows this run to whoever has it, until then."""

    share: str
    token: str
    expires_at: float


@payload("share.revoked")
class ShareRevoked(Audit):
    """The link to this run, and every session that began with it, is worthless."""

    share: str
    expires_at: float
