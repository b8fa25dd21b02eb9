"""Names of images, lock files of every tool, and advisories: what real files look like, and what broken ones do."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.advisories import Advisories, BadAdvisories, read_advisories
from muster.core.cvss import base_score
from muster.core.image_ref import ImageRef, matches, parse_image, pinned
from muster.core.lock_files import NoLock, is_lock_file, read_lock

SHA = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ubuntu", ImageRef("docker.io", "library/ubuntu", "latest")),
        ("acme/train:1.4", ImageRef("docker.io", "acme/train", "1.4")),
        (f"localhost:5000/a/b_c:x@{SHA}", ImageRef("localhost:5000", "a/b_c", "x", SHA)),
        (f"registry.example/a@{SHA}", ImageRef("registry.example", "a", "", SHA)),
        ("index.docker.io/ubuntu", ImageRef("docker.io", "library/ubuntu", "latest")),
        *((text, None) for text in (
            "", "UPPER/case", "a/../b", "a//b", "reg.example/", "a:b:c", "a@sha256:12", f"a@md5:{'a' * 32}", "a b",
            "reg.example:99999999/a", "http://reg.example/a", "user@host/a", "a/b?x=1", "a/%2e%2e/b", "x" * 300,
        )),
    ],
)  # fmt: skip
def test_names_of_images(text: str, found: ImageRef | None) -> None:
    assert parse_image(text) == found


@given(st.text(max_size=60))
def test_a_name_that_is_read_is_read_again_as_itself(text: str) -> None:
    found = parse_image(text)
    if found is not None:
        assert parse_image(found.whole) == found
        assert not set(found.whole) & set("?#%\\ \n")
        assert ".." not in found.repository


def test_patterns_know_only_stars() -> None:
    assert matches("registry.example/acme/*@sha256:*", f"registry.example/acme/train:1@{SHA}")
    assert not matches("registry.example/acme/*@sha256:*", "registry.example/acme/train:1")
    assert not matches("a?c", "abc")
    assert matches("a[x]", "a[x]")
    assert not matches("registry.example/*", "evil.registry.example/a", "registryXexample/a")
    assert (pinned("a:1", SHA), pinned(f"a@{SHA}", "sha256:b")) == (f"a:1@{SHA}", f"a@{SHA}")


UV = '[[package]]\nname = "Torch_Vision"\nversion = "1.0"\n[[package]]\nname = "me"\nsource = {virtual = "."}\n'


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("uv.lock", UV, {"torch-vision": ("1.0",)}),
        ("poetry.lock", UV.replace("1.0", "2.0"), {"torch-vision": ("2.0",)}),
        ("pylock.gpu.toml", '[[packages]]\nname = "a"\nversion = "1"\n[[packages]]\nname = "a"\nversion = "2"\n',
         {"a": ("1", "2")}),
        ("Pipfile.lock", '{"default": {"a": {"version": "==1.2"}}, "develop": {}}', {"a": ("1.2",)}),
        ("requirements.txt", "--index-url x\na==1.0 \\\n  --hash=sha256:00 # why\nb[x]==2 ; y --hash=sha256:1\n",
         {"a": ("1.0",), "b": ("2",)}),
    ],
)  # fmt: skip
def test_lock_files(name: str, text: str, found: dict[str, tuple[str, ...]]) -> None:
    assert is_lock_file(name)
    assert read_lock(name, text.encode()) == found


@pytest.mark.parametrize(
    ("name", "raw", "why"),
    [
        ("requirements.txt", b"a>=1.0 --hash=sha256:0", "no version"),
        ("requirements.txt", b"a==1.0", "no `--hash`"),
        ("requirements.txt", b"-r other.txt", "no version"),
        ("requirements.txt", b"git+https://x/y", "no version"),
        ("requirements.txt", b"# nothing", "names no package"),
        ("uv.lock", b"\xff", "UTF-8"),
        ("uv.lock", b"[[package", "can't be read"),
        ("uv.lock", b"package = 5", "can't be read"),
        ("uv.lock", b"[[package]]\nname = 5\nversion = 'x'", "no text"),
        ("uv.lock", b"", "can't be read"),
        ("Pipfile.lock", b"[" * 100_000, "can't be read"),
    ],
)
def test_a_lock_file_that_is_none_is_told(name: str, raw: bytes, why: str) -> None:
    with pytest.raises(NoLock, match=why):
        read_lock(name, raw)


@given(st.sampled_from(["uv.lock", "Pipfile.lock", "requirements.txt", "pylock.toml"]), st.binary(max_size=200))
def test_any_bytes_are_a_lock_file_or_said_to_be_none(name: str, raw: bytes) -> None:
    with suppress(NoLock):
        assert read_lock(name, raw)


def osv(**given: object) -> bytes:
    affected = {
        "package": {"ecosystem": "PyPI", "name": "Pillow"},
        "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "10.3.0"}]}],
    }
    return json.dumps({"id": "GHSA-1", "affected": [affected], **given}).encode()


def check(advisories: Advisories, version: str, least: str = "low") -> list[str]:
    return [one.advisory.id for one in advisories.check({"pillow": version}, least)]  # type: ignore[arg-type]


def test_versions_in_a_range_are_affected() -> None:
    found = read_advisories([osv(database_specific={"severity": "HIGH"})])
    assert check(found, "10.2.0") == check(found, "9") == check(found, "10.3.0rc1") == ["GHSA-1"]
    assert check(found, "10.3.0") == check(found, "10.10") == []
    assert check(found, "10.2.0", "high") == ["GHSA-1"]
    assert check(found, "10.2.0", "critical") == []
    assert check(found, "not a version") == ["GHSA-1"], "in doubt it is told"
    assert str(found.check({"Pillow": "9"})[0]) == "Pillow 9: GHSA-1 (high, fixed in 10.3.0)"
    assert found.check({"other": "1"}) == []
    assert check(read_advisories([osv()]), "9", "critical") == ["GHSA-1"], "an unknown severity counts"
    assert check(read_advisories([osv(withdrawn="2024-01-01")]), "9") == []


def test_ranges_with_several_parts_lists_and_other_ecosystems() -> None:
    events = [{"introduced": "1"}, {"last_affected": "1.5"}, {"introduced": "2.0"}]
    affected = [
        {"package": {"ecosystem": "PyPI", "name": "pillow"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]},
        {"package": {"ecosystem": "PyPI", "name": "pillow"}, "versions": ["0.5.0"]},
        {"package": {"ecosystem": "npm", "name": "pillow"}, "versions": ["0.7"]},
    ]
    for raw in (osv(affected=affected), b"[" + osv(affected=affected) + b"]", osv(affected=affected) + b"\n" + osv(
        id="GHSA-2", affected=[])):  # fmt: skip
        found = read_advisories([raw])
        assert [bool(check(found, version)) for version in ("0.5", "0.7", "1.5", "1.6", "2.0", "99")] == [
            True, False, True, False, True, True,
        ]  # fmt: skip


def test_a_report_of_pip_audit() -> None:
    report = {
        "dependencies": [{"name": "Pillow", "version": "9.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["10"]}]}]
    }
    found = read_advisories([json.dumps(report).encode()])
    assert (check(found, "9.0"), check(found, "9.0.0"), check(found, "9.1")) == (["PYSEC-1"], ["PYSEC-1"], [])


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"5", b"[]", b"{}", b"not json", b'[{"affected": []}]', b'{"id": "x", "affected": 5}',
        b'{"dependencies": 5}', b'{"vulns": [5]}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_broken_advisory_file_is_never_taken_for_an_empty_one(raw: bytes) -> None:
    with pytest.raises(BadAdvisories):
        read_advisories([raw])


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_ranges_hold_what_lies_between(low: int, fixed: int, version: int) -> None:
    events = [{"introduced": f"1.{low}"}, {"fixed": f"1.{fixed}"}]
    about = {"package": {"ecosystem": "PyPI", "name": "pillow"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    found = read_advisories([osv(affected=[about])])
    assert bool(check(found, f"1.{version}")) == (low <= version < fixed)


@pytest.mark.parametrize(
    ("vector", "score"),
    [
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 9.8),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N", 6.1),
        ("CVSS:3.0/AV:L/AC:H/PR:L/UI:N/S:U/C:H/I:N/A:N", 4.7),
        ("CVSS:3.1/AV:N/AC:L/PR:L/UI:N/S:C/C:H/I:H/A:H", 9.9),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:N", 0.0),
        ("CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N", None),
        ("CVSS:3.1/AV:N", None),
        ("7.5", None),
    ],
)
def test_base_scores(vector: str, score: float | None) -> None:
    assert base_score(vector) == score
