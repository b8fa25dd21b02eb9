"""How it is trained: batch, precision, recomputation and layout, from the file that `muster.train` reads."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast

from muster.planner.shapes import PlanError, Shape, shape_of_hub, shape_of_model

Compute = Literal["float32", "bfloat16", "float16", "fp8"]
Recompute = Literal["none", "selective", "full"]
_COMPUTE: Final[Mapping[Any, Compute]] = {
    "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "fp8",
    "float32": "float32", "bfloat16": "bfloat16", "float16": "float16", "float8": "fp8",
}  # fmt: skip
DIMS: Final = ("pp", "dp", "fsdp", "tp")
BYTES_MAX: Final = 1 << 20  # of a configuration
DEPTH_MAX: Final = 20  # of what is nested in one


@dataclass(frozen=True, slots=True)
class Layout:
    """Processes in each dimension, as in the section `mesh`."""

    dp: int = 1
    fsdp: int = 1
    tp: int = 1
    pp: int = 1

    @property
    def devices(self) -> int:
        return self.dp * self.fsdp * self.tp * self.pp

    @property
    def data(self) -> int:
        """Processes that read different data."""
        return self.dp * self.fsdp

    def mesh(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in DIMS if getattr(self, name) > 1} or {"dp": 1}

    def __str__(self) -> str:
        return " x ".join(f"{name} {getattr(self, name)}" for name in DIMS if getattr(self, name) > 1) or "one device"


@dataclass(frozen=True, slots=True)
class Traced:
    """A model of the user's own, measured with fake tensors; see `traced`."""

    parameters: int
    largest_block: int  # parameters of the largest block, which FSDP gathers at once
    saved: float  # bytes of activations that a sample keeps for its backward pass
    transient: float  # bytes of the largest of them: its gradient exists beside it
    flops: float  # of the products, forward and backward, for a sample
    moved: float  # bytes of everything written, forward, for a sample
    kernels: int  # of a forward pass
    unit: str = "samples"


@dataclass(frozen=True, slots=True)
class Setup:
    """One training, apart from the devices."""

    model: Shape | Traced
    sequence: int  # tokens of a sample; 1 for a traced model, whose items are samples
    batch: int  # samples of a step, over all devices
    micro_batch: int | None = None  # samples of a micro-batch of a rank; None: its whole share
    compute: Compute = "float32"
    recompute: Recompute = "none"
    compile: bool = False
    reshard: bool = True
    offload: bool = False
    sequence_parallel: bool = False
    schedule: str = "1f1b"
    exact: bool = False
    lora: int = 0  # rank of adapters on every matrix of the blocks; 0: all weights are trained
    narrow_stream: bool = True  # under bf16 the stream between the blocks is bf16, too
    fused_loss: bool = True  # with `compile` the loss is compiled, too
    fused_norm: bool = True  # RMSNorm as one kernel, as on a GPU; without compiling, a CPU keeps its parts
    mesh: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Items of a step."""
        return self.batch * self.sequence

    def micros(self, layout: Layout) -> int:
        """Micro-batches of a step on each rank."""
        return 1 if self.micro_batch is None else max(1, -(-self.batch // (layout.data * self.micro_batch)))

    def micro_samples(self, layout: Layout) -> int:
        """Samples of the largest micro-batch."""
        return -(-self.batch // (layout.data * self.micros(layout)))

    def layout(self, world: int) -> Layout:
        """The layout of its section `mesh` on so many devices."""
        sizes = {name: self.mesh.get(name, 1) for name in DIMS} if self.mesh else {**dict.fromkeys(DIMS, 1), "dp": -1}
        free = [name for name, size in sizes.items() if size in ("auto", -1)]
        fixed = 1
        for name, size in sizes.items():
            if name not in free:
                if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                    raise PlanError(f"mesh.{name} is {size!r}; expected a number from 1.")
                fixed *= size
        if len(free) > 1 or world % fixed or (not free and fixed != world):
            raise PlanError(f"The mesh {dict(self.mesh)} does not fill {world} device(s).")
        return Layout(**{name: world // fixed if name in free else size for name, size in sizes.items()})


def read_setup(text: str, suffix: str, overrides: Sequence[str] = (), hub: Mapping[str, Any] | None = None) -> Setup:
    """From the text of a configuration; raises PlanError for one that can't be planned with."""
    return setup_of(changed(parse(text, suffix), overrides), hub)


