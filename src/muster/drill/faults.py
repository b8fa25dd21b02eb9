"""The faults of the scenarios: each injects one into a running job and returns when and what."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from muster.core.errors import Invalid
from muster.core.spec import JobSpec
from muster.drill.beside_memory import remove
from muster.drill.clock import with_clock
from muster.drill.scenario import Case, Fault, NotInjected

SLOW_SECONDS: Final = 8.0
SLOW_SHARE: Final = 0.1  # of the time, in which a slow rank runs
STORE_SECONDS: Final = 8.0
DEVICE_SECONDS: Final = 20.0
MEMORY_SECONDS: Final = 60.0  # at most, for the memory to be taken and the worker to be killed
REMOVAL_SECONDS: Final = 10.0  # for the last processes to leave a control group
CUT_SECONDS: Final = 8.0
SERVER_AWAY: Final = 2.0  # seconds
CLOCK_JUMP: Final = 3600.0  # seconds
STOP_GRACE: Final = 2.0  # seconds
FLAPS: Final = 3
_TOGETHER: Final = 5.0  # seconds until two sessions have begun and act at one time
_RECOVERY: Final = 120.0  # seconds for the next attempt to start


def kill_rank(case: Case) -> Fault:
    rank = case.rank()
    return _told(case.beside(rank, do="kill", ranks=[rank]), f"rank {rank} was killed (SIGKILL)")


def stop_rank(case: Case) -> Fault:
    rank = case.rank()
    stopped = case.beside(rank, do="kill", ranks=[rank], whole=True, number=int(signal.SIGSTOP))
    return _told(stopped, f"rank {rank} was stopped (SIGSTOP)")


def slow_rank(case: Case) -> Fault:
    rank = case.rank()
    slowed = case.beside(rank, SLOW_SECONDS, do="slow", rank=rank, seconds=SLOW_SECONDS, share=SLOW_SHARE)
    return _told(slowed, f"rank {rank} ran for a tenth of the time during {SLOW_SECONDS:.0f} s")


def kill_launcher(case: Case) -> Fault:
    rank = case.rank()
    killed = case.beside(rank, do="kill", ranks=[], launcher=True)
    return _told(killed, f"the launcher of rank {rank} was killed (SIGKILL)")


def kill_node(case: Case) -> Fault:
    return _kill_workers(case, [case.rank() // case.setting.per_node])


def kill_two_nodes(case: Case) -> Fault:
    return _kill_workers(case, [0, 1])


def flap(case: Case) -> Fault:
    """The node of the first worker is lost again and again, each time after a new step."""
    watch, first = case.watch, kill_node(case)
    for _ in range(FLAPS - 1):
        attempt, step = watch.job.attempt, watch.step
        if not watch.until(lambda seen, a=attempt, s=step: seen.job.attempt > a and seen.step > s):  # type: ignore[misc]
            break
        kill_node(case)
    return Fault(first.time, f"{first.text}, {FLAPS} times in all")


def fail_again(case: Case) -> Fault:
    """A rank is killed, and once more as soon as the next attempt has started."""
    first, attempt = kill_rank(case), case.watch.job.attempt
    started = case.watch.until(lambda seen: seen.job.attempt > attempt and seen.job.phase == "running", _RECOVERY)
    if not started:
        return Fault(first.time, f"{first.text}, and no next attempt started")
    kill_rank(case)
    return Fault(first.time, f"{first.text}, and once more when the next attempt had started")


def kill_server(case: Case) -> Fault:
    server = case.setting.server
    assert server is not None
    at = time.time()
    server.kill()
    time.sleep(SERVER_AWAY)
    server.start()
    return Fault(at, f"the server was killed (SIGKILL) and started again after {SERVER_AWAY:.0f} s")


def stop_unheard(case: Case) -> Fault:
    """The job is asked to stop while a rank can't react to it."""
    frozen = stop_rank(case)
    try:
        case.client.stop(case.job, grace=STOP_GRACE)
    except Invalid:
        raise NotInjected("it was over before it was asked to stop: let it run longer") from None
    return Fault(time.time(), f"{frozen.text}, and the job was asked to stop within {STOP_GRACE:.0f} s")


def damage_checkpoint(case: Case) -> Fault:
    facts = case.beside(0, do="damage", rank=0)
    return _told(facts, f"a byte of {os.path.basename(facts['path'])} was changed, and rank 0 was killed")  # noqa: PTH119


