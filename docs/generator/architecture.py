"""The picture of the architecture: packages in the layers that are checked, and the imports that really exist."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from generator.imports import SOURCES, Graph, imports, layers, reduced

FONT: Final = "Helvetica, Arial, 'DejaVu Sans', 'Liberation Sans', sans-serif"
CAPTIONS: Final = {
    "cli": ("the command line: muster run, submit, why, runs, ...",),
    "client": ("the Python SDK", "blocking and async"),
    "sim": ("past work under other rules,", "by the same controller"),
    "server": ("HTTP API, tokens, roles,", "limits, streams, /v1/ingest"),
    "control": ("one loop: admit, observe, decide, commit, then act; recovery, ingest, the lease",),
    "sched": ("who starts, where:", "pure functions"),
    "tune": ("what to try next:", "pure functions"),
    "monitor": ("use and goodput:", "pure functions"),
    "cost": ("prices, budgets:", "pure functions"),
    "track": ("the record of runs:", "curves, files"),
    "store": ("events and rows:", "SQLite, Postgres"),
    "core": ("job file, events, state, reasons: apply(state, event) is the only way to change the state",),
    "runtime": ("launcher, reports,", "checkpoints"),
    "train": ("the PyTorch loop",),
    "data": ("samples in order",),
}
ENGINES: Final = {"local": "this machine", "ray": "Ray", "slurm": "Slurm", "kubernetes": "Kubernetes"}
COLOURS: Final = {0: "#e0f2fe", 1: "#ede9fe", 2: "#dcfce7", 3: "#dcfce7", 4: "#fef3c7", 5: "#fef3c7"}
WIDTH, TOP, ROW, BOX = 1200, 20, 100, 62  # px; the height of a row, and of a box in it
LEFT, RIGHT, NODES = 220, 940, 1000  # where the server's packages begin and end, and the nodes' begin


@dataclass(frozen=True, slots=True)
class Box:
    name: str
    x: int
    y: int
    width: int
    fill: str
    lines: tuple[str, ...]

    @property
    def middle(self) -> int:
        return self.x + self.width // 2

    @property
    def bottom(self) -> int:
        return self.y + BOX


def architecture_picture() -> str:
    graph = imports()
    # These are the command line's, and drawn as a part of it.
    rows = [row for row in layers() if row not in (["drill"], ["preflight"])]
    boxes = {box.name: box for box in _boxes(rows, graph)}
    shared = rows[6] if len(rows) > 6 else []
    arrows = reduced({name: graph[name] & boxes.keys() for name in boxes})
    height = TOP + 6 * ROW + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="{FONT}" font-size="12">',
        "<title>The packages of Muster and what each imports</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *_frame(LEFT - 12, TOP + ROW - 24, RIGHT - LEFT + 24, 4 * ROW - 8, "server or simulator"),
        *_frame(NODES - 12, TOP + ROW - 24, WIDTH - NODES + 4, 4 * ROW - 8, "each node"),
        *(line for box in boxes.values() for line in _drawn(box)),
        *(line for name in boxes for to in sorted(arrows[name]) for line in _arrow(boxes[name], boxes[to])),
        *_wires(boxes),
        _text(20, TOP + 6 * ROW + 10, f"below all of them: {', '.join(shared)}", "#475569", "start"),
        _text(20, TOP + 6 * ROW + 32, "arrow: imports", "#475569", "start"),
        _text(140, TOP + 6 * ROW + 32, "dashed arrow: HTTP, or starts a process", "#0369a1", "start"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _boxes(rows: list[list[str]], graph: Graph) -> Iterator[Box]:
    yield _box("cli", 20, 0, WIDTH - 40)
    yield _box("client", 20, 1, 150)
    yield from _spread([name for name in ("sim", "server") if name in rows[1]], 1)
    yield _box("control", LEFT, 2, RIGHT - LEFT)
    parts = [name for name in rows[3] if name != "engines"] + ["engines"]  # beside the nodes that they start
    spread = list(_spread(parts, 3))
    yield from spread
    above = next(box for box in spread if "store" in graph[box.name])
    yield _box("store", above.x, 4, above.width)
    yield _box("core", 20, 5, WIDTH - 40)
    for row, name in ((1, "runtime"), (2, "train"), (3, "data")):
        yield _box(name, NODES, row, WIDTH - NODES - 20, fill="#fee2e2")


def _spread(names: list[str], row: int) -> Iterator[Box]:
    gap = 14
    width = (RIGHT - LEFT - gap * (len(names) - 1)) // len(names)
    for number, name in enumerate(names):
        yield _box(name, LEFT + number * (width + gap), row, width)


def _box(name: str, x: int, row: int, width: int, fill: str = "") -> Box:
    lines = CAPTIONS.get(name, ())
    if name == "engines":
        kinds = [word for kind, word in ENGINES.items() if list(SOURCES.glob(f"engines/{kind}*"))]
        lines = (", ".join(kinds[:2]) + ",", ", ".join(kinds[2:]))
    return Box(name, x, TOP + row * ROW, width, fill or COLOURS[row], lines)


def _drawn(box: Box) -> Iterator[str]:
    yield (
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{BOX}" rx="8" fill="{box.fill}" stroke="#94a3b8"/>'
    )
    top = box.y + (20 if len(box.lines) > 1 else 27)
    yield _text(box.middle, top, box.name, "#0f172a", "middle", ' font-weight="bold" font-size="13"')
    for number, line in enumerate(box.lines):
        yield _text(box.middle, top + 17 + 15 * number, line, "#475569", "middle")


def _arrow(one: Box, other: Box) -> Iterator[str]:
    """Straight where one lies above the other, else down beside the boxes and in through the gap above the target."""
    low, high = max(one.x, other.x), min(one.x + one.width, other.x + other.width)
    if low < high:
        x, down = (low + high) // 2, other.y > one.y
        points = [(x, one.bottom if down else one.y), (x, other.y if down else other.bottom)]
    else:
        gap, end = other.y - (ROW - BOX) // 2, other.x + 30
        points = [(one.middle, one.bottom), (one.middle, gap), (end, gap), (end, other.y)]
    yield from _line(points, "#475569", dashed=False)


def _wires(boxes: dict[str, Box]) -> Iterator[str]:
    """What processes say to each other, which no import shows."""
    client, server, engines, runtime = (boxes[name] for name in ("client", "server", "engines", "runtime"))
    blue, over = "#0369a1", client.y - 10
    to = server.x + 40
    yield from _line(
        [(client.x + 110, client.y), (client.x + 110, over), (to, over), (to, server.y)], blue, dashed=True
    )
    level, side = engines.y + BOX // 2, NODES - 26
    yield from _line([(runtime.x, runtime.y + 20), (server.x + server.width, runtime.y + 20)], blue, dashed=True)
    up = [(engines.x + engines.width, level), (side, level), (side, runtime.y + 44), (runtime.x, runtime.y + 44)]
    yield from _line(up, blue, dashed=True)


def _line(points: list[tuple[int, int]], colour: str, dashed: bool) -> Iterator[str]:
    """A polyline with a head of its own: markers are drawn in different ways by different programs."""
    (x0, y0), (x1, y1) = points[-2:]
    dx, dy = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
    path = " ".join(f"{x},{y}" for x, y in [*points[:-1], (x1 - 7 * dx, y1 - 7 * dy)])
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.4"{dash}/>'
    ax, ay = x1 - 8 * dx, y1 - 8 * dy
    head = f"{x1},{y1} {ax - 4 * dy},{ay - 4 * dx} {ax + 4 * dy},{ay + 4 * dx}"
    yield f'<polygon points="{head}" fill="{colour}"/>'


def _frame(x: int, y: int, width: int, height: int, title: str) -> Iterator[str]:
    yield (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="12" fill="#f8fafc" stroke="#cbd5e1" '
        'stroke-dasharray="5 4"/>'
    )
    yield _text(x + 14, y + ROW + 10, title, "#64748b", "start", ' font-weight="bold"')


def _text(x: int, y: int, text: str, fill: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{fill}"{more}>{escape(text)}</text>'
