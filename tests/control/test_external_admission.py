"""A company's own checks: real HTTP hooks and installed plug-ins that accept, refuse, fail, hang or answer nonsense."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.admission import Job, Refuse, Warn
from muster.control import external_admission
from muster.control.admission.external import plain_doc, plain_view
from muster.control.admission_hooks import (
    ANSWER_MAX,
    AdmissionHook,
    BadAnswer,
    Terms,
    read_admission_hooks,
    read_answer,
    read_plugin_terms,
)
from muster.control.external_admission import PLACES_OF_USER, ExternalAdmission
from muster.core.errors import ConfigError
from muster.core.parse import parse_job

SPEC = parse_job({
    "name": "gpt", "project": "language", "run": "python train.py", "envs": {"LR": "value-of-a-variable"},
    "secrets": ["HF_TOKEN"], "tags": {"cost-centre": "R1"}, "gpus": 2, "array": "1-4",
})  # fmt: skip


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.got.append((dict(self.headers), body))
        server.released.wait(server.delay)
        self.send_response(server.status)
        if server.status == 302:
            self.send_header("Location", f"http://127.0.0.1:{server.server_port}/elsewhere")
        self.send_header("Content-Length", str(len(server.answer)))
        self.end_headers()
        self.wfile.write(server.answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.daemon_threads = True
    server.got, server.status, server.answer, server.delay = [], 200, b'{"action": "accept"}', 0.0
    server.released = threading.Event()
    server.url = f"http://127.0.0.1:{server.server_port}/check"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs a package with entry points of these names and this code."""

    def install(code: str, *names: str) -> None:
        package = f"company_{len(list(tmp_path.iterdir()))}"
        (tmp_path / f"{package}.py").write_text(f"from muster.admission import Job, Refuse, Warn\n{code}")
        info = tmp_path / f"{package}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        points = "".join(f"{name} = {package}:{name.replace('-', '_')}\n" for name in names)
        (info / "entry_points.txt").write_text(f"[muster.admission]\n{points}")
        monkeypatch.syspath_prepend(str(tmp_path))

    yield install
    for name in [name for name in sys.modules if name.startswith("company_")]:
        del sys.modules[name]


def of_hook(server: Any, on_error: Any = "refuse", deadline: float = 5.0, **given: Any) -> ExternalAdmission:
    terms = Terms(deadline, on_error, given.pop("projects", ()))
    return ExternalAdmission([AdmissionHook("centre", server.url, terms, **given)], {})


def verdict(external: ExternalAdmission, user: str = "ada") -> Any:
    return external.asking().ask(SPEC, user, False)


def test_a_hook_reads_the_job_without_values_and_signed(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECKS_SECRET", "key")
    assert verdict(of_hook(hook, secret_env="CHECKS_SECRET")).reasons == ()
    ((headers, body),) = hook.got
    assert headers["Muster-Signature"] == "sha256=" + hmac.new(b"key", body, hashlib.sha256).hexdigest()
    job = json.loads(body)["job"]
    assert (job["user"], job["env_names"], job["secret_names"], job["array_tasks"]) == ("ada", ["LR"], ["HF_TOKEN"], 4)
    assert job["resources"]["accelerators"] == 2
    assert b"value-of-a-variable" not in body


@pytest.mark.parametrize("on_error", ["refuse", "allow"])
@pytest.mark.parametrize("action", ["warn", "refuse"])
def test_what_a_hook_says_holds_whatever_its_failure_means(hook: Any, action: str, on_error: Any) -> None:
    hook.answer = json.dumps({"action": action, "message": "no cost centre", "hint": "Add one."}).encode()
    asking = of_hook(hook, on_error).asking()
    found = asking.ask(SPEC, "ada", False)
    if action == "warn":
        assert (found.reasons, found.warnings) == ((), ("no cost centre (centre). Add one.",))
        assert asking.take_warnings() == list(found.warnings)
        assert asking.take_warnings() == []
    else:
        (reason,) = found.reasons
        assert (reason.code, reason.message, reason.hint) == (
            "admission_refused", "no cost centre (centre)", "Add one.",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (500, b"", "500"),
        (204, b"", "204"),
        (302, b"", "302"),
        (200, b"not json", "is not JSON"),
        (200, b"[" * 60_000, "is not JSON"),
        (200, b'{"action": "maybe"}', "no `action`"),
        (200, b'{"action": "refuse"}', "no `message`"),
        (200, b" " * (ANSWER_MAX + 1), "more than"),
    ],
)
def test_an_answer_that_is_none_counts_as_a_failure(hook: Any, status: int, answer: bytes, why: str) -> None:
    hook.status, hook.answer = status, answer
    (reason,) = verdict(of_hook(hook)).reasons
    assert reason.code == "admission_unavailable"
    assert why in reason.message
    assert len(hook.got) == 1, "a redirect is not followed"
    external = of_hook(hook, "allow")
    (warning,) = verdict(external).warnings
    assert "was left out" in warning
    (status_,) = external.status()
    assert (status_["asked"], status_["failed"]) == (1, 1)
    assert why in status_["error"]


