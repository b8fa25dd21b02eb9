"""The page of environment variables: every `MUSTER_*` name in the sources, and the names that ranks get."""

from __future__ import annotations

import re
from typing import Final

from generator.imports import SOURCES
from generator.markdown import generated, table

# Names that people set, and what for. What is not here is shown under the files that name it.
SET: Final = {
    "MUSTER_HOME": "the home folder of server and client; `~/.muster` if unset",
    "MUSTER_URL": "the server's address, or several with commas between; else the server of this machine",
    "MUSTER_TOKEN": "the token for it; else the file `token` of the home folder",
    "MUSTER_CA_FILE": "certificates to trust when the server's is your own",
    "MUSTER_STORE": "the server's database; SQLite in the home folder if unset. Other users don't see what is in it",
    "MUSTER_OIDC_ISSUER": "the provider that people sign in through; this and the next are described in "
    "[sign-in through a provider](oidc.md)",
    "MUSTER_OIDC_CLIENT_ID": "the server's id at it",
    "MUSTER_OIDC_CLIENT_SECRET": "the server's secret at it; no job is given it",
    "MUSTER_OIDC_CLIENT_SECRET_FILE": "a file with it instead",
    "MUSTER_OIDC_PUBLIC_URL": "the address under which browsers reach the server",
    "MUSTER_OIDC_NAME": "what the sign-in page calls the provider",
    "MUSTER_OIDC_CLAIM": "which claim is the user's name",
    "MUSTER_OIDC_DOMAINS": "domains of e-mail addresses that may sign in, with commas between",
    "MUSTER_OIDC_NEW_MEMBERS": "the role that new people get",
    "MUSTER_OIDC_PROJECT": "in which project",
    "MUSTER_OIDC_GROUP": "the group that people must be in",
    "MUSTER_OIDC_GROUP_CLAIM": "the claim that has their groups",
    "MUSTER_OIDC_SCOPES": "what the provider is asked for, with commas between",
    "MUSTER_OIDC_CA_FILE": "certificates to trust when the provider's is your own",
    "MUSTER_SNAPSHOT": "`0`: `muster run` and `muster submit` keep no copy of the code",
    "MUSTER_MIRROR": "rank 0's reports also go to `wandb` or `tensorboard:FOLDER`; several with commas between",
    "MUSTER_BELL": "`off`, or how long `muster run` must have watched a job for its end to ring the bell: `10s`",
    "MUSTER_RETRY_FOR": "how long commands wait for a server that does not answer: `60s`, `1h`",
    "MUSTER_SPOT_NOTICE": "a file whose presence means that the machine goes away soon: ranks are asked to save",
    "MUSTER_PY_SPY": "for launchers: the path of py-spy for `muster stacks`, or `off`",
    "MUSTER_DCGM_URL": "for launchers: a dcgm-exporter of their node, such as `http://127.0.0.1:9400/metrics`, to read "
    "instead of NVML",
    "MUSTER_NODE_EXPORTER_URL": "the same for a node-exporter, instead of the kernel's files",
    "MUSTER_SCRATCH": "for launchers on a cluster's nodes: a local folder of the node",
}
# Names that Muster gives to the processes of a job.
GIVEN: Final = {
    "RANK": "number of the rank in the gang, from 0",
    "WORLD_SIZE": "ranks in the gang",
    "LOCAL_RANK": "number of the rank on its node, from 0",
    "LOCAL_WORLD_SIZE": "ranks on the node",
    "GROUP_RANK": "number of the node in the gang, from 0",
    "NODE_RANK": "the same",
    "MASTER_ADDR": "address of the node of rank 0",
    "MASTER_PORT": "a port there that is free",
    "MUSTER_JOB": "id of the job",
    "MUSTER_ATTEMPT": "number of the attempt, from 1",
    "MUSTER_NODE": "name of the node",
    "MUSTER_CHECKPOINT_DIR": "where checkpoints go",
    "MUSTER_CHECKPOINT_KEEP": "how many stay",
    "MUSTER_ARRAY_INDEX": "index of a task of an array; `SLURM_ARRAY_TASK_ID` is the same",
    "MUSTER_ARRAY_COUNT": "how many tasks the array has; `SLURM_ARRAY_TASK_COUNT` too",
    "MUSTER_ARRAY_MIN": "the array's first index; `SLURM_ARRAY_TASK_MIN` too",
    "MUSTER_ARRAY_MAX": "the array's last index; `SLURM_ARRAY_TASK_MAX` too",
    "MUSTER_ARRAY_JOB": "id of the array; `SLURM_ARRAY_JOB_ID` too",
    "MUSTER_NEEDS_PREPARE": "id of the job `prepare` that it needed; one such name for each job of `needs`",
    "MUSTER_CHECKPOINT_EVERY": "seconds between saves, if the job file says so",
}
_NAME: Final = re.compile(r"\bMUSTER_[A-Z]+(?:_[A-Z]+)*\b")


def environment_page() -> str:
    places: dict[str, set[str]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        for name in _NAME.findall(path.read_text(encoding="utf-8")):
            places.setdefault(name, set()).add(path.relative_to(SOURCES).as_posix())
    gone = {name for name in (*SET, *GIVEN) if name.startswith("MUSTER_")} - places.keys()
    assert not gone, f"docs/generator/environment.py describes {', '.join(sorted(gone))}, which no source names"
    rest = sorted(places.keys() - SET.keys() - GIVEN.keys())
    head = ("name", "meaning")
    return (
        generated("Environment variables", "the sources")
        + "## That you set\n\n"
        + table(head, [(f"`{name}`", words) for name, words in SET.items()])
        + "\n## That a rank finds\n\nThe first eight are those of `torchrun`.\n\n"
        + table(head, [(f"`{name}`", words) for name, words in GIVEN.items()])
        + "\nJobs also get their own `envs` and `secrets`. What else they inherit is in "
        + "[who is kept apart from whom](engines.md#who-is-kept-apart-from-whom).\n"
        + "\n## Between Muster's own processes\n\nNot to be set by hand.\n\n"
        + table(
            ("name", "named in"), [(f"`{name}`", " ".join(f"`{at}`" for at in sorted(places[name]))) for name in rest]
        )
    )
