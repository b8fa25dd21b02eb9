"""Checks of a node's accelerators: whether they are there, what the driver says, their memory and their arithmetic."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from muster.runtime import cuda_driver
from muster.runtime.cuda_driver import CudaError
from muster.runtime.node_finding import Failed, Node, Unknown
from muster.runtime.nvml import Device, Nvml, open_nvml, visible

T = TypeVar("T")
_SHARED_BYTES: Final = 256 << 20  # tested of a device that others use
_MARGIN: Final = 1 << 30  # bytes that are left free
# Bits of NVML's reasons for a lower clock that mean a fault: the hardware slows down, by heat, or by its power supply.
_SLOWED: Final = {0x8: "hardware slowdown", 0x40: "hardware thermal slowdown", 0x80: "power brake"}
_RECOVERY: Final = {1: "a reset of the device", 2: "a reboot of the machine", 3: "a drain", 4: "a drain and a reset"}


def devices_present(node: Node) -> str:
    """Every device that the worker was given can be opened."""
    count = _count(node)
    if node.accelerators is not None and count < node.accelerators:
        raise Failed(f"{count} of {node.accelerators} devices can be seen")
    return f"{count} devices"


def device_health(node: Node) -> str:
    """What the driver says of each device: recovery, memory rows, errors, slowdowns."""
    nvml = open_nvml()
    if nvml is None:
        raise Unknown("there is no NVIDIA driver")
    found = _mine(nvml, node)
    if faults := [f"device {device.index}: {fault}" for device in found for fault in _faults(nvml, device)]:
        raise Failed("; ".join(faults))
    return f"{len(found)} devices, driver {nvml.driver()}"


def device_memory(node: Node) -> str:
    """Writes patterns into nearly all free memory of each device, and compares it on the device."""

    def test(number: int) -> int:
        device = cuda_driver.Device(number)
        free, total = device.memory()
        alone = not node.shared and free > total * 3 // 4
        size = max(0, free - _MARGIN) if alone else min(_SHARED_BYTES, free // 2)
        if wrong := device.wrong_words(size):
            raise Failed(f"device {number}: {wrong} of {size // 4} words were read back wrong")
        return size

    return f"{sum(_each(node, test)) / 1e9:.1f} GB"


def device_compute(node: Node) -> str:
    """A computation with a known answer on every multiprocessor of each device, and on its tensor cores."""

    def test(number: int) -> bool:
        device = cuda_driver.Device(number)
        right, multiplied = device.computes(), device.multiplies()
        if not right:
            raise Failed(f"device {number} computed a wrong answer")
        if multiplied is False:
            raise Failed(f"the tensor cores of device {number} computed a wrong answer")
        return multiplied is True

    return "integers and floats" + (", tensor cores" if all(_each(node, test)) else "")


def _each(node: Node, test: Callable[[int], T]) -> list[T]:
    """The results of all devices, which are tested at the same time. Raises Failed for the first that failed."""
    count = _count(node)
    if not count:
        raise Unknown("there is no device")

    def one(number: int) -> T:
        try:
            return test(number)
        except CudaError as error:
            raise Failed(f"device {number}: {error}") from None

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


def _count(node: Node) -> int:
    _choose(node)
    try:
        count = cuda_driver.device_count()
    except CudaError as error:
        raise Failed(str(error)) from None
    if count is None:
        raise Unknown("there is no NVIDIA driver")
    return count


def _choose(node: Node) -> None:
    """Makes this process see the worker's devices alone."""
    if node.devices is not None:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, node.devices))


def _mine(nvml: Nvml, node: Node) -> list[Device]:
    _choose(node)
    return visible(nvml.devices(), os.environ)


def _faults(nvml: Nvml, device: Device) -> list[str]:
    found = []
    if action := nvml.recovery_action(device):
        found.append(f"the driver asks for {_RECOVERY.get(action, f'recovery action {action}')}")
    if errors := nvml.uncorrected_errors(device):
        found.append(f"{errors} uncorrected memory errors since the driver was loaded")
    rows = nvml.remapped_rows(device)
    if rows is not None and rows.failed:
        found.append("a broken row of its memory could not be replaced")
    elif rows is not None and rows.pending:
        found.append("rows of its memory are replaced at its next reset")
    slowed = nvml.slowdowns(device) or 0
    return [*found, *(word for bit, word in _SLOWED.items() if slowed & bit)]
