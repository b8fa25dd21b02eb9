"""NVIDIA's accelerators through the driver's library (NVML, by ctypes); none if it is not installed."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

_LIBRARY: Final = "libnvidia-ml.so.1"
_TEXT: Final = 96  # bytes: the longest that NVML returns
_DIE: Final = 0  # the sensor of the chip itself
# Reasons for a lower clock: by the hardware, by heat (software, hardware), by the power brake. Not: a power cap.
THROTTLED: Final = 0x8 | 0x20 | 0x40 | 0x80
_CLOCK_SM: Final = 1
_RECOVERY_ACTION: Final = 230  # the field in which the driver says what a device needs; 0: nothing
_UNCORRECTED: Final = 1
_SINCE_LOADED: Final = 0


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


class _Pci(ctypes.Structure):
    _fields_ = (
        ("legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("ids", ctypes.c_uint * 2),
        ("text", ctypes.c_char * 32),
    )


class _FieldValue(ctypes.Structure):
    _fields_ = (
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("type", ctypes.c_int),
        ("status", ctypes.c_int),
        ("value", ctypes.c_uint),  # of a union with eight bytes
        ("rest", ctypes.c_uint),
    )


@dataclass(frozen=True, slots=True)
class RemappedRows:
    """Rows of a device's memory that were replaced by spare ones."""

    pending: bool  # some are replaced at the next reset
    failed: bool


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator, or a slice of one (MIG); `index` is that of the accelerator in PCI bus order."""

    index: int
    uuid: str
    name: str
    memory: int  # bytes
    handle: Any
    profile: str = ""  # of a slice, such as 1g.10gb
    instance: int = -1  # of a slice: the id of its GPU instance


class SliceSource(Protocol):
    def devices(self) -> list[Device]: ...

    def slices(self, device: Device) -> list[Device]: ...


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

    def slices(self, device: Device) -> list[Device]:
        """The slices that a device is divided into (MIG); none of a whole one."""
        count = ctypes.c_uint()
        if self._call("nvmlDeviceGetMaxMigDeviceCount", device.handle, ctypes.byref(count)):
            return []
        found = []
        for place in range(count.value):
            handle, instance = ctypes.c_void_p(), ctypes.c_uint()
            if self._call("nvmlDeviceGetMigDeviceHandleByIndex", device.handle, place, ctypes.byref(handle)):
                continue  # there may be fewer than the device could have
            if self._call("nvmlDeviceGetGpuInstanceId", handle, ctypes.byref(instance)):
                continue
            memory, uuid = self._memory(handle), self._text("nvmlDeviceGetUUID", handle)
            profile = self._text("nvmlDeviceGetName", handle).rpartition("MIG ")[2]
            size = memory.total if memory else 0
            found.append(Device(device.index, uuid, device.name, size, handle, profile, instance.value))
        return found

    def pci_address(self, device: Device) -> tuple[int, int, int] | None:
        """Domain, bus and device, as in the kernel's log."""
        found = _Pci()
        failed = self._call("nvmlDeviceGetPciInfo_v3", device.handle, ctypes.byref(found))
        return None if failed else (found.domain, found.bus, found.device)

    def sample(self, device: Device) -> dict[str, float]:
        """The device's current values: use 0..1, memory in bytes, 1 if it is throttled, power in W,
        temperature in C, clock in MHz."""
        found: dict[str, float] = {}
        busy = _Utilization()
        if self._library.nvmlDeviceGetUtilizationRates(device.handle, ctypes.byref(busy)) == 0:
            found["gpu"] = busy.gpu / 100
        if memory := self._memory(device.handle):
            found["gpu_memory"] = float(memory.used)
        slowed = self.slowdowns(device)
        if slowed is not None:
            found["gpu_throttled"] = float(bool(slowed & THROTTLED))
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

    def recovery_action(self, device: Device) -> int | None:
        """What the driver says that the device needs: 0 nothing, 1 a reset, 2 a reboot, 3 and 4 a drain first."""
        asked = _FieldValue(field=_RECOVERY_ACTION)
        failed = self._call("nvmlDeviceGetFieldValues", device.handle, 1, ctypes.byref(asked)) or asked.status
        return None if failed else asked.value

    def uncorrected_errors(self, device: Device) -> int | None:
        """Memory errors that could not be corrected since the driver was loaded."""
        count = ctypes.c_ulonglong()
        which = (device.handle, _UNCORRECTED, _SINCE_LOADED, ctypes.byref(count))
        return None if self._call("nvmlDeviceGetTotalEccErrors", *which) else count.value

    def remapped_rows(self, device: Device) -> RemappedRows | None:
        found = [ctypes.c_uint() for _ in range(4)]  # corrected, uncorrected, pending, failed
        if self._call("nvmlDeviceGetRemappedRows", device.handle, *map(ctypes.byref, found)):
            return None
        return RemappedRows(bool(found[2].value), bool(found[3].value))

    def slowdowns(self, device: Device) -> int | None:
        """The reasons for a lower clock, as bits."""
        bits = ctypes.c_ulonglong()
        failed = self._call("nvmlDeviceGetCurrentClocksThrottleReasons", device.handle, ctypes.byref(bits))
        return None if failed else bits.value

    def _call(self, name: str, *arguments: Any) -> int:
        """The status of a call; not 0 if this version of the library does not have it."""
        try:
            return int(getattr(self._library, name)(*arguments))
        except AttributeError:
            return -1

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


def slices_in_view(source: SliceSource, environment: Mapping[str, str]) -> list[Device]:
    """The slices that a process with this environment was given by name."""
    named = [word.strip() for word in environment.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    wanted = [word for word in named if word.startswith("MIG-")]
    if not wanted:
        return []
    every = [one for device in source.devices() for one in source.slices(device)]
    return [one for one in every if any(one.uuid.startswith(word) for word in wanted)]


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
