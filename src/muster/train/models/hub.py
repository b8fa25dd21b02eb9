"""Reads and writes model folders of Hugging Face's transformers (config.json and safetensors): GPT-2 and Llama."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from muster.train.errors import ConfigError, ModelFileError
from muster.train.models import safetensors
from muster.train.models.decoder import Decoder, DecoderConfig
from muster.train.models.hub_configs import read_gpt2, read_llama, write_gpt2, write_llama

CONFIG: Final = "config.json"
_SHARD: Final = 5 << 30  # bytes per file, as in the hub's own tools
# Masks and frequencies that older versions saved with the weights.
_BUFFERS: Final = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")
_LLAMA_ENDS: Final = {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
_LLAMA_BLOCK: Final = {
    "attention_norm": "input_layernorm",
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn.gate": "mlp.gate_proj",
    "ffn.up": "mlp.up_proj",
    "ffn.down": "mlp.down_proj",
}
_GPT2_ENDS: Final = {
    "embed": "transformer.wte",
    "positions": "transformer.wpe",
    "norm": "transformer.ln_f",
    "head": "lm_head",
}
_GPT2_BLOCK: Final = {
    "attention_norm": "ln_1",
    "attention.out": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn.up": "mlp.c_fc",
    "ffn.down": "mlp.c_proj",
}


def load_hub(folder: Path) -> tuple[DecoderConfig, dict[str, Tensor]]:
    """The shape and the weights in a folder, for `Decoder(config).load_state_dict(state)`.

    The tensors are mapped from the files and read when they are copied. Dropout belongs to the training, not to the
    weights: it is 0 here, and `dataclasses.replace(config, dropout=...)` sets it.
    """
    folder = Path(folder)
    raw = _read_json(folder / CONFIG)
    config = _config(folder / CONFIG, raw)
    if not any((folder / name).exists() for name in (safetensors.SINGLE, safetensors.INDEX)):
        raise ModelFileError(f"{folder} has no {safetensors.SINGLE}; save the model with safe_serialization=True.")
    found = {name: tensor for name, tensor in safetensors.read_folder(folder).items() if not name.endswith(_BUFFERS)}
    state = (
        _from_gpt2(found)
        if raw["model_type"] == "gpt2"
        else _renamed(found, "model.layers.", _LLAMA_ENDS, _LLAMA_BLOCK)
    )
    if config.tied and "embed.weight" in state:
        state["head.weight"] = state["embed.weight"]
    _check(folder, config, state)
    return config, state


def save_hub(model: Decoder, folder: Path) -> None:
    """Writes a whole model, not a stage or a shard; `AutoModelForCausalLM.from_pretrained` can load it."""
    write_hub(model.config, model.state_dict(), folder)


def write_hub(config: DecoderConfig, state: Mapping[str, Tensor], folder: Path, limit: int = _SHARD) -> None:
    """The same from the full tensors of a state dict, in files of up to `limit` bytes. A tied head may be left out."""
    folder = Path(folder)
    state = dict(state)
    if config.tied and "embed.weight" in state:
        state["head.weight"] = state["embed.weight"]
    _check(folder, config, state)
    if config.tied:
        del state["head.weight"]
    if config.positions == "learned":
        raw, tensors = write_gpt2(config), _to_gpt2(state)
    else:
        raw, tensors = write_llama(config), _to_llama(state)
    raw["dtype"] = str(state["embed.weight"].dtype).removeprefix("torch.")
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.write_folder(folder, tensors, {"format": "pt"}, limit)
    (folder / CONFIG).write_text(json.dumps(raw, indent=2, sort_keys=True) + "\n", "utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ModelFileError(f"{path} is no JSON: {error}.") from error
    if not isinstance(raw, dict) or raw.get("model_type") not in ("gpt2", "llama"):
        kind = raw.get("model_type") if isinstance(raw, dict) else type(raw).__name__
        raise ModelFileError(f"{path}: model_type is {kind!r}; gpt2 and llama can be loaded.")
    return raw


def _config(path: Path, raw: Mapping[str, Any]) -> DecoderConfig:
    try:
        config = read_gpt2(raw) if raw["model_type"] == "gpt2" else read_llama(raw)
        config.check()
    except KeyError as error:
        raise ModelFileError(f"{path}: {error.args[0]} is missing.") from error
    except (TypeError, AttributeError, ValueError, ConfigError) as error:
        raise ModelFileError(f"{path}: {error}.") from error
    return config


def _renamed(found: Mapping[str, Tensor], under: str, ends: dict[str, str], block: dict[str, str]) -> dict[str, Tensor]:
    """Renames their tensors to our names. An unknown name is kept, so that the check reports it."""
    ours = {theirs: mine for mine, theirs in ends.items()}
    inner = {theirs: mine for mine, theirs in block.items()}
    state = {}
    for name, tensor in found.items():
        module, _, leaf = name.rpartition(".")
        if module.startswith(under):
            number, _, rest = module.removeprefix(under).partition(".")
            module = f"blocks.{number}.{inner.get(rest, rest)}"
        state[f"{ours.get(module, module)}.{leaf}"] = tensor
    return state


def _from_gpt2(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """GPT-2 stores a linear layer's weight as [inputs, outputs], and query, key and value in one. The oldest files on
    the hub have no prefix `transformer.`."""
    prefixed = {
        name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}": tensor
        for name, tensor in found.items()
    }
    named = _renamed(prefixed, "transformer.h.", _GPT2_ENDS, _GPT2_BLOCK)
    state: dict[str, Tensor] = {}
    for name, tensor in named.items():
        if name.startswith("blocks.") and tensor.dim() == 2:
            tensor = tensor.t()
        head, middle, leaf = name.partition(".attn.c_attn.")
        if middle:
            for each, part in zip("qkv", tensor.chunk(3, 0), strict=True):
                state[f"{head}.attention.{each}.{leaf}"] = part
        else:
            state[name] = tensor
    return state


def _to_llama(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {_theirs(name, "model.layers.", _LLAMA_ENDS, _LLAMA_BLOCK): tensor for name, tensor in state.items()}


def _to_gpt2(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    tensors = {}
    for name, tensor in state.items():
        if not name.startswith("blocks."):
            tensors[_theirs(name, "", _GPT2_ENDS, {})] = tensor
        elif ".attention.q." in name:
            fused = torch.cat([state[name.replace(".q.", f".{each}.")] for each in "qkv"])
            number, leaf = name.split(".")[1], name.rpartition(".")[2]
            tensors[f"transformer.h.{number}.attn.c_attn.{leaf}"] = fused.t() if fused.dim() == 2 else fused
        elif ".attention.k." not in name and ".attention.v." not in name:
            tensors[_theirs(name, "transformer.h.", _GPT2_ENDS, _GPT2_BLOCK)] = (
                tensor.t() if tensor.dim() == 2 else tensor
            )
    return tensors


def _theirs(name: str, under: str, ends: dict[str, str], block: dict[str, str]) -> str:
    module, _, leaf = name.rpartition(".")
    if not module.startswith("blocks."):
        return f"{ends[module]}.{leaf}"
    number, _, rest = module.removeprefix("blocks.").partition(".")
    return f"{under}{number}.{block[rest]}.{leaf}"


def _check(folder: Path, config: DecoderConfig, state: Mapping[str, Tensor]) -> None:
    """Raises `ModelFileError` unless these are the full tensors of exactly this model."""
    with torch.device("meta"):
        expected = {name: tuple(tensor.shape) for name, tensor in Decoder(config).state_dict().items()}
    wrong = [f"{name} is missing" for name in expected if name not in state]
    wrong += [f"{name} is not known" for name in state if name not in expected]
    for name, tensor in state.items():
        if isinstance(tensor, DTensor):
            wrong.append(f"{name} is one rank's shard; gather the weights, or export a checkpoint")
        elif name in expected and tuple(tensor.shape) != expected[name]:
            wrong.append(f"{name} has shape {tuple(tensor.shape)}, expected {expected[name]}")
    if wrong:
        more = f"; and {len(wrong) - 4} more" if len(wrong) > 4 else ""
        raise ModelFileError(f"{folder}: the weights are not those of the model: {'; '.join(wrong[:4])}{more}.")
