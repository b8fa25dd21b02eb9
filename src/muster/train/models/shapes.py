"""Named model shapes: the sizes of GPT-2 and Llama, those of benchmarks, and tiny ones for tests and examples."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from muster.train.errors import ConfigError, Problem
from muster.train.models.decoder import DecoderConfig
from muster.train.models.layers import RopeScaling


def shape(name: str) -> DecoderConfig:
    """The decoder of that name; `dataclasses.replace` changes parts of it."""
    if name in SHAPES:
        return SHAPES[name]
    near = get_close_matches(name, SHAPES, 1)
    hint = f"Did you mean {near[0]}?" if near else ""
    raise ConfigError([Problem("model", name, f"one of {', '.join(SHAPES)}", hint)])


def _gpt2(dim: int, layers: int, heads: int, vocab: int = 50_257, context: int = 1_024) -> DecoderConfig:
    return DecoderConfig(
        vocab=vocab,
        dim=dim,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        ffn=4 * dim,
        context=context,
        norm="layer",
        activation="gelu",
        positions="learned",
        bias=True,
        tied=True,
    )


def _llama2(dim: int, layers: int, heads: int, kv_heads: int, ffn: int) -> DecoderConfig:
    return DecoderConfig(
        vocab=32_000, dim=dim, layers=layers, heads=heads, kv_heads=kv_heads, ffn=ffn, context=4_096
    )  # fmt: skip


def _llama3(dim: int, layers: int, heads: int, ffn: int, stretch: float, tied: bool = False) -> DecoderConfig:
    return DecoderConfig(
        vocab=128_256,
        dim=dim,
        layers=layers,
        heads=heads,
        kv_heads=8,
        ffn=ffn,
        context=131_072,
        rope_theta=500_000.0,
        rope_scaling=RopeScaling(stretch, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8_192),
        tied=tied,
    )


SHAPES: Final[dict[str, DecoderConfig]] = {
    "tiny-gpt2": _gpt2(64, 4, 4, vocab=256, context=128),
    "tiny-llama": DecoderConfig(vocab=256, dim=64, layers=4, heads=4, kv_heads=2, ffn=176, context=128),
    "small-llama": DecoderConfig(vocab=256, dim=256, layers=8, heads=8, kv_heads=4, ffn=704, context=512),
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1_024, 24, 16),
    "gpt2-large": _gpt2(1_280, 36, 20),
    "gpt2-xl": _gpt2(1_600, 48, 25),
    "llama-886m": _llama2(2_048, 16, 16, 8, 5_632),
    "llama-2-7b": _llama2(4_096, 32, 32, 32, 11_008),
    "llama-2-13b": _llama2(5_120, 40, 40, 40, 13_824),
    "llama-2-70b": _llama2(8_192, 80, 64, 8, 28_672),
    "llama-3.2-1b": _llama3(2_048, 16, 32, 8_192, stretch=32.0, tied=True),
    "llama-3.2-3b": _llama3(3_072, 28, 24, 8_192, stretch=32.0, tied=True),
    "llama-3.1-8b": _llama3(4_096, 32, 32, 14_336, stretch=8.0),
    "llama-3.1-70b": _llama3(8_192, 80, 64, 28_672, stretch=8.0),
}
