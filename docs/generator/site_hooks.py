"""Hooks of MkDocs: what differs between a page on disk and a page of the site; then a look for what comes from outside.

python docs/generator/site_hooks.py site      # exits with 1 when a page loads something from another host
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final

# Links out of docs/ lead to files of the repository, which the site does not have.
_OUTSIDE: Final = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)\s#]+)[^)]*\)")
# What a browser fetches by itself: scripts, styles, pictures, fonts. A link that a reader may follow is no such thing.
_LOADED: Final = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc=["']?(https?:)?//[^"'\s>]+"""
    r"""|<link\b(?![^>]*rel=["']?canonical)[^>]*?\bhref=["']?(https?:)?//[^"'\s>]+"""
    r"""|@import\s+(?:url\()?["']?(?:https?:)?//[^"')\s]+|url\(["']?(?:https?:)?//[^"')]+""",
    re.IGNORECASE,
)
# With the plugin `offline` the theme fetches this for pages that are opened from a disk; it is replaced by our own.
_FETCHED: Final = "https://unpkg.com/iframe-worker/shim"
_OWN: Final = "frame_worker.js"


def on_page_markdown(markdown: str, **_: Any) -> str:
    return _OUTSIDE.sub(r"\1 (`\2` of the repository)", markdown)


def on_post_page(output: str, **_: Any) -> str:
    return output.replace(_FETCHED, _OWN)


def on_post_template(output_content: str, **_: Any) -> str:
    return output_content.replace(_FETCHED, _OWN)


def on_post_build(config: Any) -> None:
    shutil.copyfile(Path(__file__).with_name(_OWN), Path(config["site_dir"]) / _OWN)


def loaded_from_outside(site: Path) -> list[str]:
    """Places of the built site that fetch from another host."""
    found = []
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".css"):
            text = path.read_text(encoding="utf-8")
            found += [f"{path.relative_to(site)}: {one[0]}" for one in _LOADED.finditer(text)]
    return found


def main() -> int:
    site = Path(sys.argv[1])
    pages = len(list(site.rglob("*.html")))
    wrong = loaded_from_outside(site)
    sys.stderr.write("".join(f"{line}\n" for line in wrong) or f"{pages} pages, nothing from other hosts\n")
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
