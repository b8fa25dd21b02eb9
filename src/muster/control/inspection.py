"""Finds out, before the commit, what guards judge: an image in its registry, lock files in a snapshot, advisories."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from muster.api.health import AdvisoriesStatus
from muster.control.admission.guarded import rule_for
from muster.control.admission.inspected import NOTHING, ImageFinding, Inspected, LockFile, MemoryNeed
from muster.control.admission.memory import configuration, memory_need
from muster.control.image_signature import is_signed, read_key
from muster.control.registries import NotThere, Registry, RegistryClient, RegistryError, look_up
from muster.core.advisories import BYTES_MAX as ADVISORIES_MAX
from muster.core.advisories import Advisories, BadAdvisories, Vulnerable, read_advisories
from muster.core.errors import ConfigError, MusterError
from muster.core.image_ref import parse_image
from muster.core.lock_files import BYTES_MAX, NoLock, is_lock_file, read_lock
from muster.core.spec import JobSpec
from muster.core.state import State
from muster.track.snapshots import Snapshots

_CONFIG_MAX: Final = 1 << 16  # bytes of a configuration that is planned with
_LOCKS_MAX: Final = 10  # lock files of one job that are read
_FILES_MAX: Final = 100_000  # advisory files in a folder
_FOLDER_SECONDS: Final = 30.0  # a folder of thousands of files is looked at so often
_KEPT: Final = 60.0  # seconds that the answer of a registry about a tag is used again
_KEPT_MAX: Final = 1000


class AdvisoryFile:
    """The advisories of the settings: a file, or a folder of `.json` files. Read again when it has changed."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._stamp: object = None
        self._again = 0.0  # when it is looked at again
        self._read: Advisories | BadAdvisories = Advisories()

    def read(self) -> Advisories:
        """Raises BadAdvisories; never returns a part."""
        if self.path is None:
            raise BadAdvisories("the server's config.toml names no file of `advisories`")
        with self._lock:
            now = time.monotonic()
            if now < self._again and isinstance(self._read, Advisories):
                return self._read
            try:
                files = self._files(self.path)
                self._again = now + _FOLDER_SECONDS if self.path.is_dir() else 0.0
                stamp = [(file.name, (found := file.stat()).st_mtime_ns, found.st_size) for file in files]
            except OSError as error:
                raise BadAdvisories(f"{self.path} can't be read: {error.strerror}") from None
            if stamp != self._stamp:
                self._stamp, self._read = stamp, self._parsed(files)
            if isinstance(self._read, BadAdvisories):
                raise self._read
            return self._read

    def status(self) -> AdvisoriesStatus | None:
        """None if the settings name none."""
        if self.path is None:
            return None
        try:
            return {"path": str(self.path), "count": self.read().count, "error": ""}
        except BadAdvisories as error:
            return {"path": str(self.path), "count": 0, "error": str(error)}

    def _files(self, path: Path) -> list[Path]:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files or len(files) > _FILES_MAX:
            raise BadAdvisories(
                f"{path} has {len(files):,} files that end in .json, and 1 to {_FILES_MAX:,} are expected"
            )
        return files

    def _parsed(self, files: Sequence[Path]) -> Advisories | BadAdvisories:
        try:
            if sum(file.stat().st_size for file in files) > ADVISORIES_MAX:
                return BadAdvisories(f"{self.path} has more than {ADVISORIES_MAX:,} bytes")
            return read_advisories(file.read_bytes() for file in files)
        except OSError as error:
            return BadAdvisories(f"{self.path} can't be read: {error.strerror}")
        except BadAdvisories as error:
            return BadAdvisories(f"{self.path}: {error}")


