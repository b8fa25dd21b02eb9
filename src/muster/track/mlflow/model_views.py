"""Converts models and versions of the record to MLflow's classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mlflow.entities.model_registry import (
    ModelVersion,
    ModelVersionTag,
    RegisteredModel,
    RegisteredModelAlias,
    RegisteredModelTag,
)

from muster.track.facts import VALUE_MAX
from muster.track.mlflow.names import millis
from muster.track.models import Model, Version

LONG: Final = "long_tags"  # key in a version's document


def split_tags(tags: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Tags that the record stores as tags, and those that are too long for it."""
    short = {key: value for key, value in tags.items() if len(value) <= VALUE_MAX}
    return short, {key: value for key, value in tags.items() if key not in short}


def model_of(one: Model, latest: Sequence[Version], aliases: Mapping[str, int]) -> RegisteredModel:
    return RegisteredModel(
        one.name,
        creation_timestamp=millis(one.created_at),
        last_updated_timestamp=millis(one.updated_at),
        description=one.description,
        latest_versions=[version_of(version, aliases) for version in latest],
        tags=[RegisteredModelTag(key, value) for key, value in one.tags.items()],
        aliases=[RegisteredModelAlias(alias, version) for alias, version in aliases.items()],
    )


def version_of(one: Version, aliases: Mapping[str, int]) -> ModelVersion:
    tags = {**one.tags, **(one.doc.get(LONG) or {})}
    return ModelVersion(
        one.name,
        one.version,
        creation_timestamp=millis(one.created_at),
        last_updated_timestamp=millis(one.updated_at),
        description=one.description,
        user_id=one.user,
        current_stage=one.stage.capitalize(),
        source=one.source,
        run_id=one.run or None,
        status=one.status,
        tags=[ModelVersionTag(key, value) for key, value in tags.items()],
        run_link=one.doc.get("run_link"),
        aliases=[alias for alias, version in aliases.items() if version == one.version],
        model_id=one.doc.get("model_id"),
    )
