"""What is trained, as numbers: a decoder's shape, by name, from a configuration or from a Hugging Face config.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Literal


class PlanError(ValueError):
    """Something given can't be planned with; the text says what, and what to do."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder, as `muster.train.models.DecoderConfig`, and what Hugging Face's models add to that."""

    vocab: int
    dim: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    context: int
    norm: Literal["rms", "layer"] = "rms"
    activation: Literal["swiglu", "gelu"] = "swiglu"
    positions: Literal["rope", "learned"] = "rope"
    bias: bool = False
    qkv_bias: bool = False  # of query, key and value alone
    tied: bool = False
    head_dim: int = 0  # 0: dim / heads
    experts: int = 1
    active: int = 1  # experts that a token meets

    def __post_init__(self) -> None:
        for name in ("vocab", "dim", "layers", "heads", "kv_heads", "ffn", "context", "experts", "active"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 10**9:
                raise PlanError(f"The model's {name} is {value!r}; expected a whole number from 1.")
        if self.heads % self.kv_heads or (not self.head_dim and self.dim % self.heads):
            raise PlanError(
                f"heads {self.heads} must divide by kv_heads {self.kv_heads}, and dim {self.dim} by heads {self.heads}."
            )

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.head_dim or self.dim // self.heads

    @property
    def wide(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head

    @property
    def kv_wide(self) -> int:
        return self.kv_heads * self.head

    @property
    def ups(self) -> int:
        """Products that read the normed stream in the feed-forward: gate and up, or up alone."""
        return 2 if self.activation == "swiglu" else 1

    @property
    def norm_parameters(self) -> int:
        return self.dim * (2 if self.norm == "layer" and self.bias else 1)

    def products(self) -> list[tuple[int, int, int, str]]:
        """The products of a block for one token: inputs, outputs, how many, and what tensor parallelism splits."""
        ffn = self.active
        return [
            (self.dim, self.wide, 1, "out"),
            (self.dim, self.kv_wide, 2, "out"),
            (self.wide, self.dim, 1, "in"),
            (self.dim, self.ffn, self.ups * ffn, "out"),
            (self.ffn, self.dim, ffn, "in"),
        ]

    @property
    def block_matrices(self) -> int:
        """Elements of a block's matrices, those of all experts."""
        attention = 2 * self.dim * (self.wide + self.kv_wide)
        router = self.dim * self.experts if self.experts > 1 else 0
        return attention + (self.ups + 1) * self.dim * self.ffn * self.experts + router

    @property
    def block_parameters(self) -> int:
        biases = self.wide + 2 * self.kv_wide if self.bias or self.qkv_bias else 0
        biases += self.dim + (self.ups * self.ffn + self.dim) * self.experts if self.bias else 0
        return self.block_matrices + biases + 2 * self.norm_parameters

    @property
    def table(self) -> int:
        """Elements of the embedding, and of a head of its own."""
        return self.vocab * self.dim

    @property
    def parameters(self) -> int:
        tables = self.table * (1 if self.tied else 2) + (self.context * self.dim if self.positions == "learned" else 0)
        return tables + self.layers * self.block_parameters + self.norm_parameters

    def flops_per_token(self, sequence: int) -> int:
        """Forward and backward: 6 x the parameters that a token meets, without the input embedding, and attention
        under its causal mask."""
        idle = (self.ups + 1) * self.dim * self.ffn * (self.experts - self.active)
        met = self.table + self.layers * (self.block_parameters - idle) + self.norm_parameters
        return 6 * met + 6 * self.layers * sequence * self.wide


def _gpt2(dim: int, layers: int, heads: int, vocab: int = 50_257, context: int = 1_024) -> Shape:
    return Shape(
        vocab, dim, layers, heads, heads, 4 * dim, context,
        norm="layer", activation="gelu", positions="learned", bias=True, tied=True,
    )  # fmt: skip


