"""Stack information about a rank that hangs: what the kernel reports without the processes' help."""

from __future__ import annotations

from pathlib import Path

from muster.runtime import processes


def describe(root: int) -> list[str]:
    """A line for each thread of the rank and its descendants: name, state, kernel function, system call."""
    lines = []
    for pid in [root, *processes.descendants(root)]:
        try:
            command = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
            lines.append(f"pid {pid}: {command[:200] or _read(f'/proc/{pid}/comm')}")
            tasks = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda p: int(p.name))
        except OSError:
            continue  # it has ended meanwhile
        lines += [f"  thread {_thread(task)}" for task in tasks]
    return lines


def _thread(task: Path) -> str:
    name, state = _read(f"{task}/comm"), ""
    for line in _read(f"{task}/status").splitlines():
        if line.startswith("State:"):
            state = line.split(None, 1)[1]
    return (
        f"{task.name} {name}: {state}, wchan {_read(f'{task}/wchan') or '-'}, syscall {_read(f'{task}/syscall') or '-'}"
    )


def _read(path: str) -> str:
    """Empty when the kernel does not say."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