def setup_of(raw: Mapping[str, Any], hub: Mapping[str, Any] | None = None) -> Setup:
    """From a configuration's mapping. A task other than `language` has to be traced; see `traced`."""
    if raw.get("task", "language") != "language":
        raise PlanError(f"The task {raw['task']!r} is not the built-in `language`: give it with --task, to trace it.")
    model = _section(raw, "model")
    shape = shape_of_hub(hub) if hub is not None else shape_of_model(model)
    return with_shape(raw, shape, _whole(model.get("sequence") or shape.context, "model.sequence"))


def with_shape(raw: Mapping[str, Any], model: Shape | Traced, sequence: int) -> Setup:
    """The rest of a configuration, around a model."""
    data, parallel = _section(raw, "data"), _section(raw, "parallel")
    precision = raw.get("precision", "float32")
    word = precision.get("compute", "float32") if isinstance(precision, Mapping) else precision
    if word not in _COMPUTE:
        raise PlanError(f"precision is {word!r}; expected one of {', '.join(_COMPUTE)}.")
    again = parallel.get("checkpointing", "none") or "none"
    if again not in ("none", "selective", "full"):
        raise PlanError(f"parallel.checkpointing is {again!r}; expected none, selective or full.")
    micro = data.get("micro_batch")
    return Setup(
        model=model,
        sequence=sequence,
        batch=_whole(data.get("batch", 32), "data.batch"),
        micro_batch=None if micro is None else _whole(micro, "data.micro_batch"),
        compute=_COMPUTE[word],
        recompute=cast(Recompute, again),
        compile=parallel.get("compile") is True,
        reshard=parallel.get("reshard", True) is True,
        offload=parallel.get("offload") is True,
        sequence_parallel=parallel.get("sequence") is True,
        schedule=str(parallel.get("schedule", "1f1b")),
        exact=raw.get("exact") is True,
        mesh=_section(raw, "mesh"),
    )


def parse(text: str, suffix: str) -> dict[str, Any]:
    """The mapping of a YAML, TOML or JSON text."""
    if len(text) > BYTES_MAX:
        raise PlanError(f"The configuration has more than {BYTES_MAX:,} characters.")
    try:
        if suffix == ".json":
            raw = json.loads(text)
        elif suffix == ".toml":
            raw = tomllib.loads(text)
        else:
            import yaml  # noqa: PLC0415 - optional: TOML and JSON do without

            if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text, Loader=yaml.SafeLoader)):
                raise PlanError("The configuration has aliases of YAML, which are not planned with.")
            raw = yaml.safe_load(text)
    except PlanError:
        raise
    except ModuleNotFoundError:
        raise PlanError("PyYAML is not installed: give the configuration as .toml or .json.") from None
    except (ValueError, RecursionError) as error:
        raise PlanError(f"The configuration can't be read: {error}") from None
    except Exception as error:  # of YAML, which has no common base with ValueError
        raise PlanError(f"The configuration can't be read: {error}") from None
    if not isinstance(raw, dict):
        raise PlanError(f"The configuration is a {type(raw).__name__}; expected a mapping.")
    return raw


def changed(raw: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy with settings such as `data.batch=64`, as `muster.train` takes them."""
    tree: dict[str, Any] = _copied(raw)
    for override in overrides:
        path, _, text = override.partition("=")
        below: Any = tree
        *above, last = path.split(".")
        for key in above[:DEPTH_MAX]:
            below = below.setdefault(key, {}) if isinstance(below, dict) else None
        if not isinstance(below, dict):
            raise PlanError(f"{override!r} is no setting such as data.batch=64.")
        try:
            below[last] = json.loads(text)
        except (ValueError, RecursionError):
            below[last] = text
    return tree


def _copied(raw: Any) -> Any:
    return {key: _copied(value) for key, value in raw.items()} if isinstance(raw, Mapping) else raw


def read_file(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(BYTES_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}.") from None


def _section(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = raw.get(name)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise PlanError(f"`{name}` is {found!r}; expected a mapping.")
    return found


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
        raise PlanError(f"{where} is {value!r}; expected a whole number from 1.")
    return value
