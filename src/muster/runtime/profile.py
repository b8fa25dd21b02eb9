"""Where a rank spends its time: the stacks of the main threads of its processes, looked at again and again.

By py-spy where it may look into the rank, fifty times a second; else by the handler of `rank_site`, some times a
second. Neither stops the program nor needs its GIL. A thread that waits is seen as well as one that computes.

The document has `seconds`, `samples`, `source` (py-spy, signal), `problem`, `frames`, and `stacks`: each with `at`,
places in `frames` with the outermost first, and `count`. The rarest stacks are left out if there are too many, and
`left_out` has how often they were seen.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from muster.runtime import processes, stacks
from muster.runtime.stack_text import FRAMES, frame

RATE: Final = 50  # looks a second, by py-spy
PAUSE: Final = 0.1  # seconds between two looks by the handler
LONGEST: Final = 60.0  # seconds
DOC_BYTES: Final = 192 << 10
_SPARE: Final = 4.0  # seconds that py-spy may take to begin and to end
_THREAD: Final = re.compile(r"(?:^|;)thread \((\d+)\)[^;]*;(.*) (\d+)$")
_FRAME: Final = re.compile(r"^(.*) \((.*):(\d+)\)$")

Doc = dict[str, Any]


class Place(NamedTuple):
    function: str
    file: str
    line: int


Seen = Counter[tuple[Place, ...]]  # stacks, the outermost frame first


def take(root: int, folder: Path, spy: str, seconds: float) -> Doc:
    """Looks at a rank for so long. `folder` is the rank's own, `spy` a path or ""."""
    begun, problem = time.monotonic(), "py-spy is not on the node"
    seconds = min(seconds, LONGEST)
    seen, source = Seen(), "py-spy"
    if spy:
        seen, problem = _by_spy(root, spy, seconds)
    if not seen and (left := seconds - (time.monotonic() - begun)) > 0:
        seen, source = _by_handlers(root, folder, left), "signal"
    spent = time.monotonic() - begun
    return bounded(seen, {"seconds": round(spent, 3), "source": source, "problem": "" if seen else problem})


def from_raw(text: str, pids: Iterable[int]) -> Seen:
    """Of py-spy's lines of stacks and counts those of main threads, whose ids are those of their processes."""
    known, seen = set(pids), Seen()
    for line in text.splitlines():
        if (found := _THREAD.search(line)) and int(found[1]) in known:
            seen[tuple(_place(one) for one in found[2].split(";")[:FRAMES])] += int(found[3])
    return seen


def bounded(seen: Seen, doc: Doc) -> Doc:
    """The document, with as many stacks as it may have, the most frequent first."""
    places: dict[Place, int] = {}
    told: list[Doc] = []
    size, left_out = 0, 0
    for stack, count in sorted(seen.items(), key=lambda one: (-one[1], one[0])):
        new = [one for one in dict.fromkeys(stack) if one not in places]
        size += sum(len(json.dumps(one._asdict())) + 2 for one in new) + 8 * len(stack) + 32
        if size > DOC_BYTES:
            left_out += count
            continue
        for one in new:
            places[one] = len(places)
        told.append({"at": [places[one] for one in stack], "count": count})
    frames = [one._asdict() for one in places]
    return {**doc, "samples": sum(seen.values()), "left_out": left_out, "frames": frames, "stacks": told}


def _by_spy(root: int, spy: str, seconds: float) -> tuple[Seen, str]:
    words = [
        spy, "record", "--pid", str(root), "--subprocesses", "--idle", "--threads", "--nonblocking", "--full-filenames",
        "--format", "raw", "--rate", str(RATE), "--duration", str(max(1, round(seconds))), "--output", "/dev/stdout",
    ]  # fmt: skip
    pids = [root, *processes.descendants(root)]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds + _SPARE, env={}, cwd="/", check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Seen(), f"py-spy: {error}"[:200]
    seen = from_raw(done.stdout.decode(errors="replace"), [*pids, *processes.descendants(root)])
    why = done.stderr.decode(errors="replace").strip().splitlines()
    return seen, "" if seen else f"py-spy: {why[0] if why else f'status {done.returncode}'}"[:200]


def _by_handlers(root: int, folder: Path, seconds: float) -> Seen:
    seen, until = Seen(), time.monotonic() + seconds
    while (now := time.monotonic()) < until:
        for pid in [root, *processes.descendants(root)][: stacks.PROCESSES]:
            with contextlib.suppress(OSError, ValueError):
                for thread in stacks.by_handler(pid, folder, min(until, now + stacks.HANDLER_SECONDS)):
                    if thread.main and thread.frames:
                        seen[tuple(Place(**one) for one in reversed(thread.frames))] += 1
        time.sleep(max(0.0, min(PAUSE, until - time.monotonic())))
    return seen


def _place(text: str) -> Place:
    found = _FRAME.match(text)
    return Place(**frame(found[1], found[2], int(found[3]))) if found else Place(**frame(text, "", 0))
