"""Draws small pictures of four shapes and packs them into WebDataset tar shards: ./data/train and ./data/held-out."""

# ruff: noqa: T201 - a script says what it made

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from muster.data.formats import tar

SIDE = 16  # pixels
SHAPES = ("disc", "square", "cross", "stripes")


def main() -> None:
    for name, count, seed in (("train", 2000, 1), ("held-out", 256, 2)):
        folder = Path("data") / name
        if not (folder / "index.json").exists():
            tar.write(folder, pictures(count, seed), shard=500)
            print(f"{folder}: {count} images")


def pictures(count: int, seed: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    for number in range(count):
        label = int(rng.integers(len(SHAPES)))
        yield {"__key__": f"{number:06d}", "npy": drawn(SHAPES[label], rng), "cls": label}


def drawn(shape: str, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """One picture, u8[3, SIDE, SIDE]: a shape of any place, size and colour on a noisy ground."""
    y, x = np.mgrid[:SIDE, :SIDE]
    top, left, size = rng.integers(4, SIDE - 4), rng.integers(4, SIDE - 4), rng.integers(3, 6)
    down, across = np.abs(y - top), np.abs(x - left)
    inside = np.maximum(down, across) <= size
    masks = {
        "disc": down**2 + across**2 <= size**2,
        "square": inside,
        "cross": inside & (np.minimum(down, across) <= 1),
        "stripes": inside & (y % 2 == 0),
    }
    picture = rng.integers(0, 80, (3, SIDE, SIDE))
    colour = rng.integers(120, 256, (3, 1, 1))
    return np.where(masks[shape], colour, picture).astype(np.uint8)


if __name__ == "__main__":
    main()
