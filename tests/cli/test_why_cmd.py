"""`muster why`, `muster submit --dry-run` and `muster queue forecast` as their users see them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from live import LiveServer, live_server, until
from muster.cli.dry_run import show_refused
from muster.cli.forecast import when


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Two nodes with two accelerators each."""
    with live_server(tmp_path_factory.mktemp("why"), config="nodes = 2\naccelerators = 'H100:2'\ncpus = 8\n") as server:
        yield server


@pytest.fixture
def there(small, muster, monkeypatch):
    monkeypatch.setenv("MUSTER_HOME", str(small.home))
    return muster


@pytest.fixture
def held(small: LiveServer) -> Iterator[str]:
    """A gang that holds one of the nodes, and nothing that waits."""
    job = small.submit("sleep 600", name="holder", gpus=2, priority=95, max_duration="1h")
    small.wait(job["id"], "running")
    yield job["id"]
    with small.http() as http:
        for one in small.get("/v1/jobs")["jobs"]:
            if one["phase"] in ("queued", "starting", "running"):
                http.post(f"/v1/jobs/{one['id']}/stop", json={"force": True})  # one that ends meanwhile is refused
    small.wait(job["id"])


def file(tmp_path, text: str) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(f"name: wide\nrun: 'true'\n{text}")
    return str(path)


def test_why_says_what_would_let_it_start_and_when(there, small, held):
    wide = small.submit("true", name="wide", gpus=2, num_nodes=2)["id"]
    shown = there("why", wide).out
    assert "needs 2 nodes with GPU:2" in shown
    assert "would let it start: `num_nodes: 1` would start now, in place of 2" in shown
    assert f"would let it start: {held} to end" in shown
    assert "expected start: about" in shown
    told = there("why", wide, "--json").json
    assert told["reason"]["code"] == "no_capacity"
    assert shown.rstrip().endswith(f"docs: {told['docs']}")
    assert told["docs"] == "docs/troubleshooting.md#no_capacity"
    assert {one["code"] for one in told["unblock"]} >= {"fewer_nodes", "wait_for"}
    second = small.submit("true", name="wide", gpus=2, num_nodes=2)["id"]
    assert f"place 2 in line, behind: {wide}" in there("why", second).out


def test_a_dry_run_says_where_when_and_what_is_sooner(there, small, held, tmp_path):
    shown = there("submit", "--dry-run", file(tmp_path, "num_nodes: 2\ngpus: 2\n"))
    assert shown.code == 0
    assert "would be accepted as wide" in shown.out
    assert "would start  about" in shown.out
    assert "sooner       `num_nodes: 1` would start now" in shown.out
    assert f"waits for    {held} to end" in shown.out
    shown = there("submit", "--dry-run", file(tmp_path, "gpus: 2\n"))
    assert "would start  at once, on local-" in shown.out
    told = there("submit", "--dry-run", "--json", file(tmp_path, "gpus: 2\n")).json
    assert (told["accepted"], told["starts_now"], len(told["nodes"])) == (True, True, 1)
    assert small.get("/v1/jobs", name="wide", phase="queued")["jobs"] == []


def test_a_refused_dry_run_names_the_nearest_shape(there, tmp_path):
    found = there("submit", "--dry-run", file(tmp_path, "num_nodes: 3\ngpus: 2\n"))
    assert found.code == 1
    assert "never_fits: 3 nodes" in found.err
    assert "nearest that would be: num_nodes: 2" in found.err
    told = there("submit", "--dry-run", "--json", file(tmp_path, "num_nodes: 3\n")).json
    assert (told["accepted"], told["error"]["reasons"][0]["data"]["nearest"]) == (False, {"num_nodes": 2})


