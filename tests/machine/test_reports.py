"""A test that fails with text that can't be encoded is reported as failed, not as a crash of its process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FAILS = r"""
import logging
def test_quotes():
    logging.warning("logged \udc80")
    assert "told \udc80" == "", "expected \udc81"
"""


def test_half_a_surrogate_pair_is_written_out(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = ["-p", "report_kit", "-p", "no:cacheprovider", "--numprocesses", "1"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    tests = Path(__file__).parent.parent
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, timeout=300,
        env={"PYTHONPATH": str(tests), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert "expected \\udc81" in said, said
    assert "logged \\udc80" in said
    assert "1 failed" in said
    assert "crashed" not in said
    assert "INTERNALERROR" not in said
