"""The API description as one page of plain HTML, made from the OpenAPI document: no scripts, nothing external."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}"
    "code,.m{font-family:ui-monospace,monospace}.m{font-weight:600;margin-right:.5rem}"
    "details{border-top:1px solid #d0d7de;padding:.4rem 0}summary{cursor:pointer}"
    "table{border-collapse:collapse;margin:.5rem 0}td{padding:.1rem 1rem .1rem 0;vertical-align:top}"
)
_METHODS: Final = ("get", "head", "post", "put", "patch", "delete")


def page(api: Mapping[str, Any]) -> str:
    title = escape(f"{api['info']['title']} {api['info']['version']}")
    groups: dict[str, list[str]] = {}
    for path, methods in api["paths"].items():
        for method in _METHODS:
            if method in methods:
                tag = (methods[method].get("tags") or ["other"])[0]
                groups.setdefault(tag, []).append("".join(_operation(method, path, methods[method], api)))
    body = "".join(f"<h2>{escape(tag)}</h2>{''.join(found)}" for tag, found in groups.items())
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        f"<h1>{title}</h1><p>Every request but those for health carries <code>Authorization: Bearer TOKEN</code>. "
        'The same for programs: <a href="openapi.json">openapi.json</a>.</p>' + body + "</html>"
    )


def _operation(method: str, path: str, found: Mapping[str, Any], api: Mapping[str, Any]) -> Iterator[str]:
    yield f"<details><summary><span class=m>{method.upper()}</span><code>{escape(path)}</code></summary>"
    yield f"<p>{escape(found.get('description') or found.get('summary', ''))}</p>"
    yield f"<p>For: <code>{escape(found.get('x-role', ''))}</code></p>"
    rows = [(p["name"], p["in"], _shape(p.get("schema", {})), p.get("description", "")) for p in _parameters(found)]
    content = found.get("requestBody", {}).get("content", {})
    schema = _resolved(content.get("application/json", {}).get("schema", {}), api)
    needed = schema.get("required", ())
    for name, one in schema.get("properties", {}).items():
        words = one.get("description", "")
        rows.append((name, "body, needed" if name in needed else "body", _shape(one), words))
    yield _table(rows)
    for answer in _answers(found):
        fields = _resolved(answer, api).get("properties", {})
        yield f"<p>Answer: <code>{escape(_shape(answer))}</code></p>"
        yield _table([(name, _shape(one)) for name, one in fields.items()])
    yield "</details>"


def _answers(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The shapes of answers that are no errors."""
    for status, answer in found["responses"].items():
        schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
        if int(status) < 400 and schema:
            yield from schema.get("anyOf", [schema])


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    cells = ("".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows)
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>" if rows else ""


def _parameters(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in found.get("parameters", ()) if one["name"] != "authorization"]


def _resolved(schema: Mapping[str, Any], api: Mapping[str, Any]) -> Mapping[str, Any]:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    found: Mapping[str, Any] = api.get("components", {}).get("schemas", {}).get(name, schema)
    return found


def _shape(schema: Mapping[str, Any]) -> str:
    """The type in a few words."""
    if "anyOf" in schema:
        return " or ".join(_shape(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_shape(schema.get('items', {}))}"
    return str(schema.get("type") or str(schema.get("$ref", "anything")).rpartition("/")[2])
