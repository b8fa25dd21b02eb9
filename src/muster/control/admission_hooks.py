"""Settings of a company's own admission checks: HTTP hooks, and plug-ins that are Python packages.

[[admission_hook]]
name = "cost-centre"
url = "https://checks.example/muster"   # http only on this machine, unless `insecure = true`
deadline = "5s"                         # 30s at most
on_error = "refuse"                     # or "allow": what no answer, or one that can't be read, means
projects = ["language"]                 # all unless given
secret_env = "CHECKS_SECRET"            # optional: the body is signed with the value of this variable
ca_file = "/etc/company-ca.pem"         # optional: whose certificates are trusted

[admission_plugins.cost-centre]         # an entry point of the group `muster.admission`
deadline = "2s"
on_error = "refuse"
projects = []
enabled = true
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args
from urllib.parse import urlsplit

import httpx

from muster.admission import Answer, Job, Refuse, Warn
from muster.certificates import trusting
from muster.control.admission.external import plain_doc
from muster.control.delivery import is_address, signature
from muster.core.config import Table

OnError = Literal["refuse", "allow"]
DEADLINE: Final = 5.0  # seconds, unless the settings say otherwise
DEADLINE_MAX: Final = 30.0
ANSWER_MAX: Final = 64 * 1024  # bytes of a hook's answer
_ACTIONS: Final = ("accept", "warn", "refuse")


@dataclass(frozen=True, slots=True)
class Terms:
    """How long a check has, what its failure means, and whose jobs it sees; `projects` (): everybody's."""

    deadline: float = DEADLINE
    on_error: OnError = "refuse"
    projects: tuple[str, ...] = ()
    enabled: bool = True

    def concern(self, project: str) -> bool:
        return not self.projects or project in self.projects


@dataclass(frozen=True, slots=True)
class AdmissionHook:
    name: str
    url: str
    terms: Terms = Terms()
    secret_env: str = ""
    ca_file: str = ""
    insecure: bool = False

    @property
    def place(self) -> str:
        """Where it is, without what an address may hold of secrets."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


class BadAnswer(Exception):
    """An answer that says neither accept, nor warn, nor refuse."""


def read_admission_hooks(given: object) -> list[AdmissionHook]:
    """Reads `admission_hook` of the server's settings. Raises ConfigError with every mistake."""
    whole = Table("", {"admission_hook": given})
    nothing: Sequence[Mapping[str, Any]] = ()
    entries = whole.value(
        "admission_hook", nothing, _are_tables, "a list of tables", "Write [[admission_hook]] for each."
    )
    tables = [Table(f"admission_hook {number}", one, whole.mistakes) for number, one in enumerate(entries, 1)]
    found = [_hook(table) for table in tables]
    names = [one.name for one in found]
    for name in sorted({name for name in names if name and names.count(name) > 1}):
        whole.mistakes.add(f"Two admission hooks have the name {name!r}.", "Give each its own.")
    whole.finish()
    return found


def read_plugin_terms(given: object) -> dict[str, Terms]:
    """Reads `admission_plugins` of the server's settings, by the name of the entry point."""
    table = Table("", {"admission_plugins": given})
    found = {}
    for name, one in table.tables("admission_plugins").items():
        found[name] = _terms(one, one.flag("enabled", True))
        one.refuse_others()
    table.finish()
    return found


def call_hook(hook: AdmissionHook, job: Job) -> Answer:
    """Posts the job's plain view and reads the answer. Raises what went wrong. Redirects are not followed."""
    body = json.dumps({"version": 1, "job": plain_doc(job)}, separators=(",", ":")).encode()
    headers = {
        "Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity",
        **signature(body, hook.secret_env),
    }  # fmt: skip
    verify = trusting(hook.ca_file or None) if hook.url.startswith("https:") else False
    with (
        httpx.Client(timeout=hook.terms.deadline, follow_redirects=False, trust_env=False, verify=verify) as http,
        http.stream("POST", hook.url, content=body, headers=headers) as answer,
    ):
        if answer.status_code != httpx.codes.OK:
            raise BadAnswer(f"it answered {answer.status_code}, and 200 is expected")
        return read_answer(_bounded(answer))


def read_answer(raw: bytes) -> Answer:
    """`{"action": "accept"}`, or `warn` or `refuse` with a `message` and perhaps a `hint`; anything else raises."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        raise BadAnswer("its answer is not JSON") from None
    if not isinstance(found, dict) or found.get("action") not in _ACTIONS:
        raise BadAnswer(f"its answer has no `action` of {', '.join(_ACTIONS)}")
    if found["action"] == "accept":
        return None
    message, hint = found.get("message"), found.get("hint", "")
    if not isinstance(message, str) or not message.strip() or not isinstance(hint, str):
        raise BadAnswer("its answer has no `message`")
    return (Warn if found["action"] == "warn" else Refuse)(message, hint)


def _bounded(answer: httpx.Response) -> bytes:
    found = bytearray()
    for chunk in answer.iter_raw(ANSWER_MAX):
        found += chunk
        if len(found) > ANSWER_MAX:
            raise BadAnswer(f"its answer has more than {ANSWER_MAX:,} bytes")
    return bytes(found)


def _hook(table: Table) -> AdmissionHook:
    found = AdmissionHook(
        table.text("name"), table.text("url"), _terms(table), table.text("secret_env"), table.text("ca_file"),
        table.flag("insecure"),
    )  # fmt: skip
    if not found.name or len(found.name) > 100:
        table.wrong("name", "a name", 'Write it like "cost-centre": refusals name it.')
    if not is_address(found.url):
        table.wrong("url", "an address", "Write it like https://HOST/PATH.")
    elif urlsplit(found.url).username is not None:
        table.mistakes.add(f"{table.where}: its url has a password.", "Sign the requests instead: `secret_env`.")
    elif found.url.startswith("http:") and not found.insecure and not _loopback(found.url):
        hint = "Use https, or write `insecure = true` if nobody can read or change what is sent there."
        table.mistakes.add(f"{table.where}: {found.place} is http on another machine.", hint)
    if found.ca_file and not Path(found.ca_file).is_file():
        table.wrong("ca_file", "a file that exists")
    table.refuse_others()
    return found


def _terms(table: Table, enabled: bool = True) -> Terms:
    deadline = table.duration("deadline", DEADLINE, 0.0, DEADLINE_MAX)
    on_error = cast("OnError", table.text("on_error", "refuse", among=get_args(OnError)))
    return Terms(deadline, on_error, table.texts("projects"), enabled)


def _loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _are_tables(given: Any) -> bool:
    return isinstance(given, list | tuple) and all(isinstance(one, Mapping) for one in given)
