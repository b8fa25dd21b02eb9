"""Parses a toleration from a text such as `gpu:NoSchedule`."""

from __future__ import annotations

from typing import Final

from muster.core.errors import Invalid

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def toleration(text: str) -> dict[str, str]:
    """Parses `key=value:Effect` or `key:Effect`. Without an effect it tolerates all effects."""
    what, _, effect = text.rpartition(":") if text.endswith(tuple(f":{one}" for one in _EFFECTS)) else (text, "", "")
    key, equals, value = what.partition("=")
    if not key or ":" in what:
        raise Invalid(
            f"{text!r} is no toleration.", "Write `key=value:Effect` or `key:Effect`, as in `gpu:NoSchedule`."
        )
    made = {"key": key, "operator": "Equal", "value": value} if equals else {"key": key, "operator": "Exists"}
    return {**made, "effect": effect} if effect else made
