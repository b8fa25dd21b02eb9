"""A small probabilistic grammar and the text it makes: subjects agree with verbs, clauses nest, things are counted."""

from __future__ import annotations

import math
import random
from bisect import bisect
from itertools import accumulate

ALPHABET = "\n .abcdefghijklmnopqrstuvwxyz"  # a character's index is its token

# One symbol a line, then its alternatives, each after its weight. A word that names a line is expanded, another stands
# for itself. 1 is singular and 2 plural: "the cat that two dogs follow sees a bird ."
GRAMMAR = """
S    | 5 NP1 VP1 . | 4 NP2 VP2 .
NP1  | 9 DET1 N1 | 5 DET1 ADJ N1 | 1 NP1 that VP1 | 1 NP1 that NP2 V2 | 1 NP1 WHERE NP
NP2  | 5 DET2 N2 | 5 NUM N2 | 4 NUM ADJ N2 | 1 NP2 that VP2 | 1 NP2 that NP1 V1 | 1 NP2 WHERE NP
NP   | 3 NP1 | 2 NP2
VP1  | 6 V1 NP | 1 says that NP1 VP1 | 1 says that NP2 VP2 | 1 is ADJ
VP2  | 6 V2 NP | 1 say that NP1 VP1 | 1 say that NP2 VP2 | 1 are ADJ
DET1 | 3 the | 2 a | 1 every | 1 this
DET2 | 3 the | 1 some | 1 these
NUM  | 4 two | 3 three | 2 four | 1 five | 1 six | 1 seven
ADJ  | 3 small | 2 young | 2 green | 1 quiet | 1 bright | 1 clever
WHERE | 2 near | 1 behind | 1 under
N1   | 3 cat | 3 dog | 2 bird | 2 child | 1 teacher | 1 river | 1 tree | 1 mouse
N2   | 3 cats | 3 dogs | 2 birds | 2 children | 1 teachers | 1 rivers | 1 trees | 1 mice
V1   | 3 sees | 2 likes | 2 follows | 1 hears | 1 finds | 1 draws
V2   | 3 see | 2 like | 2 follow | 1 hear | 1 find | 1 draw
"""


def text(length: int, seed: int) -> tuple[str, float]:
    """`length` characters, one sentence a line, and the nats a character that the choices behind them carried.

    The second number is about as low as a model's loss can get: the rest of the text follows from the choices.
    """
    rng, parts, size, nats = random.Random(seed), [], 0, 0.0
    while size < length:
        words, surprise = sentence(rng)
        parts.append(" ".join(words) + "\n")
        size += len(parts[-1])
        nats += surprise
    return "".join(parts)[:length], nats / size


def encode(characters: str) -> list[int]:
    return [ALPHABET.index(c) for c in characters]


def sentence(rng: random.Random) -> tuple[list[str], float]:
    """One sentence as words, and how surprising it was in nats."""
    words: list[str] = []
    nats, waiting = 0.0, ["S"]
    while waiting:
        symbol = waiting.pop()
        if symbol not in RULES:
            words.append(symbol)
            continue
        bounds, alternatives = RULES[symbol]
        expansion, surprise = alternatives[bisect(bounds, rng.random())]
        nats += surprise
        waiting += expansion
    return words, nats


def _parse(grammar: str) -> dict[str, tuple[list[float], list[tuple[list[str], float]]]]:
    """Of each symbol: the probabilities that its alternatives end at, and each backwards, with its surprise."""
    rules = {}
    for line in grammar.strip().splitlines():
        symbol, *alternatives = (part.split() for part in line.split("|"))
        weights = [int(weight) for weight, *_ in alternatives]
        bounds = [end / sum(weights) for end in accumulate(weights[:-1])]
        expansions = [(words[:0:-1], -math.log(int(words[0]) / sum(weights))) for words in alternatives]
        rules[symbol[0]] = (bounds, expansions)
    return rules


RULES = _parse(GRAMMAR)
