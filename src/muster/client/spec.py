"""Converts what a user passes to `Client.submit`, in any of its forms, into the body of a request."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from muster.client.surroundings import surroundings
from muster.core.errors import Invalid, NotFound
from muster.core.free import read_free
from muster.core.report import Report, Stop, is_null

_WORKDIR: Final = ("workdir", "working_dir")
_FREE: Final = (("ray", "runtime_env"), ("kubernetes", "pod"), ("k8s", "pod"))

Spec = Mapping[str, Any] | str | Path | Any  # Any: a `muster.core.spec.JobSpec`


def submission(spec: Spec, overrides: Mapping[str, Any], base: Path | None, inherit: bool = False) -> dict[str, Any]:
    """The request's body. A path, or text without a line break, names a job file; other text is the file itself.

    With `inherit`, what the job leaves out is taken from here; see `surroundings`.
    """
    if not isinstance(spec, str | Path):
        return {"spec": {**_from_data(spec), **overrides}, **_where(base or Path.cwd(), inherit)}
    text, source, folder = file_text(spec)
    written = _from_text(text) if overrides else None
    where = {"source": source, **_where(base or folder, inherit)}
    # Text that can't be parsed is sent unchanged: the server reports what is wrong with it, and on which line.
    return {"yaml": text, **where} if written is None else {"spec": {**written, **overrides}, **where}


def workdir_of(body: Mapping[str, Any]) -> Path | None:
    """The folder with a submission's code, if it exists on this machine."""
    written = body.get("spec") or _from_text(body.get("yaml") or "") or {}
    named = next((written[name] for name in _WORKDIR if written.get(name)), None)
    named = named or (body.get("defaults") or {}).get("workdir")
    if not isinstance(named, str) or "\0" in named:
        return None
    folder = Path(body.get("base") or Path.cwd()) / Path(named).expanduser()
    return Path(os.path.abspath(folder)) if folder.is_dir() else None  # noqa: PTH100  (links stay as they are)


def whose(body: Mapping[str, Any]) -> tuple[str, str]:
    """The project and the environment of a submission, as far as the job file says."""
    written = body.get("spec") or _from_text(body.get("yaml") or "") or {}
    tags = written.get("tags")
    environment = tags.get("environment") if isinstance(tags, Mapping) else None
    return str(written.get("project") or "default"), str(environment or "")


def interpreter() -> dict[str, str]:
    """Headers of a submission: this interpreter's path, so that a refusal can suggest what to write for `python`."""
    return {"Muster-Python": quote(sys.executable)} if sys.executable else {}


def batch_item(spec: Spec, key: str, inherit: bool = False) -> dict[str, Any]:
    """One job of a batch. A batch takes no text and no base folder, so this is data with an absolute `workdir`."""
    if isinstance(spec, str | Path):
        text, source, folder = file_text(spec)
        written = _from_text(text)
        if written is None:
            raise Invalid(f"{source} is not a job file.", "See what is wrong with it: `muster submit --dry-run FILE`.")
    else:
        written, folder = _from_data(spec), Path.cwd()
    name = next((name for name in _WORKDIR if written.get(name)), None)
    if name is not None:
        written[name] = str(folder / Path(written[name]).expanduser())
    elif inherit:
        written["workdir"] = str(folder)
    return {"spec": written, "key": key}


def file_text(given: str | Path, noun: str = "job") -> tuple[str, str, Path]:
    """The text of a job file or a study file, its name in error messages, and its folder."""
    if isinstance(given, str) and "\n" in given:
        return given, f"the {noun}", Path.cwd()
    path = Path(given).expanduser()
    hint = f"Name a {noun} file, as in `{noun}.yaml`."
    try:
        return path.read_text(), str(path), path.absolute().parent
    except OSError as error:
        raise NotFound(f"{path} can't be read: {error.strerror}.", hint) from None
    except UnicodeDecodeError:
        raise Invalid(f"{path} is not text.", hint) from None


def _where(folder: Path, inherit: bool) -> dict[str, Any]:
    return {"base": str(folder), **({"defaults": surroundings(folder, local=True)} if inherit else {})}


def _from_text(text: str) -> dict[str, Any] | None:
    """The job file as data for JSON, every scalar as the text that was written, so that `LR: 3e-4` stays `3e-4`."""
    from muster.core.document import read_document  # noqa: PLC0415  (PyYAML, for those who submit)

    report = Report()
    try:
        written = read_document(text, report)
    except Stop:
        return None
    return None if report.found else {name: value for name, value in _with_free(written).items() if not is_null(value)}


def _with_free(written: Mapping[str, Any]) -> dict[str, Any]:
    """Gives fields that are passed on unchanged the types that they were written with, which JSON would lose."""
    made = dict(written)
    for section, name in _FREE:
        said = made.get(section)
        if isinstance(said, dict) and isinstance(said.get(name), dict):
            made[section] = {**said, name: read_free(said[name])}
    return made


def _ids(needs: Any) -> Any:
    """Jobs of the client in `needs` become their ids."""
    if isinstance(needs, Mapping):
        return {getattr(one, "id", one): outcome for one, outcome in needs.items()}
    return (
        [getattr(one, "id", one) for one in needs] if isinstance(needs, list | tuple) else getattr(needs, "id", needs)
    )


def _from_data(spec: Any) -> dict[str, Any]:
    if isinstance(spec, Mapping):
        return {**spec, **({"needs": _ids(spec["needs"])} if spec.get("needs") else {})}
    # Imported late: whoever has a JobSpec has pydantic loaded, and others don't need it.
    made: dict[str, Any] = import_module("muster.core.dump").written_values(spec)
    return made
