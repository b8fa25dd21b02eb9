"""NVIDIA's accelerators through the driver's library (NVML, by ctypes); none if it is not installed."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_LIBRARY: Final = "libnvidia-ml.so.1"
_TEXT: Final = 96  # bytes: the longest that NVML returns
_DIE: Final = 0  # the sensor of the chip itself
_CLOCK_SM: Final = 1


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))  # percent of the last sampling period


class _Memory(ctypes.Structure):
    """Version 2 of the structure: in version 1, `used` includes what the driver keeps for itself."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator; `index` is in PCI bus order."""

    index: int
    uuid: str
    name: str
    memory: int  # bytes
    handle: Any


class Nvml:
    """The open library. Calls that a device does not support return nothing and raise nothing."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def driver(self) -> str:
        return self._text("nvmlSystemGetDriverVersion")

    def cuda(self) -> str:
        """The newest CUDA version that the driver can run, such as 12.8."""
        version = ctypes.c_int()
        if self._library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(version)):
            return ""
        return f"{version.value // 1000}.{version.value % 1000 // 10}"

    def devices(self) -> list[Device]:
        count = ctypes.c_uint()
        if self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return []
        found = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            if self._library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0:
                memory = self._memory(handle)
                uuid, name = self._text("nvmlDeviceGetUUID", handle), self._text("nvmlDeviceGetName", handle)
                found.append(Device(index, uuid, name, memory.total if memory else 0, handle))
        return found

    def sample(self, device: Device) -> dict[str, float]:
        """The device's current values: use 0..1, memory in bytes, power in W, temperature in C, clock in MHz."""
        found: dict[str, float] = {}
        busy = _Utilization()
        if self._library.nvmlDeviceGetUtilizationRates(device.handle, ctypes.byref(busy)) == 0:
            found["gpu"] = busy.gpu / 100
        if memory := self._memory(device.handle):
            found["gpu_memory"] = float(memory.used)
        milliwatts = self._number("nvmlDeviceGetPowerUsage", device.handle)
        if milliwatts is not None:
            found["gpu_power"] = milliwatts / 1000
        for name, call, which in (
            ("gpu_temperature", "nvmlDeviceGetTemperature", _DIE),
            ("gpu_clock", "nvmlDeviceGetClockInfo", _CLOCK_SM),
        ):
            number = self._number(call, device.handle, which)
            if number is not None:
                found[name] = float(number)
        return found

    def _memory(self, handle: Any) -> _Memory | None:
        memory = _Memory(version=ctypes.sizeof(_Memory) | 2 << 24)
        return None if self._library.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(memory)) else memory

    def _number(self, call: str, *arguments: Any) -> int | None:
        number = ctypes.c_uint()
        return None if getattr(self._library, call)(*arguments, ctypes.byref(number)) else number.value

    def _text(self, call: str, *arguments: Any) -> str:
        text = ctypes.create_string_buffer(_TEXT)
        failed = getattr(self._library, call)(*arguments, text, _TEXT)
        return "" if failed else text.value.decode(errors="replace")


def open_nvml() -> Nvml | None:
    """None if there is no NVIDIA driver. Takes up to a second on a machine whose devices were asleep."""
    try:
        library = ctypes.CDLL(_LIBRARY)
        return None if library.nvmlInit_v2() else Nvml(library)
    except (OSError, AttributeError):  # not installed, or another library of the same name
        return None


def visible(devices: Sequence[Device], environment: Mapping[str, str]) -> list[Device]:
    """The devices that a process with this environment sees, in its order. Parts of a device (MIG) are left out."""
    given = environment.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return list(devices)
    found: list[Device] = []
    for word in given.split(","):
        one = _named(devices, word.strip())
        if one is None and not word.strip().startswith("MIG-"):
            break  # like CUDA: ignore everything after an invalid entry
        if one is not None:
            found.append(one)
    return found


def share(devices: Sequence[Device], local: int, ranks: int) -> list[Device]:
    """The devices of one of `ranks` ranks that see the same devices:
    an equal part in order, as launch scripts do it."""
    each = len(devices) // ranks
    if each == 0:
        return [devices[local % len(devices)]] if devices else []
    return list(devices[local * each : (local + 1) * each])


def _named(devices: Sequence[Device], word: str) -> Device | None:
    """Finds a device by its index, or by the beginning of its UUID."""
    if word.isascii() and word.isdigit():
        return next((device for device in devices if device.index == int(word)), None)
    if word.startswith("GPU-"):
        return next((device for device in devices if device.uuid.startswith(word)), None)
    return None
