"""Lineage as trees."""

from muster.api.typed import Doc, NotRequired, TypedDict


class LineageNode(TypedDict):
    """`ref` is `hidden` if the caller may not see it."""

    ref: str
    role: str
    about: Doc
    nodes: "list[LineageNode]"
    left_out: int
    seen: bool
    cut: bool


class LineageView(TypedDict):
    ref: str
    up: NotRequired[LineageNode]  # what it was made from
    down: NotRequired[LineageNode]  # what was made from it
