"""Receivers of alerts, as the server's settings name them, and the delivery to each kind.

[receivers.ops]
kind = "slack"                          # slack, teams, webhook, email, command
url_env = "OPS_SLACK_URL"               # such addresses are secrets: name a variable that has it
least = "warning"                       # the least severity that it is told of
takes = "all"                           # or "named": only of rules that name it in `notify`

[receivers.mail]
kind = "email"
to = ["ops@example.org"]
sender = "muster@example.org"
host = "smtp.example.org"
port = 587
security = "starttls"                   # starttls, tls, none
user = "muster"
password_env = "SMTP_PASSWORD"

[receivers.script]
kind = "command"
command = ["/usr/local/bin/page", "--team", "ml"]   # gets the message as JSON on its standard input
"""

from __future__ import annotations

import json
import smtplib
import ssl
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any, Final, Literal, cast, get_args

from muster.control.delivery import is_address, post, variable
from muster.control.outbox import ReceiverAway
from muster.control.outbox_rows import Message
from muster.core.config import Table
from muster.core.errors import ConfigError
from muster.monitor.alerts.rule import SEVERITIES, Rule, Severity

KIND: Final = "alert"  # of outbox messages
SECONDS: Final = 30.0  # for a command, and for each step of a mail
ERROR_MAX: Final = 300  # characters of a command's output in its error
ReceiverKind = Literal["slack", "teams", "webhook", "email", "command"]
Security = Literal["starttls", "tls", "none"]
_KINDS: Final = get_args(ReceiverKind)


@dataclass(frozen=True, slots=True)
class Receiver:
    kind: ReceiverKind
    least: Severity = "warning"
    takes: Literal["all", "named"] = "all"
    url: str = ""
    url_env: str = ""
    secret_env: str = ""
    to: tuple[str, ...] = ()
    sender: str = ""
    host: str = ""
    port: int = 587
    security: Security = "starttls"
    user: str = ""
    password_env: str = ""
    command: tuple[str, ...] = ()


def read_receivers(given: object) -> dict[str, Receiver]:
    """Reads `receivers` of the server's settings, by name. Raises ConfigError with every mistake."""
    table = Table("", {"receivers": given})
    found = {name: _receiver(one) for name, one in table.tables("receivers").items()}
    table.finish()
    return found


class Receivers:
    def __init__(self, named: Mapping[str, Receiver]) -> None:
        self._named = named

    @property
    def names(self) -> list[str]:
        return list(self._named)

    def of(self, rule: Rule | None, severities: Iterable[str]) -> list[str]:
        """Who is told of alerts of a rule. A receiver that the rule names is told whatever the severity."""
        if rule is not None and rule.notify:
            return [name for name in rule.notify if name in self._named]
        most = max((SEVERITIES.index(cast("Severity", one)) for one in severities), default=0)
        return [
            name
            for name, one in self._named.items()
            if one.takes == "all" and SEVERITIES.index(one.least) <= most
        ]  # fmt: skip

    def deliver(self, message: Message) -> None:
        """Raises if the receiver did not accept the message; ReceiverAway if it would accept none."""
        name, notice = message.doc["receiver"], message.doc["notice"]
        one = self._named.get(name)
        if one is None:
            raise ConfigError(f"There is no receiver {name!r} in the settings any more.")
        if one.kind == "email":
            _mail(one, notice, message.id)
        elif one.kind == "command":
            _run(one, notice, message.id)
        else:
            url = one.url or variable(one.url_env)
            if not is_address(url):
                raise ConfigError(f"The variable {one.url_env} has no address.", "Set it to https://HOST/PATH.")
            post(url, json.dumps(_body(one.kind, notice)).encode(), message.id, one.secret_env)


def title_of(notice: Mapping[str, Any]) -> str:
    """`[firing: 3] device-idle, project vision`."""
    count = notice["firing_count"]
    state = f"firing: {count}" if count else "resolved"
    return f"[{state}] {notice['rule']}{', project ' + notice['project'] if notice['project'] else ''}"


