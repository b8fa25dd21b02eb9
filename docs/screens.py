"""Takes the pictures of the web page: a server with a morning's work of one team, and a browser that looks at it.

python docs/screens.py            # all; or names, such as: home queue run
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from live import LiveServer, live_server, until  # noqa: E402
from web_kit import chromium, signed_in  # noqa: E402

CONFIG = "nodes = 8\naccelerators = 'H100:8'\ncpus = 64\n"
TRAIN = """
import math, os, random, time
from muster import runtime

lr, seed = float(os.environ.get("LR", "3e-4")), int(os.environ.get("SEED", "1"))
last = int(os.environ.get("STEPS", "600"))
random.seed(seed)
print(f"training with lr {lr} and seed {seed}", flush=True)
off = abs(math.log10(lr) + 3.5)
for step in range(1, last + 1):
    noise = random.gauss(0, 0.25 / math.sqrt(step))
    loss = 2.1 + 0.4 * off + 6 / (1 + step / 25) + noise + (1.5 if 302 <= step <= 306 and seed == 1 else 0)
    norm = 0.8 + 2 / (1 + step / 40) + abs(noise)
    pace = {"tokens_per_s": 91_000 + 900 * noise, "total": last}
    runtime.report(step=step, loss=loss, lr=lr * min(1, step / 50), grad_norm=norm, **pace)
    if step % 60 == 0:
        runtime.report(step=step, val_loss=loss + 0.05)
        print(f"step {step}: loss {loss:.3f}, norm {norm:.2f}", flush=True)
    time.sleep(float(os.environ.get("PACE", "0")))
"""
STUDY = """
study: lr-and-width
space: {lr: {log: [1e-5, 1e-1]}, width: [256, 512, 1024], decay: {log: [1e-6, 1e-1]}}
objective: {minimize: loss}
search: tpe
stop: asha
seed: 3
budget: {trials: 24, parallel: 4}
"""
DATA = """
from pathlib import Path
from muster import runtime

runtime.data("raw/pages", "2026-10", digest="sha256:" + "3f" * 32, rows=48_000_000, bytes=310 << 30)
runtime.data("pages", "3", role="output", digest="sha256:" + "9c" * 32, rows=41_370_000, bytes=84 << 30)
"""
MODEL = """
from pathlib import Path
from muster import runtime

runtime.data("pages", "3", digest="sha256:" + "9c" * 32, rows=41_370_000, bytes=84 << 30)
for step in range(1, 40):
    runtime.report(step, loss=2.1 + 5 / step, val_loss=2.2 + 5 / step)
Path("model.bin").write_bytes(b"weights")
runtime.artifact("model.bin", "final/model.bin", kind="model")
"""
DIVERGES = """
import math, time
from muster import runtime

for step in range(60):
    runtime.report(step, loss=math.nan if step > 40 else 3.0 - step / 100)
time.sleep(600)
"""
POLICY = """
between: fair
queues:
  default: {max_accelerators_per_user: 256}
"""
TRIAL = """
import math
from muster import runtime

p = runtime.trial_params()
off = abs(math.log10(p["lr"]) + 3.5) * 0.5 + abs(math.log2(p["width"] / 512)) * 0.2
off += abs(math.log10(p["decay"]) + 4) * 0.1
for step in range(1, 28):
    runtime.report(step=step, loss=2 + off + 3 / step)
