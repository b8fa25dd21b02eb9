"""Renders a job as the body of SageMaker's CreateTrainingJob (API 2017-07-24)."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from muster.core.errors import Problem, SpecError
from muster.core.units import format_duration
from muster.engines.managed import common
from muster.engines.managed.common import Notices
from muster.engines.managed.machines import GIB, Machine, accelerated, pick, plain, surplus
from muster.engines.rendering import Rendered, RenderRequest

# Instances for training: "Available instance types" (aws.amazon.com/sagemaker/pricing) and the EC2 instance pages
# p6, p5, p4, p3, g7e, g6e, g6, g5, g4, trn1, trn2, m7i and r7i (aws.amazon.com/ec2/instance-types).
MACHINES: Final[tuple[Machine, ...]] = (
    *plain(
        "ml.m7i.large 2 8,ml.m7i.xlarge 4 16,ml.m7i.2xlarge 8 32,ml.m7i.4xlarge 16 64,ml.m7i.8xlarge 32 128,"
        "ml.m7i.12xlarge 48 192,ml.m7i.16xlarge 64 256,ml.m7i.24xlarge 96 384,ml.m7i.48xlarge 192 768,"
        "ml.r7i.large 2 16,ml.r7i.xlarge 4 32,ml.r7i.2xlarge 8 64,ml.r7i.4xlarge 16 128,ml.r7i.8xlarge 32 256,"
        "ml.r7i.12xlarge 48 384,ml.r7i.16xlarge 64 512,ml.r7i.24xlarge 96 768,ml.r7i.48xlarge 192 1536"
    ),
    *accelerated(
        "T4",
        16,
        "ml.g4dn.xlarge 1 4 16,ml.g4dn.2xlarge 1 8 32,ml.g4dn.4xlarge 1 16 64,ml.g4dn.8xlarge 1 32 128,"
        "ml.g4dn.16xlarge 1 64 256,ml.g4dn.12xlarge 4 48 192",
    ),
    *accelerated(
        "L4",
        24,
        "ml.g6.xlarge 1 4 16,ml.g6.2xlarge 1 8 32,ml.g6.4xlarge 1 16 64,ml.g6.8xlarge 1 32 128,"
        "ml.g6.16xlarge 1 64 256,ml.g6.12xlarge 4 48 192,ml.g6.24xlarge 4 96 384,ml.g6.48xlarge 8 192 768",
    ),
    *accelerated(
        "A10G",
        24,
        "ml.g5.xlarge 1 4 16,ml.g5.2xlarge 1 8 32,ml.g5.4xlarge 1 16 64,ml.g5.8xlarge 1 32 128,"
        "ml.g5.16xlarge 1 64 256,ml.g5.12xlarge 4 48 192,ml.g5.24xlarge 4 96 384,ml.g5.48xlarge 8 192 768",
    ),
    *accelerated(
        "L40S",
        48,
        "ml.g6e.xlarge 1 4 32,ml.g6e.2xlarge 1 8 64,ml.g6e.4xlarge 1 16 128,ml.g6e.8xlarge 1 32 256,"
        "ml.g6e.16xlarge 1 64 512,ml.g6e.12xlarge 4 48 384,ml.g6e.24xlarge 4 96 768,ml.g6e.48xlarge 8 192 1536",
    ),
    *accelerated(
        "RTXPRO6000",
        96,
        "ml.g7e.2xlarge 1 8 64,ml.g7e.4xlarge 1 16 128,ml.g7e.8xlarge 1 32 256,ml.g7e.12xlarge 2 48 512,"
        "ml.g7e.24xlarge 4 96 1024,ml.g7e.48xlarge 8 192 2048",
    ),
    *accelerated("V100", 16, "ml.p3.2xlarge 1 8 61,ml.p3.8xlarge 4 32 244,ml.p3.16xlarge 8 64 488"),
    *accelerated("V100", 32, "ml.p3dn.24xlarge 8 96 768"),
    *accelerated("A100", 40, "ml.p4d.24xlarge 8 96 1152"),
    *accelerated("A100", 80, "ml.p4de.24xlarge 8 96 1152"),
    *accelerated("H100", 80, "ml.p5.4xlarge 1 16 256,ml.p5.48xlarge 8 192 2048"),
    *accelerated("H200", 141, "ml.p5en.48xlarge 8 192 2048,ml.p5e.48xlarge 8 192 2048"),
    *accelerated("B200", 179, "ml.p6-b200.48xlarge 8 192 2048"),
    *accelerated("B300", 268, "ml.p6-b300.48xlarge 8 192 4096"),
    *accelerated("TRAINIUM", 32, "ml.trn1.2xlarge 1 8 32,ml.trn1.32xlarge 16 128 512"),
    *accelerated("TRAINIUM2", 96, "ml.trn2.48xlarge 16 192 2048"),
)
CHECKPOINTS: Final = "/opt/ml/checkpoints"
# The entrypoint gets the program's lines as arguments: each may have 256 characters, and there may be 100.
_ENTRYPOINT: Final = ("python3", "-c", "import sys;exec(chr(10).join(sys.argv[1:]))")
_PIECE: Final = 2500  # characters of a hyperparameter
_PIECES: Final = 100
_ENV_VALUE: Final = 512  # characters
_ENV_MOST: Final = 100
_LONGEST: Final = 28 * 86_400  # maximum run time of a training job in seconds, including waiting
_SPOT_WAIT: Final = 86_400  # seconds that a spot job may wait for instances, beyond its run time, without a deadline
_VOLUME: Final = 30  # GB, the default of SageMaker's own SDK
_GRACE: Final = 120  # seconds between SIGTERM and SIGKILL
_ROLE: Final = re.compile(r"arn:aws[a-z\-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+")
_S3: Final = re.compile(r"s3://[^/]+(/.*)?")


def render(request: RenderRequest) -> Rendered:
    gang, notices = request.gang, Notices()
    wanted = {"role": "arn:aws:iam::111122223333:role/train", "output": "s3://bucket/out"}
    common.require(gang.options, gang.image, "sagemaker", wanted)
    _check(dict(gang.options))
    body = _body(request, notices)
    _add_notices(request, notices)
    return Rendered(
        [body], "The body of SageMaker's CreateTrainingJob (API 2017-07-24).", notices.lost, notices.notes, run=False
    )


def _body(request: RenderRequest, notices: Notices) -> dict[str, Any]:
    spec, gang, options = request.spec, request.gang, dict(request.gang.options)
    envs = common.own_envs(gang, CHECKPOINTS)
    short, rest = common.split_envs(envs, lambda value: len(value) <= _ENV_VALUE, _ENV_MOST)
    body: dict[str, Any] = {
        "TrainingJobName": spec.name,
        "HyperParameters": _hyperparameters(common.packed(gang, rest, _PIECE)),
        "AlgorithmSpecification": {
            "TrainingImage": gang.image,
            "TrainingInputMode": "FastFile" if options.get("input") else "File",
            "ContainerEntrypoint": list(_ENTRYPOINT),
            "ContainerArguments": common.start_lines(),
        },
        "RoleArn": options["role"],
        "OutputDataConfig": {"S3OutputPath": options["output"]},
        "ResourceConfig": _resources(request, notices),
        "StoppingCondition": _stopping(request, notices),
        "CheckpointConfig": {
            "S3Uri": f"{options['output'].rstrip('/')}/{spec.name}/checkpoints",
            "LocalPath": CHECKPOINTS,
        },
        "Environment": short,
        "EnableManagedSpotTraining": spec.use_spot,
        "Tags": _tags(request, notices),
        **_where(options),
    }
    if spec.retry.max_restarts:
        body["RetryStrategy"] = {"MaximumRetryAttempts": min(spec.retry.max_restarts, 30)}
    return body


def _check(options: dict[str, Any]) -> None:
    problems = []
    if not _ROLE.fullmatch(options["role"]):
        hint = "Copy the role's ARN from IAM, as in `arn:aws:iam::111122223333:role/train`."
        problems.append(Problem("sagemaker.role", options["role"], "the ARN of an IAM role", hint))
    for name in ("output", "input"):
        if options.get(name) and not _S3.fullmatch(options[name]):
            hint = "Write it as `s3://bucket/folder`."
            problems.append(Problem(f"sagemaker.{name}", options[name], "an S3 address", hint))
    if bool(options.get("subnets")) != bool(options.get("security_groups")):
        hint = "A network takes both `subnets` and `security_groups`."
        problems.append(Problem("sagemaker", "one of subnets and security_groups", "both or neither", hint))
    if problems:
        raise SpecError(problems, source="sagemaker", hint="Mend each and render again.")


def _hyperparameters(pieces: list[str]) -> dict[str, str]:
    if len(pieces) > _PIECES:
        given = f"{sum(map(len, pieces)):,} characters of command and long values"
        hint = "Put the command into a script in the image, or long values into a file there."
        raise SpecError([Problem("run, envs", given, f"at most {_PIECES * _PIECE:,}", hint)], source="sagemaker")
    return {f"muster_{number:03d}": piece for number, piece in enumerate(pieces)}


def _resources(request: RenderRequest, notices: Notices) -> dict[str, Any]:
    options, ask = request.gang.options, request.gang.ask
    machine = pick(options.get("instance_type", ""), ask, MACHINES, "sagemaker.instance_type", "sagemaker")
    if more := surplus(machine, ask):
        notices.notes.append(more)
    size = options.get("volume_size")
    return {
        "InstanceType": machine.name,
        "InstanceCount": request.spec.num_nodes,
        "VolumeSizeInGB": math.ceil(size / GIB) if size else _VOLUME,
    }


def _stopping(request: RenderRequest, notices: Notices) -> dict[str, int]:
    spec = request.spec
    if spec.max_duration is None and not spec.use_spot:
        notices.notes.append("Without `max_duration` SageMaker stops it after a day.")
        return {}
    runtime = common.whole_seconds(spec.max_duration or 86_400)
    if runtime > _LONGEST:
        notices.lost.append(f"`max_duration` is {format_duration(runtime)} and can be 28d there: that is set.")
        runtime = _LONGEST
    if not spec.use_spot:
        return {"MaxRuntimeInSeconds": runtime}
    if spec.max_duration is None:
        notices.notes.append("A spot job needs a limit: without `max_duration` it is a day of running.")
    wait = common.whole_seconds(spec.deadline or runtime + _SPOT_WAIT)
    return {"MaxRuntimeInSeconds": runtime, "MaxWaitTimeInSeconds": min(max(wait, runtime), _LONGEST)}


def _tags(request: RenderRequest, notices: Notices) -> list[dict[str, str]]:
    """The job's tags; tag names are valid there without changes."""
    made = common.legal_tags(
        common.all_tags(request.spec), str, lambda text: common.replaced(text, r"[^\w .:/=+\-@]", 256), 50, notices
    )
    return [{"Key": key, "Value": value} for key, value in made.items()]


