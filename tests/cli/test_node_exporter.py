"""`muster nodes exporter` on a real port: what it says, who may read it, and how it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from components import require
from sample_kit import dcgm_page, exporter


@pytest.mark.component("prometheus")
def test_it_offers_this_machine_and_its_accelerators_to_those_with_the_token(tmp_path: Path) -> None:
    require("Prometheus", shutil.which("promtool") is not None, "Install it: apt-get install prometheus.")
    (tmp_path / "token").write_text("a-token\n")
    words = ["nodes", "exporter", "--port", "0", "--name", "n7", "--pool", "h100", "--token-file", tmp_path / "token"]
    with exporter(dcgm_page()) as dcgm:
        env = {**os.environ, "MUSTER_DCGM_URL": dcgm.url}
        command = [sys.executable, "-m", "muster", *words, "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as running:
            try:
                assert running.stdout is not None
                url = json.loads(running.stdout.readline())["url"]
                with httpx.Client(trust_env=False, headers={"Authorization": "Bearer a-token"}) as client:
                    text = client.get(url).text
                    assert client.get(url, headers={"Authorization": "Bearer other"}).status_code == 401
                    assert client.get(url.replace("/metrics", "/other")).status_code == 404
                    assert client.post(url).status_code == 501
                port = httpx.URL(url).port
                with socket.create_connection(("127.0.0.1", port)) as rude:
                    rude.sendall(b"GET /metrics")  # and goes away
                with httpx.Client(trust_env=False, headers={"Authorization": "Bearer a-token"}) as client:
                    assert client.get(url).status_code == 200
            finally:
                running.send_signal(signal.SIGTERM)
        assert running.returncode == 0
    assert 'muster_device_power_watts{node="n7",pool="h100",gpu="0",uuid="GPU-0"' in text
    assert 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-0"' in text
    assert f'muster_node_cpus{{node="n7",pool="h100"}} {os.cpu_count()}\n' in text
    own = "".join(line for line in text.splitlines(keepends=True) if "DCGM" not in line)
    checked = subprocess.run(["promtool", "check", "metrics"], input=own, text=True, capture_output=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