"""
PAGES = {
    "home": "/", "queue": "/queue", "cluster": "/cluster", "run": "/runs/{run}", "runs": "/runs",
    "sweep": "/sweeps/{study}", "cost": "/cost", "submit": "/submit?from={run}", "compare": "/compare?runs={runs}",
    "alerts": "/alerts", "alert": "/alerts/{alert}", "data": "/data", "data-set": "/data/pages%403",
    "models": "/models", "model": "/models/translator", "policy": "/policy", "people": "/people",
}  # fmt: skip


def main() -> None:
    wanted = sys.argv[1:] or list(PAGES)
    with tempfile.TemporaryDirectory() as folder, live_server(Path(folder) / "muster", config=CONFIG) as server:
        names = worked(server)
        with chromium() as browser, signed_in(browser, server, viewport={"width": 1280, "height": 800}) as page:
            for name in wanted:
                page.goto(PAGES[name].format(**names))
                page.wait_for_timeout(4_000)
                shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
                # Few colours are on a page: a palette takes a third of the bytes.
                shot.quantize(256, dither=Image.Dither.NONE).save(HERE / "pictures" / f"web-{name}.png", optimize=True)


def worked(server: LiveServer) -> dict[str, str]:
    """Runs that ended, runs that go on, jobs that wait, a study, prices, data, a model: the names to look at."""
    (server.home / "train.py").write_text(TRAIN)
    (server.home / "trial.py").write_text(TRIAL)
    with server.http() as http:
        book = "currency: USD\npools: {local: [{accelerator: 2.9, cpu: 0.02}]}\nassumed_run: 2h\n"
        http.put("/v1/cost/prices", json={"text": book}).raise_for_status()
        http.put("/v1/rules", json={"text": POLICY}).raise_for_status()
    one = {"accelerators": "H100:1"}
    done = [
        server.submit("python train.py", name="gpt-small", envs={"LR": lr, "SEED": str(seed)}, resources=one)["id"]
        for seed, lr in enumerate(("3e-4", "1e-3", "1e-4", "3e-5"), 1)
    ]
    for run in done:
        server.wait(run)
    registered(server)
    job = {"run": "python trial.py", "workdir": str(server.home)}
    study = server.post("/v1/studies", {"text": STUDY, "job": job})["id"]
    server.wait(study)
    broken = server.submit("python -c 'raise RuntimeError(\"CUDA out of memory\")'", name="gpt-wide")["id"]
    server.wait(broken)
    for name, nodes, pace in (("gpt-base", 4, "1.2"), ("vit-large", 2, "0.8"), ("retrieval", 1, "0.5")):
        server.submit(
            "python train.py", name=name, num_nodes=nodes, envs={"PACE": pace, "STEPS": "2000"},
            resources={"accelerators": "H100:8"}, purpose="longer context than the baseline",
        )  # fmt: skip
    for name, nodes in (("gpt-large", 6), ("ablation", 2), ("distill", 4)):
        server.submit(
            "python train.py", name=name, num_nodes=nodes, resources={"accelerators": "H100:8"}, max_duration="3h"
        )
    until(lambda: server.get("/v1/jobs", phase="running")["jobs"], "runs that go on")
    time.sleep(45)  # so that there is a curve to look at
    return {"run": done[0], "study": study, "runs": ",".join(done), "alert": str(looked_after(server))}


def registered(server: LiveServer) -> None:
    """A data set that one run made of another, a model of the run that read it, and those who may use the project."""
    for name, program in (("clean-pages", DATA), ("translator", MODEL)):
        (server.home / f"{name}.py").write_text(program)
        run = server.submit(f"python {name}.py", name=name)["id"]
        server.wait(run)
    until(lambda: server.get(f"/v1/runs/{run}/artifacts")["folders"], "the model")
    for _ in range(2):
        server.post("/v1/models/translator/versions", {"source": f"artifact:{run}/final", "project": "default"})
    with server.http() as http:
        until(lambda: http.get("/v1/models/translator/versions/2/statement").status_code == 200, "the statement")
        step = {"stage": "production", "evidence": [run], "why": "better than the last on all languages"}
        http.post("/v1/models/translator/versions/1/stage", json=step).raise_for_status()
        http.post("/v1/projects", json={"name": "language"}).raise_for_status()
        for user, role in (("ada", "admin"), ("grace", "member"), ("linus", "viewer")):
            http.put(f"/v1/projects/language/members/{user}", json={"role": role}).raise_for_status()
            http.post("/v1/tokens", json={"user": user, "name": "laptop"}).raise_for_status()


def looked_after(server: LiveServer) -> int:
    """The number of an alert of a run whose loss is not a number."""
    (server.home / "diverges.py").write_text(DIVERGES)
    run = server.submit("python diverges.py", name="warm-up-free", hang="off")["id"]

    def number() -> int | None:
        alerts = server.get("/v1/alerts")["alerts"]
        return next((one["number"] for one in alerts if one["subject"]["name"] == run), None)

    return until(number, "the alert")


if __name__ == "__main__":
    main()
