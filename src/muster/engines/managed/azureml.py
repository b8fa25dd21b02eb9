"""Renders a job as the body of Azure ML's jobs create-or-update (ARM, api-version 2025-09-01, CommandJob)."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any, Final

from muster.core.errors import Problem, SpecError
from muster.engines.managed import common
from muster.engines.managed.common import Notices
from muster.engines.managed.machines import Machine, accelerated, choose, plain, surplus
from muster.engines.rendering import Rendered, RenderRequest

API_VERSION: Final = "2025-09-01"
# "Supported VM series" of Azure ML (learn.microsoft.com/azure/machine-learning/concept-compute-target) and the pages of
# these sizes under learn.microsoft.com/azure/virtual-machines/sizes.
MACHINES: Final[tuple[Machine, ...]] = (
    *plain(
        "Standard_D2s_v3 2 8,Standard_D4s_v3 4 16,Standard_D8s_v3 8 32,Standard_D16s_v3 16 64,Standard_D32s_v3 32 128,"
        "Standard_D48s_v3 48 192,Standard_D64s_v3 64 256,Standard_E2s_v3 2 16,Standard_E4s_v3 4 32,"
        "Standard_E8s_v3 8 64,Standard_E16s_v3 16 128,Standard_E32s_v3 32 256,Standard_E48s_v3 48 384,"
        "Standard_E64s_v3 64 432"
    ),
    *accelerated(
        "T4",
        16,
        "Standard_NC4as_T4_v3 1 4 28,Standard_NC8as_T4_v3 1 8 56,Standard_NC16as_T4_v3 1 16 110,"
        "Standard_NC64as_T4_v3 4 64 440",
    ),
    *accelerated("A10", 24, "Standard_NV36ads_A10_v5 1 36 440,Standard_NV72ads_A10_v5 2 72 880"),
    *accelerated("A100", 40, "Standard_ND96asr_v4 8 96 900"),
    *accelerated(
        "A100",
        80,
        "Standard_NC24ads_A100_v4 1 24 220,Standard_NC48ads_A100_v4 2 48 440,Standard_NC96ads_A100_v4 4 96 880,"
        "Standard_ND96amsr_A100_v4 8 96 1900",
    ),
    *accelerated("H100", 94, "Standard_NC40ads_H100_v5 1 40 320,Standard_NC80adis_H100_v5 2 80 640"),
    *accelerated("H100", 80, "Standard_ND96isr_H100_v5 8 96 1900"),
    *accelerated("H200", 141, "Standard_ND96isr_H200_v5 8 96 1850"),
    *accelerated("MI300X", 192, "Standard_ND96isr_MI300X_v5 8 96 1850"),
)
_ENV_BYTES: Final = 131_000  # of one name and value: Linux takes 128 KiB, including `=` and the terminator
_DATASTORE: Final = "azureml://datastores/workspaceblobstore/paths/muster"
_REFERENCE: Final = re.compile(r"azureml:([^:/@]+)(?::([^:]+)|@latest)")
_SAFE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._() -]*")


def render(request: RenderRequest) -> Rendered:
    gang, notices = request.gang, Notices()
    wanted = {"subscription": "00000000-0000-0000-0000-000000000000", "resource_group": "ml", "workspace": "research"}
    common.require(gang.options, gang.image or gang.options.get("environment", ""), "azureml", wanted)
    workspace = _workspace(dict(gang.options))
    environment, first = _environment(request, workspace, notices)
    documents = [*first, {"properties": _properties(request, workspace, environment, notices)}]
    _add_notices(request, workspace, notices)
    about = f"The bodies of Azure ML's create-or-update of a job (ARM, api-version {API_VERSION}), in order."
    return Rendered(documents, about, notices.lost, notices.notes, run=False)


def _properties(request: RenderRequest, workspace: str, environment: str, notices: Notices) -> dict[str, Any]:
    spec, gang = request.spec, request.gang
    command, envs = _command(request, notices)
    properties: dict[str, Any] = {
        "jobType": "Command",
        "displayName": spec.name,
        "experimentName": gang.options.get("experiment") or spec.project,
        **({"description": spec.purpose} if spec.purpose else {}),
        "tags": common.legal_tags(common.all_tags(spec), _tag_name, lambda text: text[:256], 50, notices),
        "command": command,
        "environmentId": environment,
        "environmentVariables": envs,
        "distribution": {"distributionType": "PyTorch", "processCountPerInstance": gang.nproc},
        "outputs": {
            "checkpoints": {
                "jobOutputType": "uri_folder",
                "mode": "ReadWriteMount",
                "uri": f"{_DATASTORE}/{spec.name}/checkpoints",
            }
        },
        **_compute(request, workspace, notices),
    }
    if spec.max_duration is not None:
        limit = f"PT{common.whole_seconds(spec.max_duration)}S"
        properties["limits"] = {"jobLimitsType": "Command", "timeout": limit}
    return properties


def _workspace(options: dict[str, Any]) -> str:
    names = {name: options[name] for name in ("subscription", "resource_group", "workspace")}
    problems = [
        Problem(f"azureml.{name}", value, "a name as Azure shows it", "Copy it from the portal.")
        for name, value in names.items()
        if not _SAFE_ID.fullmatch(value)
    ]
    if problems:
        raise SpecError(problems, source="azureml", hint="Mend each and render again.")
    return (
        f"/subscriptions/{names['subscription']}/resourceGroups/{names['resource_group']}"
        f"/providers/Microsoft.MachineLearningServices/workspaces/{names['workspace']}"
    )


def _environment(request: RenderRequest, workspace: str, notices: Notices) -> tuple[str, list[dict[str, Any]]]:
    """The environment's id and, if it is built from the image, the body that creates it."""
    given = request.gang.options.get("environment", "")
    if given and request.gang.image:
        notices.lost.append(f"`image` is not used: the environment {given} says which image it is.")
    if given.startswith(("/", "azureml://")):
        return given, []
    if found := _REFERENCE.fullmatch(given):
        version = f"versions/{found[2]}" if found[2] else "labels/latest"
        return f"{workspace}/environments/{found[1]}/{version}", []
    if given:
        hint = "Write `azureml:NAME:VERSION`, or leave it out and give `image`."
        problem = Problem("azureml.environment", given, "an environment of the workspace or a registry", hint)
        raise SpecError([problem], source="azureml", hint="Mend it and render again.")
    version = hashlib.sha256(request.gang.image.encode()).hexdigest()[:12]
    made = f"{workspace}/environments/muster-{request.spec.name}/versions/{version}"
    notices.notes.append(f"The first document makes the environment: PUT {_url(made)}.")
    return made, [{"properties": {"image": request.gang.image, "osType": "Linux"}}]


