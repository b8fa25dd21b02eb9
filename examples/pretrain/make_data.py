"""Makes up a text about sums and counting, and turns it into token shards: ./data/train and ./data/held-out."""

# ruff: noqa: T201 - a script says what it made

from __future__ import annotations

import random
from pathlib import Path

from muster.data.build import tokens

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
WORDS += ("thirteen", "fourteen", "fifteen", "sixteen")


def main() -> None:
    folder = Path("data")
    for name, sentences, seed in (("train", 12_000, 1), ("held-out", 1_000, 2)):
        if (folder / name / "index.json").exists():
            continue
        folder.mkdir(exist_ok=True)
        text = folder / f"{name}.txt"
        text.write_text(story(sentences, seed))
        made = tokens([text], folder / name)
        print(f"{folder / name}: {made.tokens:,} tokens")


def story(sentences: int, seed: int) -> str:
    """Sentences whose end follows from their beginning, so that there is something to learn."""
    rng = random.Random(seed)
    return "".join(sentence(rng) for _ in range(sentences))


def sentence(rng: random.Random) -> str:
    one, other = rng.randint(0, 8), rng.randint(0, 8)
    kind = rng.randrange(3)
    if kind == 0:
        return f"{WORDS[one]} and {WORDS[other]} make {WORDS[one + other]}.\n"
    if kind == 1:
        return f"after {WORDS[one]} comes {WORDS[one + 1]}, then {WORDS[one + 2]}.\n"
    low, high = sorted((one, other + 8))
    return f"{WORDS[high]} is more than {WORDS[low]}.\n"


if __name__ == "__main__":
    main()
