"""Images, lock files and advisories on a real server: approved, pinned, warned of, refused; runs that have one told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from live import LiveServer, live_server, until
from muster import Client
from muster.core.errors import Refused
from registry_kit import RegistryServer, registry

LOCK = '[[package]]\nname = "pillow"\nversion = "{}"\n[[package]]\nname = "me"\nversion = "1"\n'
OSV = {
    "id": "GHSA-1", "database_specific": {"severity": "CRITICAL"},
    "affected": [{"package": {"ecosystem": "PyPI", "name": "Pillow"},
                  "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "10.3"}]}]}],
}  # fmt: skip


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, images: RegistryServer) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("guarded")
    config = f'advisories = "advisories.json"\n[registries."{images.host}"]\ninsecure = true\n'
    home.mkdir(exist_ok=True)
    (home / "advisories.json").write_text(json.dumps([OSV]))
    with live_server(home, config=config) as server:
        yield server


@pytest.fixture
def client(live: LiveServer) -> Iterator[Client]:
    with Client(live.url, token=live.token) as made:
        yield made


def guard(live: LiveServer, **rule: Any) -> None:
    text = json.dumps({"guards": [rule]} if rule else {})
    with live.http() as http:
        http.put("/v1/rules", json={"text": text}).raise_for_status()


def send(live: LiveServer, key: str = "", **spec: Any) -> Any:
    with live.http() as http:
        headers = {"Idempotency-Key": key} if key else {}
        return http.post("/v1/jobs", json={"spec": {"name": "job", "run": "true", **spec}}, headers=headers)


def codes(answer: Any) -> list[str]:
    return [one["code"] for one in answer.json()["error"]["reasons"]]


def test_an_image_is_pinned_and_approved_by_its_digest(live: LiveServer, images: RegistryServer) -> None:
    digest = images.push("acme/train", "1.4", [b"x" * 4000])
    image = f"{images.host}/acme/train:1.4"
    guard(live)

    def image_of(answer: Any) -> str:
        return str(live.get(f"/v1/jobs/{answer.json()['id']}/spec")["spec"]["image"])

    assert image_of(send(live, image=image)) == f"{image}@{digest}", "kept with the run by its digest"
    guard(live, check="images", action="refuse", approved=[f"{images.host}/acme/*@sha256:*"])
    made = send(live, "once", image=image)
    assert image_of(made) == f"{image}@{digest}"
    assert send(live, "once", image=image).json()["id"] == made.json()["id"], "the same submission again"
    assert codes(send(live, image=f"{images.host}/acme/none:1")) == ["image_not_approved"]
    refused = send(live, image="elsewhere.example/acme/train:1.4")
    assert codes(refused) == ["image_not_approved"]
    told = refused.json()["error"]["reasons"][0]
    assert "its digest is not known: elsewhere.example is none of the `registries`" in told["message"]
    assert "An administrator of the server can grant it in the policy" in told["hint"]
    guard(live, check="images", action="refuse", approved=[image])
    bare = send(live, image=image)
    assert image_of(bare) == image, "approved by its bare name, it keeps it"
    assert codes(send(live, image=f"{image}@{digest}")) == ["image_not_approved"]
    guard(live, check="images", action="warn", approved=[f"{images.host}/acme/*"], limit="3KB")
    (warning,) = send(live, image=image).json()["warnings"]
    assert "and 3kB is the most" in warning.replace("KB", "kB").replace("3 kB", "3kB")
    guard(live, check="images", action="refuse", limit="3KB")
    assert codes(send(live, image=image)) == ["image_too_large"]
    assert codes(send(live, image="elsewhere.example/a:1")) == ["image_too_large"], "nobody could say"
    guard(live)


def folder(path: Path, version: str, name: str = "uv.lock") -> Path:
    path.mkdir(exist_ok=True)
    (path / "train.py").write_text("print(1)\n")
    (path / name).write_text(LOCK.format(version))
    return path


def test_lock_files_are_approved_and_compared(live: LiveServer, client: Client, tmp_path: Path) -> None:
    good, bad = folder(tmp_path / "good", "11.0"), folder(tmp_path / "bad", "10.2")

    def submit(workdir: Path) -> Any:
        return client.submit({"name": "locked", "run": "true", "workdir": str(workdir)})

    def reasons(workdir: Path) -> list[str]:
        with pytest.raises(Refused) as refused:
            submit(workdir)
        return [one.code for one in refused.value.reasons]

    guard(live, check="advisories", action="refuse")
    assert submit(good).id
    assert reasons(bad) == ["vulnerable_packages"]
    (bad / "uv.lock").write_text("[[package")
    assert reasons(bad) == ["advisories_unreadable"]
    guard(live, check="advisories", action="warn")
    (warning,) = submit(bad).raw["warnings"]
    assert "uv.lock: it can't be read" in warning
    guard(live, check="environments", action="refuse", approved=["uv.lock"])
    assert submit(good).id
    assert reasons(bad) == ["environment_not_approved"], "a lock file that can't be read is none"
    assert codes(send(live)) == ["environment_not_approved"], "without a snapshot"
    assert client.check({"name": "locked", "run": "true", "workdir": str(good)})["ok"]
    guard(live, check="environments", action="refuse", approved=["sha256:" + "0" * 64])
    assert reasons(good) == ["environment_not_approved"]
    guard(live)


def test_a_broken_advisory_file_refuses_and_is_told(live: LiveServer, client: Client, tmp_path: Path) -> None:
    guard(live, check="advisories", action="refuse")
    place = live.home / "advisories.json"
    whole = place.read_text()
    try:
        place.write_text(whole[: len(whole) // 2])
        with pytest.raises(Refused) as refused:
            client.submit({"name": "job", "run": "true", "workdir": str(folder(tmp_path / "w", "11"))})
        assert [one.code for one in refused.value.reasons] == ["advisories_unreadable"]
        with live.http() as http:
            assert http.post("/v1/environments/check", json={"packages": {}}).json()["error"]["code"] == "invalid"
            assert "can't be read" in http.get("/v1/health").json()["advisories"]["error"]
    finally:
        place.write_text(whole)
        guard(live)


def test_a_run_whose_environment_has_a_vulnerable_package_is_marked(live: LiveServer) -> None:
    place = live.home / "advisories.json"
    whole = place.read_text()
    about = {"id": "LOCAL-1", "affected": [{"package": {"ecosystem": "PyPI", "name": "numpy"}, "versions": []}]}
    about["affected"][0]["ranges"] = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]  # type: ignore[index]
    place.write_text(json.dumps([OSV, about]))
    try:
        run = live.submit("python -c 1", name="captured")["id"]
        packages = until(
            lambda: (live.get(f"/v1/runs/{run}")["doc"].get("environment") or {}).get("packages"), "the environment"
        )
        found = live.get(f"/v1/runs/{run}")["vulnerable"]
        expected = ["LOCAL-1"] if "numpy" in packages else []
        assert [one["advisory"] for one in found if one["package"] == "numpy"] == expected
        checked = live.get(f"/v1/runs/{run}/environment/check")
        assert checked["packages"] == len(packages)
        assert checked["vulnerable"] == found
    finally:
        place.write_text(whole)
