"""Collects what a statement says: the files, the run that they came from, its code, data, environment and attempts.

No value of a variable, no command line and no parameter is in a statement: these may hold secrets. Digests stand for
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, select

from muster import __version__
from muster.core.errors import Invalid
from muster.store.record_tables import links
from muster.track.artifacts import Artifact, Artifacts
from muster.track.checkpoint_digests import hash_checkpoint
from muster.track.model_rows import Version, source_ref
from muster.track.provenance.rows import Due
from muster.track.provenance.statement import BUILT, CLAIMED, OBSERVED, UPLOADED, Doc, Statement, Subject, digest_of
from muster.track.reproduction import known
from muster.track.rows import Run
from muster.track.runs import Runs

_USER_INFO: Final = re.compile(r"(?<=//)[^/@]*@")
_HARDWARE: Final = ("devices", "driver", "cuda")


@dataclass(frozen=True, slots=True)
class Files:
    """What a statement is of."""

    run: str
    subjects: tuple[Subject, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """`home`: the server's folder; `version`: finds a model's version."""

    artifacts: Artifacts
    runs: Runs
    home: Path
    version: Callable[[str, int], Version | None]

    def files(self, due: Due) -> Files | None:
        """The files that the statement is of; None if they are gone. Raises Invalid if Muster does not have them."""
        kind, _, name = due.ref.partition(":")
        if kind == "artifact":
            run, _, path = name.partition("/")
            found_files = _named(self.artifacts.list(run, path), path)
            return Files(run, _subjects(found_files)) if found_files else None
        model, _, number = name.rpartition("/")
        found = self.version(model, int(number))
        return self._of_version(found) if found is not None else None

    def stored(self, version: Version) -> dict[str, Artifact]:
        """The files of a version that Muster stores, by their names in its statement."""
        kind, _, name = (source_ref(version.source) or "").partition(":")
        run, _, inner = name.partition("/")
        if kind == "artifact":
            return _named(self.artifacts.list(run, inner), inner)
        if kind == "checkpoint":
            found = [one for one in self._of_kind(run, "checkpoint") if str(one.doc.get("step")) == inner]
            above = {one.path.rpartition("/")[0] for one in found}
            return _named(found, above.pop() if len(above) == 1 else "")
        return _named(self._of_kind(name, "model") or self._of_kind(name, "checkpoint"), "") if kind == "run" else {}

    def _of_version(self, version: Version) -> Files:
        ref = source_ref(version.source)
        if ref is None:
            where = _USER_INFO.sub("", version.source)[:200]
            raise _nothing(f"its files are at {where}, which Muster does not store")
        kind, _, name = ref.partition(":")
        run, _, inner = name.partition("/")
        if stored := self.stored(version):
            return Files(run, _subjects(stored))
        if kind == "checkpoint" and inner.isdigit():
            return self._on_disk(run, int(inner))
        raise _nothing(f"{ref} has no files of a model that Muster stores")

    def _of_kind(self, run: str, kind: str) -> list[Artifact]:
        return self.artifacts.list(run, kinds=[kind])

    def _on_disk(self, run: str, step: int) -> Files:
        path = self._saved_at(run, step)
        digests = hash_checkpoint(self.home / "local" / "checkpoints" / run, path)
        # Ranks wrote this folder; the server read it after that.
        return Files(run, tuple(Subject(name, digest, "the run's folder") for name, digest in digests.items()))

    def _saved_at(self, run: str, step: int) -> str:
        from_rows = self.runs.checkpoint_path(run, step)
        if from_rows is None:
            raise Invalid(f"Run {run} has no checkpoint at step {step}.", f"See `muster status {run}`.")
        return from_rows

    def statement(self, due: Due, files: Files, installation: str, key: str) -> Statement:
        run = self.runs.get(files.run) if files.run else None
        sent = all(one.sender.startswith(("attempt ", "the run's")) for one in files.subjects)
        built = run is not None and run.of_job and sent
        attempts = self._attempts(run.id, due.time) if run is not None and run.of_job else []
        with self.artifacts.db.reading() as connection:
            dependencies = _dependencies(connection, self, run) if run is not None else []
        predicate: Doc = {
            "buildDefinition": {
                "buildType": BUILT if built else UPLOADED,
                "externalParameters": _given(run),
                "internalParameters": {
                    "ref": due.ref, **({"project": run.project, "source": run.source} if run is not None else {})
                },
                "resolvedDependencies": dependencies,
            },
            "runDetails": {
                "builder": {"id": f"urn:muster:server:{installation}#{key}", "version": {"muster": __version__}},
                "metadata": {"invocationId": files.run, **_times(attempts)},
                "muster_attempts": attempts,
                "muster_committedOn": moment(due.time),
                "muster_observed": list(OBSERVED),
                "muster_claimed": list(CLAIMED),
            },
        }  # fmt: skip
        return Statement(files.subjects, predicate)

    def _attempts(self, run: str, until: float) -> list[Doc]:
        """Those that had begun by then."""
        found = []
        for doc in self.runs.attempts(run):
            if (doc.get("planned_at") or until) > until:
                continue
            ended = doc.get("ended_at")
            over = ended is not None and ended <= until
            found.append({
                "number": doc["attempt"], "nodes": len(doc.get("nodes") or ()),
                "accelerators": sum(len(devices) for devices in doc.get("devices") or ()),
                "pool": doc.get("pool") or "", "startedOn": _moment(doc.get("running_at") or doc.get("planned_at")),
                "finishedOn": _moment(ended if over else None), "outcome": doc.get("outcome") if over else None,
            })  # fmt: skip
        return found


def moment(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _moment(time: float | None) -> str | None:
    return moment(time) if time is not None else None


def _nothing(why: str) -> Invalid:
    return Invalid(f"No statement can be made: {why}.", "Register the artifact of a run: `--artifact PATH`.")


def _named(found: Sequence[Artifact], prefix: str) -> dict[str, Artifact]:
    return {_relative(one.path, prefix): one for one in found}


def _subjects(found: Mapping[str, Artifact]) -> tuple[Subject, ...]:
    return tuple(Subject(name, one.digest, _sender(one)) for name, one in found.items())


def _relative(path: str, prefix: str) -> str:
    if path == prefix:
        return path.rpartition("/")[2]
    return path.removeprefix(f"{prefix}/") if prefix else path


def _sender(one: Artifact) -> str:
    """An attempt's launcher has its own token; what a person puts has no attempt."""
    return f"attempt {one.attempt}" if one.attempt else f"user {one.doc.get('by') or 'unknown'}"