def text_of(notice: Mapping[str, Any]) -> str:
    """The whole message as plain text."""
    lines = [title_of(notice), ""]
    for word, alerts, count in (
        ("", notice["firing"], notice["firing_count"]),
        ("resolved: ", notice["resolved"], notice["resolved_count"]),
    ):
        lines += [f"- {word}{one['title']}: {one['text']} (alert {one['number']})" for one in alerts]
        lines += [f"  and {count - len(alerts)} more" if count > len(alerts) else ""]
    shown = notice["firing"] or notice["resolved"]
    lines += [f"What to do: muster alerts show {shown[0]['number']}"] if shown else []
    return "\n".join(line for number, line in enumerate(lines) if line or number == 1)


def _body(kind: str, notice: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "slack":
        return {"text": text_of(notice)}
    if kind == "teams":
        block = {"type": "TextBlock", "text": text_of(notice), "wrap": True}
        card = {"type": "AdaptiveCard", "version": "1.4", "body": [block]}
        content = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
        return {"type": "message", "attachments": [content]}
    return dict(notice)


def _mail(one: Receiver, notice: Mapping[str, Any], number: int) -> None:
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = f"Muster {title_of(notice)}", one.sender, ", ".join(one.to)
    mail["Message-ID"] = f"<muster-{number}@{one.sender.partition('@')[2]}>"  # the same at every try
    mail.set_content(text_of(notice))
    context = ssl.create_default_context()
    try:
        with (
            smtplib.SMTP_SSL(one.host, one.port, timeout=SECONDS, context=context)
            if one.security == "tls"
            else smtplib.SMTP(one.host, one.port, timeout=SECONDS)
        ) as server:
            if one.security == "starttls":
                server.starttls(context=context)
            if one.user:
                server.login(one.user, variable(one.password_env))
            server.send_message(mail)
    except (OSError, smtplib.SMTPServerDisconnected, smtplib.SMTPConnectError) as error:
        if isinstance(error, smtplib.SMTPResponseException | smtplib.SMTPRecipientsRefused):
            raise ConnectionError(f"{one.host} refused the mail: {error}") from error
        raise ReceiverAway(f"{one.host} did not take the mail: {error or type(error).__name__}") from error


def _run(one: Receiver, notice: Mapping[str, Any], number: int) -> None:
    given = json.dumps({**notice, "delivery": number}).encode()
    try:
        done = subprocess.run(one.command, input=given, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ReceiverAway(f"{one.command[0]} took longer than {SECONDS:g} s") from error
    except OSError as error:
        raise ReceiverAway(f"{one.command[0]} can't be started: {error.strerror}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()[-ERROR_MAX:]
        raise ConnectionError(f"{one.command[0]} ended with exit code {done.returncode}: {said}")


def _receiver(table: Table) -> Receiver:
    kind = cast("ReceiverKind", table.text("kind", "webhook", among=_KINDS))
    least = cast("Severity", table.text("least", "warning", among=SEVERITIES))
    takes = cast("Literal['all', 'named']", table.text("takes", "all", among=("all", "named")))
    if kind == "email":
        security = cast("Security", table.text("security", "starttls", among=get_args(Security)))
        mail = Receiver(
            kind, least, takes, to=table.texts("to"), sender=table.text("sender"), host=table.text("host"),
            port=table.whole("port", 587), security=security, user=table.text("user"),
            password_env=table.text("password_env"),
        )  # fmt: skip
        for key, missing in (("to", not mail.to), ("sender", "@" not in mail.sender), ("host", not mail.host)):
            if missing:
                table.wrong(key, {"to": "a list of addresses", "sender": "an address"}.get(key, "a host name"))
        if mail.user and not mail.password_env:
            table.wrong("password_env", "the name of a variable")
        table.refuse_others()
        return mail
    if kind == "command":
        made = Receiver(kind, least, takes, command=table.texts("command"))
        if not made.command or not made.command[0].startswith("/"):
            table.wrong("command", 'a list such as ["/usr/local/bin/page"]', "Write the whole path of the program.")
    else:
        made = Receiver(
            kind, least, takes, table.text("url"), table.text("url_env"),
            table.text("secret_env") if kind == "webhook" else "",
        )  # fmt: skip
        if bool(made.url) == bool(made.url_env) or (made.url and not is_address(made.url)):
            table.wrong("url", "an address, or `url_env` with the name of a variable that has it")
    table.refuse_others()
    return made
