"""What a comparison over worlds has found, for people and programs: what is decided, on what evidence, what is left."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Final

from muster.sim.compare import FIGURE, Compared
from muster.sim.sequential import ERROR, Pair
from muster.sim.table import ratio_text

_MEANS: Final = "Figures are means over the worlds, charts are of the first."


def notes_of(compared: Compared, names: Sequence[str]) -> list[str]:
    """Sentences for people; none where there is one policy alone."""
    if len(names) < 2:
        return []
    if compared.test is None:
        return [
            "One replay of each policy: what differs is exact for this very work, and there is nothing to test. How it"
            " would be with other failures or other work: --replications 20, with --node-failures or --resample 1d."
        ]
    pairs = compared.test.pairs
    return [_told(compared), *(_pair(compared, place, names) for place in range(1, len(pairs) + 1))]


def document(compared: Compared, names: Sequence[str]) -> dict[str, Any]:
    """The same for programs."""
    test = compared.test
    return {
        "planned": compared.planned,
        "worlds": len(compared.worlds),
        "stopped": compared.stopped,
        "figure": FIGURE,
        "error": ERROR if test is not None else None,
        "pairs": [_pair_document(compared, place, names) for place in range(1, len(names))] if test is not None else [],
    }


def _told(compared: Compared) -> str:
    done, planned = len(compared.worlds), compared.planned
    if compared.stopped:
        left = planned - done
        return (
            f"Stopped after {done} of {planned} worlds, because the comparison is decided; {left} worlds"
            f" ({left / planned:.0%}) were not replayed. --to-end replays all. {_MEANS}"
        )
    return f"All {planned} worlds were replayed. {_MEANS}"


def _pair(compared: Compared, place: int, names: Sequence[str]) -> str:
    assert compared.test is not None
    pair, ratios = compared.test.pairs[place - 1], compared.ratios(place)
    told = f"{names[place]} against {names[0]}: {FIGURE} was less in {pair.less} worlds and more in {pair.more}"
    told += f", even in {pair.even}" if pair.even else ""
    if ratios:
        told += f" ({ratio_text(ratios[0])} to {ratio_text(ratios[-1])}, median {ratio_text(_median(ratios))})"
    return f"{told}. {_verdict(pair)}"


def _verdict(pair: Pair) -> str:
    evidence = f"evidence {float(pair.strongest):,.1f}, needed {float(pair.bar):,.0f}"
    if pair.verdict == "open":
        return f"Not decided: {evidence}."
    way = "less" if pair.verdict == "less" else "more"
    return (
        f"Decided: {way} in more than half of all such worlds ({evidence}, for an error of {ERROR:.0%} over all pairs)."
    )


def _pair_document(compared: Compared, place: int, names: Sequence[str]) -> dict[str, Any]:
    assert compared.test is not None
    pair, ratios = compared.test.pairs[place - 1], compared.ratios(place)
    spread = {"least": ratios[0], "median": _median(ratios), "most": ratios[-1]} if ratios else None
    return {
        "policy": names[place],
        "against": names[0],
        "less": pair.less,
        "more": pair.more,
        "even": pair.even,
        "verdict": pair.verdict,
        "evidence": float(pair.strongest),
        "needed": float(pair.bar),
        "ratios": spread,
    }


def _median(ratios: Sequence[float]) -> float:
    return statistics.median(ratios)
