"""`.ci/bare`, which CI runs under: what the caller has prepared is taken away, and nothing else of the command."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from live import PATIENCE

ROOT = Path(__file__).parents[2]
YOUNG = 120.0  # seconds: such a clock is left as it is; others are set back to 60
SLOW = 600.0  # seconds: no command here takes as long


def bare(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    told = [str(ROOT / ".ci" / "bare"), *command]
    return subprocess.run(
        ["bash", *told],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def environment(**env: str) -> dict[str, str]:
    done = bare("env", "-0", **env)
    assert done.returncode == 0, done.stderr
    return dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)


def test_only_what_package_clients_need_is_left_of_the_environment() -> None:
    mine = {"PIP_INDEX_URL": "a  b\nc", "no_proxy": "x", "UV_X": "1", "npm_config_y": "2", "SSL_CERT_FILE": "/c"}
    others = {"PYTHONPATH": "/mine", "VIRTUAL_ENV": "/v", "LANG": "de_DE.UTF-8", "TZ": "Asia/Tokyo", "MUSTER_URL": "u"}
    found = environment(**mine, **others, HOME="/prepared", CI="1", PATH=f"/prepared:{os.environ['PATH']}")
    assert mine.items() <= found.items()
    assert not others.keys() & found.keys()
    assert found["PATH"] == "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    assert found["CI"] == "1"
    assert found["HOME"] != "/prepared"


def test_home_is_empty_and_gone_afterwards() -> None:
    done = bare("sh", "-c", 'echo "$HOME"; ls -A "$HOME"; touch "$HOME/left"')
    home = Path(done.stdout.removesuffix("\n"))
    assert home.is_absolute()
    assert not home.exists()


def test_status_and_output_pass_through() -> None:
    done = bare("sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert "err\n" in done.stderr


def test_the_steady_clock_has_just_begun_also_where_it_was_set_back_before() -> None:
    clock = (sys.executable, "-c", "import time; print(time.monotonic())")
    for command in (clock, ("bash", str(ROOT / ".ci" / "bare"), *clock)):
        done = bare(*command)
        assert 0 < float(done.stdout) < SLOW or "can't be set back" in done.stderr


def test_without_the_right_to_set_the_clock_back_one_line_says_so(tmp_path: Path) -> None:
    """`unshare` as a user without rights finds it: it fails."""
    (tmp_path / "unshare").write_text("#!/bin/sh\necho no >&2\nexit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    old = time.monotonic() > YOUNG + 1
    done = bare("echo", "done", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert len(done.stderr.splitlines()) == 1 or not old
