"""Muster's rules for other tools: recording and alerting rules for Prometheus, and a dashboard for Grafana.

Prometheus sees how many alerts of a rule fire (`muster_alerts`), not the runs: series must not grow with jobs. What it
can tell without the server, such as a server that is gone, has expressions of its own.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from muster.core.units import format_duration
from muster.monitor.alerts.evaluate import threshold_of
from muster.monitor.alerts.rule import Rule, RuleSet
from muster.monitor.alerts.signals import SIGNALS
from muster.monitor.families import ALERTS

# Figures that dashboards ask for often, worked out once.
RECORDED: Final = {
    "muster:accelerators:utilization": "sum by (pool) (muster_accelerators_used) / sum by (pool) (muster_accelerators)",
    "muster:jobs:failure_ratio_1d": (
        'sum by (project) (increase(muster_jobs_ended_total{phase="failed"}[1d])) / '
        'sum by (project) (increase(muster_jobs_ended_total{phase=~"failed|succeeded"}[1d]))'
    ),
    "muster:queue_delay_seconds:p90_1h": (
        "histogram_quantile(0.9, sum by (queue, le) (rate(muster_queue_delay_seconds_bucket[1h])))"
    ),
    "muster:device_utilization:mean_pool": "avg by (pool) (muster_device_utilization_ratio)",
}
# Alerts that hold even when the server can't raise its own: name → expression, how long, severity, sentence.
WITHOUT_SERVER: Final = {
    "MusterDown": ("absent(muster_leader == 1)", "2m", "critical", "No server leads: nothing starts or recovers."),
    "MusterTicksFail": (
        "increase(muster_ticks_failed_total[10m]) > 3", "5m", "critical", "Rounds of the control loop fail.",
    ),
    "MusterNodesBlind": (
        "sum by (pool) (muster_nodes_blind) > 0", "10m", "warning", "Nodes with running work send no samples.",
    ),
}  # fmt: skip


def prometheus_rules(rules: RuleSet, pages: str = "") -> str:
    """A rules file, as `promtool check rules` accepts it. `pages`: where the runbooks are published, if they are."""
    groups = [
        {"name": "muster-recorded", "rules": [{"record": name, "expr": expr} for name, expr in RECORDED.items()]},
        {"name": "muster-server", "rules": [_plain(name, *parts) for name, parts in WITHOUT_SERVER.items()]},
        {"name": "muster-rules", "rules": [_alert(rule, pages) for rule in rules.rules.values()]},
    ]
    head = "# Made by `muster alerts export prometheus` from the rules in force.\n"
    return head + yaml.safe_dump({"groups": groups}, sort_keys=False, width=110)


def grafana_dashboard(rules: RuleSet) -> str:
    """A dashboard, for Grafana's import."""
    panels = [
        _panel("Alerts that fire", "sum by (rule) (muster_alerts) > 0", "{{rule}}", "short"),
        _panel("Accelerators in use", "muster:accelerators:utilization", "{{pool}}", "percentunit"),
        _panel("Use of devices, mean", "muster:device_utilization:mean_pool", "{{pool}}", "percentunit"),
        _panel("Jobs", "sum by (phase) (muster_jobs)", "{{phase}}", "short"),
        _panel("Why jobs wait", "muster_jobs_waiting", "{{reason}}", "short"),
        _panel("Wait for the first start, p90", "muster:queue_delay_seconds:p90_1h", "{{queue}}", "s"),
        _panel("Jobs that failed, share of a day", "muster:jobs:failure_ratio_1d", "{{project}}", "percentunit"),
        _panel("Restarts", "sum by (reason) (increase(muster_job_restarts_total[1h]))", "{{reason}}", "short"),
        _panel("Nodes", "sum by (health) (muster_nodes)", "{{health}}", "short"),
        _panel("Nodes without samples", "muster_nodes_blind", "{{pool}}", "short"),
        _panel("Hottest device", "max by (pool) (muster_device_temperature_celsius)", "{{pool}}", "celsius"),
        _panel("Events behind", "muster_follower_lag_events", "{{follower}}", "short"),
        _panel(
            "Rounds of the control loop, p99",
            "histogram_quantile(0.99, rate(muster_tick_duration_seconds_bucket[5m]))", "p99", "s",
        ),
    ]  # fmt: skip
    for number, panel in enumerate(panels):
        panel["id"] = number + 1
        panel["gridPos"] = {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8}
    return json.dumps(
        {
            "title": "Muster",
            "uid": "muster",
            "tags": ["muster"],
            "timezone": "browser",
            "schemaVersion": 39,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus"}]},
            "description": f"Made by `muster alerts export grafana` from {len(rules.rules)} rules.",
            "panels": panels,
        },
        indent=1,
    )


def _alert(rule: Rule, pages: str) -> dict[str, Any]:
    """Muster has waited for the rule's `for` already, and keeps the alert for its `keep`."""
    address = rule.runbook if urlsplit(rule.runbook).scheme else f"{pages.rstrip('/')}/{rule.runbook}"
    lasts = f" for {format_duration(rule.hold)}" if rule.hold else ""
    says = SIGNALS[rule.signal].says.replace("{value}", "...")
    return {
        "alert": "Muster" + "".join(part.capitalize() for part in rule.name.split("-")),
        "expr": f'sum by (rule) ({ALERTS.name}{{rule="{rule.name}"}}) > 0',
        "labels": {"severity": rule.severity},
        "annotations": {
            "summary": f"{{{{ $value }}}} alerts of the rule {rule.name}: {says} ({threshold_of(rule)}{lasts})",
            "description": "`muster alerts` lists them, `muster alerts show ALERT` says what to do.",
            "owner": rule.owner,
            "runbook": rule.runbook,
            **({"runbook_url": address} if urlsplit(address).scheme else {}),
        },
    }


def _plain(name: str, expr: str, lasts: str, severity: str, says: str) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expr,
        "for": lasts,
        "labels": {"severity": severity},
        "annotations": {"summary": says, "description": "`muster doctor` looks at the server."},
    }


def _panel(title: str, expr: str, legend: str, unit: str) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "title": title,
        "type": "timeseries",
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": unit, "custom": {"spanNulls": False}}, "overrides": []},
        "targets": [{"refId": "A", "expr": expr, "legendFormat": legend, "datasource": source}],
    }
