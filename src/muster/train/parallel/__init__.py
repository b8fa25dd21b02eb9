"""Parallelism: divides a model over a mesh, with any combination of methods, and runs its steps.

mesh = make_mesh(Layout.parse({"dp": 2, "tp": 2}), "cuda")
prepared = parallelize(model, mesh, settings, precision, initialise=lambda part: initialise(part, seed=1))
optimizer = adamw(prepared.parts, OptimSettings())
loss = prepared.forward_backward(micros, loss_fn, total)
norm, factor = measure(prepared.parts, mesh, 1.0, prepared.scaler)
step(optimizer, skip, factor)
model, optim = state_dicts(prepared, optimizer)
"""

from __future__ import annotations

from muster.train.parallel.prepare import block_list, check, parallelize
from muster.train.parallel.prepared import LossFn, Micro, Prepared
from muster.train.parallel.settings import ParallelSettings
from muster.train.parallel.state import load_state_dicts, state_dicts

__all__ = [
    "LossFn",
    "Micro",
    "ParallelSettings",
    "Prepared",
    "block_list",
    "check",
    "load_state_dicts",
    "parallelize",
    "state_dicts",
]
