"""Masks secret values wherever they occur literally in a text; encoded or split values are not recognised.

Standard library only: launchers mask what ranks print, and the server masks what they report.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, Final

MASK: Final = b"***"
_LINE_MIN: Final = 8  # bytes; shorter lines of a multi-line secret are not masked by themselves


class Masker:
    """Replaces secret values in a stream of chunks; the result does not depend on where the chunks are cut.

    Only a tail that could be the start of a secret is held back, until the next bytes decide or the stream ends.
    Everything else passes at once, so that a prompt without a newline is visible.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        found = {part for value in secrets for part in _parts(value.encode())}
        self._secrets = sorted(found, key=len, reverse=True)  # longest first: the leftmost, then longest, is masked
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)))
        self._longest = len(self._secrets[0]) if self._secrets else 0
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """The part of the stream that is already decided, masked."""
        if not self._secrets:
            return chunk
        text = self._held + chunk
        out, at, hold = [], 0, self._undecided(text, 0)
        if any(secret in text for secret in self._secrets):
            while (match := self._pattern.search(text, at)) and match.start() < hold:
                out += [text[at : match.start()], MASK]
                at = match.end()
                if at > hold:
                    hold = self._undecided(text, at)
        out.append(text[at:hold])
        self._held = text[hold:]
        return b"".join(out)

    def finish(self) -> bytes:
        """The rest, at the end of the stream."""
        held, self._held = self._held, b""
        return self._pattern.sub(MASK, held) if held else b""

    def mask(self, text: str) -> str:
        """A whole text, masked."""
        return (
            self._pattern.sub(MASK, text.encode(errors="replace")).decode(errors="replace") if self._secrets else text
        )

    def mask_doc(self, doc: dict[str, Any], but: Collection[str] = ()) -> None:
        """Masks every text in a JSON object in place, names too; the object's fields in `but` are not changed."""
        if not self._secrets:
            return
        stack: list[Any] = [doc]
        while stack:  # without recursion: the depth comes from outside
            node = stack.pop()
            for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
                if node is doc and key in but:
                    continue
                if isinstance(value, dict | list):
                    stack.append(value)
                masked = self.mask(value) if isinstance(value, str) else value
                name = self.mask(key) if isinstance(key, str) else key
                if name != key:
                    del node[key]
                node[name] = masked

    def _undecided(self, text: bytes, start: int) -> int:
        """The start of the longest tail that is also the start of a secret; the end of the text if there is none."""
        for at in range(max(start, len(text) - self._longest + 1), len(text)):
            tail = text[at:]
            if any(len(tail) < len(secret) and secret.startswith(tail) for secret in self._secrets):
                return at
        return len(text)


def _parts(value: bytes) -> list[bytes]:
    """The value, and its longer lines if it has several: a key is often printed line by line."""
    lines = [line for line in value.split(b"\n") if len(line) >= _LINE_MIN] if b"\n" in value else []
    return [part for part in [value, *lines] if part]
