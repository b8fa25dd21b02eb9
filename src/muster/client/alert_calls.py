"""Alerts: what fires, silences, and the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.client.connection import Anyone, part

if TYPE_CHECKING:
    from muster.api.alerts import (
        AlertDetail,
        AlertList,
        AlertRulesSet,
        AlertRulesView,
        AlertTest,
        AlertView,
        SilenceView,
    )
    from muster.api.ranks import RanksView


async def alerts(to: Anyone, /) -> AlertList:
    """Alerts that are pending or fire, and silences."""
    return await to._get("/v1/alerts")


async def alert(to: Anyone, /, number: int) -> AlertDetail:
    """One alert, with its runbook filled in."""
    return await to._get(f"/v1/alerts/{number}")


async def acknowledge_alert(to: Anyone, /, number: int, note: str = "") -> AlertView:
    """Says that you look after an alert that fires: nobody is reminded of it any more, and its end is still told."""
    return await to._send("POST", f"/v1/alerts/{number}/acknowledge", {"note": note})


async def ranks(to: Anyone, /, ref: str | int) -> RanksView:
    """What the ranks of a running job do now, those that are unlike the others marked."""
    return await to._get(f"/v1/jobs/{part(ref)}/ranks")


async def alert_rules(to: Anyone, /) -> AlertRulesView:
    """The rules in force, and the file that was applied."""
    return await to._get("/v1/alerts/rules")


async def set_alert_rules(to: Anyone, /, text: str, dry_run: bool = False, source: str = "The rules") -> AlertRulesSet:
    """Applies a file of alert rules over the default rules, or only checks it. Raises SpecError with all mistakes."""
    return await to._send("PUT", "/v1/alerts/rules", {"text": text, "dry_run": dry_run, "source": source})


async def try_alert_rules(
    to: Anyone, /, text: str = "", since: float = 2_592_000.0, source: str = "The rules"
) -> AlertTest:
    """What a file of rules would have raised in the last `since` seconds."""
    return await to._send("POST", "/v1/alerts/test", {"text": text, "since": since, "source": source})


async def silence(
    to: Anyone, /, why: str, seconds: float, rule: str = "", project: str = "", run: str = "", node: str = ""
) -> SilenceView:
    """Nobody is told of alerts that match all given parts, and nothing is done about them, for so long."""
    body = {"why": why, "seconds": seconds, "rule": rule, "project": project, "run": run, "node": node}
    return await to._send("POST", "/v1/silences", body)


async def end_silence(to: Anyone, /, ident: str) -> SilenceView:
    return await to._send("DELETE", f"/v1/silences/{part(ident)}")
