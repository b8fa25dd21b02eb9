"""`muster environment check`: lock files and reports, without a server."""

from __future__ import annotations

import json
from pathlib import Path

LOCK = '[[package]]\nname = "pillow"\nversion = "10.2.0"\n'
REPORT = {
    "dependencies": [
        {"name": "pillow", "version": "10.2.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["10.3.0"], "aliases": []}]}
    ]
}


def test_a_lock_file_is_compared_with_a_file_of_advisories(muster, tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text(LOCK)
    (tmp_path / "audit.json").write_text(json.dumps(REPORT))
    found = muster("environment", "check", "--advisories", "audit.json", "--json")
    assert found.code == 1
    assert found.json["packages"] == 1
    (one,) = found.json["vulnerable"]
    assert (one["package"], one["advisory"], one["fixed_in"]) == ("pillow", "PYSEC-1", ["10.3.0"])
    told = muster("environment", "check", "uv.lock", "--advisories", "audit.json")
    assert "PYSEC-1" in told.out
    assert "1 packages were compared with 1 advisories" in told.err
    (tmp_path / "uv.lock").write_text(LOCK.replace("10.2.0", "10.3.0"))
    good = muster("environment", "check", "uv.lock", "--advisories", "audit.json")
    assert (good.code, good.out) == (0, "No package has a known vulnerability.\n")


def test_files_that_can_not_be_read_are_told(muster, tmp_path: Path) -> None:
    (tmp_path / "audit.json").write_text("{}")
    (tmp_path / "uv.lock").write_text("[[package")
    assert "no advisories" in muster("environment", "check", "uv.lock", "--advisories", "audit.json").err
    (tmp_path / "audit.json").write_text(json.dumps(REPORT))
    assert "no lock file" in muster("environment", "check", "uv.lock", "--advisories", "audit.json").err
    assert muster("environment", "check", "uv.lock", "--advisories", "none.json").code == 1
    (tmp_path / "uv.lock").unlink()
    assert "This folder has no lock file" in muster("environment", "check", "--advisories", "audit.json").err
