"""The model registry."""

from muster.api.scans import ScanStatus
from muster.api.typed import Doc, TypedDict
from muster.api.words import Stage


class ModelView(TypedDict):
    name: str
    project: str
    created_at: float
    updated_at: float
    description: str
    tags: dict[str, str]
    aliases: dict[str, int]
    latest: dict[str, int]  # the newest version in each stage


class ModelList(TypedDict):
    models: list[ModelView]


class VersionView(TypedDict):
    name: str
    version: int
    run: str  # empty if no run made it
    source: str
    stage: Stage
    user: str
    created_at: float
    updated_at: float
    description: str
    tags: dict[str, str]
    status: str
    aliases: list[str]


class ModelDetail(ModelView):
    versions: list[VersionView]


class ModelDeleted(TypedDict):
    name: str
    deleted: bool


class VersionDeleted(TypedDict):
    name: str
    version: int
    deleted: bool


class PromotionView(TypedDict):
    """`doc` has why, evidence and whether it was forced."""

    id: int
    name: str
    version: int
    time: float
    actor: str
    old: Stage
    new: Stage
    doc: Doc


class VersionDetail(VersionView):
    promotions: list[PromotionView]
    scan: ScanStatus | None  # the worst of the artifacts that it is made from; null if there are none here


class ModelAliases(TypedDict):
    name: str
    aliases: dict[str, int]
