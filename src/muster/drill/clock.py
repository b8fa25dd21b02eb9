"""A wall clock that jumps, for the Python processes of a job alone: lines before its command, and what they start.

Only root may set a machine's clock. So `time.time` and `time.time_ns` of the ranks' Python are replaced by ones that
add what a file says; `datetime.now` and other languages see the machine's clock.
"""

from __future__ import annotations

from typing import Final

# A `sitecustomize` of its own before the others, which run after it. The file is looked for ten times a second at most.
_SITE: Final = """
import importlib, os, sys, time
def _install(file):
    real, real_ns, steady, seen = time.time, time.time_ns, time.monotonic, [0.0, 0.0]
    def offset():
        if steady() >= seen[0]:
            seen[0] = steady() + 0.1
            try:
                with open(file) as told:
                    seen[1] = float(told.read())
            except (OSError, ValueError):
                pass
        return seen[1]
    time.time = lambda: real() + offset()
    time.time_ns = lambda: real_ns() + int(offset() * 1e9)
_here = os.path.dirname(os.path.abspath(__file__))
_install(os.path.join(_here, "jump"))
sys.path[:] = [place for place in sys.path if os.path.abspath(place) != _here]
sys.modules.pop("sitecustomize", None)
try:
    importlib.import_module("sitecustomize")
except ImportError:
    pass
"""


def with_clock(run: str) -> str:
    """The command, whose Python processes take their time from a clock that `beside.clock` sets."""
    folder = '"$MUSTER_CHECKPOINT_DIR/.drill"'
    return "\n".join([
        f"mkdir -p {folder}",
        f"cat > {folder}/new-$RANK <<'END OF CLOCK'{_SITE}END OF CLOCK",
        f"mv {folder}/new-$RANK {folder}/sitecustomize.py",
        f'export PYTHONPATH={folder}"${{PYTHONPATH:+:$PYTHONPATH}}"',
        run,
    ])  # fmt: skip
