"""The page of what Prometheus can scrape: how to set it up, every metric with its labels, and what bounds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from generator.markdown import generated, table
from muster.monitor.families import DCGM, DEVICE, FAULTS, MACHINE, SERVER, VALUES_MAX, WORK, Family

ABOUT: Final = """\
`GET /metrics` of the server has the state of the cluster for Prometheus: the server itself, jobs and capacity, and
the last sample of every node and accelerator with running work. It needs a token that may read everything. One that
can do nothing else:

```sh
muster token create prometheus --superuser --role viewer > prometheus.token
```

```yaml title="prometheus.yml"
scrape_configs:
  - job_name: muster
    scrape_interval: 15s
    authorization: {credentials_file: prometheus.token}
    static_configs:
      - targets: ["127.0.0.1:6878"]
```

With TLS add `scheme: https`, and `tls_config: {ca_file: tls.crt}` for a certificate of your own. `metrics =
"loopback"` in the server's `config.toml` opens the page to every program on the server's machine, without a token;
not behind a proxy, and not where people who may not see the cluster have an account.

`?part=server` leaves the nodes and devices out, `?part=nodes`, `?part=devices` and `?part=dcgm` are the others;
several parts may be asked for. With several servers, name all of them as targets: the one that leads answers, the
others answer 503.

"""
SAMPLES: Final = """\
Launchers sample their machine every 5 to 10 seconds while a job runs there; the server keeps the newest sample of
each node in memory. A sample that is older than three periods is left out: a chart shows a gap and not a zero. What
is missing is counted by `muster_nodes_blind` and `muster_devices_blind`. Faults are counted from numbered entries of
the event log, so that a second Xid 79 counts, and a restart of the server forgets none.

"""


NODES: Final = """\
## From the nodes themselves

`muster nodes exporter` offers the figures of its machine under the same names, also while no job runs there, and needs
no server. It is a service of every node, on port 9400 as dcgm-exporter is:

<!-- not run: it serves until it is stopped -->
```sh
muster nodes exporter --host 10.0.0.7 --token-file node.token
```

It listens on loopback unless `--host` says otherwise, and warns if it is open without a token. Where nodes are scraped
themselves, scrape the server with `?part=server`.

Where dcgm-exporter or node-exporter run already, launchers and `muster nodes exporter` can read those instead of NVML
and the kernel: set `MUSTER_DCGM_URL` and `MUSTER_NODE_EXPORTER_URL` for the server of a local engine, or on the nodes.
An exporter has two seconds and eight megabytes for its answer; without one there is a gap.

"""
BOUNDS: Final = f"""\
## Bounds

No label has the id of a job, a run or a user. Queues, pools and projects are bounded by the settings: above
{VALUES_MAX} series of one metric, further ones are counted under `other`. Reasons, phases, routes and codes are fixed
lists. A node has eight series, an accelerator twelve; a node has at most 128 accelerators and slices, and 20,000
nodes are kept. Of a node 30 faults a minute are recorded.

With 10,000 nodes of 8 accelerators and 1,000 running jobs the page has 1.04 million series in 155 MB, of which 480,000
repeat others in dcgm-exporter's names, and takes 0.85 s of one core (`bench/metrics.py`). `?part=server` has some
hundred, and takes 0.05 s.
"""


def prometheus_page() -> str:
    return (
        generated("Prometheus", "src/muster/monitor/families.py")
        + ABOUT
        + "## The server\n\n"
        + _table(SERVER)
        + "\nAnd `process_*` of the server's process.\n\n## Jobs and capacity\n\n"
        + "Counters start at 0 with the server, as Prometheus expects.\n\n"
        + _table(WORK)
        + "\n## Nodes and devices\n\n"
        + SAMPLES
        + _table((*MACHINE, *DEVICE, FAULTS))
        + "\nThe same devices under the names, labels and units of dcgm-exporter, so that existing dashboards work. "
        + "`GPU_I_PROFILE` and `GPU_I_ID` are there for slices (MIG).\n\n"
        + _table(DCGM)
        + "\n"
        + NODES
        + BOUNDS
    )


def _table(families: Sequence[Family]) -> str:
    rows = [(f"`{one.name}`", one.kind, " ".join(f"`{name}`" for name in one.labels), one.help) for one in families]
    return table(("name", "type", "labels", "meaning"), rows)
