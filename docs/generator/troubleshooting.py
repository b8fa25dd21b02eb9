"""The page of what goes wrong: symptoms first, then every reason of `core/reasons.py` under an anchor of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from generator.markdown import generated
from muster.core.reasons import REASONS, Category, ReasonKind, granter_words

SYMPTOMS: Final = Path(__file__).with_name("symptoms.md")  # written by hand

CATEGORIES: Final[dict[Category, tuple[str, str, str]]] = {
    "wait": (
        "Waits",
        "The job is accepted and queued. It starts by itself as soon as the reason is gone; several may hold at once.",
        "nobody",
    ),
    "refusal": ("Refusals", "The job was not accepted. Nothing was stored; correct it and submit it again.", "you"),
    "node": (
        "Ends that a node caused",
        "The attempt ended without the program's fault. It counts as `node` for `retry.on`.",
        "nobody",
    ),
    "worker": (
        "Ends that a worker caused",
        "A process died without an error of its own. It counts as `worker` for `retry.on`.",
        "nobody",
    ),
    "preempted": (
        "Ends that the platform caused",
        "The gang was asked to save and leave, and is queued again. It counts as `preempted` for `retry.on`.",
        "nobody",
    ),
    "error": (
        "Ends that the program caused",
        "The job or its settings are at fault, so it is not started again unless `retry.on` has `error`.",
        "you",
    ),
    "end": ("Ends", "The job is over, or goes on because somebody asked for it.", "you, if you want more of it"),
}

# Who has to act, where it is not the one that the category says.
ACTORS: Final = {
    "no_capacity": "nobody; whoever owns the cluster, if it is always so",
    "nodes_unhealthy": "whoever runs the cluster",
    "limit_reached": "nobody; an administrator may raise the limit",
    "quota_reached": "nobody; an administrator may give the queue more",
    "no_pool": "an administrator",
    "engine_away": "whoever runs the cluster",
    "off_peak": "you, if it is urgent",
    "maintenance": "you, if a shorter run is enough",
    "reserved": "you, if a shorter run is enough",
    "over_quota": "you, or an administrator",
    "engine_forbids": "you, or an administrator",
    "never_allowed": "you, or an administrator",
    "pool_not_allowed": "you, or an administrator",
    "isolation_missing": "an administrator",
    "not_isolated": "whoever runs the cluster",
    "launch_failed": "whoever runs the cluster",
    "host_out_of_memory": "you",
    "completed": "nobody",
    "resumed": "nobody",
    "restarts_spent": "you",
}

# What to do, where the reason itself has no hint.
ADVICE: Final = {
    "about_to_start": "Nothing: it starts within seconds.",
    "node_lost": "Nothing if it saves checkpoints: it starts on other nodes. `muster nodes` shows which one is gone.",
    "launcher_lost": "Nothing if it saves checkpoints. If it happens again, look for what kills processes on the node.",
    "killed_by_signal": "Nothing if it saves checkpoints. If it happens again, see what the rank wrote last. "
    "SIGKILL often means too little memory, SIGSEGV a defect in native code.",
    "gang_member_died": "Look at the worker that died first: `muster status` and `muster logs` name it.",
    "preempted": "Nothing: it saved and is queued again. `muster queue rules` says who may stop whom.",
    "quota_reclaimed": "Nothing: it saved and is queued again. Work within the queue's own quota is not taken back.",
    "turn_over": "Nothing: its next turn comes by itself.",
    "resizing": "Nothing: an elastic gang goes on with more nodes, or with fewer.",
    "cancelled_outside": "Ask who did it; the cluster's own log knows. It is queued again.",
    "completed": "Nothing.",
    "resumed": "Nothing.",
}


def troubleshooting_page() -> str:
    parts = [generated("Troubleshooting", "src/muster/core/reasons.py"), SYMPTOMS.read_text(encoding="utf-8")]
    for category, (title, about, actor) in CATEGORIES.items():
        parts.append(f"## {title}\n\n{about}\n")
        parts += [_section(kind, actor) for kind in REASONS.values() if kind.category == category]
    return "\n".join(parts)


def _section(kind: ReasonKind, actor: str) -> str:
    summary = kind.summary[0].upper() + kind.summary[1:]
    advice = kind.hint or ADVICE.get(kind.code, "See `muster why` and `muster logs`.")
    granted = f"- Who can grant an exception: {granter_words(kind.granted_by)}\n" if kind.granted_by else ""
    acts = f"- Who acts: {ACTORS.get(kind.code, actor)}.\n- What to do: {advice}\n"
    return f"### {kind.code}\n\n{summary}.\n\n{acts}{granted}"
