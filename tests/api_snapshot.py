"""The API as programs see it: `python tests/api_snapshot.py` adds what is new to `contracts/api_snapshot.json`.

What was removed or changed stays in the file, and `contracts/test_api_shapes.py` fails until it is back. A change that
is meant to break programs is made by editing the file by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from muster.server.app import create_app

FILE = Path(__file__).parent / "contracts" / "api_snapshot.json"
OPTIONAL = ", may be left out"
Snapshot = dict[str, dict[str, Any]]


def current() -> Snapshot:
    """Routes with their role, parameters, body and answers; shapes with the type of every field."""
    api = create_app(None).openapi()  # type: ignore[arg-type]
    routes = {
        f"{method.upper()} {path}": _route(operation)
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
    }
    shapes = {name: _fields(schema) for name, schema in api["components"]["schemas"].items()}
    return {"routes": dict(sorted(routes.items())), "shapes": dict(sorted(shapes.items()))}


def missing(old: Any, new: Any, where: str = "") -> list[str]:
    """What the snapshot has and the API has not, or has otherwise. What is new is no difference."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key, value in old.items():
            at = f"{where} {key}".strip()
            found += missing(value, new[key], at) if key in new else [f"{at} is gone"]
        return found
    return [] if old == new or _more_words(old, new) else [f"{where} was {old}, and is {new}"]


def burdens(old: Snapshot, new: Snapshot) -> list[str]:
    """What a request must have now and needed not have before."""
    bodies = {route["body"] for route in new["routes"].values()}
    given = {name: fields for name, fields in new["shapes"].items() if name in bodies}
    known = dict(old["shapes"])
    for snapshot, into in ((old, known), (new, given)):
        into |= {f"{name} parameters": route["parameters"] for name, route in snapshot["routes"].items()}
    return [
        f"{where} {field} must be given"
        for where, fields in given.items()
        for field, kind in fields.items()
        if where in known and field not in known[where] and not kind.endswith(OPTIONAL)
    ]


def added(old: Any, new: Any) -> Any:
    """The snapshot with what is new."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new if _more_words(old, new) else old
    return {**new, **{key: added(value, new[key]) if key in new else value for key, value in old.items()}}


def _more_words(old: object, new: object) -> bool:
    """Whether both are sets of words, and the new one has all of the old."""
    words = [set(one.split(" | ")) for one in (old, new) if isinstance(one, str) and " | " in one]
    return len(words) == 2 and words[0] <= words[1]


def _route(operation: dict[str, Any]) -> dict[str, Any]:
    answers = {
        status: _type(content["schema"]) if "schema" in content else kind
        for status, answer in operation["responses"].items()
        if int(status) < 400
        for kind, content in (answer.get("content") or {"nothing": {}}).items()
    }
    given = {
        one["name"]: f"{_type(one['schema'])}{'' if one.get('required') else OPTIONAL}"
        for one in operation.get("parameters", ())
    }
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    return {"role": operation["x-role"], "parameters": given, "body": _type(body), "answers": answers}


def _fields(schema: dict[str, Any]) -> dict[str, str]:
    needed = schema.get("required", ())
    if "properties" not in schema:
        return {"": _type(schema)}
    return {name: f"{_type(one)}{'' if name in needed else OPTIONAL}" for name, one in schema["properties"].items()}


def _type(schema: dict[str, Any]) -> str:
    """The type in one line."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " or ".join(_type(one) for one in schema[word])
    if "const" in schema or "enum" in schema:
        return " | ".join(map(str, schema.get("enum", [schema.get("const")])))
    kind = schema.get("type", "anything")
    if kind == "array":
        parts = schema.get("prefixItems")
        return f"[{', '.join(map(_type, parts))}]" if parts else f"list of {_type(schema.get('items', {}))}"
    if kind == "object":
        more = schema.get("additionalProperties")
        return f"object of {_type(more)}" if isinstance(more, dict) else "object"
    return str(kind)


def main() -> int:
    old: Snapshot = json.loads(FILE.read_text()) if FILE.exists() else {"routes": {}, "shapes": {}}
    new = current()
    FILE.write_text(json.dumps(added(old, new), indent=1, sort_keys=True) + "\n")
    gone = missing(old, new) + burdens(old, new)
    print("\n".join(gone) or "nothing was removed or changed")  # noqa: T201
    return 1 if gone else 0


if __name__ == "__main__":
    sys.exit(main())