# Those of muster.train.models.shapes, which imports torch and so can't be read on a server. A test compares the two.
SHAPES: Final[Mapping[str, Shape]] = {
    "tiny-gpt2": _gpt2(64, 4, 4, 256, 128),
    "tiny-llama": Shape(256, 64, 4, 4, 2, 176, 128),
    "small-llama": Shape(256, 256, 8, 8, 4, 704, 512),
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1_024, 24, 16),
    "gpt2-large": _gpt2(1_280, 36, 20),
    "gpt2-xl": _gpt2(1_600, 48, 25),
    "llama-886m": Shape(32_000, 2_048, 16, 16, 8, 5_632, 4_096),
    "llama-2-7b": Shape(32_000, 4_096, 32, 32, 32, 11_008, 4_096),
    "llama-2-13b": Shape(32_000, 5_120, 40, 40, 40, 13_824, 4_096),
    "llama-2-70b": Shape(32_000, 8_192, 80, 64, 8, 28_672, 4_096),
    "llama-3.2-1b": Shape(128_256, 2_048, 16, 32, 8, 8_192, 131_072, tied=True),
    "llama-3.2-3b": Shape(128_256, 3_072, 28, 24, 8, 8_192, 131_072, tied=True),
    "llama-3.1-8b": Shape(128_256, 4_096, 32, 32, 8, 14_336, 131_072),
    "llama-3.1-70b": Shape(128_256, 8_192, 80, 64, 8, 28_672, 131_072),
}
_FIELDS: Final = frozenset(field.name for field in dataclasses.fields(Shape)) - {
    "qkv_bias", "head_dim", "experts", "active",
}  # fmt: skip


def shape_of_model(model: Mapping[str, Any]) -> Shape:
    """The shape of the section `model` of a configuration whose task is `language`."""
    changes = {name: value for name, value in model.items() if name in _FIELDS and value is not None}
    name = model.get("shape")
    if name is not None:
        if name not in SHAPES:
            near = get_close_matches(str(name), SHAPES, 1)
            raise PlanError(
                f"model.shape is {name!r}; expected one of {', '.join(SHAPES)}."
                + (f" Did you mean {near[0]}?" if near else "")
            )
        return dataclasses.replace(SHAPES[name], **changes)
    if missing := [each for each in ("vocab", "dim", "layers", "heads", "context") if each not in changes]:
        raise PlanError(f"The section `model` has no shape, and lacks {', '.join(missing)}.")
    if any(not isinstance(changes[each], int) for each in ("dim", "heads")):
        raise PlanError("model.dim and model.heads must be whole numbers.")
    return Shape(**{"kv_heads": changes["heads"], "ffn": 4 * changes["dim"], **changes})


def shape_of_hub(raw: Mapping[str, Any]) -> Shape:
    """The shape of a Hugging Face config.json: GPT-2, Llama and its relatives, Mixtral."""
    kind = raw.get("model_type")
    try:
        if kind == "gpt2":
            dim = raw["n_embd"]
            return dataclasses.replace(
                _gpt2(dim, raw["n_layer"], raw["n_head"], raw["vocab_size"], raw["n_positions"]),
                ffn=raw.get("n_inner") or 4 * dim,
                tied=raw.get("tie_word_embeddings", True),
            )
        if kind not in ("llama", "mistral", "qwen2", "mixtral"):
            raise PlanError(f"model_type is {kind!r}; expected gpt2, llama, mistral, qwen2 or mixtral.")
        return Shape(
            vocab=raw["vocab_size"],
            dim=raw["hidden_size"],
            layers=raw["num_hidden_layers"],
            heads=raw["num_attention_heads"],
            kv_heads=raw.get("num_key_value_heads") or raw["num_attention_heads"],
            ffn=raw["intermediate_size"],
            context=raw["max_position_embeddings"],
            bias=bool(raw.get("attention_bias", False)),
            qkv_bias=kind == "qwen2",
            tied=raw.get("tie_word_embeddings", False),
            head_dim=raw.get("head_dim") or 0,
            experts=raw["num_local_experts"] if kind == "mixtral" else 1,
            active=raw["num_experts_per_tok"] if kind == "mixtral" else 1,
        )
    except KeyError as error:
        raise PlanError(f"This config.json of {kind} has no {error.args[0]!r}.") from None
