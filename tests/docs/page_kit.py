"""The blocks of a page, and one shell script that runs them in their order, as a reader pastes them.

- `sh` and `console` blocks are run; of a `console` block, the lines that begin with `$ `.
- `python` blocks are given to `python`; a block of any kind with `title="NAME"` is saved under that name instead.
- A block after `<!-- not run: REASON -->` is left out. Blocks of other kinds are no commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^>\n]+?) -->\n+)?```(?P<kind>\w*)(?P<more>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    line: int
    kind: str
    text: str
    title: str
    not_run: str  # the reason

    @property
    def runs(self) -> bool:
        return not self.not_run and bool(self.title or self.kind in ("sh", "console", "python"))


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text()
    for found in FENCE.finditer(text):
        title = re.search(r'title="([^"]+)"', found["more"])
        line = text.count("\n", 0, found.start("text")) + 1
        yield Block(line, found["kind"], found["text"], title[1] if title else "", (found["reason"] or "").strip())


def script(page: str) -> str:
    """Stops at the first command that fails, and says which line of the page its block begins at."""
    lines = ["set -eo pipefail", f"trap 'echo \"{page}: the block at line $block failed\" >&2' ERR"]
    for block in blocks(page):
        if block.runs:
            lines += [f"block={block.line}", _command(block)]
    return "\n".join(lines) + "\n"


def _command(block: Block) -> str:
    if block.title or block.kind == "python":
        into = f"cat > {shlex.quote(block.title)}" if block.title else "python -"
        return f"{into} <<'END OF BLOCK'\n{block.text}END OF BLOCK"
    if block.kind == "console":
        return "\n".join(line[2:] for line in block.text.splitlines() if line.startswith("$ "))
    return block.text
