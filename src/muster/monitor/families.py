"""Every metric that Muster exports to Prometheus: its name, type, labels and meaning. `docs/prometheus.md` lists them.

Labels have values that configuration or hardware bounds: queues, pools, projects, nodes, devices, and fixed lists. No
label has the id of a job, a run or a user, so that the number of series does not grow with the work that is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]
VALUES_MAX: Final = 1000  # series of one metric by queue, pool or project; further ones are counted as `OTHER`
OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class Family:
    name: str  # of a counter with its `_total`
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


def _gauge(name: str, help_: str, *labels: str) -> Family:
    return Family(name, "gauge", help_, labels)


def _counter(name: str, help_: str, *labels: str) -> Family:
    return Family(name, "counter", help_, labels)


def _histogram(name: str, help_: str, *labels: str) -> Family:
    return Family(name, "histogram", help_, labels)


# --- the server ------------------------------------------------------------------------------------------------------
BUILD = _gauge("muster_build_info", "Always 1; the label is the version.", "version")
LEADER = _gauge("muster_leader", "Whether this server holds the lease.")
EVENTS = _counter("muster_events_total", "Events in the log: the number of the newest one.")
LAG = _gauge("muster_follower_lag_events", "Events that a follower of the log has not folded yet.", "follower")
FAILING = _gauge("muster_follower_failing", "Whether the last round of a follower failed.", "follower")
ASIDE = _gauge("muster_set_aside_records", "Records that the database did not take; counted up to 100.")
OUTBOX = _gauge("muster_outbox_waiting_messages", "Messages to other services that wait for their delivery.")
OUTBOX_AGE = _gauge("muster_outbox_oldest_seconds", "Age of the oldest message that waits.")
OUTBOX_LOST = _gauge("muster_outbox_given_up_messages", "Messages that were given up after days of attempts.")
TICK = _histogram("muster_tick_duration_seconds", "Duration of the rounds of the control loop.")
TICKS_FAILED = _counter("muster_ticks_failed_total", "Rounds of the control loop that failed and were repeated.")
BATCHES = _counter("muster_ingest_batches_total", "Batches of launchers that were stored.")
BYTES = _counter("muster_ingest_bytes_total", "New bytes of launchers that were stored.", "stream")
POINTS = _counter("muster_ingest_points_total", "Points of metrics that were stored.")
REQUESTS = _counter("muster_http_requests_total", "Answered requests.", "route", "method", "status")
REQUEST_TIME = _histogram("muster_http_request_duration_seconds", "Time until the answer to a request begins.", "route")

# --- jobs and capacity -----------------------------------------------------------------------------------------------
JOBS = _gauge("muster_jobs", "Jobs that are not over.", "queue", "phase")
WAITING = _gauge(
    "muster_jobs_waiting", "Queued jobs by their first reason to wait; `unexamined` beyond the first 500.", "reason"
)
SUBMITTED = _counter("muster_jobs_submitted_total", "Jobs that were accepted.", "project")
ENDED = _counter("muster_jobs_ended_total", "Jobs that are over, by how they ended.", "project", "phase")
RESTARTS = _counter("muster_job_restarts_total", "Attempts after which a job was queued again.", "category", "reason")
FAILURES = _counter("muster_attempts_failed_total", "Attempts that failed.", "category", "reason")
DELAY = _histogram("muster_queue_delay_seconds", "From the submission of a job to its first start.", "queue", "pool")
ACCELERATORS = _gauge("muster_accelerators", "Accelerators of a pool.", "pool")
ACCELERATORS_USED = _gauge("muster_accelerators_used", "Accelerators that jobs hold.", "pool")
ACCELERATORS_OUT = _gauge(
    "muster_accelerators_out_of_service", "Accelerators that are idle on nodes that are not healthy.", "pool"
)
ACCELERATORS_ASKED = _gauge("muster_accelerators_requested", "Accelerators that queued jobs request.", "pool")
CPUS = _gauge("muster_cpus", "CPUs of a pool.", "pool")
CPUS_USED = _gauge("muster_cpus_used", "CPUs that jobs hold.", "pool")
NODES = _gauge("muster_nodes", "Nodes of a pool.", "pool", "health")
ALERTS = _gauge("muster_alerts", "Alerts that fire, those that are silenced among them.", "rule", "severity")
NODES_BLIND = _gauge("muster_nodes_blind", "Nodes with running work that sent no sample for three periods.", "pool")
DEVICES_BLIND = _gauge(
    "muster_devices_blind", "Accelerators that running work holds and that no sample of three periods shows.", "pool"
)
COST_TODAY = _gauge(
    "muster_cost_today",
    "What was charged for today, in the currency's unit.",
    "project",
    "pool",
    "account",
    "currency",
)
COST_PENDING = _gauge(
    "muster_cost_pending", "What attempts that still run have cost so far.", "project", "pool", "currency"
)
COST_UNPRICED = _gauge("muster_cost_unpriced_hours_today", "Held hours of today that have no price.", "project", "pool")
SERVER: Final = (
    BUILD, LEADER, EVENTS, LAG, FAILING, ASIDE, OUTBOX, OUTBOX_AGE, OUTBOX_LOST, TICK, TICKS_FAILED, BATCHES, BYTES,
    POINTS, REQUESTS, REQUEST_TIME,
)  # fmt: skip
WORK: Final = (
    JOBS, WAITING, SUBMITTED, ENDED, RESTARTS, FAILURES, DELAY, ACCELERATORS, ACCELERATORS_USED, ACCELERATORS_OUT,
    ACCELERATORS_ASKED, CPUS, CPUS_USED, NODES, ALERTS, NODES_BLIND, DEVICES_BLIND, COST_TODAY, COST_PENDING,
    COST_UNPRICED,
)  # fmt: skip

# --- nodes and devices: the same from the server and from `muster nodes exporter` ------------------------------------
_NODE: Final = ("node", "pool")
_DEVICE: Final = ("node", "pool", "gpu", "uuid", "mig", "model")  # in a pod every device may have the index 0
NODE_CPUS = _gauge("muster_node_cpus", "CPUs of the machine.", *_NODE)
NODE_CPU = _counter("muster_node_cpu_busy_seconds_total", "CPU time that was used, of all CPUs.", *_NODE)
NODE_MEMORY = _gauge("muster_node_memory_bytes", "Memory of the machine.", *_NODE)
NODE_FREE = _gauge("muster_node_memory_available_bytes", "Memory that programs can still get.", *_NODE)
NODE_READ = _counter("muster_node_disk_read_bytes_total", "Read from all disks since the start.", *_NODE)
NODE_WRITTEN = _counter("muster_node_disk_written_bytes_total", "Written to all disks since the start.", *_NODE)
NODE_RECEIVED = _counter("muster_node_network_received_bytes_total", "Received, without loopback.", *_NODE)
NODE_SENT = _counter("muster_node_network_transmitted_bytes_total", "Sent, without loopback.", *_NODE)
NODE_DISK = _gauge("muster_node_disk_used_ratio", "Used part of the fullest file system, 0 to 1.", *_NODE)
NODE_ERRORS = _counter("muster_node_network_errors_total", "Packets that were lost or dropped, both ways.", *_NODE)
MACHINE: Final = (
    NODE_CPUS, NODE_CPU, NODE_MEMORY, NODE_FREE, NODE_READ, NODE_WRITTEN, NODE_RECEIVED, NODE_SENT, NODE_DISK,
    NODE_ERRORS,
)  # fmt: skip

DEVICE_USE = _gauge("muster_device_utilization_ratio", "Part of the time in which a kernel ran, 0 to 1.", *_DEVICE)
DEVICE_USED = _gauge("muster_device_memory_used_bytes", "Device memory in use.", *_DEVICE)
DEVICE_MEMORY = _gauge("muster_device_memory_bytes", "Device memory.", *_DEVICE)
DEVICE_POWER = _gauge("muster_device_power_watts", "Power.", *_DEVICE)
DEVICE_TEMPERATURE = _gauge("muster_device_temperature_celsius", "Temperature of the chip.", *_DEVICE)
DEVICE_CLOCK = _gauge("muster_device_clock_hertz", "Clock of the multiprocessors.", *_DEVICE)
DEVICE: Final = (DEVICE_USE, DEVICE_USED, DEVICE_MEMORY, DEVICE_POWER, DEVICE_TEMPERATURE, DEVICE_CLOCK)
FAULTS = _counter(
    "muster_device_faults_total", "Faults that the driver reported: the Xid's number, or `ecc`.", "node", "gpu", "code"
)

# --- the names, labels and units of dcgm-exporter --------------------------------------------------------------------
_DCGM: Final = ("gpu", "UUID", "device", "modelName", "Hostname", "GPU_I_PROFILE", "GPU_I_ID")
DCGM_USE = _gauge("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", *_DCGM)
DCGM_USED = _gauge("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", *_DCGM)
DCGM_FREE = _gauge("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", *_DCGM)
DCGM_POWER = _gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", *_DCGM)
DCGM_TEMPERATURE = _gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", *_DCGM)
DCGM_CLOCK = _gauge("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", *_DCGM)
DCGM: Final = (DCGM_USE, DCGM_USED, DCGM_FREE, DCGM_POWER, DCGM_TEMPERATURE, DCGM_CLOCK)
