"""What is found out before a commit: advisories that change or are broken, and images that keep their approval."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.control.admission import Context, images
from muster.control.admission.images import with_digest
from muster.control.admission.inspected import ImageFinding, Inspected
from muster.control.external_admission import ExternalAdmission
from muster.control.inspection import AdvisoryFile, Inspector
from muster.core.advisories import BadAdvisories
from muster.core.entities.rules_in_force import RulesInForce
from muster.core.parse import parse_job
from muster.core.rules import GuardRule, Rules
from muster.core.state import State

DIGEST = "sha256:" + "a" * 64


def advisory(ident: str, package: str = "pillow") -> str:
    about = {"package": {"ecosystem": "PyPI", "name": package}, "versions": ["1"]}
    return json.dumps({"id": ident, "affected": [about]})


def found(file: AdvisoryFile) -> list[str]:
    return [one.advisory.id for one in file.read().check({"pillow": "1"})]


def test_a_file_of_advisories_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "advisories.json"
    file = AdvisoryFile(path)
    with pytest.raises(BadAdvisories, match="can't be read"):
        file.read()
    path.write_text(advisory("A-1"))
    assert found(file) == ["A-1"]
    path.write_text(advisory("A-22"))
    assert found(file) == ["A-22"]
    path.write_text("{")
    with pytest.raises(BadAdvisories):
        file.read()
    status = file.status()
    assert status is not None
    assert (status["count"], bool(status["error"])) == (0, True)
    assert AdvisoryFile(None).status() is None
    with pytest.raises(BadAdvisories, match="names no file"):
        AdvisoryFile(None).read()


def test_a_folder_of_advisories_is_whole_or_nothing(tmp_path: Path) -> None:
    file = AdvisoryFile(tmp_path)
    with pytest.raises(BadAdvisories, match="0 files"):
        file.read()
    for number in range(5):
        (tmp_path / f"{number}.json").write_text(advisory(f"A-{number}"))
    assert len(found(file)) == 5
    other = AdvisoryFile(tmp_path)
    (tmp_path / "9.json").write_text("broken")
    with pytest.raises(BadAdvisories):
        other.read()
    if os.geteuid():
        (tmp_path / "9.json").chmod(0)
        with pytest.raises(BadAdvisories):
            AdvisoryFile(tmp_path).read()


def with_rule(**rule: Any) -> State:
    return State(in_force=RulesInForce(Rules(guards=(GuardRule(check="images", action="refuse", **rule),))))


def context(state: State, image: ImageFinding | None) -> Context:
    looked = Inspected(image, looked=True)
    return Context(state, "ada", lambda project, name: True, local=False, inspected=looked)


@given(
    st.sampled_from(["reg.example/a:1", "reg.example/a", f"reg.example/a@{DIGEST}", "a:1", "acme/a"]),
    st.sampled_from(
        ["*", "*@sha256:*", "reg.example/*", "reg.example/a:1", "docker.io/*", "a:1", f"*@{DIGEST}", "none"]
    ),
    st.booleans(),
)
def test_a_job_that_is_accepted_can_be_resumed(image: str, pattern: str, known: bool) -> None:
    """The image that is kept is approved by the same policy without asking the registry again."""
    state = with_rule(approved=(pattern,))
    spec = parse_job({"run": "x", "image": image})
    looked = context(state, ImageFinding(DIGEST if known else "", 5, None, "" if known else "it is away"))
    kept = with_digest(spec, looked)
    if images.check(kept, looked) is None:
        assert images.check(kept, context(state, ImageFinding(trouble="it is away"))) is None
    else:
        assert images.check(spec, looked) is not None, "the digest makes nothing worse"


def test_a_request_that_has_used_its_time_is_not_waved_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.control.external_admission.REQUEST_SECONDS", 0.0)
    spec = parse_job({"run": "x", "image": "reg.example/a:1"})
    inspector = Inspector({}, AdvisoryFile(None))
    state = with_rule(approved=("*",), limit=10)
    external = ExternalAdmission([], {}, lambda spec, user, tree: inspector.inspect(spec, user, tree, state))
    looked = external.asking().inspect(spec, "ada", "")
    refused = images.check(spec, Context(state, "ada", lambda *_: True, local=False, inspected=looked))
    assert refused is not None
    assert "send fewer jobs" in refused.message


def test_an_image_of_a_registry_that_no_setting_names_is_not_asked_for() -> None:
    inspector = Inspector({}, AdvisoryFile(None))
    for image in ("169.254.169.254/latest/meta-data:1", "localhost:22/a", "internal.example/a"):
        looked = inspector.inspect(parse_job({"run": "x", "image": image}), "ada", "", State()).image
        assert looked is not None
        assert "none of the `registries`" in looked.trouble
    unnamed = parse_job({"run": "x", "image": "NOT/an_image"})
    assert inspector.inspect(unnamed, "ada", "", State()).image is None
