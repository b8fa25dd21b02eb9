"""The API's description for people: every route with its role and its answer, and nothing from outside."""

from __future__ import annotations

from muster.server.docs_page import page
from shape_kit import all_routes, document


def test_every_route_is_there_with_its_role_and_its_answer():
    text = page(document())
    assert text.count("<details>") == len(all_routes()) == text.count("<p>For: <code>")
    part = text.partition("<code>/v1/jobs/{ref}/stop</code>")[2].partition("</details>")[0]
    assert "<p>For: <code>member</code></p>" in part
    assert "<p>Answer: <code>JobView</code></p>" in part
    assert "<td>submitted_at</td><td>number</td>" in part


def test_nothing_is_loaded_from_outside():
    text = page(document())
    assert "<script" not in text
    assert "src=" not in text