def test_a_hook_that_is_away_or_hangs_is_judged_by_its_terms(hook: Any) -> None:
    hook.delay = 60.0
    began = time.monotonic()
    (reason,) = verdict(of_hook(hook, deadline=0.1)).reasons
    assert time.monotonic() - began < 5
    assert "did not answer within 0.1 s" in reason.message
    away = ExternalAdmission([AdmissionHook("centre", "http://127.0.0.1:1/", Terms(5.0, "allow"))], {})
    assert "can't be reached" in verdict(away).warnings[0]


def test_a_user_whose_jobs_hang_a_check_leaves_places_for_others(installed: Any) -> None:
    installed("import threading\ndef hang(job): threading.Event().wait(60 if job.user == 'mallory' else 0)", "hang")
    external = ExternalAdmission([], {"hang": Terms(0.02)})
    for _ in range(PLACES_OF_USER):
        assert "did not answer" in verdict(external, "mallory").reasons[0].message
    assert "has not answered earlier calls" in verdict(external, "mallory").reasons[0].message
    external.checkers()[0].terms = Terms(30.0)
    assert verdict(external, "ada").reasons == ()


def test_a_request_with_many_jobs_has_so_much_time_in_all(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_admission, "REQUEST_SECONDS", 0.0)
    (reason,) = verdict(of_hook(hook)).reasons
    assert "send fewer jobs" in reason.message
    assert hook.got == []


def test_a_check_sees_only_jobs_of_its_projects(hook: Any) -> None:
    assert verdict(of_hook(hook, projects=("vision",))).reasons == ()
    assert hook.got == []
    verdict(of_hook(hook, projects=("vision", "language")))
    assert len(hook.got) == 1


def test_a_plug_in_is_a_function_of_an_installed_package(installed: Any) -> None:
    installed(
        "def centre(job): return None if 'cost-centre' in job.tags else Refuse('no centre')\n"
        "def big(job): return Warn('it is big', 'Take care.') if job.array_tasks > 3 else None\n",
        "centre", "big",
    )  # fmt: skip
    external = ExternalAdmission([], {})
    found = verdict(external)
    assert (found.reasons, found.warnings) == ((), ("it is big (big). Take care.",))
    other = external.asking().ask(SPEC.model_copy(update={"tags": {}, "array": None}), "ada", False)
    assert [reason.message for reason in other.reasons] == ["no centre (centre)"]
    assert {one["name"]: (one["kind"], one["refused"]) for one in external.status()} == {
        "big": ("plug-in", 0), "centre": ("plug-in", 1),
    }  # fmt: skip


