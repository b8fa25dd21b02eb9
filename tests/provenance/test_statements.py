"""What a statement says, what it never claims, and that each is made once, whatever is killed."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import func, select

from conftest import KEYRING, Signing
from muster.control.secrets import Keyring
from muster.control.signing import Signer, public_keys, rotate
from muster.control.statement_writer import StatementWriter
from muster.core.entities.signing_key import PRIVATE, key_in_use
from muster.core.envelope import open_envelope
from muster.store.base import EventFilter
from muster.store.record_tables import statements, statements_due
from muster.track.provenance.rows import TRIES, due_of, next_due, statement_of
from muster.track.provenance.statement import BUILT, PAYLOAD_TYPE, UPLOADED

SECRET = "hunter2-a-value-of-the-users-environment"
TREE, DIFF = "aa" * 32, "bb" * 32
CODE = {"commit": "c0ffee", "branch": "main", "dirty": True, "tree": TREE, "diff": DIFF,
        "remote": "https://user:token@example.org/team/code"}  # fmt: skip


def test_a_models_statement_says_what_it_was_built_from(signed: Signing):
    record, track = signed.record, signed.record.track
    run = record.submit("train.py --password x", code=CODE, envs={"KEY": SECRET}, secrets=["HF"], num_nodes=2)
    record.start(run, nodes=("n0", "n1"))
    record.report(run, {"type": "data", "name": "c4", "version": "v3", "digest": "f" * 8})
    packages = {"python": {"version": "3.12"}, "packages": {"torch": "2.11"}, "devices": [{"name": "H100"}]}
    record.report(run, {"type": "environment", **packages})
    digest = signed.ship(run, "final/model.safetensors", (2).to_bytes(8, "little") + b"{}")
    record.end(run, 1)
    track.models.register("gpt", user="ada", source=f"artifact:{run}/final", run=run, project="default")
    signed.write()
    made, key = signed.opened("model:gpt/1")
    assert [(one.name, one.sha256, one.sender) for one in made.subjects] == [("model.safetensors", digest, "attempt 1")]
    assert (made.built, made.run, made.about) == (True, run, "model:gpt/1")
    assert made.builder == f"urn:muster:server:{KEYRING.installation}#{key}"
    attempt = made.predicate["runDetails"]["muster_attempts"][0]
    assert (attempt["number"], attempt["nodes"], attempt["outcome"]) == (1, 2, "succeeded")
    found = {one["name"]: one for one in made.predicate["buildDefinition"]["resolvedDependencies"]}
    assert found["code snapshot"]["digest"] == {"sha256": TREE}
    assert found["code diff"]["digest"] == {"sha256": DIFF}
    assert found["code commit"]["uri"] == "git+https://example.org/team/code@c0ffee"
    assert found["data c4@v3"]["digest"] == {"muster": "f" * 8}
    origins = {name: one["annotations"]["origin"] for name, one in found.items()}
    assert {name for name, origin in origins.items() if origin == "stored"} == {"code snapshot", "code diff"}
    assert {"environment", "hardware"} <= origins.keys()
    text = made.encode().decode()
    assert not any(secret in text for secret in (SECRET, "token", "password"))


def test_what_a_person_puts_is_never_said_to_be_built_by_the_run(signed: Signing):
    """A member can't get a file signed as a run's that no attempt of the run has sent."""
    record = signed.record
    run = record.submit(code=CODE)
    record.start(run)
    signed.ship(run, "final/a.pt", b"honest")
    signed.put(run, "final/b.pt", b"evil", doc={"by": "eve"})
    signed.ship(run, "other/a.pt", b"honest")
    signed.put(run, "other/a.pt", b"evil instead", doc={"by": "eve"})
    signed.write()
    for folder in ("final", "other"):
        made = signed.statement(f"artifact:{run}/{folder}")
        assert made.predicate["buildDefinition"]["buildType"] == UPLOADED
        assert not made.built
    senders = {one.name: one.sender for one in signed.statement(f"artifact:{run}/final").subjects}
    assert senders == {"a.pt": "attempt 1", "b.pt": "user eve"}


def test_a_run_outside_muster_built_nothing_that_the_platform_saw(light: Signing):
    run = light.record.track.runs.create(project="default", user="eve", source="sdk", name="mine").id
    light.ship(run, "model.pt")
    light.write()
    made = light.statement(f"artifact:{run}/model.pt")
    assert not made.built
    assert made.predicate["runDetails"]["muster_attempts"] == []


def test_files_of_one_folder_have_one_statement_and_a_change_a_new_one(signed: Signing):
    run = signed.record.submit()
    signed.record.start(run)
    for name in ("a", "b", "c"):
        signed.ship(run, f"step-1/{name}", name.encode(), "checkpoint")
    signed.write()
    assert rows(signed) == (1, 0)
    signed.write()
    assert rows(signed) == (1, 0)
    signed.ship(run, "step-1/b", b"changed", "checkpoint")
    signed.write()
    assert rows(signed) == (2, 0)
    newest = {one.name: one.sha256 for one in signed.statement(f"artifact:{run}/step-1").subjects}
    assert newest["b"] == sha256(b"changed").hexdigest()


def test_a_statement_is_made_once_when_its_writer_dies_at_any_point(light: Signing):
    run = light.record.submit()
    light.record.start(run)
    light.ship(run, "m/x")
    light.record.later(60)
    track = light.record.track
    keep, count = track.blobs.keep, 0

    def dies(*args: object, **given: object) -> object:
        nonlocal count
        count += 1
        if count % 2:
            raise OSError("killed before the transaction")
        keep(*args, **given)  # type: ignore[arg-type]
        raise OSError("killed after the transaction")

    track.blobs.keep = dies  # type: ignore[method-assign, assignment]
    due = next_due(track.db, track.db.now(), 10)[0]
    for _ in range(2):
        with pytest.raises(OSError, match="killed"):
            light.writer._sign(due)
    assert rows(light) == (1, 0)
    track.blobs.keep = keep  # type: ignore[method-assign]
    light.writer._sign(due)  # a second writer that had read it before
    assert rows(light) == (1, 0)


def test_what_changes_while_it_is_signed_stays_due(light: Signing):
    run = light.record.submit()
    light.record.start(run)
    light.ship(run, "m/x", b"1")
    light.record.later(60)
    due = next_due(light.record.track.db, light.record.track.db.now(), 10)[0]
    light.record.later()
    light.ship(run, "m/y", b"2")
    light.writer._sign(due)
    assert due_of(light.record.track.db, f"artifact:{run}/m") is not None
    light.write()
    assert {one.name for one in light.statement(f"artifact:{run}/m").subjects} == {"x", "y"}


def test_a_model_elsewhere_has_no_statement_and_says_why(light: Signing):
    light.record.track.models.register("gpt", user="ada", source="s3://user:pass@bucket/x", project="default")
    light.write()
    due = due_of(light.record.track.db, "model:gpt/1")
    assert due is not None
    assert due.tries == TRIES
    assert "s3://bucket/x, which Muster does not store" in due.problem
    assert not next_due(light.record.track.db, 1e12, 10)


def test_a_renamed_model_is_signed_again_and_a_deleted_one_forgotten(signed: Signing):
    models = signed.record.track.models
    run = signed.record.submit()
    signed.record.start(run)
    signed.ship(run, "m.json")
    models.register("old", user="ada", source=f"artifact:{run}/m.json", run=run, project="default")
    signed.write()
    models.change("old", new="new")
    signed.write()
    assert statement_of(signed.record.track.db, "model:old/1") is None
    assert signed.statement("model:new/1").about == "model:new/1"
    models.delete_version("new", 1)
    assert statement_of(signed.record.track.db, "model:new/1") is None


def test_statements_are_content_that_stays(light: Signing):
    run = light.record.submit()
    light.record.start(run)
    light.ship(run, "m.json")
    light.write()
    light.record.later(1e6)
    light.record.track.blobs.collect(grace=0.0)
    assert light.statement(f"artifact:{run}/m.json").built


def test_a_checkpoint_on_this_machine_is_signed_when_it_is_registered(light: Signing):
    run = checkpoint(light, {"a.pt": b"weights", "sub/b.pt": b"more"})
    light.record.track.models.register("gpt", user="ada", source=f"checkpoint:{run}/40", run=run, project="default")
    light.write()
    made = light.statement("model:gpt/1")
    found = {one.name: one.sha256 for one in made.subjects}
    assert found["sub/b.pt"] == sha256(b"more").hexdigest()
    assert found.keys() == {"manifest.json", "a.pt", "sub/b.pt"}


@pytest.mark.parametrize("attack", ["link", "folder link", "pipe", "outside", "longer", "names", "elsewhere"])
def test_a_checkpoint_can_not_have_the_server_read_something_else(light: Signing, tmp_path: Path, attack: str):
    files = {"../../x": b"1"} if attack == "names" else {"a.pt": b"weights", "sub/b.pt": b"more"}
    run = checkpoint(light, files, elsewhere=tmp_path / "own" if attack == "elsewhere" else None)
    folder = light.record.home / "local" / "checkpoints" / run / "step-000000040"
    (tmp_path / "shadow").write_bytes(b"weights")
    if attack in ("link", "pipe"):
        (folder / "a.pt").unlink()
        (folder / "a.pt").symlink_to(tmp_path / "shadow") if attack == "link" else os.mkfifo(folder / "a.pt")
    elif attack == "folder link":
        folder.rename(tmp_path / "moved")
        folder.symlink_to(tmp_path / "moved")
    elif attack == "outside":
        (folder / "sub").rename(tmp_path / "sub")
        (folder / "sub").symlink_to(tmp_path / "sub")
    elif attack == "longer":
        (folder / "a.pt").write_bytes(b"weights and more")
    light.record.track.models.register("gpt", user="eve", source=f"checkpoint:{run}/40", run=run, project="default")
    light.write()
    assert statement_of(light.record.track.db, "model:gpt/1") is None
    due = due_of(light.record.track.db, "model:gpt/1")
    assert due is not None
    assert "checkpoint" in due.problem


def test_rotation_keeps_what_was_signed_good_and_destroys_the_old_private_half(signed: Signing):
    record = signed.record
    run = record.submit()
    record.start(run)
    signed.ship(run, "a.pt")
    signed.write()
    old = key_in_use(record.store.state())
    assert old is not None
    record.commit.submit(rotate(KEYRING, "root", record.later())).result()
    signed.ship(run, "b.pt")
    signed.write()
    new = key_in_use(record.store.state())
    assert new is not None
    assert signed.opened(f"artifact:{run}/a.pt")[1] == old.id
    assert signed.opened(f"artifact:{run}/b.pt")[1] == new.id
    assert record.store.secret("", f"{PRIVATE}{old.id}") is None
    assert len(public_keys(record.store.state())) == 2


def test_another_servers_key_file_signs_nothing(light: Signing):
    """A copy of the database without the key file can't sign."""
    run = light.record.submit()
    light.record.start(run)
    light.ship(run, "a.pt")
    light.record.later(60)
    other = Signer(light.record.store, Keyring(b"o" * 32))
    StatementWriter(light.record.track, other, lambda: True).write_due()
    due = due_of(light.record.track.db, f"artifact:{run}/a.pt")
    assert due is not None
    assert due.tries == 1
    assert "another key" in due.problem
    light.write()
    assert light.statement(f"artifact:{run}/a.pt").predicate["buildDefinition"]["buildType"] == BUILT


