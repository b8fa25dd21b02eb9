"""Samples of machines and accelerators as launchers send them, and an exporter that says what a test tells it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from muster.wire import DeviceSample, NodeSample

MODEL = "NVIDIA H100 80GB HBM3"


def device(index: int = 0, use: float | None = 0.5, **given: object) -> DeviceSample:
    values = {
        "uuid": f"GPU-{index}", "name": MODEL, "profile": "", "instance": -1, "memory_used": 3 << 30,
        "memory": 80 << 30, "power": 312.5, "temperature": 41, "clock": 1_980_000_000,
    }  # fmt: skip
    return DeviceSample(index, use=use, **{**values, **given})  # type: ignore[arg-type]


def node(*devices: DeviceSample, every: float = 10.0, cpu: float | None = 1234.5) -> NodeSample:
    return NodeSample(every, 64, cpu, 512 << 30, 400 << 30, 1000, 2000, 3000, 4000, devices, 0.5, 7)


def dcgm_page(gpus: int = 1, use: int = 87, free: int = 40_000) -> str:
    """What dcgm-exporter answers, in its own format."""
    lines = ["# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).", "# TYPE DCGM_FI_DEV_GPU_UTIL gauge"]
    figures = {
        "GPU_UTIL": use,
        "FB_USED": 41_079,
        "FB_FREE": free,
        "POWER_USAGE": 312.5,
        "GPU_TEMP": 41,
        "SM_CLOCK": 1980,
    }
    for gpu in range(gpus):
        labels = f'gpu="{gpu}",UUID="GPU-{gpu}",pci_bus_id="00000000:07:00.0",device="nvidia{gpu}",modelName="{MODEL}"'
        lines += [f"DCGM_FI_DEV_{name}{{{labels}}} {value}" for name, value in figures.items()]
    return "\n".join(lines) + "\n"


class Exporter:
    """Answers `page`, or does what `behave` does with the request."""

    def __init__(self, page: str) -> None:
        self.page, self.url = page, ""
        self.behave = lambda request: request.answer(self.page.encode())


@contextmanager
def exporter(page: str) -> Iterator[Exporter]:
    made = Exporter(page)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.behave(self)

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *given: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        made.url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
