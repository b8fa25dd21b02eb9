"""The page of the metrics that Muster records by itself: of the machine, and of `muster.train`."""

from __future__ import annotations

from typing import Final

from generator.imports import SOURCES
from generator.markdown import generated, table

ABOUT: Final = """\
What a script reports has the names that it gives ([tracking](tracking.md#reporting-from-a-script)). These come by
themselves. `muster runs show RUN --curve NAME` draws one; `metrics.NAME` is its last value in a query.

"""
# Name, unit, meaning, and the source that has the name.
SYSTEM: Final = (
    ("system/cpu", "cores", "processors that the rank and its children keep busy", "runtime/hardware.py"),
    ("system/memory", "bytes", "memory of the rank and its children", "runtime/hardware.py"),
    ("system/disk_read", "bytes a second", "read from disk", "runtime/hardware.py"),
    ("system/disk_write", "bytes a second", "written to disk", "runtime/hardware.py"),
    ("system/gpu", "0 to 1", "how busy the accelerator is, by NVML", "runtime/nvml.py"),
    ("system/gpu_memory", "bytes", "accelerator memory in use", "runtime/nvml.py"),
    ("system/gpu_memory_share", "", "the part of its memory that is in use, 0..1", "runtime/hardware.py"),
    ("system/gpu_throttled", "", "1 while heat or the hardware holds its clock down", "runtime/nvml.py"),
    ("system/gpu_power", "W", "power", "runtime/nvml.py"),
    ("system/gpu_temperature", "°C", "temperature", "runtime/nvml.py"),
    ("system/gpu_clock", "MHz", "clock", "runtime/nvml.py"),
)
TRAINING: Final = (
    ("loss", "", "mean over the batch of all ranks", "train/readings.py"),
    ("lr", "", "learning rate", "train/readings.py"),
    ("grad_norm", "", "norm of the gradient, before it is clipped", "train/readings.py"),
    ("step_s", "seconds", "of a whole step", "train/throughput.py"),
    ("mfu", "0 to 1", "model FLOPs utilisation since the last line, if the peak is known", "train/throughput.py"),
    ("memory", "bytes", "most that was in use so far, of the device, or of the process on a CPU", "train/readings.py"),
    ("ledger", "", "the last 48 bits of the data ledger: runs with one ledger have read the same", "train/readings.py"),
)


def metrics_page() -> str:
    for name, _, _, source in (*SYSTEM, *TRAINING):
        word = name.removeprefix("system/")
        assert word in (SOURCES / source).read_text(encoding="utf-8"), f"{source} has no {name}"
    head = ("name", "unit", "meaning")
    return (
        generated("Metrics", "src/muster/runtime and src/muster/train")
        + ABOUT
        + "## Of every rank\n\nSampled by the launcher every 5 to 10 seconds; the step of a sample is the seconds "
        + "since the start. A rank with several accelerators has `system/gpu.1` and so on for the further ones.\n\n"
        + table(head, [(f"`{row[0]}`", row[1], row[2]) for row in SYSTEM])
        + "\n## Of `muster.train`, each step\n\n"
        + table(head, [(f"`{row[0]}`", row[1], row[2]) for row in TRAINING])
        + "\nAlso `UNIT_per_s` of what the task counts, such as `tokens_per_s`, since the last line of output; the "
        + "seconds of each part, such as `forward_s` and `data_s`; `eval_loss` of an evaluation; and once, with the "
        + "first step, the seconds of the start: `start/imports_s`, `start/weights_s`, `start/compile_s`, and of all "
        + "until then `start/first_step_s`.\n"
    )
