"""Ignored files are the ones that git itself ignores, and what looks like a secret never counts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from muster.client.ignore import MADE, Ignore, looks_secret

PATHS = [
    "a", "b", "ab", "a.log", "b.txt", "x/a", "x/b", "x/a.log", "x/y/a", "x/y/b.txt", "y/x/a.log", "y/a/b", "a b",
    "x/a b", "#c", "x/!d", "[e]", "x/y/z/deep.txt",
]  # fmt: skip
LINES = st.sampled_from([
    "a", "/a", "a/", "x/", "/x/a", "*.log", "!a.log", "*", "!*/", "!*.txt", "x/*", "!x/a", "**/a", "x/**", "x/**/a",
    "**/y/**", "?", "[ab]", "[!a]*", "[^a]*", "x/y", "# note", "", "a b", "a\\ ", "\\#c", "!x/y/", "/*", "b.txt  ",
    "\\!d", "y/", "z", "!/x", "[e]", "\\[e]", "[", "a[", "**", "/**/b.txt", "x/?", "!b.txt", "*a*/", "x**y", "***/a",
])  # fmt: skip


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", folder], check=True)
    for path in PATHS:
        if path != "a":  # "a" is a folder too
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            if not (folder / path).is_dir():
                (folder / path).write_text("")
    (folder / "a").write_text("")
    return folder


def ignored_by_git(folder: Path) -> set[str]:
    command = ["git", "ls-files", "-z", "--others", "--exclude-standard"]
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "HOME": str(folder)}
    found = subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True).stdout.decode()
    return set(PATHS) - set(found.split("\0"))


@settings(max_examples=120, suppress_health_check=list(HealthCheck))
@given(top=st.lists(LINES, max_size=4), below=st.lists(LINES, max_size=2))
@example(top=["*", "!*/", "!*.txt"], below=[])
@example(top=["x/"], below=["!a"])
@example(top=["*.log"], below=["!a.log"])
def test_as_git_has_it(repository: Path, top: list[str], below: list[str]) -> None:
    (repository / ".gitignore").write_text("\n".join(top) + "\n")
    (repository / "x" / ".gitignore").write_text("\n".join(below) + "\n")
    ignore = Ignore(repository, (".gitignore",))
    assert {path for path in PATHS if ignore.hides(path)} == ignored_by_git(repository), (top, below)


def test_what_tools_make_is_left_out_unless_it_is_wanted(tmp_path: Path) -> None:
    (tmp_path / ".musterignore").write_text("data/\n!keep.pyc\n")
    ignore = Ignore(tmp_path, (".musterignore",), MADE)
    hidden = ["__pycache__/a.py", "m.pyc", "x/.venv/bin/python", "data/a.csv", ".git/HEAD", "x/.git/HEAD"]
    shown = ["train.py", "keep.pyc", "x/data.py", "git/a"]
    assert [path for path in hidden + shown if ignore.hides(path)] == hidden


@pytest.mark.parametrize(
    "path",
    [".env", "x/.env", ".env.production", "prod.env", "key.pem", "deploy/ID_RSA", "id_ed25519.pub", ".netrc",
     ".aws/config", "x/.ssh/known_hosts", "credentials.json", "client_secret_1.json", "secrets.yaml"],
)  # fmt: skip
def test_what_looks_like_a_secret(path: str) -> None:
    assert looks_secret(path)


@pytest.mark.parametrize("path", ["train.py", ".env.example", "environment.yml", "keys.py", "pem.txt", "secrets.py"])
def test_what_does_not(path: str) -> None:
    assert not looks_secret(path)
