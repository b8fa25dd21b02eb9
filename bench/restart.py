"""A rank that is killed: seconds from SIGKILL to the next new step, under Muster and under torchrun's own restart.

Two ranks train a small model on the CPU (`_restart_program.py`). A random rank is killed again and again, in turn under
each of the two; only one of them runs at a time, the other is stopped (SIGSTOP) meanwhile. A new step is one that no
attempt has done before.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _machine import write
from _server import serving

PROGRAM = Path(__file__).with_name("_restart_program.py")
SEED = 5
WAIT = 300.0  # seconds for a first step, and for the spare process
RECOVERY = 45.0  # seconds for a new step after a kill; past it the gang is given up and started by hand
RUN = (1.0, 3.0)  # seconds that a gang trains before it is killed, at least and at most


class Gang:
    """A training run whose ranks are killed; `folder` has its steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def steps(self) -> list[tuple[int, float]]:
        try:
            lines = (self.folder / "steps").read_text().splitlines()
        except OSError:
            return []
        return [(int(a), float(b)) for a, _, b in (line.partition(" ") for line in lines) if b]

    def until_beyond(self, step: int, seconds: float = WAIT) -> tuple[int, float] | None:
        """The first step after this one, and when it was done; None if it takes longer."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for found in self.steps():
                if found[0] > step:
                    return found
            time.sleep(0.01)
        return None

    def signal(self, number: signal.Signals) -> None:
        for place in self.folder.glob("pid-*"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(place.read_text()), number)

    def kill(self, rank: int) -> dict[str, Any]:
        """Kills a rank; how long it took to a new step, and how many steps were done again."""
        os.kill(int((self.folder / f"pid-{rank}").read_text()), signal.SIGKILL)
        at = time.time()
        time.sleep(0.2)  # a step that the other rank was about to write
        before = self.steps()
        last = max(step for step, _ in before)
        found = self.until_beyond(last, RECOVERY)
        again = sum(step <= last for step, _ in self.steps()[len(before) :])
        return {"seconds": round(found[1] - at, 3) if found else None, "steps_again": again}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    given = parser.parse_args()
    dice, found = random.Random(SEED), {"muster": list[Any](), "torchrun": list[Any]()}
    load = [os.getloadavg()[0]]
    with (
        tempfile.TemporaryDirectory(prefix="muster-restart-") as name,
        _Muster(Path(name)) as ours,
        _Torchrun(Path(name), given.kills) as peer,
    ):
        peer.pause()
        for number in range(given.kills):
            for each in (ours, peer):
                each.go_on()
                assert each.gang.until_beyond(max((step for step, _ in each.gang.steps()), default=0))
                time.sleep(dice.uniform(*RUN))
                each.ready()
                found[each.name].append(each.gang.kill(dice.randrange(2)))
                if found[each.name][-1]["seconds"] is None:
                    each.start_again()
                each.pause()
            load.append(os.getloadavg()[0])
            sys.stderr.write(f"\r{number + 1} of {given.kills}: {found['muster'][-1]} {found['torchrun'][-1]}    ")
    sys.stderr.write("\n")
    result = {name: _summary(kills) for name, kills in found.items()}
    ratio = result["torchrun"]["median"] / result["muster"]["median"]
    write("restart", {
        "kills": given.kills, **result, "ratio_of_medians": round(ratio, 1),
        "load": {"least": round(min(load), 1), "most": round(max(load), 1)}, "each": found,
    })  # fmt: skip
    again = result["muster"]["steps_again_most"]
    whole = result["muster"]["recovered"] == given.kills
    sys.exit(0 if whole and result["muster"]["max"] <= 1 and ratio >= 10 and again <= 1 else 1)


def _summary(kills: list[dict[str, Any]]) -> dict[str, Any]:
    times = sorted(one["seconds"] for one in kills if one["seconds"] is not None)
    return {
        "recovered": len(times), "median": times[len(times) // 2], "p90": times[int(0.9 * (len(times) - 1))],
        "max": times[-1], "steps_again_most": max(one["steps_again"] for one in kills),
    }  # fmt: skip


class _Muster:
    name = "muster"

    def __init__(self, folder: Path) -> None:
        self._home, self.gang, self._stack = folder / "home", Gang(folder / "muster"), contextlib.ExitStack()

    def __enter__(self) -> _Muster:
        self._http = self._stack.enter_context(serving(self._home))
        spec = {"name": "restart", "run": f"{sys.executable} {PROGRAM} {self.gang.folder}", "nproc": 2,
                "workdir": str(self.gang.folder), "resources": {"cpus": 0.1}, "retry": {"max_restarts": 1000},
                "hang": {"action": "off"}}  # fmt: skip
        self._job = self._http.post("/v1/jobs", json={"spec": spec}).raise_for_status().json()["id"]
        return self

    def start_again(self) -> None:
        raise SystemExit("Muster did not recover; see the steps in its folder")

    def ready(self) -> None:
        """Waits for the spare process: without one, a rank that dies within seconds of its start is back later."""
        attempts = self._home / "local" / "attempts" / self._job
        until = time.monotonic() + WAIT
        while not (max(attempts.iterdir(), key=lambda each: int(each.name)) / "0" / "spare").exists():
            if time.monotonic() > until:
                raise SystemExit("no spare process was ready")
            time.sleep(0.05)

    def pause(self) -> None:
        self.ready()  # it would import beside the other
        self.gang.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.gang.signal(signal.SIGCONT)

    def __exit__(self, *_: object) -> None:
        self.go_on()
        self._http.post(f"/v1/jobs/{self._job}/stop", json={"grace": 0})
        until = time.monotonic() + 60
        while time.monotonic() < until and self._http.get(f"/v1/jobs/{self._job}").json()["phase"] != "stopped":
            time.sleep(0.1)
        self._stack.close()


class _Torchrun:
    name = "torchrun"

    def __init__(self, folder: Path, kills: int) -> None:
        self.gang, self._kills = Gang(folder / "torchrun"), kills

    def __enter__(self) -> _Torchrun:
        self.start()
        return self

    def start(self) -> None:
        before = max((step for step, _ in self.gang.steps()), default=0)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
                   f"--max-restarts={self._kills + 1}", str(PROGRAM), str(self.gang.folder)]  # fmt: skip
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._run = subprocess.Popen(
            command, env=env, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        assert self.gang.until_beyond(before)

    def start_again(self) -> None:
        """After a restart of its own that hangs: its ranks can wait for each other without end."""
        ranks = Path(f"/proc/{self._run.pid}/task/{self._run.pid}/children").read_text().split()
        for pid in (self._run.pid, *map(int, ranks)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._run.wait()
        self.start()

    def ready(self) -> None:
        """It prepares nothing."""

    def pause(self) -> None:
        self.gang.signal(signal.SIGSTOP)  # not torchrun itself: its rendezvous would take it for dead

    def go_on(self) -> None:
        self.gang.signal(signal.SIGCONT)

    def __exit__(self, *_: object) -> None:
        self.go_on()
        self._run.terminate()  # and with it its ranks
        self._run.wait(60)


if __name__ == "__main__":
    main()