def _where(options: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if options.get("input"):
        source = {"S3DataType": "S3Prefix", "S3Uri": options["input"], "S3DataDistributionType": "FullyReplicated"}
        made["InputDataConfig"] = [{"ChannelName": "training", "DataSource": {"S3DataSource": source}}]
    if options.get("subnets"):
        made["VpcConfig"] = {
            "Subnets": list(options["subnets"]),
            "SecurityGroupIds": list(options["security_groups"]),
        }
    return made


def _add_notices(request: RenderRequest, notices: Notices) -> None:
    spec, options = request.spec, request.gang.options
    store = "keep each in AWS Secrets Manager and let the program read it; the role needs GetSecretValue."
    common.add_common_notices(spec, notices, store, "copy it into the image; the job starts in the image's own folder.")
    if spec.stop_grace > _GRACE:
        notices.lost.append(f"`stop_grace` is {spec.stop_grace:g} s and SageMaker kills after {_GRACE} s.")
    if spec.deadline is not None and not spec.use_spot:
        notices.lost.append("`deadline` has no meaning there without `use_spot`.")
    region = f" --region {options['region']}" if options.get("region") else ""
    notices.notes.append("The image needs Python 3.7 or newer as `python3`.")
    if spec.num_nodes > 1:
        notices.notes.append(
            f"The nodes share no folder: {CHECKPOINTS} of each is copied to S3. A checkpoint that several ranks write "
            "together belongs into S3 itself."
        )
    notices.notes.append(
        f"Send it with `aws sagemaker create-training-job{region} --cli-input-json file://job.json`. A name can be "
        "used once in a region; under another TrainingJobName it goes on from the checkpoints that are in S3."
    )
