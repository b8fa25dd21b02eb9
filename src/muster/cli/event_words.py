"""Describes an event of the audit log in plain language; the actor and the run are printed before the description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from muster.core.money import format_amount

Data = Mapping[str, Any]

_WAYS: Final = {
    "link": "a one-time link",
    "token": "the token itself",
    "share": "a link to the run",
    "provider": "a provider",
}
_WORDS: Final[Mapping[str, str | Callable[[Data], str]]] = {
    "run.created": lambda data: f"made the run {data['name']} ({data['source']})".replace("  ", " "),
    "run.opened": "goes on with the run as attempt {attempt}",
    "run.damaged": "saw a sign of damage: {message}",
    "run.changed": lambda data: f"changed {_list(data['fields'])}",
    "run.hidden": "hid the run",
    "run.restored": "restored the run",
    "run.purged": "deleted the run for good",
    "run.params": lambda data: f"set the {_count(data, 'parameter')} {_keys(data)}",
    "run.tags": lambda data: f"set or removed the {_count(data, 'tag')} {_keys(data)}",
    "artifact.put": "put the artifact {path}",
    "artifact.quarantined": "quarantined the artifact {path}: {what}",
    "artifact.opened": "downloaded the quarantined artifact {path}: {why}",
    "artifact.removed": "removed the artifact {path}",
    "run.review_asked": "asked for a review of the run for {stage}",
    "run.approved": "approved the run for {stage}",
    "run.promoted": lambda data: (
        f"promoted {data['run']} to {data['stage']}"
        + (f" without {_list(data['overridden'])}" if data["overridden"] else "")
    ),
    "note.added": "wrote a note",
    "experiment.created": "made the experiment {experiment} ({name})",
    "experiment.changed": lambda data: f"changed {_list(data['fields'])} of the experiment {data['name']}",
    "experiment.hidden": "hid the experiment {name}",
    "experiment.restored": "restored the experiment {name}",
    "optuna.created": "made the Optuna journal {name}",
    "optuna.deleted": "deleted the Optuna journal {name} with its studies",
    "model.created": "made the model {name}",
    "model.changed": lambda data: f"changed {_list(data['fields'])} of the model {data['name']}",
    "model.deleted": "deleted the model {name} with every version",
    "version.created": "registered {name}/{version}",
    "version.changed": lambda data: f"changed {_list(data['fields'])} of {data['name']}/{data['version']}",
    "version.deleted": "deleted {name}/{version}",
    "version.staged": "moved {name}/{version} to {stage}",
    "alias.set": "made {alias} an alias of {name}/{version}",
    "alias.removed": "removed the alias {alias} of {name}",
    "query.saved": "saved the query {name}",
    "query.removed": "removed the saved query {name}",
    "content.collected": "applied retention, and deleted content that nobody refers to",
    "mlflow.called": "asked MLflow to {method} {path}",
    "record.refused": "made a change that could not be written: {kind} ({error})",
    "messages.given_up": "gave up {count} messages to {receiver}",
    "exec.opened": "runs `{command}` beside worker {worker} on {node}",
    "exec.ended": lambda data: (
        f"ended a command beside worker {data['worker']}: "
        + (f"exit code {data['code']}" if data["code"] is not None else data["cause"])
    ),
    "save.ordered": "asked {ranks} ranks to save now",
    "stacks.ordered": "asked for the stacks of {ranks} ranks",
    "auth.failed": lambda data: _failed(data),
    "session.began": lambda data: (
        f"signed in with a browser from {data['address']}, by {_WAYS.get(data['how'], data['how'])}"
    ),
    "session.ended": "signed out of the browser's session {session}",
    "share.made": "made a link that shows the run to whoever has it, {share}",
    "share.revoked": "made the link {share} to the run worthless",
    "provider_account.bound": "signs in through the provider as {user}",
    "provider_account.released": "released {user} from the account of the provider",
    "token.created": "made the token {id} of {user}, with the role {role}",
    "token.revoked": "revoked the token {id}",
    "secret.set": "set the secret {name}",
    "secret.removed": "removed the secret {name}",
    "budget.set": lambda data: (
        f"set the budget {data['name']} to {format_amount(data['amount'], data['currency'])}, {data['mode']}"
    ),
    "budget.granted": lambda data: (
        f"granted the budget {data['name']} {format_amount(data['amount'])} more in {data['period']}: {data['why']}"
    ),
    "budget.removed": "removed the budget {name}",
    "study.started": "started the study {name}",
    "study.changed": "changed the study: {why}",
    "study.enqueued": lambda data: f"wants {_points(data['params'])} tried next",
    "study.waits": lambda data: f"waits: {data['wait']['message']}" if data["wait"] else "waits no more",
    "study.ended": lambda data: f"the study is over: {data['summary']['why']}",
    "trial.started": lambda data: f"trial {data['number']} tries {_params(data['params'])}{_after(data['note'])}",
    "trial.reported": lambda data: f"trial {data['number']} passed {_levels(data['rungs'])}",
    "trial.leaving": lambda data: f"trial {data['number']} is to leave{_after(data['note'])}",
    "trial.paused": lambda data: (
        f"trial {data['number']} is paused" + (f" at step {data['step']}" if data["step"] is not None else "")
    ),
    "trial.promoted": lambda data: f"trial {data['number']} goes on{_after(data['note'])}",
    "trial.ended": lambda data: f"trial {data['number']} {data['outcome']}{_values(data)}{_after(data['note'])}",
    "project.member": lambda data: f"made {data['user']} {data['role'] or 'no member any more'} of {data['name']}",
}


def words(kind: str, data: Data) -> str | None:
    """None for a kind without a description, and for data of another version that does not fit it."""
    found = _WORDS.get(kind)
    try:
        return None if found is None else found.format(**data) if isinstance(found, str) else found(data)
    except (KeyError, TypeError, ValueError, IndexError):
        return None


def _params(params: Data) -> str:
    return ", ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
                     for name, value in params.items())  # fmt: skip


def _points(points: list[Data]) -> str:
    return _params(points[0]) if len(points) == 1 else f"{len(points)} points"


def _levels(rungs: list[Any]) -> str:
    return ", ".join(f"level {level:g}: {values[0]:.5g}" for level, _, values in rungs)


def _values(data: Data) -> str:
    return f": {', '.join(f'{value:.5g}' for value in data['values'])}" if data["values"] else ""


def _after(note: str) -> str:
    return f": {note}" if note else ""


def _failed(data: Data) -> str:
    count = f"{data['count']} failed sign-ins" if data["count"] != 1 else "a failed sign-in"
    return f"{count} from {data['address']}" + (f" with the token {data['token']}" if data["token"] else "")


def _count(data: Data, noun: str) -> str:
    return noun if data["count"] == 1 else f"{data['count']} {noun}s"


def _keys(data: Data) -> str:
    more = data["count"] - len(data["keys"])
    return _list(data["keys"]) + (f" and {more} more" if more else "")


def _list(names: list[str]) -> str:
    return ", ".join(names)
