"""Writes a batch's documents to the record. They are read and checked before the transaction, and written in it.

A document can't be refused at this point: one that makes no sense becomes one of the run's problems.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, select, update

from muster.api.words import FILE_KINDS
from muster.core.errors import MusterError
from muster.store import record_tables as tables
from muster.store.base import Record
from muster.store.codec import dumps, loads
from muster.store.insert import Row, add, put
from muster.track.artifacts import Artifact, Artifacts
from muster.track.compare_attempts import write_difference_note
from muster.track.facts import data_ref, fitted, flat
from muster.track.holders import Holder, held_by, of_project
from muster.track.lineage import run_in
from muster.track.origins import Origins, reference
from muster.track.phase_rows import read_entry
from muster.track.rank_facts import disagreement, take_environment, take_params
from muster.track.rank_notes import add_rank_note
from muster.track.rows import Doc, Run, chunks, link_row, patch_run, read_run
from muster.track.stacks import stacks_row, write_stacks
from muster.track.values import params_record, tags_record

_PROBLEMS_MAX: Final = 50  # per run
_STEP_MAX: Final = 2**63
_MEDIA: Final = ("histogram", "image", "table", "text", "audio", "video", "html", "file")
_NAME_MAX: Final = 500  # characters in the name of a medium or data set
_SKIPPED_MAX: Final = 20  # damaged checkpoints of one report
_TEXT_MAX: Final = 1000  # characters of a note on a checkpoint


def read_documents(
    artifacts: Artifacts, origins: Origins, run: str, attempt: int, docs: Sequence[tuple[int, Doc]]
) -> DocumentRows | None:
    """Reads the documents and resolves their references; None if none of them concerns the record."""
    if all(doc["type"] not in _READERS for _, doc in docs):
        return None
    owner = origins.owner(run)
    named = [str(doc.get("name")) for _, doc in docs if doc["type"] == "data"]
    documents = DocumentRows(
        run, attempt, artifacts, origins.visible([name for name in named if reference(name)], owner)
    )
    for rank, doc in docs:
        reader = _READERS.get(doc["type"])
        if reader is None:
            continue
        try:
            reader(documents, rank, doc)
        except (MusterError, ValueError, TypeError, KeyError, AttributeError) as error:
            problem = f"a document of type {doc['type']} from rank {rank} could not be kept: {error}"
            documents.problems.append(problem[:500])
    given = [value for values in documents.params.values() for value in values.values()]
    documents.sources = [source for source in origins.find(given, owner) if not source.startswith(f"checkpoint:{run}/")]
    return documents


@dataclass(slots=True)
class DocumentRows:
    run: str
    attempt: int
    artifacts: Artifacts
    seen: set[str] = field(default_factory=set)  # references among the names of data sets that the run may see
    params: dict[int, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))  # by rank
    tags: dict[int, dict[str, str | None]] = field(default_factory=lambda: defaultdict(dict))
    notes: list[tuple[int, float, str]] = field(default_factory=list)
    system_notes: list[tuple[int, float, str]] = field(default_factory=list)
    links: list[Row] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)  # references that its parameters name as its start
    checkpoints: list[Row] = field(default_factory=list)
    media: list[Row] = field(default_factory=list)
    files: list[Artifact] = field(default_factory=list)
    environments: dict[int, Doc] = field(default_factory=dict)
    stacks: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def record(self, now: float, holder: Holder | None = None) -> Record:
        """Writes the documents. `holder` is the one that refers to the blobs; by default the run's project."""

        def record(connection: Connection) -> None:
            run = read_run(connection, self.run)
            if run is None:
                return
            self._write_attempt(connection, run, now)
            for rank in sorted(self.tags, reverse=True):  # the lowest rank is written last and wins
                tags_record(run.id, self.tags[rank], actor=run.user, now=now, attempt=self.attempt)(connection)
            for rank, time, text in self.notes:
                add_rank_note(connection, run, self.attempt, rank, time, text)
            for rank, time, text in self.system_notes:
                add_rank_note(connection, run, self.attempt, rank, time, text, system=True)
            role = "evaluates" if run.kind == "eval" else "starts_from"
            add(connection, tables.links, [link_row(source, f"run:{run.id}", role, now) for source in self.sources])
            put(connection, tables.links, self.links, only=["doc"])
            put(connection, tables.checkpoints, self.checkpoints)
            self._write_content(connection, holder or of_project(run.project))
            write_stacks(connection, run.id, self.stacks)
            self._write_problems(connection, run)

        return record

    def _write_attempt(self, connection: Connection, run: Run, now: float) -> None:
        """Writes the attempt's parameters and environment, and how they differ from the attempt before."""
        if not self.params and not self.environments:
            return
        docs = _attempt_docs(connection, run.id, self.attempt)
        doc, others = docs.get(self.attempt, {}), dict[str, str]()
        taken: dict[str, str] = {}
        for rank in sorted(self.params):
            new, differing = take_params(doc, rank, self.params[rank])
            taken |= new
            others |= differing
        for rank in sorted(self.environments):
            take_environment(doc, rank, self.environments[rank])
        put(connection, tables.run_attempts, [_attempt_row(run.id, self.attempt, doc)], only=["doc"])
        params_record(run.id, taken, attempt=self.attempt, actor=run.user, now=now)(connection)
        if "environment" not in run.doc and "environment" in doc:
            patch_run(connection, run.id, {"environment": doc["environment"]})
        if others:
            add(connection, tables.notes, [disagreement(run, self.attempt, others, now)])
        if self.attempt - 1 in docs:
            write_difference_note(connection, run, self.attempt, docs[self.attempt - 1], doc, now)

    def _write_content(self, connection: Connection, holder: Holder) -> None:
        wanted = [one.digest for one in self.files] + [row["digest"] for row in self.media if row["digest"]]
        blobs, there = tables.blobs.c.digest, set[str]()
        for part in chunks(list(dict.fromkeys(wanted))):
            there.update(connection.execute(select(blobs).where(blobs.in_(part), held_by(holder))).scalars())
        for one in self.files:
            if one.digest in there:
                self.artifacts.record(one)(connection)
            else:
                self.problems.append(f"artifact {one.path}: its content {one.digest[:12]} never arrived")
        for row in self.media:
            if row["digest"] and row["digest"] not in there:
                self.problems.append(f"media {row['name']}: its content {row['digest'][:12]} never arrived")
            elif not _known_media(connection, row):
                own = {key: value for key, value in row.items() if key not in ("digest", "mark")}
                add(connection, tables.media, [own])

    def _write_problems(self, connection: Connection, run: Run) -> None:
        new = [one for one in dict.fromkeys(self.problems) if one not in run.problems]
        if new:
            problems = [*run.problems, *new][:_PROBLEMS_MAX]
            connection.execute(update(tables.runs).where(tables.runs.c.id == run.id).values(problems=dumps(problems)))