@pytest.mark.parametrize("on_error", ["refuse", "allow"])
@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def plug(job): raise ValueError('the password is hunter2')", "it failed (ValueError)"),
        ("def plug(job): raise SystemExit(3)", "it failed (SystemExit)"),
        ("def plug(job): return True", "it returned bool"),
        ("def plug(job): job.tags['a'] = 'b'", "it failed (TypeError)"),
        ("def plug(job): job.user = 'root'", "it failed (FrozenInstanceError)"),
        ("import threading\ndef plug(job): threading.Event().wait(60)", "did not answer within"),
        ("plug = 5", "it failed (ConfigError)"),
        ("raise ImportError('no such thing')", "it failed (ConfigError)"),
    ],
)
def test_a_plug_in_that_fails_is_judged_by_its_terms(installed: Any, code: str, why: str, on_error: Any) -> None:
    installed(code, "plug")
    external = ExternalAdmission([], {"plug": Terms(0.2 if "wait" in code else 5.0, on_error)})
    found = verdict(external)
    told = found.reasons[0].message if on_error == "refuse" else found.warnings[0]
    assert why in told
    assert "hunter2" not in told, "what it raised is for administrators"
    assert (len(found.reasons), len(found.warnings)) == ((1, 0) if on_error == "refuse" else (0, 1))
    if "hunter2" in code:
        assert "hunter2" in external.status()[0]["error"]


def test_a_plug_in_that_the_settings_name_and_nobody_installed_is_a_failure() -> None:
    (reason,) = verdict(ExternalAdmission([], {"gone": Terms()})).reasons
    assert reason.code == "admission_unavailable"
    assert verdict(ExternalAdmission([], {"gone": Terms(enabled=False)})).reasons == ()


def test_the_view_is_frozen_and_plain() -> None:
    job = plain_view(SPEC, "ada", True)
    with pytest.raises(AttributeError):
        job.user = "eve"  # type: ignore[misc]
    assert set(plain_doc(job)) == set(Job.__dataclass_fields__)
    assert json.loads(json.dumps(plain_doc(job)))["administrator"] is True


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["action", "message", "hint"]), inner),
    max_leaves=6,
).map(lambda one: json.dumps(one).encode()))  # fmt: skip
def test_any_bytes_are_an_answer_or_said_to_be_none(raw: bytes) -> None:
    try:
        found = read_answer(raw)
    except BadAnswer:
        return
    assert found is None or (isinstance(found, Warn | Refuse) and found.message.strip())


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({}, "name"),
        ({"name": "a", "url": "ftp://x"}, "url"),
        ({"name": "a", "url": "http://checks.example/"}, "http on another machine"),
        ({"name": "a", "url": "http://169.254.169.254/"}, "http on another machine"),
        ({"name": "a", "url": "https://me:word@checks.example/"}, "password"),
        ({"name": "a", "url": "https://x", "deadline": "10m"}, "deadline"),
        ({"name": "a", "url": "https://x", "deadline": "0s"}, "deadline"),
        ({"name": "a", "url": "https://x", "on_error": "ignore"}, "on_error"),
        ({"name": "a", "url": "https://x", "ca_file": "/nowhere"}, "ca_file"),
        ({"name": "a", "url": "https://x", "retries": 3}, "retries"),
    ],
)
def test_settings_of_hooks_that_are_wrong_are_told(given_: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_admission_hooks([given_])


def test_settings_of_hooks_and_plug_ins() -> None:
    (one,) = read_admission_hooks([{"name": "a", "url": "http://[::1]:8000/x?token=1", "deadline": "3s"}])
    assert (one.terms, one.place) == (Terms(3.0), "http://::1:8000/x")
    assert read_admission_hooks([{"name": "a", "url": "http://checks.example", "insecure": True}])
    with pytest.raises(ConfigError, match="Two admission hooks"):
        read_admission_hooks([{"name": "a", "url": "https://x"}] * 2)
    with pytest.raises(ConfigError, match="list of tables"):
        read_admission_hooks({"name": "a"})
    assert read_plugin_terms({"p": {"on_error": "allow", "projects": ["x"]}}) == {"p": Terms(5.0, "allow", ("x",))}
    with pytest.raises(ConfigError, match="enable`"):
        read_plugin_terms({"p": {"enable": False}})
