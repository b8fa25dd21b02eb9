"""What a client captures of a folder: git's facts, files by digest, and a note for whatever is left out."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from content_kit import sha

from muster.client import snapshot
from muster.client.git import without_password
from muster.client.snapshot import Snapshot, take

AUTHOR = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two files, and nothing of the machine's own git settings."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "src" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "src" / "run.sh").chmod(0o755)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *AUTHOR, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(folder: Path) -> str:
    if not (folder / ".git").exists():
        git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all")
    return git(folder, "rev-parse", "HEAD")


def files_of(made: Snapshot) -> dict[str, list]:
    data = made.content[made.code["tree"]]
    assert isinstance(data, bytes)
    assert sha(data) == made.code["tree"]
    return json.loads(data)


def test_a_folder_without_git(project: Path, cache: Path) -> None:
    made = take(project, cache)
    assert files_of(made) == {"src/run.sh": [sha("#!/bin/sh\n"), 10, 0o755], "train.py": [sha("print(1)\n"), 9, 0o644]}
    assert made.code["files"] == 2
    assert made.code["bytes"] == 19
    assert (made.code["commit"], made.code["dirty"], made.code["notes"]) == ("", False, [])
    assert made.content[sha("print(1)\n")] == str(project / "train.py")


def test_commit_branch_changes_and_remote(project: Path, cache: Path) -> None:
    head = commit(project)
    git(project, "remote", "add", "origin", "https://ada:t0ken@example.org/team/project.git")
    clean = take(project, cache).code
    assert (clean["commit"], clean["branch"], clean["dirty"], clean["diff"]) == (head, "main", False, "")
    assert clean["remote"] == "https://example.org/team/project.git"
    (project / "train.py").write_text("print(2)\n")
    (project / "new.py").write_text("new\n")
    (project / "src" / "run.sh").unlink()
    made = take(project, cache)
    assert made.code["dirty"] is True
    diff = made.content[made.code["diff"]]
    assert isinstance(diff, bytes)
    assert b"+print(2)" in diff
    assert b"deleted file" in diff
    assert sorted(files_of(made)) == ["new.py", "train.py"]
    git(project, "checkout", "-q", "--detach")
    assert take(project, cache).code["branch"] == ""


def test_the_diff_applied_to_the_commit_gives_the_files(project: Path, cache: Path, tmp_path: Path) -> None:
    (project / "bin.dat").write_bytes(bytes(range(256)))
    head = commit(project)
    (project / "train.py").write_text("print('é')\n")
    (project / "bin.dat").write_bytes(bytes(range(255, -1, -1)))
    made = take(project, cache)
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", str(project), str(other))
    git(other, "checkout", "-q", head)
    (tmp_path / "d.diff").write_bytes(made.content[made.code["diff"]])
    git(other, "apply", str(tmp_path / "d.diff"))
    for path, (digest, _, _) in files_of(made).items():
        assert sha((other / path).read_bytes()) == digest


def test_what_is_ignored_secret_or_a_link_out(project: Path, cache: Path) -> None:
    (project / ".gitignore").write_text("*.log\n")
    (project / ".musterignore").write_text("data/\n")
    (project / "data").mkdir()
    for name in ("a.log", ".env", "data/x.csv", "key.pem"):
        (project / name).write_text("SECRET=1\n")
    (project / "inside").symlink_to("train.py")
    (project / "outside").symlink_to("/etc/passwd")
    (project / "nowhere").symlink_to("nothing")
    expected = [".gitignore", ".musterignore", "inside", "src/run.sh", "train.py"]
    without = take(project, cache)
    assert sorted(files_of(without)) == expected
    commit(project)
    (project / ".env").write_text("SECRET=2\n")  # committed by mistake, and changed: not in the diff either
    within = take(project, cache)
    assert sorted(files_of(within)) == expected
    assert b"SECRET" not in b"".join(data for data in within.content.values() if isinstance(data, bytes))
    for made in (without, within):
        said = " ".join(made.code["notes"])
        assert all(name in said for name in (".env", "key.pem", "outside")), said


def test_a_folder_that_its_repository_ignores(project: Path, cache: Path) -> None:
    (project / ".gitignore").write_text("runs/\n")
    commit(project)
    (project / "runs" / "one").mkdir(parents=True)
    (project / "runs" / "one" / "main.py").write_text("x")
    made = take(project / "runs" / "one", cache)
    assert list(files_of(made)) == ["main.py"]
    assert made.code["commit"]


class TestLimits:
    def test_large_files_are_left_out_by_name(
        self, project: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(snapshot, "FILE_BYTES_MAX", 1000)
        monkeypatch.setattr(snapshot, "BYTES_MAX", 1500)
        (project / "huge.bin").write_bytes(b"x" * 1001)
        (project / "big.bin").write_bytes(b"y" * 900)
        (project / "some.bin").write_bytes(b"z" * 800)
        made = take(project, cache)
        assert sorted(files_of(made)) == ["some.bin", "src/run.sh", "train.py"]
        assert "huge.bin (0.0 MB), big.bin" in made.code["notes"][0]

    def test_too_many_files(self, project: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(snapshot, "FILES_MAX", 1)
        commit(project)
        made = take(project, cache)
        assert (made.code["tree"], made.code["files"]) == ("", 0)
        assert made.code["commit"]
        assert ".musterignore" in made.code["notes"][0]

    def test_a_home_folder_is_no_project(self, project: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(project / "src"))
        for folder in (project, project / "src"):
            made = take(folder, cache)
            assert made.code["tree"] == ""
            assert "home folder" in made.code["notes"][0]

    def test_names_that_no_manifest_can_hold(self, project: Path, cache: Path) -> None:
        with Path(os.fsdecode(os.fsencode(project) + b"/bad-\xff")).open("wb"):
            pass
        (project / "back\\slash").write_text("x")
        made = take(project, cache)
        assert sorted(files_of(made)) == ["src/run.sh", "train.py"]
        assert len(made.code["notes"]) == 2
        json.dumps(made.code).encode()

    def test_a_folder_that_can_not_be_read(self, tmp_path: Path, cache: Path) -> None:
        made = take(tmp_path / "nowhere", cache)
        assert made.code["tree"] == ""
        assert "No such file" in made.code["notes"][0]


class TestCache:
    def test_only_what_changed_is_read_again(self, project: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        old = 1_600_000_000
        for path in project.rglob("*"):
            os.utime(path, (old, old))
        monkeypatch.setattr(snapshot, "_RACY", -1)
        first = take(project, cache)
        read = []
        real = snapshot.hashlib.file_digest
        monkeypatch.setattr(
            snapshot.hashlib, "file_digest", lambda file, kind: read.append(file.name) or real(file, kind)
        )
        assert take(project, cache).code == first.code
        assert read == []
        (project / "train.py").write_text("print(7)\n")  # as long as before
        os.utime(project / "train.py", (old, old))  # and as old
        changed = take(project, cache)
        assert read == [str(project / "train.py")]
        assert files_of(changed)["train.py"][0] == sha("print(7)\n")

    def test_a_file_that_was_just_written_is_not_remembered(self, project: Path, cache: Path) -> None:
        take(project, cache)
        assert [json.loads(path.read_text()) for path in cache.glob("*.json")] in ([], [{}])

    def test_a_damaged_cache_and_one_that_can_not_be_written(self, project: Path, cache: Path) -> None:
        cache.mkdir()
        first = take(project, cache)
        for path in cache.iterdir():
            path.write_text("{")
        assert take(project, cache).code == first.code
        cache_file = project.parent / "a-file"
        cache_file.write_text("")
        assert take(project, cache_file / "below").code == first.code


@pytest.mark.parametrize(
    ("given", "shown"),
    [("https://user:tok@host/x.git", "https://host/x.git"), ("git@host:team/x.git", "git@host:team/x.git"),
     ("ssh://git@host/x", "ssh://host/x"), ("/srv/x.git", "/srv/x.git"), ("https://tok@host/a@b", "https://host/a@b")],
)  # fmt: skip
def test_passwords_in_remotes(given: str, shown: str) -> None:
    assert without_password(given) == shown


def test_the_home_of_a_server_stays_out_with_its_keys(project: Path, cache: Path) -> None:
    home = project / "state" / "home"
    home.mkdir(parents=True)
    for name in ("muster.db", "key", "token", "server.json"):
        (home / name).write_text("mst_1\n")
    made = take(project, cache)
    assert sorted(files_of(made)) == ["src/run.sh", "train.py"]
    assert any("state/home/token" in note for note in made.code["notes"])