# --- one document each ------------------------------------------------------------------------------------------------
def _params(documents: DocumentRows, rank: int, doc: Doc) -> None:
    documents.params[rank].update(fitted(flat(doc["values"])))


def _tags(documents: DocumentRows, rank: int, doc: Doc) -> None:
    given = doc["values"]
    documents.tags[rank].update(fitted({key: str(value) for key, value in given.items() if value is not None}))
    documents.tags[rank].update({key: None for key, value in given.items() if value is None})


def _note(documents: DocumentRows, rank: int, doc: Doc) -> None:
    text = str(doc.get("text", ""))
    if text.strip():
        documents.notes.append((rank, float(doc["time"]), text))


def _restore(documents: DocumentRows, rank: int, doc: Doc) -> None:
    step = doc.get("step")
    instead = f"It goes on from step {step:,}." if isinstance(step, int) else "No other one is good."
    for each in doc["skipped"][:_SKIPPED_MAX]:
        text = f"Checkpoint {each['path']} is damaged and is not used: {each['what']}."
        documents.system_notes.append((rank, float(doc["time"]), f"{text[:_TEXT_MAX]} {instead}"))


def _waiting(documents: DocumentRows, rank: int, doc: Doc) -> None:
    text = str(doc.get("note") or doc.get("text") or "")[:_TEXT_MAX]
    if text:
        documents.system_notes.append((rank, float(doc["time"]), f"{text[0].upper()}{text[1:]}."))


def _data(documents: DocumentRows, rank: int, doc: Doc) -> None:
    name = str(doc["name"])
    if not name or len(name) > _NAME_MAX:
        raise ValueError(f"the name of a data set has {len(name)} characters")
    output = doc.get("role") == "output"
    # A run writes data sets and its own files, but neither other runs nor models.
    known = name in documents.seen and (not output or (run_in(name) == documents.run and not name.startswith("run:")))
    ref = name if known else data_ref(name, str(doc["version"]) if doc.get("version") else None)
    about = {key: doc[key] for key in ("digest", "uri", "rows", "bytes", "about") if doc.get(key)}
    here, time = f"run:{documents.run}", float(doc["time"])
    if output:
        documents.links.append(link_row(here, ref, "writes", time, about))
    else:
        documents.links.append(link_row(ref, here, "reads", time, about))


