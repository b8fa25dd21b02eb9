"""The base score of a CVSS 3 vector, as FIRST's specification computes it."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Final

_WEIGHTS: Final[Mapping[str, Mapping[str, float]]] = {
    "AV": {"N": 0.85, "A": 0.62, "L": 0.55, "P": 0.2},
    "AC": {"L": 0.77, "H": 0.44},
    "PR": {"N": 0.85, "L": 0.62, "H": 0.27},
    "UI": {"N": 0.85, "R": 0.62},
    "C": {"H": 0.56, "L": 0.22, "N": 0.0},
    "I": {"H": 0.56, "L": 0.22, "N": 0.0},
    "A": {"H": 0.56, "L": 0.22, "N": 0.0},
}
_PRIVILEGES_IF_CHANGED: Final = {"N": 0.85, "L": 0.68, "H": 0.5}


def base_score(vector: str) -> float | None:
    """From 0 to 10; None for a text that is no whole vector of CVSS 3.0 or 3.1."""
    head, _, rest = vector.partition("/")
    if head not in ("CVSS:3.0", "CVSS:3.1"):
        return None
    parts = dict(part.split(":", 1) for part in rest.split("/") if ":" in part)
    changed = parts.get("S") == "C"
    if parts.get("S") not in ("C", "U"):
        return None
    try:
        weight = {name: weights[parts[name]] for name, weights in _WEIGHTS.items()}
    except KeyError:
        return None
    if changed:
        weight["PR"] = _PRIVILEGES_IF_CHANGED[parts["PR"]]
    lost = 1 - (1 - weight["C"]) * (1 - weight["I"]) * (1 - weight["A"])
    impact = 7.52 * (lost - 0.029) - 3.25 * (lost - 0.02) ** 15 if changed else 6.42 * lost
    if impact <= 0:
        return 0.0
    ease = 8.22 * weight["AV"] * weight["AC"] * weight["PR"] * weight["UI"]
    total = min((1.08 if changed else 1.0) * (impact + ease), 10)
    return _rounded_up(total)


def _rounded_up(score: float) -> float:
    """To one decimal, upwards, without what floating point adds."""
    whole = round(score * 100_000)
    return whole / 100_000 if whole % 10_000 == 0 else ceil(whole / 10_000) / 10
