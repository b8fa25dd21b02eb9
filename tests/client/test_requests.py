"""The client against a real server that fails on request: finding it, failing over, errors, submitting once."""

from __future__ import annotations

import json
import socket

import pytest
from fake_server import TOKEN, fake_server, refusal, view
from starlette.responses import HTMLResponse

from muster import Client
from muster.client.http import ROUNDS
from muster.client.spec import batch_item, submission
from muster.client.surroundings import shell_envs
from muster.core import errors
from muster.core.errors import MusterError, Unauthenticated, Unavailable
from muster.core.parse import parse_job
from muster.core.reasons import reason


@pytest.fixture(autouse=True)
def _no_server_of_the_user(monkeypatch, tmp_path):
    for name in ("MUSTER_URL", "MUSTER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MUSTER_SNAPSHOT", "0")


@pytest.fixture
def server():
    with fake_server(jobs=[view(1)]) as made:
        yield made


@pytest.fixture
def client(server):
    with Client(server.url, TOKEN) as made:
        yield made


def _unused_url():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def _write_home(home, url, token=TOKEN):
    home.mkdir(exist_ok=True)
    (home / "server.json").write_text(json.dumps({"urls": [url], "pid": 1, "start_ticks": 1}))
    (home / "token").write_text(f"{token}\n")


# --- errors -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, errors.NotFound),
        (401, errors.Unauthenticated),
        (403, errors.NotAllowed),
        (400, errors.Invalid),
        (409, errors.Conflict),
        (502, errors.EngineError),
    ],
)
def test_an_error_is_raised_as_the_class_that_the_server_raised(server, client, status, kind):
    server.failures.append(refusal(status, kind.code))
    with pytest.raises(kind) as raised:
        client.job("x")
    assert type(raised.value) is kind
    assert raised.value.to_dict() == {"code": kind.code, "message": "What.", "hint": "Do."}


def test_mistakes_in_a_job_file_arrive_one_by_one(server, client):
    problem = {"where": "nproc", "given": "x", "expected": "a number", "hint": "Write 2."}
    server.failures.append(refusal(422, "bad_spec", problems=[problem]))
    with pytest.raises(errors.SpecError) as raised:
        client.submit({"run": "x"})
    assert raised.value.to_dict()["problems"] == [problem]


def test_a_refusal_arrives_with_its_reasons(server, client):
    never = reason("never_fits", "too large", accelerators=9)
    server.failures.append(refusal(409, "refused", reasons=[never.to_dict()]))
    with pytest.raises(errors.Refused) as raised:
        client.submit({"run": "x"})
    assert raised.value.reasons == [never]


def test_a_code_of_a_newer_server_and_an_answer_of_something_else_are_errors_too(server, client):
    server.failures += [refusal(413, "too_large"), HTMLResponse("<h1>Bad gateway</h1>", 502)]
    with pytest.raises(MusterError) as raised:
        client.job("x")
    assert raised.value.code == "too_large"
    with pytest.raises(Unavailable, match="HTTP 502: <h1>Bad gateway"):
        client.job("x")


def test_a_problem_with_the_request_itself_says_where(server, client):
    problem = {"where": "query.limit", "given": "less_than", "expected": "at most 10", "hint": "See /docs."}
    server.failures.append(refusal(400, "invalid", problems=[problem]))
    with pytest.raises(errors.Invalid, match=r"query\.limit"):
        client.job("x")


# --- finding the server -----------------------------------------------------------------------------------------------
def test_without_a_server_it_says_how_to_start_one(tmp_path):
    with pytest.raises(Unavailable) as raised:
        Client().jobs()
    assert str(tmp_path / "home") in raised.value.message
    assert "muster up -d" in raised.value.hint
    with pytest.raises(Unavailable) as raised:
        Client(_unused_url(), TOKEN).jobs()
    assert "connection refused" in raised.value.message
    assert raised.value.hint == "Start a server with `muster up -d`."


def test_the_home_names_the_server_and_its_token(server, tmp_path):
    _write_home(tmp_path / "home", server.url)
    with Client() as client:
        assert client.job("job-1").id == "job-1"
    assert server.seen[-1].headers["authorization"] == f"Bearer {TOKEN}"


def test_the_homes_token_is_never_sent_to_an_address_from_elsewhere(server, tmp_path, monkeypatch):
    _write_home(tmp_path / "home", _unused_url())
    monkeypatch.setenv("MUSTER_URL", server.url)
    with Client() as client, pytest.raises(Unauthenticated, match="No token"):
        client.job("job-1")
    assert server.seen == []


def test_a_server_that_moved_is_found_again(server, tmp_path):
    home = tmp_path / "home"
    _write_home(home, _unused_url())
    with Client() as client:
        with pytest.raises(Unavailable):
            client.jobs()
        _write_home(home, server.url)
        assert len(client.jobs()) == 1


def test_an_address_that_is_none_is_told_before_anything_is_sent():
    with pytest.raises(errors.ConfigError, match="localhost:6878"):
        Client("localhost:6878", TOKEN).jobs()


