"""A parser for HTML files of tests: it checks that elements are closed in order, and keeps what a page could do."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

VOID = ("meta", "br", "line")


class Page(HTMLParser):
    """`open`: elements that are not closed; `links`: what it refers to; `handlers`: attributes that run something."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.links: list[str | None] = []
        self.handlers: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.labelled: set[str] = set()
        if text:
            self.feed(text)
            self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._attributes(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self._attributes(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def _attributes(self, tag: str, attrs: Any) -> None:
        self.tags[tag] += 1
        self.links += [value for name, value in attrs if name in ("src", "href", "action", "data", "xlink:href")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.ids.update(value for name, value in attrs if name == "id")
        self.labelled |= {value for name, value in attrs if name == "aria-labelledby"}


def check_page(text: str) -> Page:
    """One sound file that fetches nothing and runs nothing, of which every drawing is well-formed."""
    page = Page(text)
    assert page.open == []
    assert page.links == []
    assert page.handlers == []
    assert not {"script", "iframe", "object", "embed", "img", "link", "form", "base", "a"} & page.tags.keys()
    style = text[: text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert set(page.ids.values()) <= {1}, page.ids.most_common(3)
    assert page.labelled <= page.ids.keys()
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(drawing)
    assert not (odd := re.findall(r' (?:d|x|y|width|height|x1|y1)="[^"]*(?:nan|inf)[^"]*"', text)), odd[0]
    text.encode()
    return page
