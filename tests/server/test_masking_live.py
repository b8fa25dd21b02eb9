"""Secret values are masked in what ranks report, as they are in what ranks print."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from live import LiveServer
from muster.masking import Masker

SECRET = "sk-live-51HqLyjWDarjtT1zdp7dc"  # pragma: allowlist secret

REPORTS = """
import os, sys
from muster import runtime
key = os.environ["REPORTED_KEY"]
runtime.params(api=key, nested={"deep": [{"url": "https://u:" + key + "@host/"}]}, **{"name-" + key: 1, "lr": 0.1})
runtime.tags(owner="mine " + key)
runtime.note("the key is " + key)
runtime.report(step=1, loss=0.5)
print("key", key)
sys.exit("gave up with " + key)
"""


def test_parameters_tags_notes_and_the_end_are_masked_before_they_are_stored(
    server: LiveServer, tmp_path: Path
) -> None:
    with server.http() as http:
        http.put("/v1/projects/default/secrets/REPORTED_KEY", json={"value": SECRET})
    (tmp_path / "report.py").write_text(REPORTS)
    job = server.submit(f"{sys.executable} report.py", secrets=["REPORTED_KEY"], workdir=str(tmp_path))["id"]
    ended = server.wait(job)
    assert "gave up with ***" in str(ended["reason"])
    run = server.get(f"/v1/runs/{job}")
    assert run["params"]["api"] == "***"
    assert run["params"]["lr"] == "0.1"
    assert run["params"]["name-***"] == "1"
    assert run["tags"]["owner"] == "mine ***"
    seen = str([run, ended, server.get(f"/v1/runs/{job}/attempts"), server.get(f"/v1/runs/{job}/notes")])
    assert "the key is ***" in seen
    assert "https://u:***@host/" in seen
    assert SECRET not in seen
    dump = sqlite3.connect(f"file:{server.home / 'muster.db'}?mode=ro", uri=True)
    assert all(SECRET not in line for line in dump.iterdump())
    for path in [one for one in server.home.glob("*") if one.is_file()]:
        with suppress(FileNotFoundError):
            assert SECRET.encode() not in path.read_bytes(), path


def test_documents_are_masked_whatever_their_shape() -> None:
    masker = Masker(["hunter2"])
    doc = {"type": "params", "id": "hunter2", "values": {"a hunter2": ["x", {"y": "hunter2!"}], "n": 3, "none": None}}
    masker.mask_doc(doc, but=("type", "id"))
    assert doc == {"type": "params", "id": "hunter2", "values": {"a ***": ["x", {"y": "***!"}], "n": 3, "none": None}}
    deep: dict[str, object] = {"text": "hunter2"}
    for _ in range(100_000):
        deep = {"in": deep}
    masker.mask_doc(deep)
    while isinstance(deep.get("in"), dict):
        deep = deep["in"]  # type: ignore[assignment]
    assert deep == {"text": "***"}


@pytest.mark.parametrize("text", ["half a pair \ud800 of hunter2", "hunter2"])
def test_text_that_utf8_does_not_hold_is_masked_too(text: str) -> None:
    assert "hunter2" not in Masker(["hunter2"]).mask(text)
