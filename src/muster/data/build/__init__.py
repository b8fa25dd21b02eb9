"""Makes datasets from what people have: text and JSONL."""

from muster.data.build.text import Progress, tokens

__all__ = ["Progress", "tokens"]
