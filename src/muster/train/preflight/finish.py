"""The end of a program's own checks: reports are printed, and kept with the run if the platform runs it."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from muster import runtime, wire
from muster.checks.findings import Report, document


def finish(*reports: Report, file: str | None = None) -> int:
    """Prints reports, and writes them as JSON to `file`. Returns the exit status."""
    for report in reports:
        sys.stdout.write(f"{report}\n")
    sys.stdout.flush()
    text = json.dumps(document(reports), indent=1)
    if file:
        Path(file).write_text(text, "utf-8")
    if runtime.active():
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "report.json"
            place.write_text(text, "utf-8")
            runtime.artifact(place, wire.PREFLIGHT_REPORT)
            runtime.flush()
    return 0 if all(report.passed for report in reports) else 1