@dataclass(slots=True)
class Inspector:
    registries: Mapping[str, Registry]
    advisories: AdvisoryFile
    snapshots: Snapshots | None = None
    _images: dict[str, tuple[float, ImageFinding]] = field(default_factory=dict)

    def inspect(self, spec: JobSpec, user: str, tree: str, state: State) -> Inspected:
        """`tree`: digest of the snapshot of its working directory; "" without one. Takes no longer than the deadline
        of a registry, and the time to read its lock files."""
        trains = "muster.train" in spec.run and rule_for("memory", spec, user, state).action != "off"
        memory = self._memory(spec, tree) if trains else None
        if spec.image is None and not state.rules.guards and memory is None:
            return NOTHING
        image = self._image(spec) if spec.image is not None else None
        actions = {check: rule_for(check, spec, user, state).action for check in ("environments", "advisories")}
        if set(actions.values()) == {"off"}:
            return NOTHING if image is None and memory is None else Inspected(image, memory=memory, looked=True)
        locks = self._locks(tree)
        vulnerable, trouble = self._vulnerable(locks or ()) if actions["advisories"] != "off" else ((), "")
        return Inspected(image, locks, vulnerable, trouble, memory, looked=True)

    def _memory(self, spec: JobSpec, tree: str) -> MemoryNeed | None:
        """Of a job whose program is `muster.train`, from the configuration in the snapshot of its code."""
        named = configuration(spec.run) if tree and spec.resources.accelerators else None
        if named is None or self.snapshots is None:
            return None
        path, overrides = named
        try:
            digest, size = self.snapshots.manifest(tree).files[path][:2]
            if size > _CONFIG_MAX:
                return None
            text = self.snapshots.read(digest, _CONFIG_MAX).decode("utf-8")
        except (KeyError, UnicodeDecodeError, MusterError):
            return None
        return memory_need(spec, path, text, overrides)

    def _image(self, spec: JobSpec) -> ImageFinding | None:
        assert spec.image is not None
        now, ref = time.monotonic(), parse_image(spec.image)
        if ref is None:
            return None
        registry = self.registries.get(ref.registry)
        if registry is None:
            return ImageFinding(trouble=f"{ref.registry} is none of the `registries` of the server's config.toml")
        kept = self._images.get(ref.whole)
        if kept is not None and now - kept[0] < _KEPT:
            return kept[1]
        made = ask_registry(registry, spec.image)
        if len(self._images) >= _KEPT_MAX:
            self._images.clear()
        if not made.trouble:
            self._images[ref.whole] = (now, made)
        return made

    def _locks(self, tree: str) -> tuple[LockFile, ...] | None:
        """The lock files at the top of the snapshot; None if there is no snapshot."""
        if not tree or self.snapshots is None:
            return None
        try:
            files = self.snapshots.manifest(tree).files
        except MusterError:
            return None
        named = sorted(path for path in files if "/" not in path and is_lock_file(path))
        return tuple(self._lock_file(self.snapshots, name, *files[name][:2]) for name in named[:_LOCKS_MAX])

    def _lock_file(self, snapshots: Snapshots, name: str, digest: str, size: int) -> LockFile:
        try:
            if size > BYTES_MAX:
                raise NoLock(f"it has {size:,} bytes, and {BYTES_MAX:,} are read")
            return LockFile(name, digest, read_lock(name, snapshots.read(digest, BYTES_MAX)))
        except NoLock as error:
            return LockFile(name, digest, {}, str(error))
        except MusterError as error:
            return LockFile(name, digest, {}, error.message)

    def _vulnerable(self, locks: Sequence[LockFile]) -> tuple[tuple[Vulnerable, ...], str]:
        try:
            known = self.advisories.read()
        except BadAdvisories as error:
            return (), str(error)
        if not locks:
            return (), ""
        if unread := [f"{lock.name}: {lock.trouble}" for lock in locks if lock.trouble]:
            return (), "; ".join(unread)
        return tuple(one for lock in locks for one in known.check(lock.packages)), ""


def ask_registry(registry: Registry, image: str) -> ImageFinding:
    """What the registry says about an image that its name belongs to."""
    ref = parse_image(image)
    assert ref is not None
    try:
        with RegistryClient(registry, ref.repository) as client:
            found = look_up(client, ref)
            signed, why = _signed(client, registry, found.digest)
            return ImageFinding(found.digest, found.size, signed, why)
    except RegistryError as error:
        return ImageFinding(signed=False if registry.keys else None, trouble=str(error))
    except (ConfigError, OSError) as error:
        return ImageFinding(signed=False if registry.keys else None, trouble=str(error))


def _signed(client: RegistryClient, registry: Registry, digest: str) -> tuple[bool | None, str]:
    if not registry.keys:
        return None, ""
    try:
        return is_signed(client, digest, [read_key(path) for path in registry.keys]), ""
    except NotThere:
        return False, ""
    except RegistryError as error:
        return False, str(error)
