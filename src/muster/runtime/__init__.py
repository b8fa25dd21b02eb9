"""The training script's interface to Muster: reports, progress, checkpoints and stop requests.

    from muster import runtime

    folder = runtime.last_checkpoint()                # the checkpoint to resume from, or None
    for step in range(start, total):
        loss = train_step()
        runtime.report(step=step, loss=loss)          # about a microsecond; survives the death of the process
        runtime.progress(step + 1, total=total)
        if runtime.should_save() or runtime.should_stop():
            with runtime.checkpoint(step) as folder:  # committed, verified and pruned when the block ends
                torch.save(model.state_dict(), folder / "model.pt")
        if runtime.should_stop():
            break

The description and the results of a run:

    lr = runtime.trial_params().get("lr", 3e-4)       # what a study tries in this run
    runtime.params(lr=3e-4, seed=1)                   # tags(task="pretrain"), note("..."), data("c4-en", "v3")
    runtime.log({"loss/train": loss}, step)           # like report, for names that are no identifiers
    runtime.artifact("out/model.pt")                  # kept as it is now, shipped by the launcher
    runtime.histogram("weights", step, tensor)        # image(...), table(...), text(...)

The trials of a program that runs many itself, as runs below its own:

    trial = runtime.child_run("t7", params={"lr": 3e-4})
    trial.log({"loss": loss}, step)
    trial.close()

What the time is spent on, for the goodput ledger:

    with runtime.phase("load"):                       # import, rendezvous, build, compile, saving, evaluating, ...
        model.load_state_dict(torch.load(folder / "model.pt", weights_only=True))

The same script runs standalone: outside Muster, reports do nothing and checkpoints go to ./checkpoints. Processes that
a rank forks (data loaders) may call everything; their reports do nothing. Standard library only.
"""

from __future__ import annotations

import os

PROCESS = os.getpid()  # a process with another id that has this module loaded is a forked child

TYPE_CHECKING = False  # importing typing would double the cost of this import
if TYPE_CHECKING:
    from muster.runtime.checkpoints import (
        NoGoodCheckpoint,
        StartMissing,
        checkpoint,
        checkpoint_dir,
        checkpoint_every,
        last_checkpoint,
    )
    from muster.runtime.child_runs import child_run
    from muster.runtime.files import artifact
    from muster.runtime.media import histogram, image, table, text
    from muster.runtime.memory_checkpoints import checkpoint_in_memory
    from muster.runtime.phases import phase, spent
    from muster.runtime.rank_info import active, attempt, job, local_rank, rank, world_size
    from muster.runtime.reporter import data, flush, log, mirror, note, params, progress, report, tags
    from muster.runtime.rungs import preflight_rung, preflight_steps
    from muster.runtime.signals import should_save, should_stop, stop_deadline
    from muster.runtime.trials import trial, trial_params

__all__ = [
    "NoGoodCheckpoint",
    "StartMissing",
    "active",
    "artifact",
    "attempt",
    "checkpoint",
    "checkpoint_dir",
    "checkpoint_every",
    "checkpoint_in_memory",
    "child_run",
    "data",
    "flush",
    "histogram",
    "image",
    "job",
    "last_checkpoint",
    "local_rank",
    "log",
    "mirror",
    "note",
    "params",
    "phase",
    "preflight_rung",
    "preflight_steps",
    "progress",
    "rank",
    "report",
    "should_save",
    "should_stop",
    "spent",
    "stop_deadline",
    "table",
    "tags",
    "text",
    "trial",
    "trial_params",
    "world_size",
]

_HOMES = {
    "checkpoints": (
        "NoGoodCheckpoint",
        "StartMissing",
        "checkpoint",
        "checkpoint_dir",
        "checkpoint_every",
        "last_checkpoint",
    ),
    "memory_checkpoints": ("checkpoint_in_memory",),
    "child_runs": ("child_run",),
    "rank_info": ("active", "attempt", "job", "local_rank", "rank", "world_size"),
    "files": ("artifact",),
    "media": ("histogram", "image", "table", "text"),
    "phases": ("phase", "spent"),
    "reporter": ("data", "flush", "log", "mirror", "note", "params", "progress", "report", "tags"),
    "rungs": ("preflight_rung", "preflight_steps"),
    "signals": ("should_save", "should_stop", "stop_deadline"),
    "trials": ("trial", "trial_params"),
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        # Loaded at first use and then kept as plain attributes, so that the import costs almost nothing. A module here
        # must not have the name of a public function: importing it would replace the function by the module.
        for home, names in _HOMES.items():
            if name in names:
                module = __import__(f"{__name__}.{home}", fromlist=names)
                globals().update({each: getattr(module, each) for each in names})
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