def _checkpoint(documents: DocumentRows, rank: int, doc: Doc) -> None:
    step = _step(doc)
    about = {
        key: doc[key] for key in ("world", "layout", "format", "files", "load", "seconds") if doc.get(key) is not None
    }
    row = {"run": documents.run, "step": step, "attempt": documents.attempt, "path": str(doc.get("path", "")),
           "bytes": _size(doc), "time": float(doc["time"]), "doc": dumps(about)}  # fmt: skip
    documents.checkpoints.append(row)
    target = f"checkpoint:{documents.run}/{step}"
    documents.links.append(link_row(f"run:{documents.run}", target, "saves", float(doc["time"])))


def _media(documents: DocumentRows, rank: int, doc: Doc) -> None:
    name, kind = str(doc["name"])[:_NAME_MAX], str(doc["kind"])
    if kind not in _MEDIA:
        raise ValueError(f"there is no medium {kind!r}")
    digest = str(doc.get("digest") or "")
    kept = {key: doc[key] for key in ("id", "mime", "data", "digest", "bytes", "about") if doc.get(key) is not None}
    documents.media.append({
        "run": documents.run, "name": name, "step": _step(doc), "attempt": documents.attempt, "rank": rank,
        "time": float(doc["time"]), "kind": kind, "doc": dumps(kept), "digest": digest, "mark": str(doc.get("id", "")),
    })  # fmt: skip


def _artifact(documents: DocumentRows, rank: int, doc: Doc) -> None:
    about = {key: doc[key] for key in ("step", "mime", "about") if doc.get(key) is not None}
    size, kind = _size(doc), str(doc.get("kind", "file"))
    if kind not in FILE_KINDS:
        raise ValueError(f"a worker sends no artifact of the kind {kind!r}")
    made = documents.artifacts.make(
        documents.run, str(doc["path"]), str(doc["digest"]), size, kind, attempt=documents.attempt, doc=about,
        time=float(doc["time"]),
    )  # fmt: skip
    with documents.artifacts.usage.room(documents.run, documents.artifacts.blobs.size(made.digest) or 0):
        documents.files.append(made)


def _environment_doc(documents: DocumentRows, rank: int, doc: Doc) -> None:
    documents.environments[rank] = {key: value for key, value in doc.items() if key not in ("type", "time")}


def _phase(documents: DocumentRows, rank: int, doc: Doc) -> None:
    """Only what `take_phases` could not read comes here."""
    read_entry(doc)


def _stacks(documents: DocumentRows, rank: int, doc: Doc) -> None:
    documents.stacks.append(stacks_row(documents.run, documents.attempt, rank, doc))


def _dropped(documents: DocumentRows, rank: int, doc: Doc) -> None:
    """Stands for a document that could not be read; see `muster.control.decode`."""
    documents.problems.append(f"a document from rank {rank} was not kept: {doc['why']}"[:500])


_READERS: Final = {
    "dropped": _dropped,
    "params": _params,
    "tags": _tags,
    "note": _note,
    "restore": _restore,
    "waiting": _waiting,
    "data": _data,
    "checkpoint": _checkpoint,
    "media": _media,
    "artifact": _artifact,
    "environment": _environment_doc,
    "phase": _phase,
    "stacks": _stacks,
}


# --- helpers ----------------------------------------------------------------------------------------------------------
def _step(doc: Mapping[str, Any]) -> int:
    step = doc["step"]
    if not isinstance(step, int) or isinstance(step, bool) or not -_STEP_MAX <= step < _STEP_MAX:
        raise ValueError(f"step {step!r} is no number of 64 bits")
    return step


def _size(doc: Mapping[str, Any]) -> int:
    size = int(doc.get("bytes") or 0)
    if not 0 <= size < _STEP_MAX:
        raise ValueError(f"{size} bytes is no size")
    return size


def _attempt_docs(connection: Connection, run: str, attempt: int) -> dict[int, Doc]:
    """The documents of this attempt and the one before."""
    table = tables.run_attempts.c
    query = select(table.attempt, table.doc).where(table.run == run, table.attempt.in_([attempt - 1, attempt]))
    return {number: loads(doc) for number, doc in connection.execute(query)}


def _attempt_row(run: str, attempt: int, doc: Doc) -> Row:
    return {"run": run, "attempt": attempt, "doc": dumps(doc)}


def _known_media(connection: Connection, row: Row) -> bool:
    """Whether the medium was delivered before."""
    media = tables.media.c
    same = (media.run == row["run"]) & (media.name == row["name"]) & (media.step == row["step"])
    docs = connection.execute(select(media.doc).where(same, media.attempt == row["attempt"])).scalars()
    return bool(row["mark"]) and any(loads(doc).get("id") == row["mark"] for doc in docs)
