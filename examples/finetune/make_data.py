"""Makes what fine-tuning starts from: ./base, a small GPT-2 in Hugging Face's format, and ./data, questions, answers.

The base is trained here for a few seconds on plain sentences; bring a GPT-2 or Llama folder of your own in its place.
"""

# ruff: noqa: T201 - a script says what it made

from __future__ import annotations

import json
import random
from pathlib import Path

from muster.data.build import tokens
from muster.train import read_config, train
from muster.train.checkpoint import export, newest
from muster.train.models import safetensors
from muster.train.models.hub import write_hub
from muster.train.models.shapes import shape
from muster.train.tasks.language import Language, LanguageSettings

ANIMALS = {"cow": "moo", "duck": "quack", "cat": "meow", "owl": "hoot", "bee": "buzz", "sheep": "baa", "frog": "croak"}
BASE = {"shape": "tiny-gpt2", "vocab": 257, "sequence": 64}


def main() -> None:
    rng, folder = random.Random(1), Path("data")
    folder.mkdir(exist_ok=True)
    plain = [f"the {name} says {sound}." for name, sound in rng.choices(list(ANIMALS.items()), k=6000)]
    asked = [f"Q: what does the {name} say? A: {sound}!" for name, sound in rng.choices(list(ANIMALS.items()), k=3000)]
    for name, documents in (("plain", plain), ("questions", asked[:2700]), ("held-out", asked[2700:])):
        if not (folder / name / "index.json").exists():
            lines = "".join(json.dumps({"text": text}) + "\n" for text in documents)
            (folder / f"{name}.jsonl").write_text(lines)
            made = tokens([folder / f"{name}.jsonl"], folder / name)
            print(f"{folder / name}: {made.tokens:,} tokens of {made.documents:,} documents")
    if not Path("base/config.json").exists():
        make_base(Path("base"))


def make_base(folder: Path) -> None:
    """Trains a little, and writes the weights as transformers would."""
    config = read_config(
        {
            "task": "language",
            "steps": 60,
            "model": BASE,
            "data": {"batch": 8, "sources": [{"path": "data/plain"}]},
            "optimizer": {"lr": 4e-3},
            "schedule": {"warmup": 10},
            "checkpoint": {"where": "data/base-checkpoints", "every": 60},
            "print_every": 20,
        }
    )
    train(config)
    found = newest("data/base-checkpoints")
    assert found is not None
    file = export(found, Path("data/base.safetensors"))
    decoder = Language(LanguageSettings(**BASE), config).shape
    write_hub(decoder, safetensors.read(file), folder)
    print(f"{folder}: a {shape('tiny-gpt2').layers}-layer GPT-2 in Hugging Face's format")


if __name__ == "__main__":
    main()
