"""Watches for faults of accelerators: Xids in the kernel's log, and memory errors that the driver counts.

Each has a number, so that the same fault is counted once however many launchers tell of it, and a second one counts.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from muster.runtime.nvml import Device, Nvml
from muster.runtime.xid_codes import find_xid

KERNEL_LOG: Final = "/dev/kmsg"
ECC: Final = "ecc"
_RECORD: Final = 8192  # bytes; a read returns one record
_MOST: Final = 10_000  # records in one look
_AT_ONCE: Final = 16  # faults in one look; a device in trouble logs hundreds
_ADDRESS: Final = re.compile(r"(?:PCI:)?([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)")
Fault = dict[str, Any]  # a document; see `muster.wire`


class FaultWatch:
    """For one thread. `all_`: also what the kernel's log holds from before."""

    def __init__(self, nvml: Nvml, devices: list[Device], all_: bool = False) -> None:
        self._nvml, self._devices = nvml, devices
        self._places = {found: one.index for one in devices if (found := nvml.pci_address(one)) is not None}
        self._errors = {one.index: nvml.uncorrected_errors(one) for one in devices}
        self._boot = _boot()
        self._log: int | None = None
        try:  # only some users may read it
            self._log = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if not all_:
                os.lseek(self._log, 0, os.SEEK_END)
        except OSError:
            self.close()

    def look(self) -> list[Fault]:
        """The faults since the last look."""
        return [*self._memory_errors(), *self._xids()][:_AT_ONCE]

    def close(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _memory_errors(self) -> list[Fault]:
        found = []
        for one in self._devices:
            before, now = self._errors[one.index], self._nvml.uncorrected_errors(one)
            if now is not None and before is not None and now > before:
                found.append(self._fault(one.index, ECC, now))
            self._errors[one.index] = now if now is not None else before
        return found

    def _xids(self) -> list[Fault]:
        found: list[Fault] = []
        for _ in range(_MOST if self._log is not None else 0):
            try:
                assert self._log is not None
                record = os.read(self._log, _RECORD)
            except BlockingIOError:  # the end
                break
            except BrokenPipeError:  # records were overwritten meanwhile: it goes on with the oldest
                continue
            except OSError:
                self.close()
                break
            head, _, text = record.decode(errors="replace").partition(";")
            xid, number = find_xid(text), head.split(",")[1:2]
            if xid is not None and number and number[0].isdigit():
                found.append(self._fault(self._index(xid.device), str(xid.code), int(number[0])))
        return found

    def _index(self, address: str) -> int:
        """The device at a PCI address; -1 if it is none of these, or has left the bus."""
        found = _ADDRESS.match(address)
        return self._places.get((int(found[1], 16), int(found[2], 16), int(found[3], 16)), -1) if found else -1

    def _fault(self, gpu: int, code: str, number: int) -> Fault:
        return {"type": "fault", "gpu": gpu, "code": code, "number": number, "boot": self._boot}


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
