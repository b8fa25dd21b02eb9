"""A random fault every few seconds: kills of ranks, launchers, nodes and the server, and slow ranks, for ten minutes.

At the end the weights of every job are those of an undisturbed run to the last bit, no job is lost and nothing is left
running; else the exit code is 1. `--template ddp` soaks a PyTorch job of two ranks instead of the small gang below.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from pathlib import Path

from _machine import write
from muster.cli import init
from muster.cli.drill import private_server, template_spec
from muster.cli.prepare import from_file
from muster.core.spec import JobSpec
from muster.drill.drill import Drill
from muster.drill.leftovers import named, processes_left
from muster.drill.scenario import Setting
from muster.drill.scenarios import SCENARIOS
from muster.drill.soak import Soak

# Two ranks on two nodes that wait for each other in every step. A weight depends on all steps before it.
PROGRAM = """
import hashlib, os, time
from pathlib import Path
from muster import runtime

place, attempt = Path(os.environ["MUSTER_CHECKPOINT_DIR"]), os.environ["MUSTER_ATTEMPT"]

def meet(step):
    mine = place / f".at-{runtime.rank()}"
    mine.with_suffix(".new").write_text(f"{attempt} {step}")
    mine.with_suffix(".new").replace(mine)
    for other in range(runtime.world_size()):
        told = ["", "0"]
        while told[0] != attempt or int(told[1]) < step:
            try:
                told = (place / f".at-{other}").read_text().split()
            except OSError:
                pass
            time.sleep(0.005)

done, state = 0, b"seed"
if folder := runtime.last_checkpoint():
    done, state = int((folder / "step").read_text()), (folder / "weights").read_bytes()
for step in range(done + 1, 601):
    meet(step)
    state = (state + hashlib.sha256(state).digest())[-65536:]
    time.sleep(0.05)
    if runtime.rank() == 0:
        runtime.report(step=step, loss=state[-1] / 256)
        if step % 10 == 0:
            with runtime.checkpoint(step) as folder:
                (folder / "step").write_text(str(step))
                (folder / "weights").write_bytes(state)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--template", choices=[one.name for one in init.templates()])
    args = parser.parse_args()
    began = time.monotonic()

    def say(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:6.1f} s  {text}\n")

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-soak-")))
        spec = template_spec(init.find(args.template), folder, []) if args.template else _small(folder)
        server = stack.enter_context(private_server(folder, spec))
        to = stack.enter_context(server.client())
        drill = Drill(to, spec, Setting(spec, "local", server=server), say)
        usable = [one for one in SCENARIOS if one.soak and not one.applies(drill.setting)]
        soak = Soak(drill, usable, args.every, args.seconds, args.seed)
        try:
            drill.run_reference()
            results = soak.run()
        finally:
            drill.stop_all()
        left = [named(pid) for pid in processes_left([one.id for one in to.jobs(limit=None)], server)]
        lost = [one.id for one in to.jobs(limit=None) if one.phase != "succeeded"]
    wrong = [one for one in results if one.verdict != "held"]
    write("soak", {
        "program": args.template or "a gang of two nodes", "seconds": args.seconds, "every": args.every,
        "seed": args.seed, "faults": dict(soak.done), "refused": dict(soak.refused), "jobs": len(results),
        "attempts": sum(one.attempts for one in results), "steps_again": sum(one.steps_again or 0 for one in results),
        "weights": [check.told for one in results for check in one.checks if check.name.startswith("the same")],
        "lost": lost, "left_running": left, "did_not_hold": [f"{one.job}: {one.why}" for one in wrong],
    })  # fmt: skip
    return 1 if wrong or left or lost else 0


def _small(folder: Path) -> JobSpec:
    (folder / "train.py").write_text(PROGRAM)
    text = f"name: soak\nworkdir: .\nrun: {sys.executable} train.py\nnum_nodes: 2\n"
    (folder / "job.yaml").write_text(text)
    return from_file(str(folder / "job.yaml"), {}, True).spec


if __name__ == "__main__":
    sys.exit(main())
