"""Provenance: the public keys of the server, and signed statements of models and stored checkpoints."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Path

from muster.api.provenance import (
    SigningKeyList,
    SigningKeyView,
    StatementHead,
    StatementList,
    StatementView,
    VersionFiles,
)
from muster.api.typed import Doc
from muster.control.signing import rotate
from muster.core.entities.signing_key import SIGNING_KEYS, SigningKey
from muster.core.envelope import ENVELOPE_BYTES, pem_of
from muster.core.errors import NotFound
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.leader import Leader
from muster.server.record_context import RunRef, find_run
from muster.server.routes.models import ModelName, Number, find_model
from muster.server.typed_routes import needs, typed_router
from muster.store.codec import loads
from muster.track.paths import check_path
from muster.track.provenance.rows import TRIES, Signed, artifact_ref, due_of, statement_of, statements_of_run
from muster.track.tracking import Tracking

router = typed_router(prefix="/v1", tags=["models"])

FilePath = Annotated[str, Path(max_length=4000, description="a folder or file of the kind checkpoint or model")]


@router.get("/keys", openapi_extra=needs("anyone"))
def list_keys(leader: Leading, caller: Caller) -> SigningKeyList:
    """The public keys that statements of this server are signed with."""
    return _keys(leader)


@router.post("/keys/rotate", openapi_extra=needs("superuser"))
def rotate_key(leader: Leading, caller: Caller) -> SigningKeyList:
    """Makes a new key. The private half of the old one is removed; its public half stays in the list."""
    caller.need_superuser()
    leader.propose(rotate(leader.keyring, caller.user, leader.clock.now()))
    return _keys(leader)


@router.get("/models/{name}/versions/{version}/statement", dependencies=HEAVY, openapi_extra=needs("viewer"))
def get_version_statement(
    name: ModelName, version: Number, leader: Leading, track: Tracked, caller: Caller
) -> StatementView:
    """The newest signed statement of a model's version: its files, and what they were built from."""
    find_model(leader, track, caller, name)
    return _statement(track, track.models.need_version(name, version).ref)


@router.get("/models/{name}/versions/{version}/files", dependencies=HEAVY, openapi_extra=needs("viewer"))
def get_version_files(
    name: ModelName, version: Number, leader: Leading, track: Tracked, caller: Caller
) -> VersionFiles:
    """The files of a model's version that Muster stores now."""
    find_model(leader, track, caller, name)
    found = track.models.need_version(name, version)
    stored = leader.statements.facts.stored(found)
    run = next(iter(stored.values())).run if stored else found.run
    if run:  # a version may be of another project's run, which the caller may not see
        find_run(leader, track, caller, run)
    return {
        "name": name,
        "version": version,
        "run": run,
        "files": [
            {"name": file, "path": one.path, "digest": one.digest, "bytes": one.bytes}
            for file, one in sorted(stored.items())
        ],
    }


@router.get("/runs/{ref}/statements", openapi_extra=needs("viewer"))
def list_statements(ref: RunRef, leader: Leading, track: Tracked, caller: Caller) -> StatementList:
    """The signed statements of a run's stored checkpoints and models."""
    run = find_run(leader, track, caller, ref)
    return {"run": run.id, "statements": [_head(one) for one in statements_of_run(track.db, run.id)]}


@router.get("/runs/{ref}/statements/{path:path}", dependencies=HEAVY, openapi_extra=needs("viewer"))
def get_statement(ref: RunRef, path: FilePath, leader: Leading, track: Tracked, caller: Caller) -> StatementView:
    """The newest signed statement of a folder, or of the folder that a file is in."""
    run = find_run(leader, track, caller, ref)
    check_path(path)
    own = f"artifact:{run.id}/{path}"
    return _statement(track, own if statement_of(track.db, own) is not None else artifact_ref(run.id, path))


def _statement(track: Tracking, ref: str) -> StatementView:
    found, due = statement_of(track.db, ref), due_of(track.db, ref)
    if found is None:
        if due is None:
            raise NotFound(f"There is no statement of {ref}.", "There is one of each model, and of stored checkpoints.")
        raise NotFound(
            f"There is no statement of {ref}{': ' + due.problem.rstrip('.') if due.problem else ' yet'}.",
            "Mend that, and register the model again." if due.tries >= TRIES else "Ask again in a few seconds.",
        )
    envelope = cast(Doc, loads(track.blobs.read(found.digest, ENVELOPE_BYTES)))
    return {**_head(found), "envelope": envelope}


def _head(one: Signed) -> StatementHead:
    return {"ref": one.ref, "digest": one.digest, "key": one.key, "time": one.time}


def _keys(leader: Leader) -> SigningKeyList:
    found = sorted(SIGNING_KEYS.all(leader.store.state()).values(), key=lambda one: one.created_at, reverse=True)
    return {"keys": [_key_view(one) for one in sorted(found, key=lambda one: one.retired_at is not None)]}


def _key_view(one: SigningKey) -> SigningKeyView:
    return {"id": one.id, "pem": pem_of(one.raw), "created_at": one.created_at, "retired_at": one.retired_at}
