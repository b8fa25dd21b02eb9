"""The signals that alert rules can name, by name. To add one: a function in a file of its family, and a line here."""

from __future__ import annotations

from typing import Final

from muster.monitor.alerts.signals import costs, jobs, nodes, programs, server
from muster.monitor.alerts.signals.base import Signal

SIGNALS: Final[dict[str, Signal]] = {
    one.name: one
    for one in (
        Signal("device_use", "ratio", "run", "its devices are in use {value} of the time", programs.device_use),
        Signal("device_memory", "ratio", "run", "a device's memory is {value} full", programs.device_memory),
        Signal("device_throttled", "ratio", "run", "a device is throttled {value} of the time", programs.throttled),
        Signal("sample_age", "seconds", "run", "no sample of its devices for {value}", programs.sample_age),
        Signal("step_time", "times", "run", "a step takes {value} as long as it did", programs.step_time),
        Signal("data_wait", "ratio", "run", "it waits for data {value} of the time", programs.data_wait),
        Signal("rank_wait", "ratio", "run", "its ranks wait for each other {value} of the time", programs.rank_wait),
        Signal("save_share", "ratio", "run", "it saves checkpoints {value} of the time", programs.save_share),
        Signal("no_improvement", "count", "run", "evaluations without improvement: {value}", programs.no_improvement),
        Signal("not_finite", "count", "run", "values that are not finite in 10 minutes: {value}", jobs.not_finite),
        Signal("loss_jumps", "count", "run", "jumps of the loss in 10 minutes: {value}", jobs.loss_jumps),
        Signal("norm_jumps", "count", "run", "jumps of the gradient norm in 10 minutes: {value}", jobs.norm_jumps),
        Signal("restarts", "count", "run", "restarts in an hour: {value}", jobs.restarts),
        Signal("hangs", "count", "run", "hangs in an hour: {value}", jobs.hangs),
        Signal("checkpoint_age", "times", "run", "{value} the interval since its checkpoint", jobs.checkpoint_age),
        Signal("queue_wait", "seconds", "run", "it waits for {value}", jobs.queue_wait),
        Signal("target_wait", "times", "run", "it waits for {value} its target", jobs.target_wait),
        Signal("failure_rate", "ratio", "project", "{value} of its jobs failed in a day", jobs.failure_rate),
        Signal("budget_used", "ratio", "budget", "{value} of it is used", costs.budget_used),
        Signal("budget_forecast", "ratio", "budget", "{value} of it by the end of the period", costs.budget_forecast),
        Signal("cost_spike", "times", "project", "its jobs cost {value} as much as usual", costs.cost_spike),
        Signal(
            "cost_without_improvement",
            "money",
            "run",
            "cost since its best evaluation: {value}",
            costs.cost_without_improvement,
        ),
        Signal("node_out", "count", "node", "it is out of service", nodes.out),
        Signal("node_findings", "count", "node", "findings in a day: {value}", nodes.findings),
        Signal("node_slow", "count", "node", "programs that are slow on it and nowhere else: {value}", nodes.slow),
        Signal("node_disk", "ratio", "node", "its fullest file system is {value} full", nodes.disk),
        Signal("node_network_errors", "count", "node", "packets lost in a minute: {value}", nodes.network_errors),
        Signal("server_behind", "count", "server", "a part of it is {value} events behind", server.behind),
        Signal("server_disk", "ratio", "server", "its disk is {value} full", server.disk),
        Signal("messages_waiting", "count", "server", "messages that wait for a receiver: {value}", server.messages),
    )
}
