"""The canonical form of a study in the notation of a study file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from muster.core.money import MICRO, format_amount
from muster.core.units import format_duration

_KEPT: Final = ("constraints", "enqueue", "replicates", "pools", "warm_start", "widen", "seed")


def study_yaml(doc: Mapping[str, Any], currency: str) -> str:
    """`doc`: as the API has it. The job is left out: a file names it, or has it whole."""
    values = study_values(doc, currency)
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110).rstrip()


def study_values(doc: Mapping[str, Any], currency: str) -> dict[str, Any]:
    objectives = [_objective(one) for one in doc["objectives"]]
    search = [_plugin(one) for one in doc.get("search", ())]
    found: dict[str, Any] = {
        "study": doc["name"],
        "space": {one["name"]: _parameter(one) for one in doc["space"]},
        "objective": objectives[0] if len(objectives) == 1 else objectives,
        "params": _params(doc),
        "search": search[0] if len(search) == 1 else search or None,
        "stop": _plugin(doc["stop"]) if "stop" in doc else None,
        "budget": _budget(doc, currency) or None,
        "confirm": doc.get("confirm"),
        "worth": {"1": format_amount(doc["worth"], currency)} if doc.get("worth") is not None else None,
    }
    found |= {name: doc[name] for name in _KEPT if doc.get(name)}
    return {name: value for name, value in found.items() if value is not None}


def _parameter(one: Mapping[str, Any]) -> Any:
    if one["kind"] == "choice":
        return {"choice": list(one["choices"]), "when": one["when"]} if one["when"] else list(one["choices"])
    notation = {"float": "log" if one["log"] else "float", "int": "int_log" if one["log"] else "int"}[one["kind"]]
    whole = one["kind"] == "int"
    ends = [one["low"], one["high"], *([one["step"]] if _has_step(one) else [])]
    made: dict[str, Any] = {notation: [round(end) for end in ends] if whole else ends}
    return {**made, "when": one["when"]} if one["when"] else made


def _has_step(one: Mapping[str, Any]) -> bool:
    return one["step"] is not None and (one["kind"] == "float" or one["step"] != 1)


def _objective(one: Mapping[str, Any]) -> dict[str, Any]:
    made = {one.get("direction", "minimize"): one["metric"]}
    return {**made, "take": "best"} if one.get("take") == "best" else made


def _params(doc: Mapping[str, Any]) -> Any:
    how, template = doc.get("params_as", "envs"), doc.get("template", "")
    return None if how == "envs" else {how: template}


def _plugin(one: Mapping[str, Any]) -> Any:
    options = {name: value for name, value in (one.get("options") or {}).items() if value is not None}
    return {one["name"]: options} if options else one["name"]


def _budget(doc: Mapping[str, Any], currency: str) -> dict[str, Any]:
    made: dict[str, Any] = {name: doc[name] for name in ("trials", "parallel") if doc.get(name) is not None}
    if doc.get("cost") is not None:
        made["cost"] = f"{doc['cost'] / MICRO:f} {currency}".replace(".000000", "")
    if doc.get("until") is not None:
        made["until"] = format_duration(round(doc["until"]))
    return made