def _given(run: Run | None) -> Doc:
    if run is None:
        return {}
    spec = run.doc.get("spec")
    known = {"name": run.name, "kind": run.kind, "submittedBy": run.user}
    return {**known, "spec": {"digest": {"sha256": digest_of(spec)}}} if isinstance(spec, Mapping) else known


def _times(attempts: Sequence[Doc]) -> Doc:
    started = attempts[0]["startedOn"] if attempts else None
    finished = attempts[-1]["finishedOn"] if attempts else None
    found = {"startedOn": started, "finishedOn": finished}
    return {name: value for name, value in found.items() if value is not None}


def _dependencies(connection: Connection, facts: Facts, run: Run) -> list[Doc]:
    known_ = known(facts.artifacts.db, run)
    found = [*_code(known_["code"]), *_environment(known_["environment"], run)]
    for one in known_["data"]:
        digest = {"digest": {"muster": str(one["digest"])}} if one["digest"] else {}
        found.append(_claimed(f"data {one['name']}", uri=f"urn:muster:data:{one['name']}", **digest))
    sources = select(links.c.source).where(links.c.target == f"run:{run.id}", links.c.role == "starts_from")
    found += [_claimed("starts from", uri=f"urn:muster:{source}") for source in connection.scalars(sources).all()]
    return found


def _code(code: Mapping[str, Any]) -> list[Doc]:
    """The snapshot and the diff are content that the server holds; the commit is what the client said."""
    found: list[Doc] = []
    if code.get("tree"):
        found.append(_stored_dependency("code snapshot", code["tree"]))
    if code.get("diff"):
        found.append(_stored_dependency("code diff", code["diff"]))
    if code.get("commit"):
        remote = _USER_INFO.sub("", str(code.get("remote") or ""))
        about = {"annotations": {"origin": "claimed", "dirty": bool(code.get("dirty"))}}
        uri = {"uri": f"git+{remote}@{code['commit']}"} if remote else {}
        found.append({"name": "code commit", **uri, "digest": {"gitCommit": code["commit"]}, **about})
    return found


def _environment(environment: Mapping[str, Any], run: Run) -> list[Doc]:
    found: list[Doc] = []
    if packages := environment.get("packages"):
        python = environment.get("python")
        lock = {"python": python.get("version") if isinstance(python, Mapping) else None, "packages": packages}
        found.append(_claimed("environment", digest={"sha256": digest_of(lock)}))
    spec = run.doc.get("spec")
    image = environment.get("image") or (spec.get("image") if isinstance(spec, Mapping) else None)
    if isinstance(image, str) and image:
        pinned = re.search(r"@sha256:([0-9a-f]{64})$", image)
        uri = f"urn:muster:image:{_USER_INFO.sub('', image)}"
        found.append(_claimed("image", uri=uri, **({"digest": {"sha256": pinned[1]}} if pinned else {})))
    hardware = {name: environment[name] for name in _HARDWARE if environment.get(name)}
    if hardware:
        models = sorted({str(one.get("name")) for one in hardware.get("devices", ()) if isinstance(one, Mapping)})
        about = {"origin": "claimed", "devices": models, "driver": str(hardware.get("driver") or "")}
        found.append({"name": "hardware", "digest": {"sha256": digest_of(hardware)}, "annotations": about})
    return found


def _stored_dependency(name: str, sha256: str) -> Doc:
    return {"name": name, "digest": {"sha256": sha256}, "annotations": {"origin": "stored"}}


def _claimed(name: str, **about: Any) -> Doc:
    return {"name": name, **about, "annotations": {"origin": "claimed"}}
