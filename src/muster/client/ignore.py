"""Which files of a folder count: .gitignore syntax, what never belongs in a snapshot, and what looks like a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Final

NEVER: Final = (".git", ".hg", ".svn")
# Made by tools, never by hand; a `!` in .musterignore brings one back.
MADE: Final = (
    "__pycache__/", "*.py[co]", ".venv/", "venv/", "node_modules/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/",
    ".ipynb_checkpoints/", ".DS_Store", "*.egg-info/",
)  # fmt: skip
# Matched against the name in small letters, of a file or of a folder that it is in.
SECRET: Final = (
    ".env", ".env.*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.gpg", "id_rsa*",
    "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc", ".pgpass", ".pypirc", ".npmrc", ".htpasswd",
    ".git-credentials", "credentials", "credentials.json", "client_secret*.json", "service*account*.json", "kubeconfig",
    "secrets.yaml", "secrets.yml", "secrets.json", "secrets.toml", ".aws", ".ssh", ".gnupg", ".kube", ".docker",
)  # fmt: skip
_HARMLESS: Final = (".env.example", ".env.sample", ".env.template", ".env.dist")


@dataclass(frozen=True, slots=True)
class _Rule:
    match: re.Pattern[str]
    folders_only: bool
    keeps: bool  # it began with `!`


@dataclass(slots=True)
class Ignore:
    """Rules of the files named `names` in `root` and below, each over those before it: the deeper one has the say."""

    root: Path
    names: Sequence[str]
    first: Sequence[str] = ()  # lines that hold before any file's
    _rules: dict[str, list[_Rule]] = field(default_factory=dict)  # by folder, those above it included
    _hidden: dict[str, bool] = field(default_factory=dict)

    def hides(self, path: str) -> bool:
        """Of a file, by its path from the root: whether it or a folder that it is in is left out."""
        folder, _, _ = path.rpartition("/")
        return self.hides_folder(folder) or self.skips(path, is_folder=False)

    def hides_folder(self, folder: str) -> bool:
        if not folder:
            return False
        known = self._hidden.get(folder)
        if known is None:
            above, _, _ = folder.rpartition("/")
            known = self._hidden[folder] = self.hides_folder(above) or self.skips(folder, is_folder=True)
        return known

    def skips(self, path: str, is_folder: bool) -> bool:
        """Whether the rules leave out this very file or folder."""
        folder, _, name = path.rpartition("/")
        if name in NEVER:
            return True
        for rule in reversed(self._of(folder)):
            if (is_folder or not rule.folders_only) and rule.match.fullmatch(path):
                return not rule.keeps
        return False

    def _of(self, folder: str) -> list[_Rule]:
        known = self._rules.get(folder)
        if known is None:
            above = self._of(folder.rpartition("/")[0]) if folder else [*_rules(self.first, "")]
            own = [rule for name in self.names for rule in _rules(_lines(self.root / folder / name), folder)]
            known = self._rules[folder] = [*above, *own] if own else above
        return known


def looks_secret(path: str) -> bool:
    """By its names alone, such as `.env` or `id_rsa`: what it holds is not looked at."""
    return any(_secret_name(name) for name in path.lower().split("/"))


@lru_cache(maxsize=50_000)
def _secret_name(name: str) -> bool:
    return name not in _HARMLESS and any(fnmatchcase(name, pattern) for pattern in SECRET)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _rules(lines: Iterable[str], folder: str) -> Iterable[_Rule]:
    for line in lines:
        rule = _rule(line, folder)
        if rule is not None:
            yield rule


def _rule(line: str, folder: str) -> _Rule | None:
    text = re.sub(r"(?<!\\)\s+$", "", line)
    if not text or text.startswith("#"):
        return None
    keeps = text.startswith("!")
    text = text[1:] if keeps else text
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    anchored = "/" in text
    pattern = _pattern(text.lstrip("/"))
    if pattern is None:
        return None
    start = f"{re.escape(folder)}/" if folder else ""
    return _Rule(re.compile(start + ("" if anchored else "(?:.*/)?") + pattern), folders_only, keeps)


def _pattern(text: str) -> str | None:
    """As git reads it: `*` and `?` stay within a name, `**` does not; None for what is no pattern."""
    made, at = "", 0
    text = re.sub(r"\*{3,}", "**", text)
    while at < len(text):
        if text.startswith("**/", at) and (at == 0 or text[at - 1] == "/"):
            made, at = made + "(?:.*/)?", at + 3
        elif text[at:] == "**" and at and text[at - 1] == "/":
            made, at = made + ".+", at + 2
        elif text[at] == "*":
            made, at = made + "[^/]*", at + 1
        elif text[at] == "?":
            made, at = made + "[^/]", at + 1
        elif text[at] == "[":
            found = re.compile(r"\[([!^]?)(\]?[^\]]*)\]").match(text, at)
            if found is None:
                return None
            inside = found[2].replace("\\", "\\\\").replace("[", "\\[")
            made, at = made + f"(?!/)[{'^' if found[1] else ''}{inside}]", found.end()
        else:
            at += text[at] == "\\" and at + 1 < len(text)
            made, at = made + re.escape(text[at]), at + 1
    try:
        re.compile(made)
    except re.error:
        return None
    return made or None
