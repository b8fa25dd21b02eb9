"""Renders a job as the body of Vertex AI's projects.locations.customJobs.create (v1 CustomJob)."""

from __future__ import annotations

import re
from typing import Any, Final

from muster.core.errors import Problem, SpecError
from muster.engines.managed import common
from muster.engines.managed.common import Notices
from muster.engines.managed.machines import Machine, accelerated, pick, plain, surplus
from muster.engines.rendering import Rendered, RenderRequest

# "Machine types" of Vertex AI custom training (docs.cloud.google.com/vertex-ai/docs/training/configure-compute), sizes
# from Compute Engine's "Accelerator-optimized machine family" and "N1", "N2" (docs.cloud.google.com/compute/docs);
# accelerator names from the reference of AcceleratorType.
MACHINES: Final[tuple[Machine, ...]] = (
    *plain(
        "n2-standard-4 4 16,n2-standard-8 8 32,n2-standard-16 16 64,n2-standard-32 32 128,n2-standard-48 48 192,"
        "n2-standard-64 64 256,n2-standard-80 80 320,n2-highmem-4 4 32,n2-highmem-8 8 64,n2-highmem-16 16 128,"
        "n2-highmem-32 32 256,n2-highmem-48 48 384,n2-highmem-64 64 512,n2-highmem-80 80 640"
    ),
    *accelerated(
        "T4",
        16,
        "n1-standard-4 1 4 15,n1-standard-8 1 8 30,n1-standard-16 1 16 60,n1-standard-32 1 32 120,"
        "n1-standard-8 2 8 30,n1-standard-16 2 16 60,n1-standard-32 2 32 120,"
        "n1-standard-16 4 16 60,n1-standard-32 4 32 120,n1-standard-64 4 64 240,n1-standard-96 4 96 360",
        "NVIDIA_TESLA_T4",
    ),
    *accelerated(
        "L4",
        24,
        "g2-standard-4 1 4 16,g2-standard-8 1 8 32,g2-standard-12 1 12 48,g2-standard-16 1 16 64,"
        "g2-standard-32 1 32 128,g2-standard-24 2 24 96,g2-standard-48 4 48 192,g2-standard-96 8 96 384",
        "NVIDIA_L4",
    ),
    *accelerated(
        "V100",
        16,
        "n1-standard-8 1 8 30,n1-standard-16 2 16 60,n1-standard-32 4 32 120,n1-standard-64 8 64 240,"
        "n1-standard-96 8 96 360",
        "NVIDIA_TESLA_V100",
    ),
    *accelerated(
        "A100",
        40,
        "a2-highgpu-1g 1 12 85,a2-highgpu-2g 2 24 170,a2-highgpu-4g 4 48 340,a2-highgpu-8g 8 96 680,"
        "a2-megagpu-16g 16 96 1360",
        "NVIDIA_TESLA_A100",
    ),
    *accelerated(
        "A100",
        80,
        "a2-ultragpu-1g 1 12 170,a2-ultragpu-2g 2 24 340,a2-ultragpu-4g 4 48 680,a2-ultragpu-8g 8 96 1360",
        "NVIDIA_A100_80GB",
    ),
    *accelerated(
        "H100",
        80,
        "a3-highgpu-1g 1 26 234,a3-highgpu-2g 2 52 468,a3-highgpu-4g 4 104 936,a3-highgpu-8g 8 208 1872",
        "NVIDIA_H100_80GB",
    ),
    *accelerated("H100", 80, "a3-megagpu-8g 8 208 1872", "NVIDIA_H100_MEGA_80GB"),
    *accelerated("H200", 141, "a3-ultragpu-8g 8 224 2952", "NVIDIA_H200_141GB"),
    *accelerated("B200", 180, "a4-highgpu-8g 8 224 3968", "NVIDIA_B200"),
)
_PIECE: Final = 16_000  # characters of one argument
_ENV_MOST: Final = 100
_LABELS: Final = 64
_BUCKET: Final = re.compile(r"gs://([^/]+)(/.*)?")


def render(request: RenderRequest) -> Rendered:
    spec, gang, notices = request.spec, request.gang, Notices()
    options = dict(gang.options)
    wanted = {"project": "my-project", "location": "europe-west4", "staging_bucket": "gs://bucket/staging"}
    common.require(options, gang.image, "vertex", wanted)
    place = _place(options["staging_bucket"], spec.name)
    body: dict[str, Any] = {
        "displayName": spec.name,
        "jobSpec": {
            "workerPoolSpecs": _pools(request, place, notices),
            "scheduling": _scheduling(request, notices),
            "baseOutputDirectory": {"outputUriPrefix": place},
            **({"serviceAccount": options["service_account"]} if options.get("service_account") else {}),
            **({"network": options["network"]} if options.get("network") else {}),
        },
        "labels": common.legal_tags(common.all_tags(spec), _label_name, _label_value, _LABELS, notices),
    }
    _add_notices(request, notices)
    return Rendered(
        [body], "The body of Vertex AI's projects.locations.customJobs.create (v1).", notices.lost, notices.notes, False
    )


