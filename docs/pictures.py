"""Draws the picture of `muster sim`: one made-up week of three teams, replayed under several policies.

    python docs/pictures.py run "muster runs show gpt-small --curve loss" < OUTPUT    # any other command's

OUTPUT is what the command printed with FORCE_COLOR=1 and COLUMNS=98; lines that name places here are left out.
"""

from __future__ import annotations

import csv
import math
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Group
from rich.text import Text

from muster.cli.demo_view import write_picture
from muster.cli.sim_view import comparison
from muster.sim.cluster import read_cluster
from muster.sim.presets import PRESETS
from muster.sim.report import ReportContent
from muster.sim.run import replay
from muster.sim.summary import summarise
from muster.sim.traces import Options, read_trace
from muster.sim.whatif import Changes, make_setup

HERE = Path(__file__).parent
POLICIES = ("fifo", "easy", "default")
JOBS, DAYS, NODES = 3_000, 7, 8
PLACES = ("  folder ", "  python ", "  image ", "  machine ", "  checkpoints")
TEAMS = {"language": 6, "vision": 4, "speech": 3}  # users of each
SIZES = (1, 2, 4, 8, 16, 32)  # accelerators
SHARES = (50, 12, 12, 18, 6, 2)  # of the jobs, in percent


def main() -> int:
    return draw_output(*sys.argv[1:]) if len(sys.argv) > 1 else draw_sim()


def draw_output(name: str, command: str) -> int:
    kept = [line for line in sys.stdin.read().splitlines() if not any(word in line for word in PLACES)]
    picture = Group(Text(f"$ {command}", style="green"), Text(), *(Text.from_ansi(line) for line in kept))
    write_picture(HERE / "pictures" / f"{name}.svg", picture, command.partition(" -")[0])
    return 0


def draw_sim() -> int:
    with TemporaryDirectory() as folder:
        trace, cluster = Path(folder) / "week.csv", Path(folder) / "week.yaml"
        write_week(trace)
        cluster.write_text(f'pools: {{h100: {{nodes: {NODES}, accelerators: "H100:8"}}}}\n', encoding="utf-8")
        file = read_cluster(cluster)
        jobs = read_trace(trace, Options(per_node=file.per_node)).jobs
        setups = [make_setup(name, PRESETS.get(name), file, "plain", Changes()) for name in POLICIES]
        results = [replay(jobs, setup) for setup in setups]
    story = ReportContent("", {}, [], [], results, [summarise(result) for result in results])
    command = "$ muster sim week.csv " + " ".join(f"-p {name}" for name in POLICIES)
    head = Text(f"{len(jobs):,} jobs of week.csv", style="bold")
    picture = Group(Text(command, style="green"), Text(), head, comparison(story))
    write_picture(HERE / "pictures" / "sim.svg", picture, "muster sim")
    return 0


def write_week(path: Path) -> None:
    """Users repeat themselves: each has a length and a size of his own, and varies them."""
    dice = random.Random(7)
    users = [(team, f"{team}-{number}") for team, count in TEAMS.items() for number in range(count)]
    habits = {user: (dice.gauss(math.log(1500), 1.3), dice.choices(SIZES, SHARES)[0]) for _, user in users}
    rows = []
    for number in range(JOBS):
        team, user = dice.choice(users)
        length, size = habits[user]
        gpus = size if dice.random() < 0.6 else dice.choices(SIZES, SHARES)[0]
        begin = dice.randrange(DAYS) * 86_400 + min(max(dice.gauss(14, 4), 0), 23.9) * 3600
        rows.append((begin, number, user, team, max(20, int(dice.lognormvariate(length, 0.9))), gpus))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["job_id", "user", "vc", "submit_s", "duration_s", "gpus"])
        for begin, number, user, team, seconds, gpus in sorted(rows):
            writer.writerow([number, user, team, int(begin), seconds, gpus])


if __name__ == "__main__":
    sys.exit(main())
