"""Every reason has its section in the documentation, under the anchor that `muster why` prints."""

from __future__ import annotations

from pathlib import Path

from muster.core.reasons import REASONS, page_of

ROOT = Path(__file__).parents[2]


def test_every_reason_has_the_section_that_why_links_to():
    for code in REASONS:
        page, _, anchor = page_of(code).partition("#")
        section = (ROOT / page).read_text().partition(f"\n### {anchor}\n")[2].partition("\n#")[0]
        assert "- Who acts: " in section, code
        assert "- What to do: " in section, code
