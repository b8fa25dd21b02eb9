"""What a node says of itself: figures of the kernel, exporters in their place, slices of devices, and faults."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muster.runtime import exporters, fault_watch
from muster.runtime.exporters import Dcgm, NodeExporter, fetch, parse
from muster.runtime.fault_watch import FaultWatch
from muster.runtime.node_sample import node_sample, read_machine
from muster.runtime.nvml import Device, Nvml, slices_in_view
from muster.wire import NodeSample
from sample_kit import MODEL, dcgm_page, exporter

NODE_PAGE = """\
node_cpu_seconds_total{cpu="0",mode="idle"} 100
node_cpu_seconds_total{cpu="0",mode="user"} 7.5
node_cpu_seconds_total{cpu="1",mode="system"} 2.5
node_memory_MemTotal_bytes 1.6e+10
node_disk_read_bytes_total{device="nvme0n1"} 300
node_disk_read_bytes_total{device="dm-0"} 300
node_network_receive_bytes_total{device="lo"} 5
node_network_receive_bytes_total{device="eth0"} 40 1700000000000
node_network_transmit_bytes_total{device="eth0"} NaN
node_network_receive_errs_total{device="eth0"} 2
node_network_receive_drop_total{device="eth0"} 3
node_network_receive_drop_total{device="lo"} 100
node_filesystem_size_bytes{device="/dev/sda1",fstype="ext4",mountpoint="/"} 1000
node_filesystem_avail_bytes{device="/dev/sda1",fstype="ext4",mountpoint="/"} 100
node_filesystem_size_bytes{device="/dev/sdb1",fstype="ext4",mountpoint="/data"} 1000
node_filesystem_avail_bytes{device="/dev/sdb1",fstype="ext4",mountpoint="/data"} 800
node_filesystem_size_bytes{device="/dev/loop1",fstype="squashfs",mountpoint="/snap/x"} 10
node_filesystem_avail_bytes{device="/dev/loop1",fstype="squashfs",mountpoint="/snap/x"} 0
node_filesystem_size_bytes{device="tmpfs",fstype="tmpfs",mountpoint="/run"} 10
node_filesystem_avail_bytes{device="tmpfs",fstype="tmpfs",mountpoint="/run"} 0
"""


def test_the_machine_by_the_kernels_own_files() -> None:
    found = read_machine()
    assert found["cpus"] == os.cpu_count()
    assert found["memory"] > found["available"] > 0
    assert found["cpu"] > 0
    later = read_machine()
    assert all(later[name] >= found[name] for name in ("cpu", "disk_read", "sent") if found[name] is not None)
    assert 0 < found["disk"] <= 1
    sample = node_sample(10.0, found, ())
    raw = [list(one) if isinstance(one, tuple) else one for one in sample]
    assert NodeSample.from_list(raw) == sample
    assert NodeSample.from_list(raw[:-2]) == sample._replace(disk=None, errors=None), "of an older release"


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
@example('x{a="\\')
@example('x{a="\\"} 1')
@example("x 1e999")
@example('{="",} 0')
def test_garbage_is_passed_over(text: str) -> None:
    found = list(parse(f'{text}\nx{{a="b"}} 2\n'))
    assert found[-1] == ("x", {"a": "b"}, 2.0)


def test_a_dcgm_exporter_in_place_of_the_driver() -> None:
    mig = 'gpu="1",UUID="GPU-1",modelName="NVIDIA A100",GPU_I_PROFILE="1g.5gb",GPU_I_ID="9"'
    page = dcgm_page(2) + f"DCGM_FI_DEV_FB_USED{{{mig}}} 10\nDCGM_FI_DEV_FB_FREE{{{mig}}} 90\n"
    page += 'DCGM_FI_DEV_GPU_UTIL{gpu="99999999999999999999"} 1\nDCGM_FI_DEV_GPU_UTIL{gpu="x"} 1\n'
    with exporter(page) as served:
        dcgm = Dcgm(served.url)
        first, second = dcgm.devices()
        assert (first.index, first.uuid, first.name, first.memory) == (0, "GPU-0", MODEL, (41_079 + 40_000) << 20)
        assert dcgm.sample(first) == {
            "gpu": 0.87,
            "gpu_memory": 41_079 << 20,
            "gpu_power": 312.5,
            "gpu_temperature": 41,
            "gpu_clock": 1980,
        }
        (part,) = dcgm.slices(second)
        assert (part.profile, part.instance, part.memory) == ("1g.5gb", 9, 100 << 20)
        assert dcgm.sample(part) == {"gpu_memory": 10 << 20}
        assert node_sample(10.0, read_machine(), [(first, dcgm.sample(first))]).devices[0].clock == 1_980_000_000
        served.page = "an error page"
        dcgm._at = -1e9
        assert dcgm.sample(first) == {}, "a gap and not the last value"
        assert node_sample(10.0, read_machine(), [(first, dcgm.sample(first))]).devices == ()


def test_a_node_exporter_in_place_of_the_kernel() -> None:
    with exporter(NODE_PAGE) as served:
        found = NodeExporter(served.url).read()
    assert (found["cpus"], found["cpu"], found["memory"], found["disk_read"]) == (2, 10.0, 1.6e10, 300)
    assert (found["received"], found["sent"], found["available"]) == (40, None, None)
    assert (found["disk"], found["errors"]) == (0.9, 5)
    assert set(NodeExporter(served.url).read().values()) == {None}, "it is gone"


def test_an_exporter_that_is_slow_or_says_too_much_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporters, "TIMEOUT", 0.2)
    monkeypatch.setattr(exporters, "ANSWER_MAX", 1 << 18)

    def drip(request: Any) -> None:
        request.answer(b"")
        for _ in range(40):
            request.wfile.write(b"x 1\n")
            time.sleep(0.02)

    def forward(request: Any) -> None:
        request.send_response(302)
        request.send_header("Location", served.url)
        request.end_headers()

    with exporter("x 1\n") as served:
        assert len(fetch(served.url)) == 1
        for behave in (drip, forward, lambda request: request.answer(b"x 1\n" * (1 << 17))):
            served.behave = behave
            assert fetch(served.url) == []
    assert fetch(served.url) == fetch("file:///proc/meminfo") == fetch("nonsense") == []


class SlicedLibrary:
    """NVML as a machine answers whose one device is divided: two slices of at most seven."""

    SLICES = ((1, "MIG-a", "1g.10gb"), (5, "MIG-b", "2g.20gb"))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle._obj.value = 100
        return 0

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, count: Any) -> int:
        count._obj.value = 7
        return 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, place: int, found: Any) -> int:
        if place >= len(self.SLICES):
            return 6
        found._obj.value = 1 + place
        return 0

    def nvmlDeviceGetGpuInstanceId(self, handle: Any, found: Any) -> int:
        found._obj.value = self.SLICES[handle.value - 1][0]
        return 0

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, size: int) -> int:
        text.value = self.SLICES[handle.value - 1][1].encode() if handle.value < 100 else b"GPU-0"
        return 0

    def nvmlDeviceGetName(self, handle: Any, text: Any, size: int) -> int:
        part = f" MIG {self.SLICES[handle.value - 1][2]}" if handle.value < 100 else ""
        text.value = (MODEL + part).encode()
        return 0

    def nvmlDeviceGetMemoryInfo_v2(self, handle: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.used = 10 << 30, 1 << 30
        return 0


def test_slices_of_a_device_are_found_with_their_profile() -> None:
    nvml = Nvml(SlicedLibrary())
    (device,) = nvml.devices()
    found = nvml.slices(device)
    assert [(one.index, one.uuid, one.profile, one.instance, one.name) for one in found] == [
        (0, "MIG-a", "1g.10gb", 1, MODEL),
        (0, "MIG-b", "2g.20gb", 5, MODEL),
    ]
    assert [one.uuid for one in slices_in_view(nvml, {"CUDA_VISIBLE_DEVICES": "MIG-b"})] == ["MIG-b"]
    assert slices_in_view(nvml, {"CUDA_VISIBLE_DEVICES": "0"}) == slices_in_view(nvml, {}) == []
    assert Nvml(ctypes.CDLL(None)).slices(device) == [], "an older library"


class Counting(Nvml):
    """A driver with two devices whose memory errors a test sets."""

    def __init__(self) -> None:
        self.errors: dict[int, int | None] = {0: 3, 1: None}

    def uncorrected_errors(self, device: Device) -> int | None:
        return self.errors[device.index]

    def pci_address(self, device: Device) -> tuple[int, int, int]:
        return 0, 0x65 + device.index, 0


def test_faults_have_numbers_and_a_second_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "kmsg"
    os.mkfifo(log)
    monkeypatch.setattr(fault_watch, "KERNEL_LOG", str(log))
    nvml, devices = Counting(), [Device(index, f"GPU-{index}", MODEL, 0, None) for index in range(2)]
    watch = FaultWatch(nvml, devices, all_=True)

    def told(number: int, text: str) -> list[tuple[int, str, int]]:
        os.write(writer, f"4,{number},5000,-;{text}\n".encode())
        found = watch.look()
        assert all(one["type"] == "fault" and len(one["boot"]) == 36 for one in found)
        return [(one["gpu"], one["code"], one["number"]) for one in found]

    writer = os.open(log, os.O_WRONLY)
    try:
        assert told(7, "NVRM: Xid (PCI:0000:66:00): 79, pid=12") == [(1, "79", 7)]
        assert told(8, "NVRM: Xid (PCI:0000:66:00): 79, pid=12") == [(1, "79", 8)], "a repeat is another one"
        assert told(9, "NVRM: Xid (PCI:0001:66:00): 13, pid=12") == [(-1, "13", 9)], "none of ours"
        assert told(10, "usb 1-1: new device") == []
        nvml.errors = {0: 5, 1: 0}
        assert told(11, "x") == [(0, "ecc", 5)]
        nvml.errors = {0: 0, 1: 2}
        assert told(12, "x") == [(1, "ecc", 2)], "the driver was loaded anew"
    finally:
        os.close(writer)
        watch.close()
    assert FaultWatch(nvml, devices).look() == [], "a log that can't be read from its end"