def test_forecasts_of_the_line_and_of_one(there, small, held):
    wide = small.submit("true", name="wide", gpus=2, num_nodes=2)["id"]
    shown = there("queue", "forecast").out
    assert shown.split()[:6] == ["place", "job", "queue", "user", "P50", "P90"]
    assert wide in shown
    assert there("queue", "forecast", wide).out.startswith(f"{wide}: about ")
    assert there("queue", "forecast", held).out == f"{held}: it does not wait: it is running\n"
    assert there("queue", "forecast", "--json").json["jobs"][0]["job"] == wide
    assert there("queue", "forecast", "--calibration", wide).code == 2


def test_tables_are_whole_where_nobody_looks_at_a_screen(there, small, held):
    name = "a-name-of-which-fifty-characters-are-allowed-at-all"[:50].rstrip("-")
    wide = small.submit("true", name=name, gpus=2, num_nodes=2)["id"]
    for words in (("ls",), ("queue", "show", "default"), ("queue", "forecast")):
        assert wide in there(*words).out


def test_calibration_shows_shares(there, small, held):
    assert there("queue", "forecast", "--calibration", "--queue", "other").err.startswith("No job was forecast")
    wide = small.submit("true", name="wide", gpus=2, num_nodes=2)["id"]
    until(lambda: small.get("/v1/events", job=wide, kind="job.forecast")["events"], "the forecast")
    small.post(f"/v1/jobs/{held}/stop", {"force": True})
    small.wait(wide)
    found = there("queue", "forecast", "--calibration", "--since", "1h")
    assert "by P90" in found.out
    assert "queue default" in found.out
    assert "2 to 8 accelerators" in found.out
    assert there("queue", "forecast", "--calibration", "--json").json["all"]["jobs"] >= 1


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"p50": 100.0, "p90": 100.0}, "at once"),
        ({"p50": None, "p90": None, "never": True}, "not while nothing else changes"),
        ({"p50": None, "p90": None, "cut": ["rounds"]}, "not known (it was cut short)"),
    ],
)
def test_a_forecast_in_words(told, words):
    assert when({"at": 100.0, "after": None, "never": False, "cut": [], **told}) == words


def test_a_refusal_in_words(capsys):
    nearest = {"pool": None, "use_spot": True, "topology": {"require": None}}
    show_refused("a.yaml", [{"code": "x", "message": "no", "hint": "", "data": {"nearest": nearest}}])
    assert "no pool, use_spot: true, topology: {require: none}" in capsys.readouterr().err


def test_why_with_several_causes_at_once(there, small, held, tmp_path):
    """The queue's limit and its quota are reached, one node is full, and the other one is drained."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("queues: {default: {quota: {local: 2}, borrow: none, max_running: 1}}\n")
    assert there("queue", "apply", str(policy)).code == 0
    node = next(name for name in ("local-0", "local-1") if name not in small.job(held)["nodes"])
    assert there("nodes", "drain", node, "--reason", "a new fan").code == 0
    try:
        first = small.submit("true", name="first", gpus=2, priority=90)["id"]
        late = small.submit("true", name="late", gpus=2)["id"]
        shown, told = there("why", late).out, there("why", late, "--json").json
        codes = ["limit_reached", "quota_reached", "behind_in_queue", "no_capacity"]
        assert [cause["code"] for cause in told["all"]] == codes
        assert f"{late} queued for" in shown
        assert "for 4 reasons:\n" in shown
        for cause in told["all"]:
            assert f"  {cause['code']}: {cause['message']}\n    {cause['hint']}" in shown
        assert "queue 'default' runs 1 of 1 jobs that may run at once" in shown
        assert "uses 2 of its 2 accelerators in 'local' and may borrow 0" in shown
        assert f"place 2 in line, behind: {first}" in shown
        assert f"0 of 1 nodes have it free, and there would be {node} (draining: a new fan); held by {held}" in shown
        assert f"would help: {held} to end" in shown
        assert "would let it start" not in shown  # no one of them would
        assert shown.rstrip().endswith("docs: docs/troubleshooting.md#limit_reached")
    finally:
        there("nodes", "undrain", node)
        policy.write_text("{}\n")
        assert there("queue", "apply", str(policy)).code == 0
