"""The schemas of the built-in kinds as server-side apply keeps them, with its answers word for word.

What does not fit the schema is answered with status 500 and no reason; a plain creation says 400 BadRequest. Taken from
a real 1.37 API server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate

from rigs.kube_store import ApiError, Object

_FOLDER = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / "v1.37.0-local-strict"
_QUANTITY = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)\Z")
_POD = "spec.template.spec"
_QUANTITY_WORDS = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def check_apply(body: Object, namespace: str) -> None:
    """Raises ApiError as the field manager of the real server does."""
    where = f"({namespace}/{body['metadata']['name']}; {body['apiVersion']}, Kind={body['kind']})"
    for path, said in _faults(body):
        if said == _QUANTITY_WORDS:
            told = f"failed to convert new object {where} to proper version: unable to convert unstructured object to "
            raise ApiError(500, "", f"{told}{body['apiVersion']}, Kind={body['kind']}: {said}")
        raise ApiError(500, "", f"failed to create typed patch object {where}: {path}: {said}")
    _validate(body)


def check_create(body: Object) -> None:
    """As strict decoding does; what it lets pass, such as a variable that is named twice, passes."""
    kind, version = body["kind"], body["apiVersion"].rpartition("/")[2]
    for path, said in _faults(body):
        if "duplicate entries" in said:
            continue
        field = re.sub(r"\[[^\]]*\]", "", path.removeprefix("."))
        told = f'strict decoding error: unknown field "{field}"' if "not declared" in said else f"json: {field}: {said}"
        told = said if said == _QUANTITY_WORDS else told
        raise ApiError(400, "BadRequest", f'{kind} in version "{version}" cannot be handled as a {kind}: {told}')
    _validate(body)


def _faults(body: Object) -> Iterator[tuple[str, str]]:
    name = f"{body['kind']}".lower()
    group, _, version = body["apiVersion"].rpartition("/")
    file = _FOLDER / (f"{name}-{group.partition('.')[0]}-{version}.json" if group else f"{name}-{version}.json")
    if file.exists():
        yield from _walk(_read(file), body, "")


@cache
def _read(file: Path) -> Object:
    found: Object = json.loads(file.read_text())
    return found


def _resolved(schema: Object) -> tuple[Object, str]:
    if "$ref" not in schema:
        return schema, ""
    name = schema["$ref"].rpartition("/")[2]
    return _read(_FOLDER / "_definitions.json")["$defs"][name], name.rpartition(".")[2]


def _walk(schema: Object, value: Any, path: str) -> Iterator[tuple[str, str]]:
    schema, name = _resolved(schema)
    if name == "Quantity":
        if not _QUANTITY.match(str(value)):
            yield path, _QUANTITY_WORDS
        return
    if name in ("IntOrString", "FieldsV1", "JSON", "RawExtension") or value is None:
        return
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if said := _mismatch(kinds, value):
        yield path, said
    elif isinstance(value, dict):
        inner = schema.get("properties")
        for key, item in value.items():
            if inner is None:
                more = schema.get("additionalProperties")
                yield from _walk(more if isinstance(more, dict) else {}, item, f"{path}.{key}")
            elif key in inner:
                yield from _walk(inner[key], item, f"{path}.{key}")
            else:
                yield f"{path}.{key}", "field not declared in schema"
    elif isinstance(value, list):
        yield from _items(schema, value, path)


def _items(schema: Object, value: list[Any], path: str) -> Iterator[tuple[str, str]]:
    keys = schema.get("x-kubernetes-list-map-keys") or []
    seen = set()
    for number, item in enumerate(value):
        marks = [f'{key}="{item[key]}"' for key in keys if isinstance(item, dict) and key in item]
        at = f"[{','.join(marks)}]" if marks else f"[{number}]"
        if at in seen:
            yield path, f"duplicate entries for key {at}"
        seen.add(at)
        yield from _walk(schema.get("items", {}), item, f"{path}{at}")


def _mismatch(kinds: list[str], value: Any) -> str:
    if "object" in kinds and not isinstance(value, dict):
        return f"expected map, got &{{{_go(value)}}}"
    if "array" in kinds and not isinstance(value, list):
        return f"expected list, got &{{{_go(value)}}}"
    if "boolean" in kinds and not isinstance(value, bool):
        return f"expected boolean, got &{{{_go(value)}}}"
    if {"integer", "number"} & set(kinds) and (isinstance(value, bool) or not isinstance(value, (int, float))):
        return f"expected numeric (int or float), got {'string' if isinstance(value, str) else type(value).__name__}"
    if "string" in kinds and not isinstance(value, str):
        return f"expected string, got &value.valueUnstructured{{Value:{_go(value)}}}"
    return ""


def _go(value: Any) -> str:
    """As Go prints it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{' '.join(_go(one) for one in value)}]" if isinstance(value, list) else str(value)


def _validate(body: Object) -> None:
    """A few of the rules beyond the schema."""
    if body["kind"] != "Job":
        return
    spec = body["spec"]["template"]["spec"]
    causes = [
        {"reason": "FieldValueRequired", "message": "Required value", "field": f"{_POD}.containers[{n}].image"}
        for n, one in enumerate(spec.get("containers") or [])
        if not one.get("image")
    ]  # fmt: skip
    allowed = '"OnFailure", "Never"'
    if spec.get("restartPolicy") not in ("OnFailure", "Never"):
        said = f'Unsupported value: "{spec.get("restartPolicy")}": supported values: {allowed}'
        causes.append(
            {"reason": "FieldValueNotSupported", "message": said, "field": "spec.template.spec.restartPolicy"}
        )
    if causes:
        name = body["metadata"]["name"]
        told = [f"{one['field']}: {one['message']}" for one in causes]
        shown = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
        details = {"name": name, "group": "batch", "kind": "Job", "causes": causes}
        raise ApiError(422, "Invalid", f'Job.batch "{name}" is invalid: {shown}', details)
