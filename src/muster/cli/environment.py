"""`muster environment check`: compares a lock file, or what a run captured, with known vulnerabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from muster.api.runs import EnvironmentCheck
from muster.cli import complete
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.group import group
from muster.cli.output import emit, note, out, show_table, table
from muster.core.advisories import (
    Advisories,
    BadAdvisories,
    captured_packages,
    read_advisories,
    vulnerable_views,
)
from muster.core.errors import Invalid, NotFound
from muster.core.lock_files import BYTES_MAX, NoLock, is_lock_file, read_lock

app = group("Environments of Python: their packages and known vulnerabilities.")
Packages = Mapping[str, Sequence[str]]


@app.callback()
def environment() -> None:
    """Environments of Python: their packages and known vulnerabilities."""


@app.command("check")
def check(
    target: Annotated[
        str,
        typer.Argument(
            metavar="[LOCKFILE|RUN]",
            help="A lock file, or a run; the lock files of this folder unless given.",
            autocompletion=complete.jobs,
        ),
    ] = "",
    advisories: Annotated[
        str, typer.Option(metavar="FILE", help="OSV or pip-audit JSON, or a folder of it; else the server's.")
    ] = "",
    json: Json = False,
) -> None:
    """List packages with known vulnerabilities. The exit code is 1 if there is one."""
    known = _read(advisories) if advisories else None
    if target and not Path(target).is_file():
        found = _of_run(target, known)
    else:
        packages = _locked([Path(target)] if target else _here())
        found = _compared(packages, known)
    if json:
        emit(found)
    else:
        _show(found)
    if found["vulnerable"]:
        raise typer.Exit(1)


def _of_run(ref: str, known: Advisories | None) -> EnvironmentCheck:
    with client() as to:
        if known is None:
            return to.check_run_environment(ref)
        doc = to.run_page(ref)["run"]["doc"]
    return _told(captured_packages(doc), known)


def _compared(packages: Packages, known: Advisories | None) -> EnvironmentCheck:
    if known is not None:
        return _told(packages, known)
    with client() as to:
        return to.check_packages(packages)


def _told(packages: Mapping[str, Sequence[str] | str | None], known: Advisories) -> EnvironmentCheck:
    found = vulnerable_views(known.check(packages))
    return {"packages": len(packages), "advisories": known.count, "vulnerable": found}


def _here() -> list[Path]:
    found = sorted(path for path in Path().iterdir() if path.is_file() and is_lock_file(path.name))
    if not found:
        raise NotFound("This folder has no lock file.", "Name one, or a run: `muster environment check uv.lock`.")
    return found


def _locked(files: Sequence[Path]) -> Packages:
    found: dict[str, list[str]] = {}
    for file in files:
        try:
            if file.stat().st_size > BYTES_MAX:
                raise NoLock(f"it has more than {BYTES_MAX:,} bytes")
            locked = read_lock(file.name, file.read_bytes())
        except (NoLock, OSError) as error:
            hint = "Known are uv.lock, poetry.lock, pdm.lock, pylock.toml, Pipfile.lock and requirements with hashes."
            raise Invalid(f"{file} is no lock file: {error}.", hint) from None
        for package, versions in locked.items():
            found.setdefault(package, []).extend(versions)
    return found


def _read(name: str) -> Advisories:
    path = Path(name).expanduser()
    try:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise BadAdvisories("it has no files that end in .json")
        return read_advisories(file.read_bytes() for file in files)
    except FileNotFoundError:
        raise NotFound(f"There is no file {name}.", "docs/environments.md says where advisories come from.") from None
    except (BadAdvisories, OSError) as error:
        raise Invalid(
            f"{name} has no advisories: {error}.", "Give OSV or pip-audit JSON; see docs/environments.md."
        ) from None


def _show(found: EnvironmentCheck) -> None:
    if found["vulnerable"]:
        made = table("package", "version", "advisory", "severity", "fixed in", "")
        for one in found["vulnerable"]:
            fixed = ", ".join(one["fixed_in"]) or "-"
            cells = (one["version"] or "-", one["advisory"], one["severity"] or "unknown", fixed, one["summary"])
            made.add_row(Text(one["package"], style="bold"), *map(Text, cells))
        show_table(made)
    else:
        out().print(Text("No package has a known vulnerability."))
    note(f"{found['packages']:,} packages were compared with {found['advisories']:,} advisories.")
