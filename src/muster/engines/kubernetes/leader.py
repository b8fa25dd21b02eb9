"""Labels the pod of the leading server, so that a Service finds it. Runs next to each server in a cluster.

    python -m muster.engines.kubernetes.leader https://127.0.0.1:6878 CERTIFICATE

Both servers are healthy, so readiness can't tell them apart without blocking rollouts and disruption budgets.
"""

from __future__ import annotations

import logging
import os
import signal
import ssl
import sys
import threading
from collections.abc import Callable
from typing import Final

import httpx

from muster.core.errors import EngineError
from muster.engines.kubernetes.access import find_access
from muster.engines.kubernetes.client import PODS, KubeClient

LABEL: Final = "muster.dev/leader"
LOOK_EVERY: Final = 1.0  # seconds
AGAIN_EVERY: Final = 60  # looks after which the label is set again, in case something else removed it
_log = logging.getLogger(__name__)


def main() -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    try:
        url, pod, namespace = sys.argv[1], os.environ["POD_NAME"], os.environ["POD_NAMESPACE"]
    except (IndexError, KeyError):
        sys.stderr.write("usage: leader URL [CERTIFICATE], with POD_NAME and POD_NAMESPACE in the environment\n")
        return 2
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    cluster = KubeClient(find_access())

    def mark(leads: bool) -> None:
        cluster.merge(PODS.path(namespace, pod), {"metadata": {"labels": {LABEL: "true" if leads else "false"}}})

    trust = ssl.create_default_context(cafile=sys.argv[2]) if len(sys.argv) > 2 else True
    with httpx.Client(base_url=url, timeout=3.0, trust_env=False, verify=trust) as server:
        follow(lambda: _leads(server), mark, stopped)
    cluster.close()
    return 0


def follow(leads: Callable[[], bool], mark: Callable[[bool], None], stopped: threading.Event) -> None:
    """Sets the label at once, at every change and from time to time; retries what the cluster refuses."""
    marked: bool | None = None
    looks = 0
    while not stopped.is_set():
        now = leads()
        looks += 1
        if now != marked or looks % AGAIN_EVERY == 0:
            try:
                mark(now)
                if now != marked:
                    _log.info("this server %s", "leads" if now else "stands by")
                marked = now
            except EngineError as error:
                marked = None
                _log.warning("the pod can't be marked: %s", error)
        stopped.wait(LOOK_EVERY)


def _leads(server: httpx.Client) -> bool:
    try:
        return server.get("/readyz").status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


if __name__ == "__main__":
    sys.exit(main())