def test_the_log_holds_no_private_half(light: Signing):
    key = key_in_use(light.record.store.state())
    assert key is not None
    cipher = light.record.store.secret("", f"{PRIVATE}{key.id}")
    assert cipher is not None
    private = KEYRING.unseal(cipher)

    log = json.dumps([event.to_dict() for event in light.record.store.events(EventFilter(limit=1000))])
    assert private not in log
    assert cipher.decode() not in log
    assert key.id in log
    sealed = light.signer.seal(b"{}", PAYLOAD_TYPE, key.id)
    assert open_envelope(sealed, PAYLOAD_TYPE, {key.id: key.raw}).key == key.id


def rows(signing: Signing) -> tuple[int, int]:
    """How many statements there are, and how many are due."""
    with signing.record.track.db.reading() as connection:
        made, due = (connection.scalar(select(func.count()).select_from(one)) for one in (statements, statements_due))
    return int(made or 0), int(due or 0)


def checkpoint(signing: Signing, files: dict[str, bytes], elsewhere: Path | None = None) -> str:
    record = signing.record
    run = record.submit()
    record.start(run)
    folder = (elsewhere or record.home / "local" / "checkpoints" / run) / "step-000000040"
    folder.mkdir(parents=True)
    for name, content in files.items():
        if ".." not in name:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
    entries = {name: {"bytes": len(content), "crc32": 1} for name, content in files.items()}
    (folder / "manifest.json").write_text(json.dumps({"step": 40, "files": entries}))
    record.saved(run, 40, str(folder))
    return run