def damage_sample(case: Case) -> Fault:
    """The next attempt reads a damaged copy of the largest file that this one read."""
    assert case.reads is not None
    path = case.reads.largest()
    if path is None:
        raise NotInjected("its Python has read no file of data by now; what other code reads is not seen")
    count, killed = case.reads.damage(path), kill_rank(case)
    damaged = f"{count:,} bytes were damaged in a copy of {path}, which is read from now on"
    return Fault(killed.time, f"{damaged}, and {killed.text}")


def fill_disk(case: Case) -> Fault:
    mark = case.watch.job.checkpoint
    assert mark is not None
    most = max(1, mark["bytes"] // 2)
    facts = case.beside(0, do="limit", rank=0, what="file_bytes", value=most)
    return _told(facts, f"no file of rank 0 may be larger than {most:,} bytes, half of its checkpoint")


def use_up_files(case: Case) -> Fault:
    facts = case.beside(0, do="limit", rank=0, what="files")
    return _told(facts, "rank 0 may open no further file")


def use_up_device(case: Case) -> Fault:
    rank = case.rank()
    facts = case.beside(rank, DEVICE_SECONDS, do="device_memory", rank=rank, seconds=DEVICE_SECONDS)
    return _told(facts, f"the free device memory of rank {rank} was taken for {DEVICE_SECONDS:.0f} s")


def use_up_memory(case: Case) -> Fault:
    rank, limit = case.rank(), case.setting.spec.resources.memory or 0
    facts = case.beside(rank, MEMORY_SECONDS, do="host_memory", rank=rank, most=limit)
    if "group" in facts and case.setting.local:  # what made it may have been killed with the worker
        remove(Path(facts["group"]), REMOVAL_SECONDS)
    what = f"the worker's limit of {limit:,} bytes was passed" if limit else "the kernel ran out of memory for it"
    return _told(facts, f"memory was taken beside rank {rank} until {what}")


def cut_off_server(case: Case) -> Fault:
    rank = case.rank()
    facts = case.beside(rank, CUT_SECONDS, do="cut", rank=rank, launcher=True, seconds=CUT_SECONDS)
    return _told(facts, f"every connection to the server of rank {rank}'s launcher was reset for {CUT_SECONDS:.0f} s")


def cut_off_rank(case: Case) -> Fault:
    rank = case.rank()
    return _told(case.beside(rank, do="cut", rank=rank), f"every TCP connection of rank {rank} was reset")


def jump_clock(case: Case) -> Fault:
    facts = case.beside(0, do="clock", seconds=CLOCK_JUMP)
    return _told(facts, f"the clock of the ranks' Python jumped by {CLOCK_JUMP:.0f} s")


def jumping(spec: JobSpec) -> Mapping[str, Any]:
    return {"run": with_clock(spec.run)}


def refuse_store(case: Case) -> Fault:
    return _break_store(case, "refuse", "answered 503")


def hang_store(case: Case) -> Fault:
    return _break_store(case, "hang", "did not answer")


def slow_store(case: Case) -> Fault:
    return _break_store(case, "slow", "answered with 64 KB/s")


def _break_store(case: Case, mode: str, words: str) -> Fault:
    assert case.proxy is not None
    if not case.proxy.requests:
        raise NotInjected("the job has sent nothing to its object store by now")
    at = time.time()
    with case.proxy.broken(mode):
        case.watch.until(lambda seen: time.time() > at + STORE_SECONDS)
    return Fault(at, f"the object store {words} for {time.time() - at:.0f} s")


def _kill_workers(case: Case, workers: Sequence[int]) -> Fault:
    """All processes of these workers at one time, their launchers first."""
    setting, at = case.setting, time.time() + (_TOGETHER if len(workers) > 1 else 0.0)

    def kill(worker: int) -> dict[str, Any]:
        ranks = setting.ranks_of(worker)
        lasts = max(0.0, at - time.time())
        return case.beside(ranks[0], lasts, do="kill", ranks=ranks, whole=True, launcher=True, at=at)

    with ThreadPoolExecutor(len(workers)) as pool:
        facts = list(pool.map(kill, workers))
    named = " and ".join(str(worker) for worker in workers)
    one = {"time": min(fact["time"] for fact in facts)}
    return _told(one, f"every process of worker {named}, with its launcher, was killed (SIGKILL)")


def _told(facts: Mapping[str, Any], text: str) -> Fault:
    return Fault(float(facts["time"]), text)
