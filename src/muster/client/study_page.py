"""Writes the report of a study to a file: as HTML, or as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.core.errors import Invalid

if TYPE_CHECKING:
    from muster.api.studies import StudyReport


def write_report(report: StudyReport, path: str | Path) -> Path:
    """By the name of the file: `.json` has the data, any other has the page. Raises Invalid if it can't be written."""
    target = Path(path).expanduser()
    text = json.dumps(report) if target.suffix == ".json" else _page(report)
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Invalid(f"{target} can't be written: {error.strerror}.", "Choose another place.") from error
    return target


def _page(report: Any) -> str:
    # The page is made where the command line makes it; nothing else of the client depends on that layer.
    from muster.cli.tune_page import page  # noqa: PLC0415  (many charts, for those who want the page)

    return page(report)
