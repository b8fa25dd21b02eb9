"""Converts what a user passes to `Client.submit`, in any of its forms, into the body of a request."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import yaml

from muster.core.errors import Invalid, NotFound
from muster.core.free import read_free
from muster.core.report import Plain
from muster.core.units import format_accelerators

_SIZES: Final = (
    ("resources", "memory"),
    ("resources", "accelerator_memory"),
    ("kubernetes", "shared_memory"),
    ("sagemaker", "volume_size"),
)
_FREE: Final = (("ray", "runtime_env"), ("kubernetes", "pod"), ("k8s", "pod"))

Spec = Mapping[str, Any] | str | Path | Any  # Any: an object with `model_dump`, such as `muster.core.spec.JobSpec`


def submission(spec: Spec, overrides: Mapping[str, Any], base: Path | None) -> dict[str, Any]:
    """The request's body. A path, or text without a line break, names a job file; other text is the file itself."""
    if not isinstance(spec, str | Path):
        return {"spec": {**_from_data(spec), **overrides}, "base": str(base or Path.cwd())}
    text, source, folder = _text(spec)
    written = _from_text(text) if overrides else None
    where = {"source": source, "base": str(base or folder)}
    # Text that can't be parsed is sent unchanged: the server reports what is wrong with it, and on which line.
    return {"yaml": text, **where} if written is None else {"spec": {**written, **overrides}, **where}


def workdir_of(body: Mapping[str, Any]) -> Path | None:
    """The folder with a submission's code, if it exists on this machine."""
    written = body.get("spec") or _from_text(body.get("yaml") or "") or {}
    named = next((written[name] for name in ("workdir", "working_dir") if written.get(name)), None)
    if not isinstance(named, str) or "\0" in named:
        return None
    folder = Path(body.get("base") or Path.cwd()) / Path(named).expanduser()
    return Path(os.path.abspath(folder)) if folder.is_dir() else None  # noqa: PTH100  (links stay as they are)


def interpreter() -> dict[str, str]:
    """Headers of a submission: this interpreter's path, so that a refusal can suggest what to write for `python`."""
    return {"Muster-Python": quote(sys.executable)} if sys.executable else {}


def batch_item(spec: Spec, key: str) -> dict[str, Any]:
    """One job of a batch. A batch takes no text and no base folder, so this is data with an absolute `workdir`."""
    if isinstance(spec, str | Path):
        text, source, folder = _text(spec)
        written = _from_text(text)
        if written is None:
            raise Invalid(f"{source} is not a job file.", "See what is wrong with it: `muster submit --dry-run FILE`.")
    else:
        written, folder = _from_data(spec), Path.cwd()
    name = next((name for name in ("workdir", "working_dir") if written.get(name)), None)
    if name is not None:
        written[name] = str(folder / Path(written[name]).expanduser())
    return {"spec": written, "key": key}


def _text(spec: str | Path) -> tuple[str, str, Path]:
    """The job file's text, its name in error messages, and its folder."""
    if isinstance(spec, str) and "\n" in spec:
        return spec, "the job", Path.cwd()
    path = Path(spec).expanduser()
    try:
        return path.read_text(), str(path), path.absolute().parent
    except OSError as error:
        raise NotFound(f"{path} can't be read: {error.strerror}.", "Name a job file, as in `job.yaml`.") from None
    except UnicodeDecodeError:
        raise Invalid(f"{path} is not text.", "Name a job file, as in `job.yaml`.") from None


def _from_text(text: str) -> dict[str, Any] | None:
    try:
        # The base loader keeps every value as the text that was written, so that `LR: 3e-4` stays `3e-4`.
        written = yaml.load(text, _Loader)  # noqa: S506  (it makes strings, lists and mappings alone)
    except yaml.YAMLError:
        return None
    if not isinstance(written, dict):
        return None
    return {name: value for name, value in _with_free(written).items() if value not in ("", "~", "null")}


def _with_free(written: dict[str, Any]) -> dict[str, Any]:
    """Gives fields that are passed on unchanged the types that they were written with."""
    for section, name in _FREE:
        said = written.get(section)
        if isinstance(said, dict) and isinstance(said.get(name), dict):
            written[section] = {**said, name: read_free(said[name])}
    return written


class _Loader(yaml.BaseLoader):
    """Marks text that was written without quotes."""

    def construct_scalar(self, node: yaml.ScalarNode) -> str:
        text = super().construct_scalar(node)
        return text if node.style else Plain(text)


def _from_data(spec: Any) -> dict[str, Any]:
    return dict(spec) if isinstance(spec, Mapping) else _from_model(spec)


def _from_model(spec: Any) -> dict[str, Any]:
    """A job file's values from the canonical form, which has sizes as bare bytes and splits some values into fields."""
    written: dict[str, Any] = spec.model_dump(mode="json", exclude_defaults=True)
    resources = written.get("resources", {})
    for section, name in _SIZES:
        if name in (said := written.get(section) or {}):
            said[name] = f"{said[name]}B"
    kind, share = resources.pop("accelerator", ""), resources.pop("share", 1000)
    if kind:
        resources["accelerators"] = format_accelerators(kind, resources["accelerators"], share)
    if "min_nodes" in written:
        written["num_nodes"] = {"min": written.pop("min_nodes"), "max": spec.num_nodes}
    return written
