"""Small real programs for the tests of diagnoses: some with a fault of each kind, some healthy.

Those that are looked at while they run print "up", and run until a file `stop` appears, or for a minute.
"""

from __future__ import annotations

import textwrap

COMPUTE = """
import sys, time
from pathlib import Path
sys.setswitchinterval(0.05)
def compute(seconds):
    until, value = time.perf_counter() + seconds, 1
    while time.perf_counter() < until:
        value = sum(number * number for number in range(2000))
def goes_on(until=time.monotonic() + 60):
    return time.monotonic() < until and not Path("stop").exists()
"""

# A loader that sleeps, in a program that states its phases.
SLOW_LOADER = (
    COMPUTE
    + """
from muster import runtime as m
m.phase("training")
for step in range(90):
    with m.phase("data"):
        time.sleep(0.04)
    compute(0.01)
    m.report(step=step, loss=1.0 / (step + 1))
"""
)

# The same in a program that states and reports nothing.
SILENT_LOADER = (
    COMPUTE
    + """
import torch
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self):
        return 1_000_000
    def __getitem__(self, at):
        time.sleep(0.05)
        return torch.zeros(4)
print("up", flush=True)
for batch in DataLoader(Slow(), batch_size=4):
    compute(0.01)
    if not goes_on():
        break
"""
)

# A CPU's tensors are never waited for: a method in C that blocks, called `item`, stands for that of a device's tensor.
# The use of the device is reported by the program, where a driver would say it.
BLOCKING_ITEM = (
    COMPUTE
    + """
from functools import partial
from muster import runtime as m
class Loss:
    item = partial(time.sleep, 0.2)
loss, step = Loss(), 0
print("up", flush=True)
while goes_on():
    step += 1
    compute(0.005)
    value = loss.item()
    m.report(step=step, **{"system/gpu": 0.35})
"""
)

# The same with a device that was idle while the program started and is busy since: nothing is lost by waiting for it.
BUSY_AFTER_START = BLOCKING_ITEM.replace(
    "loss, step = Loss(), 0\n",
    """loss, step = Loss(), 0
for step in range(200):
    m.report(step=step, **{"system/gpu": 0.0})
""",
).replace("0.35", "0.99")

SLOW_RANK = (
    COMPUTE
    + """
import os, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
def preprocess():
    time.sleep(1.0)  # long beside a collective of two processes on a machine that is busy with others
print("up", flush=True)
while True:
    if dist.get_rank() == 1:
        preprocess()
    more = torch.tensor([float(goes_on())])
    dist.all_reduce(more)
    if more.item() < dist.get_world_size():
        break
dist.destroy_process_group()
"""
)

FREQUENT_SAVES = (
    COMPUTE
    + """
from muster import runtime as m
m.phase("training")
for step in range(1, 41):
    with m.phase("data"):
        time.sleep(0.002)
    time.sleep(0.05)
    m.report(step=step, loss=1.0 / step)
    if step % 2 == 0:
        with m.checkpoint(step) as folder:
            (folder / "state").write_bytes(b"0" * 1000)
            time.sleep(0.08)
"""
)

# The norm leaves its path at step 120, where the learning rate is raised.
DIVERGED_AT = 120
DIVERGENCE = (
    COMPUTE
    + """
import random
from muster import runtime as m
draw = random.Random(1)
for step in range(1, 161):
    lr = 3e-4 if step < 118 else 3e-3
    norm = 1.0 + 0.05 * draw.random() if step < 120 else 8.0 * 1.2 ** (step - 120)
    loss = 3.0 - 0.01 * step + 0.01 * draw.random() if step < 124 else 4.0 + 0.2 * (step - 124)
    m.report(step=step, loss=loss, grad_norm=norm, lr=lr)
"""
)

HEALTHY = (
    COMPUTE
    + """
import random
from muster import runtime as m
draw = random.Random(1)
m.phase("training")
for step in range(1, 41):
    with m.phase("data"):
        time.sleep(0.002)
    compute(0.08)
    m.report(step=step, loss=3.0 / step + 0.01 * draw.random(), grad_norm=1.0 + 0.1 * draw.random())
    if step == 20:
        with m.checkpoint(step) as folder:
            (folder / "state").write_text("state")
"""
)

HEALTHY_DDP = (
    COMPUTE
    + """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from muster import runtime as m
torch.set_num_threads(1)
with m.phase("rendezvous"):
    dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
m.phase("training")
began, step = time.monotonic(), 0
for step in range(1, 2000):
    with m.phase("data"):
        batch = torch.randn(256, 256)
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    m.report(step=step, loss=loss.item())
    over = torch.tensor([float(time.monotonic() - began > 3.5)])
    dist.all_reduce(over)
    if over.item():
        break
dist.destroy_process_group()
"""
)

HEALTHY_EVALUATION = (
    COMPUTE
    + """
from muster import runtime as m
m.phase("training")
for step in range(1, 11):
    with m.phase("data"):
        time.sleep(0.001)
    compute(0.05)
    m.report(step=step, loss=1.0 / step)
with m.phase("evaluating"):
    compute(2.7)
m.report(step=11, eval_loss=0.5)
"""
)

SILENT_COMPUTE = (
    COMPUTE
    + """
print("up", flush=True)
while goes_on():
    compute(0.1)
"""
)


def source(program: str) -> str:
    return textwrap.dedent(program).lstrip()
