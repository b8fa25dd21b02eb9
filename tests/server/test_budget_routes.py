"""Budgets of a live server: who sees and sets them, what they refuse, and a job whose own budget stops it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from live import LiveServer, call_muster, live_server, until


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """An hour of an accelerator costs 3,600 USD: a second is 1 USD."""
    config = "nodes = 1\naccelerators = 'H100:4'\ncpus = 64\n"
    with live_server(tmp_path_factory.mktemp("home"), config=config) as server:
        with server.http() as root:
            prices = {"text": "currency: USD\npools: {local: {accelerator: 3600}}"}
            assert root.put("/v1/cost/prices", json=prices).status_code == 200
            for project in ("alpha", "beta"):
                assert root.post("/v1/projects", json={"name": project}).status_code == 201
                assert root.post("/v1/queues", json={"name": f"q-{project}", "project": project}).status_code == 201
            for user, project, role in (
                ("ann", "alpha", "admin"),
                ("max", "alpha", "member"),
                ("bea", "beta", "admin"),
            ):
                assert root.put(f"/v1/projects/{project}/members/{user}", json={"role": role}).status_code == 200
        yield server


def person(shop: LiveServer, user: str) -> httpx.Client:
    return shop.http(shop.post("/v1/tokens", {"user": user})["token"])


def budget(shop: LiveServer, name: str) -> dict[str, Any]:
    return next(one for one in shop.get("/v1/cost/budgets")["budgets"] if one["name"] == name)


def put(who: httpx.Client, name: str, **body: Any) -> dict[str, Any]:
    answer = who.put(f"/v1/cost/budgets/{name}", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def spec(shop: LiveServer, run: str = "true", **more: Any) -> dict[str, Any]:
    where = {"project": "alpha", "queue": "q-alpha", "workdir": str(shop.home), "gpus": 1}
    return {"spec": {"name": "job", "run": run, **where, **more}}


def test_who_sees_sets_and_grants(shop: LiveServer) -> None:
    with person(shop, "ann") as ann, person(shop, "max") as member, person(shop, "bea") as bea, shop.http() as root:
        asked = {"amount": "5000 USD", "project": "alpha", "mode": "soft"}
        assert put(ann, "of-alpha", **asked, dry_run=True)["applied"] is False
        assert root.get("/v1/cost/budgets").json()["budgets"] == []
        assert put(ann, "of-alpha", **asked)["limit"] == 5_000_000_000
        put(root, "of-max", amount="9", user="max", mode="soft")
        put(root, "all", amount="99999", per="week", mode="soft")

        def seen(who: httpx.Client) -> list[str]:
            return [one["name"] for one in who.get("/v1/cost/budgets").json()["budgets"]]

        assert [seen(who) for who in (ann, member, bea)] == [["of-alpha"], ["of-alpha", "of-max"], []]
        # A budget of another project can't be taken over, removed or raised, and nothing says that it is there.
        taken = bea.put("/v1/cost/budgets/of-alpha", json={"amount": "1", "project": "beta"})
        assert taken.status_code == 409
        gone = [bea.delete(f"/v1/cost/budgets/{name}").json()["error"] for name in ("of-alpha", "none")]
        assert gone[0]["message"].replace("of-alpha", "none") == gone[1]["message"]
        for who, name, status in ((member, "of-max", 403), (ann, "all", 404), (member, "of-alpha", 403)):
            sent = {"amount": "5", "reason": "more"}
            assert who.post(f"/v1/cost/budgets/{name}/grants", json=sent).status_code == status
        assert ann.put("/v1/cost/budgets/all-of-it", json={"amount": "5"}).status_code == 403
        for wrong in (
            {"amount": "5 EUR"}, {"amount": "-5"}, {"amount": "5", "per": "fixed"},
            {"amount": "5", "first": "2026-01-01"},
            {"amount": "5", "per": "fixed", "first": "2026-02-30", "last": "2026-03-01"},
            {"amount": "5", "per": "fixed", "first": "2026-03-02", "last": "2026-03-01"},
        ):  # fmt: skip
            assert ann.put("/v1/cost/budgets/x", json={**wrong, "project": "alpha"}).status_code == 400
        granted = ann.post("/v1/cost/budgets/of-alpha/grants", json={"amount": "500", "reason": "a paper"}).json()
        assert granted["limit"] == 5_500_000_000
        event = root.get("/v1/events", params={"kind": "budget.granted"}).json()["events"][-1]
        assert (event["actor"], event["project"], event["data"]["why"]) == ("ann", "alpha", "a paper")


def see_alerts(shop: LiveServer) -> None:
    """Both budgets are spent; the alert of the one over all projects is not for everybody."""
    with shop.http() as root, person(shop, "max") as member:
        put(root, "tiny", amount="0.01", mode="soft")
        put(root, "own", amount="0.01", project="alpha", mode="soft")

        def told(who: httpx.Client) -> set[str]:
            return {one["subject"]["name"] for one in who.get("/v1/alerts").json()["alerts"]}

        until(lambda: told(root) >= {"tiny", "own"}, "the alerts")
        assert "own" in told(member)
        assert "tiny" not in told(member)
        all_of_it = [one for one in root.get("/v1/alerts").json()["alerts"] if one["subject"]["name"] == "tiny"]
        numbers = [one["number"] for one in all_of_it if one["number"]]
        assert numbers
        assert [member.get(f"/v1/alerts/{number}").status_code for number in numbers] == [404] * len(numbers)
        assert [root.get(f"/v1/alerts/{number}").status_code for number in numbers] == [200] * len(numbers)


def test_refused_granted_warned_and_stopped_when_its_own_is_spent(shop: LiveServer) -> None:
    with shop.http() as root:
        put(root, "jobs", amount="100 USD", project="alpha", family="job")
        put(root, "soft", amount="1", project="alpha", mode="soft")
        refused = root.post("/v1/jobs", json=spec(shop, max_duration="500s"))
        assert refused.status_code == 409
        (why,) = refused.json()["error"]["reasons"]
        assert (why["code"], why["data"]["left"]) == ("over_budget", 100_000_000)
        assert "ask ann (an admin of 'alpha') for `muster cost grant jobs" in why["hint"]
        environment = {"MUSTER_HOME": str(shop.home)}
        told = call_muster("cost", "grant", "jobs", "900 USD", "--reason", "a test", "--json", env=environment)
        assert told.returncode == 0, told.stderr
        accepted = root.post("/v1/jobs", json=spec(shop, "sleep 600", max_duration="500s", budget="2 USD"))
        assert accepted.status_code == 201, accepted.text
        assert "Budget 'soft' is overdrawn" in accepted.json()["warnings"][0]
        job = shop.wait(accepted.json()["id"])
        assert (job["phase"], job["reason"]["code"]) == ("stopped", "job_budget_spent")
        known = until(lambda: budget(shop, "jobs")["spent"] and budget(shop, "jobs"), "the charge")
        assert known["spent"] >= 2_000_000
        assert (known["committed"], known["limit"]) == (0, 1_000_000_000)
        shop.kill()
        shop.start()
        assert budget(shop, "jobs")["spent"] == known["spent"]
        # A budget that is set now begins with what the ledger has.
        with shop.http() as again:
            later = put(again, "later", amount="1 USD", project="alpha")
        assert later["spent"] == known["spent"]
        assert "is spent in this period already, more than 1.00 USD: jobs are refused" in later["warnings"][0]
        see_alerts(shop)


def test_a_budget_of_mode_stop_stops_what_runs(shop: LiveServer) -> None:
    with shop.http() as root:
        put(root, "halt", amount="600", project="beta", family="halt")
        where: dict[str, Any] = {"project": "beta", "queue": "q-beta", "tags": {"family": "halt"}}
        body = spec(shop, "sleep 600", max_duration="500s", stop_grace="1s", **where)
        job = root.post("/v1/jobs", json=body).json()["id"]
        shop.wait(job, "running")
        assert budget(shop, "halt")["committed"] == 500_000_000
        lowered = put(root, "halt", amount="0.01", project="beta", family="halt", mode="stop")
        assert "its running jobs save and are stopped, from now on" in lowered["warnings"][0]
        ended = shop.wait(job)
        assert (ended["phase"], ended["reason"]["code"]) == ("stopped", "budget_spent")
        assert budget(shop, "halt")["committed"] == 0