def _place(bucket: str, name: str) -> str:
    if not _BUCKET.fullmatch(bucket):
        problem = Problem(
            "vertex.staging_bucket", bucket, "a Cloud Storage address", "Write it as `gs://bucket/folder`."
        )
        raise SpecError([problem], source="vertex", hint="Mend it and render again.")
    return f"{bucket.rstrip('/')}/{name}"


def _pools(request: RenderRequest, place: str, notices: Notices) -> list[dict[str, Any]]:
    """The first worker pool is one replica, rank 0's node; the second has the others."""
    # Cloud Storage is mounted under /gcs on every replica.
    checkpoints = f"/gcs/{place.removeprefix('gs://')}/checkpoints"
    # A value with a dollar sign could be taken for a reference to another variable.
    envs, rest = common.split_envs(
        common.own_envs(request.gang, checkpoints), lambda value: "$" not in value, _ENV_MOST
    )
    pool = {
        "machineSpec": _machine(request, notices),
        "replicaCount": "1",  # int64, which the API's JSON form writes as text
        "containerSpec": {
            "imageUri": request.gang.image,
            "command": ["python3", "-c", "\n".join(common.start_lines())],
            "args": common.packed(request.gang, rest, _PIECE),
            "env": [{"name": name, "value": value} for name, value in envs.items()],
        },
    }
    others = request.spec.num_nodes - 1
    return [pool, {**pool, "replicaCount": str(others)}] if others else [pool]


def _machine(request: RenderRequest, notices: Notices) -> dict[str, Any]:
    options, ask = request.gang.options, request.gang.ask
    given = options.get("machine_type", "")
    attached = given.startswith("n1-")  # accelerators are attached to these, so a name can have several sizes
    found = pick("" if attached else given, ask, MACHINES, "vertex.machine_type", "vertex")
    code = options.get("accelerator_type") or found.code
    if ask.accelerators and not code:
        hint = "Add `vertex: {accelerator_type: NVIDIA_H100_80GB}`, as the reference of AcceleratorType has it."
        problem = Problem("vertex.accelerator_type", "nothing", f"what {given} has", hint)
        raise SpecError([problem], source="vertex", hint="Mend it and render again.")
    if more := surplus(found, ask):
        notices.notes.append(more)
    made: dict[str, Any] = {"machineType": given or found.name}
    if code:
        made |= {"acceleratorType": code, "acceleratorCount": found.count or ask.accelerators}
    return made


def _scheduling(request: RenderRequest, notices: Notices) -> dict[str, Any]:
    spec = request.spec
    made: dict[str, Any] = {"strategy": "SPOT" if spec.use_spot else "STANDARD"}
    if spec.max_duration is not None:
        made["timeout"] = f"{common.whole_seconds(spec.max_duration)}s"
    else:
        notices.notes.append("Without `max_duration` Vertex AI stops it after seven days.")
    if spec.retry.max_restarts == 0:
        made["disableRetries"] = True
    elif spec.num_nodes > 1:
        made["restartJobOnWorkerRestart"] = True  # a gang that lost a worker restarts as a whole
    return made


def _label_name(text: str) -> str:
    legal = _label_value(text)
    return legal if legal[:1].isalpha() else f"x-{legal}"[:63]


def _label_value(text: str) -> str:
    return common.replaced(text.lower(), r"[^\w-]", 63)


def _add_notices(request: RenderRequest, notices: Notices) -> None:
    spec, options = request.spec, request.gang.options
    store = "keep each in Secret Manager and let the program read it; the service account needs secretAccessor."
    common.add_common_notices(spec, notices, store, "copy it into the image; the job starts in the image's own folder.")
    if spec.deadline is not None:
        notices.lost.append("`deadline` has no meaning there: a spot job waits until it is cancelled.")
    place = f"projects/{options['project']}/locations/{options['location']}"
    notices.notes.append("The image needs Python 3.7 or newer as `python3`.")
    notices.notes.append(
        f"Send it as POST https://{options['location']}-aiplatform.googleapis.com/v1/{place}/customJobs; the ranks "
        "find their checkpoints in the bucket, mounted under /gcs, also after a restart."
    )