def _command(request: RenderRequest, notices: Notices) -> tuple[str, dict[str, str]]:
    """The command and the environment. The service runs its command in bash in each rank. The job's own command is
    passed in the environment, so that no other shell interprets it;
    only a text that the service could take for a `${{reference}}` is passed as base64."""
    gang = request.gang
    envs = {**common.own_envs(gang, ""), "LOCAL_WORLD_SIZE": str(gang.nproc), "MUSTER_RUN": gang.run}
    envs.pop("MUSTER_CHECKPOINT_DIR")
    veiled = [name for name, value in envs.items() if "${{" in value]
    for name in veiled:
        envs[name] = base64.b64encode(envs[name].encode()).decode()
        notices.notes.append(f"{name} holds a `${{{{` that Azure ML could take for its own: it travels as base64.")
    if long := [name for name, value in envs.items() if len(name) + len(value.encode()) > _ENV_BYTES]:
        where = "run" if long[0] == "MUSTER_RUN" else f"envs.{long[0]}"
        problem = Problem(where, "a text too long for an environment", f"at most {_ENV_BYTES:,} bytes", "Shorten it.")
        raise SpecError([problem], source="azureml", hint="Mend it and render again.")
    unveil = [
        # The x preserves trailing newlines, which command substitution drops.
        f'{name}="$(printf %s "${name}" | base64 -d; printf x)"; export {name}="${{{name}%x}}"'
        for name in veiled
    ]
    lines = [
        *unveil,
        'export MUSTER_CHECKPOINT_DIR="${{outputs.checkpoints}}" GROUP_RANK="${NODE_RANK:-0}"',
        'exec bash -c "$MUSTER_RUN"',
    ]
    return "; ".join(lines), envs


def _compute(request: RenderRequest, workspace: str, notices: Notices) -> dict[str, Any]:
    """A cluster of the workspace if one is named, else serverless compute of a fitting size."""
    spec, cluster = request.spec, request.gang.options.get("compute", "")
    if cluster:
        if spec.use_spot:
            notices.lost.append(
                f"`use_spot` is a property of the cluster {cluster} there (low priority), not of a job."
            )
        notices.notes.append(f"Each node of {cluster} needs {request.gang.ask}: its size is not checked.")
        place = cluster if cluster.startswith("/") else f"{workspace}/computes/{cluster}"
        return {"computeId": place, "resources": {"instanceCount": spec.num_nodes}}
    machine = choose(request.gang.ask, MACHINES, "azureml.compute", "azureml")
    if more := surplus(machine, request.gang.ask):
        notices.notes.append(more)
    return {
        "resources": {"instanceCount": spec.num_nodes, "instanceType": machine.name},
        "queueSettings": {"jobTier": "Spot" if spec.use_spot else "Standard"},
    }


def _tag_name(text: str) -> str:
    return common.replaced(text, r"[<>%&\\?/]", 512)


def _url(resource: str) -> str:
    return f"https://management.azure.com{resource}?api-version={API_VERSION}"


def _add_notices(request: RenderRequest, workspace: str, notices: Notices) -> None:
    spec = request.spec
    store = "keep each in the workspace's Key Vault and let the program read it with the job's identity."
    common.add_common_notices(
        spec, notices, store, "copy it into the image, or register it as a code asset and add its codeId."
    )
    if spec.retry.max_restarts and spec.use_spot:
        notices.lost.append("`retry` has no meaning there: a job that is preempted is queued again by the service.")
    if spec.deadline is not None:
        notices.lost.append("`deadline` has no meaning there.")
    notices.notes.append(
        f"Send it as PUT {_url(f'{workspace}/jobs/{spec.name}')}, for example with `az rest`; a name can be used once."
    )
