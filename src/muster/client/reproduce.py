"""Reproduces a run: writes the files of its snapshot, and lists what can't be the same."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from muster.api import runs
from muster.core.errors import Invalid
from muster.track.paths import check_path

Doc = dict[str, Any]
_LANES: Final = 4  # parallel downloads
_NAMED: Final = 12  # packages that are listed by name; more are only counted


class _Caller(Protocol):
    """The part of `muster.Client` that is used here."""

    def reproduction(self, ref: str | int) -> runs.Reproduction: ...

    def get_content(self, digest: str, run: str, to: Path) -> None: ...


@dataclass(frozen=True, slots=True)
class Reproduction:
    """`known` is the server's data on the run; `folder` is where its files go, None when it has no snapshot."""

    run: str
    known: runs.Reproduction
    folder: Path | None

    @property
    def tree(self) -> str:
        return str(self.known["code"].get("tree") or "")


def prepare(client: _Caller, ref: str | int, home: Path) -> Reproduction:
    """Fetches the run's data; writes nothing yet."""
    known = client.reproduction(ref)
    tree = known["code"].get("tree")
    folder = home / "reproduced" / f"{known['run']}-{tree[:12]}" if tree and known["files"] is not None else None
    return Reproduction(known["run"], known, folder)


def restore(client: _Caller, made: Reproduction) -> list[str]:
    """Writes the snapshot's files and checks each. Returns paths of other files in the folder."""
    if made.folder is None:
        return []
    files = {check_path(path): tuple(entry) for path, entry in (made.known["files"] or {}).items()}

    def write(item: tuple[str, tuple[str, int, int]]) -> None:
        path, (digest, _, mode) = item
        assert made.folder is not None
        target = made.folder / path
        if _digest(target) != digest:
            target.parent.mkdir(parents=True, exist_ok=True)
            client.get_content(digest, made.run, target)
        target.chmod(mode)

    try:
        made.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with ThreadPoolExecutor(_LANES, "muster-restore") as lanes:
            list(lanes.map(write, files.items()))
    except OSError as error:
        raise Invalid(f"{made.folder} can't be written: {error}.", "Make room there, or move it away.") from error
    there = (path.relative_to(made.folder).as_posix() for path in made.folder.rglob("*") if path.is_file())
    return sorted(path for path in there if path not in files)


def differences(made: Reproduction, here: Doc | None, beside: list[str]) -> list[Doc]:
    """What can't or may not be the same, each as {"what", "why"}. `here` is the environment that it would have now."""
    known, spec = made.known, made.known["spec"]
    found = [
        *_of_code(made, beside),
        *_of_environment(known["environment"], here),
        *_of_data(known["data"], spec),
        *_of_chance(known),
    ]
    found += [_one("secrets", f"{name}: its value may be another now") for name in spec.get("secrets") or ()]
    if spec.get("min_nodes"):
        nodes = f"{spec['min_nodes']} to {spec['num_nodes']}"
        found.append(_one("size", f"it takes {nodes} nodes, and may get another number of them than it had"))
    if known["attempts"] > 1:
        found.append(_one("restarts", f"it took {known['attempts']} attempts; this one may not be interrupted there"))
    return found


def _of_code(made: Reproduction, beside: list[str]) -> Iterator[Doc]:
    code = made.known["code"]
    if made.folder is None:
        at = f"; it was at commit {code['commit']}" if code.get("commit") else ""
        where = made.known["spec"].get("workdir") or "its workdir"
        yield _one("code", f"no snapshot was kept, so the files in {where} are used as they are now{at}")
    for note in code.get("notes") or ():
        yield _one("code", note)
    if beside:
        yield _one("code", f"{made.folder} has {len(beside)} files beside the snapshot's, such as {beside[0]}")


def _of_environment(then: Doc, here: Doc | None) -> Iterator[Doc]:
    if not then:
        yield _one("environment", "it was not recorded, so Python, packages and drivers may differ")
        return
    if here is None:
        yield _one("environment", "the workers are on other machines; compare the two when it has started")
        return
    asked = bool(here.get("python"))
    if then.get("python") and not asked:
        yield _one("environment", "the Python of its command can't be asked here, so packages are not compared")
    version = (then.get("python") or {}).get("version")
    for name, old, new in (
        ("Python", version, here["python"].get("version") if asked else version),
        ("image", then.get("image"), here.get("image")),
        ("driver", then.get("driver"), here.get("driver")),
        ("devices", *_devices(then, here)),
        ("CPU", (then.get("host") or {}).get("cpu"), (here.get("host") or {}).get("cpu")),
    ):
        if old != new:
            yield _one(
                "hardware" if name in ("devices", "CPU", "driver") else "environment", f"{name}: {_moved(old, new)}"
            )
    if asked:
        yield from _of_packages(then.get("packages") or {}, here.get("packages") or {})


def _of_packages(then: Mapping[str, str], here: Mapping[str, str]) -> Iterator[Doc]:
    changed = [name for name in sorted({*then, *here}) if then.get(name) != here.get(name)]
    for name in changed[:_NAMED]:
        yield _one("environment", f"package {name}: {_moved(then.get(name), here.get(name))}")
    if len(changed) > _NAMED:
        yield _one("environment", f"{len(changed) - _NAMED} more packages differ")


def _of_data(data: list[runs.ReproducedData], spec: Doc) -> Iterator[Doc]:
    seen = {str(one["name"]) for one in data}
    for one in data:
        if not one["digest"]:
            yield _one("data", f"{one['name']}: no digest was recorded, so it may have changed")
        elif one["newest"] and one["newest"] != one["digest"]:
            yield _one("data", f"{one['name']}: it has changed: {one['digest'][:12]} then, {one['newest'][:12]} since")
    for name in spec.get("data") or ():
        if str(name) not in seen:
            yield _one("data", f"{name}: no digest was recorded, so it may have changed")


def _of_chance(known: runs.Reproduction) -> Iterator[Doc]:
    if not known["seeds"]:
        yield _one("seeds", "none is known, so random numbers differ")
    environment = known["environment"]
    settings = environment.get("env") or {}
    if environment.get("devices") and "CUBLAS_WORKSPACE_CONFIG" not in settings:
        yield _one("kernels", "GPU kernels were not held to a fixed order of sums, so last digits differ")


def _devices(then: Doc, here: Doc) -> tuple[str, str]:
    """The devices that the run had, and those of this machine; the same if this machine has as many of each."""
    had, has = ([str(one.get("name")) for one in side.get("devices") or ()] for side in (then, here))
    return ", ".join(had), ", ".join(had if Counter(had) <= Counter(has) else has)


def _moved(old: Any, new: Any) -> str:
    return f"{old or 'none'} then, {new or 'none'} here"


def _one(what: str, why: str) -> Doc:
    return {"what": what, "why": why}


def _digest(path: Path) -> str:
    """Empty for anything but a regular file."""
    if not path.is_file() or path.is_symlink():
        return ""
    with open(path, "rb") as file:  # noqa: PTH123  (file_digest wants a plain file)
        return hashlib.file_digest(file, "sha256").hexdigest()
