"""The registry of scenarios: one entry each, with what must hold as a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from muster.core.errors import Invalid
from muster.core.suggest import did_you_mean
from muster.drill import faults
from muster.drill.proxy import endpoint_of
from muster.drill.scenario import ENDS, Scenario, Setting

_AGAIN: Final = "It is restarted from its last checkpoint and ends with the same weights."
_UNTOUCHED: Final = "It is not restarted and ends with the same weights."
_RESUMED: Final = "The checkpoints before it stay whole, and the job, resumed if it ended, ends with the same weights."


def _own_node(setting: Setting) -> str:
    return "" if setting.engine == "local" else f"a node of the engine {setting.engine} is not the drill's to break"


def _two_nodes(setting: Setting) -> str:
    if setting.spec.num_nodes < 2:
        return "the job runs on one node; give -o num_nodes=2"
    return _own_node(setting)


def _own_server(setting: Setting) -> str:
    return "" if setting.server is not None else "the server is not the drill's; give --private for one of its own"


def _judged(setting: Setting) -> str:
    if setting.spec.hang.action != "restart":
        return f"the job file says hang: {setting.spec.hang.action}"
    return "a session is never judged" if setting.spec.kind == "session" else ""


def _device(setting: Setting) -> str:
    return "" if setting.spec.resources.accelerators else "the job has no accelerator"


def _several(setting: Setting) -> str:
    return "" if setting.ranks > 1 else "the job has one rank; give -o nproc=2"


def _files(setting: Setting) -> str:
    seen = setting.local and setting.engine == "local"
    return "" if seen else "the ranks can't read a folder of this machine"


def _store(setting: Setting) -> str:
    if not setting.local or setting.engine != "local":
        return "the ranks can't reach a proxy on this machine's loopback address"
    return "" if endpoint_of(setting.spec.envs) else "the job's envs name no endpoint http://... of an object store"


SCENARIOS: Final = (
    Scenario("kill-rank", "a rank's process is killed", _AGAIN, faults.kill_rank, soak=True),
    Scenario("kill-launcher", "a launcher is killed", _AGAIN, faults.kill_launcher, soak=True),
    Scenario("node", "all processes of a node are killed at once", _AGAIN, faults.kill_node, _own_node, soak=True),
    Scenario(
        "server", "the server is killed and started again", _UNTOUCHED, faults.kill_server, _own_server,
        restarts=False, sees=("server.leads",), soak=True,
    ),
    Scenario(
        "stop-rank", "a rank is stopped and does not go on", f"It is found to hang. {_AGAIN}", faults.stop_rank,
        _judged, sees=("attempt.hung",),
    ),
    Scenario(
        "slow-rank", "a rank gets a tenth of its time for a while", _UNTOUCHED, faults.slow_rank, restarts=False,
        sees=(), soak=True,
    ),
    Scenario(
        "full-disk", "rank 0 can't write a checkpoint in full", _RESUMED, faults.fill_disk, restarts=None, resumes=True
    ),
    Scenario(
        "file-handles", "rank 0 can open no further file", _RESUMED, faults.use_up_files, restarts=None, resumes=True
    ),
    Scenario(
        "device-memory", "another process takes the free memory of the devices", _RESUMED, faults.use_up_device,
        _device, restarts=None, sees=(), resumes=True,
    ),
    Scenario(
        "host-memory", "the worker takes more of the host's memory than it has",
        "It ends for want of memory, and says so; the job, resumed if it ended, ends with the same weights.",
        faults.use_up_memory, restarts=None, causes=("out_of_memory", "host_out_of_memory"), resumes=True,
    ),
    Scenario(
        "corrupt-sample", "a part of the data that it reads is damaged, and a rank killed",
        "It fails with an error that says so, or skips what is damaged and reports that; its loss stays finite.",
        faults.damage_sample, _files, restarts=None, sees_reads=True, may_fail=True,
    ),
    Scenario(
        "server-unreachable", "the launcher's connections to the server are cut, again and again for a while",
        "It is not restarted, the record has every report, and it ends with the same weights.",
        faults.cut_off_server, restarts=False, sees=(), whole=True,
    ),
    Scenario(
        "peer-reset", "a rank's TCP connections are reset, once",
        "It goes on, is restarted, or fails and is resumed; it ends with the same weights.", faults.cut_off_rank,
        _several, restarts=None, sees=(), resumes=True,
    ),
    Scenario(
        "damaged-checkpoint", "the newest checkpoint is damaged and a rank killed",
        "The damage is found, the checkpoint before it is used, and the job ends with the same weights.",
        faults.damage_checkpoint, sees=("checkpoint.skipped",), saved=2,
    ),
    Scenario(
        "store-refuses", "the object store refuses every request for a while", _RESUMED, faults.refuse_store, _store,
        restarts=None, sees=(), resumes=True, in_proxy=True,
    ),
    Scenario(
        "store-hangs", "the object store takes requests and does not answer for a while", _RESUMED, faults.hang_store,
        _store, restarts=None, sees=(), resumes=True, in_proxy=True,
    ),
    Scenario(
        "store-slow", "the object store answers with 64 KB/s for a while", _UNTOUCHED, faults.slow_store, _store,
        restarts=False, sees=(), in_proxy=True,
    ),
    Scenario(
        "failure-during-recovery", "a rank is killed, and once more when the next attempt starts", _AGAIN,
        faults.fail_again,
    ),
    Scenario("two-nodes", "all processes of two nodes are killed at once", _AGAIN, faults.kill_two_nodes, _two_nodes),
    Scenario(
        "flapping-node", "a node is lost three times, each time after a new step",
        f"{_AGAIN} The restarts of `retry` are not spent.", faults.flap, _own_node,
        charged="node",
    ),
    Scenario(
        "ignores-sigterm", "the job is asked to stop while a rank does not react",
        "It is killed after its grace, nothing of it is left, and it ends with the same weights when it is resumed.",
        faults.stop_unheard, sees=("job.stopped",), resumes=True,
    ),
    Scenario(
        "clock-jump", "the wall clock of the ranks' Python jumps by an hour", _UNTOUCHED, faults.jump_clock,
        restarts=False, sees=(), change=faults.jumping,
    ),
)  # fmt: skip
NAMES: Final = tuple(one.name for one in SCENARIOS)


def find(names: Sequence[str]) -> list[Scenario]:
    """The scenarios with these names, in their order; `all` for every one. Raises Invalid."""
    known = {one.name: one for one in SCENARIOS}
    for name in names:
        if name != "all" and name not in known:
            meant = did_you_mean(name, known, "", cutoff=0.5)
            raise Invalid(f"--scenario: there is no {name!r}.", f"{meant} There are: all, {', '.join(known)}.".lstrip())
    return [one for one in SCENARIOS if "all" in names or one.name in names]


__all__ = ["ENDS", "NAMES", "SCENARIOS", "find"]