def test_loopback_does_not_go_through_a_proxy(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", _unused_url())
    with Client(server.url, TOKEN) as client:
        assert client.job("job-1").number == 1


# --- several servers --------------------------------------------------------------------------------------------------
def test_the_next_server_is_asked_when_one_is_gone_and_the_one_that_answered_is_asked_first_afterwards(server):
    with Client(f"{_unused_url()},{server.url}", TOKEN) as client:
        client.jobs()
        client.jobs()
    assert len(server.seen) == 2


def test_a_server_that_does_not_lead_passes_the_request_on():
    with fake_server(jobs=[view(1)]) as stand_by, fake_server(jobs=[view(1)]) as leader:
        stand_by.failures += [refusal(503, "unavailable")]
        with Client(f"{stand_by.url},{leader.url}", TOKEN) as client:
            assert client.job("job-1").id == "job-1"
        assert (len(stand_by.seen), len(leader.seen)) == (1, 1)


def test_asking_is_bounded_when_no_server_leads():
    with fake_server() as one, fake_server() as two:
        one.failures += [refusal(503, "unavailable") for _ in range(10)]
        two.failures += [refusal(503, "unavailable") for _ in range(10)]
        with Client(f"{one.url},{two.url}", TOKEN) as client, pytest.raises(Unavailable, match="What"):
            client.jobs()
        assert (len(one.seen), len(two.seen)) == (ROUNDS, ROUNDS)


# --- submitting -------------------------------------------------------------------------------------------------------
def test_a_submission_whose_answer_was_lost_is_sent_again_and_makes_one_job(server, client):
    server.failures.append("drop")
    job = client.submit({"run": "true"})
    assert [seen.path for seen in server.seen] == ["/v1/jobs", "/v1/jobs"]
    assert len({seen.headers["idempotency-key"] for seen in server.seen}) == 1
    assert job.id == "job-2"
    assert len(server.jobs) == 2


def test_what_can_not_be_repeated_is_not(server, client):
    server.failures.append("drop")
    with pytest.raises(Unavailable, match="did not answer"):
        client.create_token("ci", "ann")
    assert len(server.seen) == 1


def test_the_same_key_gives_the_same_job(client):
    assert client.submit({"run": "true"}, key="k").id == client.submit({"run": "true"}, key="k").id


def test_every_form_of_a_job(server, client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "run: python t.py\nenvs: {LR: 3e-4}\n"
    (tmp_path / "job.yaml").write_text(text)
    spec = parse_job({"run": "true", "resources": {"accelerators": "H100:8", "memory": "64GB"}})
    for form in ({"run": "true"}, text, tmp_path / "job.yaml", "job.yaml", spec):
        client.submit(form)
    here = {"base": str(tmp_path), "defaults": {"workdir": str(tmp_path), "envs": shell_envs()}}
    bodies = [seen.body for seen in server.seen]
    assert bodies[0] == {"spec": {"run": "true"}, **here}
    assert bodies[1] == {"yaml": text, "source": "the job", **here}
    assert bodies[2] == {"yaml": text, "source": str(tmp_path / "job.yaml"), **here}
    assert bodies[3] == {"yaml": text, "source": "job.yaml", **here}
    assert parse_job(bodies[4]["spec"]) == spec


def test_a_server_elsewhere_is_told_nothing_of_this_machine():
    assert submission({"run": "true"}, {}, None).keys() == {"spec", "base"}
    assert batch_item({"run": "true"}, "key")["spec"] == {"run": "true"}


def test_overrides_replace_fields_and_leave_text_as_it_was_written(server, client, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("run: python t.py\nnproc: 2\nenvs: {LR: 3e-4}\nworkdir:\n")
    client.submit(path, nproc=4, inherit=False)
    written = {"run": "python t.py", "nproc": 4, "envs": {"LR": "3e-4"}}
    assert server.seen[-1].body == {"spec": written, "source": str(path), "base": str(tmp_path)}


def test_a_job_file_that_is_not_there_is_told_by_its_path(client, tmp_path):
    with pytest.raises(errors.NotFound, match=r"nope\.yaml can't be read"):
        client.submit(tmp_path / "nope.yaml")


def test_many_jobs_are_accepted_or_refused_each_by_itself(server, client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = client.submit_many([{"run": "a", "workdir": "w"}, {"run": "bad"}, "run: b\n"], keys=["x", "y", "z"])
    assert [one["id"] if isinstance(one, dict) else type(one) for one in found] == ["job-2", errors.NotAllowed, "job-3"]
    assert server.seen[-1].body["jobs"][0] == {"spec": {"run": "a", "workdir": str(tmp_path / "w")}, "key": "x"}


# --- looking ----------------------------------------------------------------------------------------------------------
def test_jobs_are_paged_through_up_to_the_limit(server, client, monkeypatch):
    server.jobs[:] = [view(number) for number in range(1, 8)]
    monkeypatch.setattr("muster.client.job_calls.PAGE", 3)
    assert [job.number for job in client.jobs(limit=None)] == [7, 6, 5, 4, 3, 2, 1]
    assert [job.number for job in client.jobs(limit=4)] == [7, 6, 5, 4]
    assert server.seen[-1].query["limit"] == "1"


def test_a_job_takes_over_what_the_server_says_and_keeps_what_it_does_not_know(server, client):
    job = client.job("job-1")
    cause = reason("user_error", "rank 1 failed")
    server.jobs[-1] = view(1, "failed", reason=cause.to_dict(), shoe_size=43)
    assert job.refresh() is job
    assert (job.phase, job.reason, job.final, job.raw["shoe_size"]) == ("failed", cause, True, 43)


def test_a_name_can_not_leave_its_place_in_the_path(server, client):
    client.job("../tokens?x=1")
    assert server.seen[-1].path == "/v1/jobs/../tokens?x=1"


def test_a_download_that_breaks_off_is_told_as_a_server_that_went_away(server, client):
    server.failures.append("drop")
    with pytest.raises(Unavailable, match="The server went away"):
        client.read_artifact("job-1", "model.pt")
