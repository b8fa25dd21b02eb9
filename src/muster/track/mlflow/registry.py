"""The model registry for MLflow's own server: models, versions, aliases and stages are in Muster's record."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from mlflow.entities.model_registry import ModelVersion, RegisteredModel
from mlflow.entities.model_registry.model_version_stages import (
    ALL_STAGES,
    DEFAULT_STAGES_FOR_GET_LATEST_VERSIONS,
    get_canonical_stage,
)
from mlflow.exceptions import MlflowException
from mlflow.prompt.registry_utils import add_prompt_filter_string, handle_resource_already_exist_error, has_prompt_tag
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, RESOURCE_ALREADY_EXISTS, RESOURCE_DOES_NOT_EXIST
from mlflow.store.artifact.utils.models import _parse_model_uri
from mlflow.store.entities.paged_list import PagedList
from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore
from mlflow.utils.search_utils import SearchModelUtils, SearchModelVersionUtils, SearchUtils
from mlflow.utils.validation import (
    _validate_model_alias_name,
    _validate_model_alias_name_reserved,
    _validate_model_name,
    _validate_model_renaming,
    _validate_model_version,
    _validate_model_version_tag,
    _validate_registered_model_tag,
    _validate_tag_name,
)

from muster.core.entities import Role
from muster.core.errors import Conflict
from muster.track.lineage import run_in
from muster.track.mlflow import files
from muster.track.mlflow.context import current
from muster.track.mlflow.entities import mlflow_errors
from muster.track.mlflow.model_views import LONG, model_of, split_tags, version_of
from muster.track.mlflow.names import OURS
from muster.track.model_rows import source_ref
from muster.track.models import Model, Models, Version

_MODELS_MOST: Final = 1000  # per answer
_VERSIONS_MOST: Final = 200_000
_UNSAID: Final = "Moved by an MLflow client, which gives no reason."


class MusterRegistry(SqlAlchemyStore):  # type: ignore[misc]
    """Answers every call for the caller of the current request. Webhooks stay in MLflow's own tables."""

    # --- models -----------------------------------------------------------------------------------------------------

    def create_registered_model(
        self, name: str, tags: Any = None, description: str | None = None, deployment_job_id: str | None = None
    ) -> RegisteredModel:
        _validate_model_name(name)
        for tag in tags or ():
            _validate_registered_model_tag(tag.key, tag.value)
        given, context = {tag.key: tag.value or "" for tag in tags or ()}, current()
        with mlflow_errors():
            project = context.caller.default_project()
            context.caller.need(project, "member")
            try:
                made = context.track.models.create(
                    name, project, description=description or "", tags=given, actor=context.caller.user
                )
            except Conflict:
                found = context.track.models.get(name)
                other = (
                    found is not None and context.caller.sees(found.project) and "mlflow.prompt.is_prompt" in found.tags
                )
                handle_resource_already_exist_error(name, other, has_prompt_tag(tags))
                raise
        return self._entity(made)

    def update_registered_model(
        self, name: str, description: str | None, deployment_job_id: str | None = None
    ) -> RegisteredModel:
        self._model(name, "member")
        with mlflow_errors():
            return self._entity(_models().change(name, description=description or "", actor=_user()))

    def rename_registered_model(self, name: str, new_name: str) -> RegisteredModel:
        _validate_model_renaming(new_name)
        self._model(name, "member")
        with mlflow_errors():
            try:
                return self._entity(_models().change(name, new=new_name, actor=_user()))
            except Conflict:
                raise MlflowException(
                    f"Registered Model (name={new_name}) already exists.", RESOURCE_ALREADY_EXISTS
                ) from None

    def delete_registered_model(self, name: str) -> None:
        self._model(name, "admin")
        with mlflow_errors():
            _models().delete(name, _user())

    def get_registered_model(self, name: str) -> RegisteredModel:
        return self._entity(self._model(name))

    def search_registered_models(
        self,
        filter_string: str | None = None,
        max_results: int = 100,
        order_by: Any = None,
        page_token: str | None = None,
    ) -> PagedList:
        _check_size(max_results, _MODELS_MOST)
        found = [self._entity(one) for one in _models().search(current().caller.projects())]
        kept = SearchModelUtils.filter(found, add_prompt_filter_string(filter_string, is_prompt=False))
        return _page(SearchModelUtils.sort(kept, list(order_by or ())), max_results, page_token)

    def get_latest_versions(self, name: str, stages: Any = None) -> list[ModelVersion]:
        wanted = [get_canonical_stage(stage) for stage in (stages or ALL_STAGES)]
        latest = _models().latest(self._model(name).name)
        aliases = _models().aliases(name)
        return [version_of(latest[one.lower()], aliases) for one in wanted if one.lower() in latest]

    def set_registered_model_tag(self, name: str, tag: Any) -> None:
        _validate_registered_model_tag(tag.key, tag.value)
        self._model(name, "member")
        with mlflow_errors():
            _models().change(name, tags={tag.key: tag.value or ""}, actor=_user())

    def delete_registered_model_tag(self, name: str, key: str) -> None:
        _validate_tag_name(key)
        self._model(name, "member")
        with mlflow_errors():
            _models().change(name, tags={key: None}, actor=_user())

    # --- versions ---------------------------------------------------------------------------------------------------

    def create_model_version(
        self,
        name: str,
        source: str,
        run_id: str | None = None,
        tags: Any = None,
        run_link: str | None = None,
        description: str | None = None,
        local_model_path: str | None = None,
        model_id: str | None = None,
    ) -> ModelVersion:
        self._model(name, "member")
        for tag in tags or ():
            _validate_model_version_tag(tag.key, tag.value)
        location, run_id = self._resolved(source, run_id, model_id)
        short, long = split_tags({tag.key: tag.value or "" for tag in tags or ()})
        doc = {"run_link": run_link, "place": location, "model_id": model_id, LONG: long}
        context = current()
        with mlflow_errors():
            made = context.track.models.register(
                name,
                user=context.caller.user,
                source=source,
                run=run_id or "",
                description=description or "",
                tags=short,
                doc={key: value for key, value in doc.items() if value},
            )
        return version_of(made, {})

    def update_model_version(self, name: str, version: Any, description: str | None = None) -> ModelVersion:
        found = self._version(name, version, "member")
        with mlflow_errors():
            changed = _models().change_version(name, found.version, description=description or "", actor=_user())
            return self._version_entity(changed)

    def transition_model_version_stage(
        self, name: str, version: Any, stage: str, archive_existing_versions: bool
    ) -> ModelVersion:
        """Moves a version to a stage. The evidence for production is the run that made it, if there is one."""
        canonical = get_canonical_stage(stage)
        if archive_existing_versions and canonical not in DEFAULT_STAGES_FOR_GET_LATEST_VERSIONS:
            raise MlflowException(
                "Model version transition cannot archive existing model versions because "
                f"'{stage}' is not an Active stage. Valid stages are {DEFAULT_STAGES_FOR_GET_LATEST_VERSIONS}"
            )
        found, context = self._version(name, version, "member"), current()
        made_by = context.track.runs.get(found.run) if found.run else None
        with mlflow_errors():
            context.track.models.promote(
                name,
                found.version,
                canonical.lower(),
                actor=context.caller.user,
                why=_UNSAID,
                evidence=[made_by.id] if made_by is not None else [],
                force=made_by is None,
                archive_others=bool(archive_existing_versions),
            )
        return self.get_model_version(name, version)

    def delete_model_version(self, name: str, version: Any) -> None:
        found = self._version(name, version, "admin")
        with mlflow_errors():
            _models().delete_version(name, found.version, _user())

    def get_model_version(self, name: str, version: Any) -> ModelVersion:
        return self._version_entity(self._version(name, version))

    def get_model_version_download_uri(self, name: str, version: Any) -> str:
        found = self._version(name, version)
        return str(found.doc.get("place") or found.source)

    def search_model_versions(
        self,
        filter_string: str | None = None,
        max_results: int = 10_000,
        order_by: Any = None,
        page_token: str | None = None,
    ) -> PagedList:
        _check_size(max_results, _VERSIONS_MOST)
        seen = {one.name: _models().aliases(one.name) for one in _models().search(current().caller.projects())}
        found = [version_of(one, seen[one.name]) for one in _models().versions() if one.name in seen]
        kept = SearchModelVersionUtils.filter(found, add_prompt_filter_string(filter_string, is_prompt=False))
        order = list(order_by or ()) or ["last_updated_timestamp DESC", "name ASC", "version_number DESC"]
        return _page(SearchModelVersionUtils.sort(kept, order), max_results, page_token)

    def set_model_version_tag(self, name: str, version: Any, tag: Any) -> None:
        _validate_model_version_tag(tag.key, tag.value)
        self._set_version_tag(name, version, tag.key, tag.value or "")

    def delete_model_version_tag(self, name: str, version: Any, key: str) -> None:
        _validate_tag_name(key)
        self._set_version_tag(name, version, key, None)

    # --- aliases ----------------------------------------------------------------------------------------------------

    def set_registered_model_alias(self, name: str, alias: str, version: Any) -> None:
        _validate_model_alias_name(alias)
        _validate_model_alias_name_reserved(alias)
        found = self._version(name, version, "member")
        with mlflow_errors():
            _models().set_alias(name, alias, found.version, _user())

    def delete_registered_model_alias(self, name: str, alias: str) -> None:
        _validate_model_alias_name(alias)
        self._model(name, "member")
        with mlflow_errors():
            _models().delete_alias(name, alias, _user())

    def get_model_version_by_alias(self, name: str, alias: str) -> ModelVersion:
        _validate_model_alias_name(alias)
        self._model(name)
        number = _models().aliases(name).get(alias)
        if number is None:
            raise MlflowException(f"Registered model alias {alias} not found.", INVALID_PARAMETER_VALUE)
        return self.get_model_version(name, number)

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _initialize_store_state(self) -> None:
        """Does nothing: the registry is not in MLflow's tables."""

    def _model(self, name: str, role: Role = "viewer") -> Model:
        _validate_model_name(name)
        caller, found = current().caller, _models().get(name)
        if found is None or not caller.sees(found.project):
            raise MlflowException(f"Registered Model with name={name} not found", RESOURCE_DOES_NOT_EXIST)
        with mlflow_errors():
            caller.need(found.project, role)
        return found

    def _version(self, name: str, version: Any, role: Role = "viewer") -> Version:
        self._model(name, role)
        found = _models().version(name, _validate_model_version(version))
        if found is None:
            raise MlflowException(f"Model Version (name={name}, version={version}) not found", RESOURCE_DOES_NOT_EXIST)
        return found

    def _entity(self, one: Model) -> RegisteredModel:
        return model_of(one, list(_models().latest(one.name).values()), _models().aliases(one.name))

    def _version_entity(self, one: Version) -> ModelVersion:
        return version_of(one, _models().aliases(one.name))

    def _set_version_tag(self, name: str, version: Any, key: str, value: str | None) -> None:
        """Sets or deletes a tag. A prompt's text may exceed the record's limit for tags: it goes into the document."""
        found = self._version(name, version, "member")
        long: Mapping[str, str] = found.doc.get(LONG) or {}
        short, longer = split_tags({key: value} if value is not None else {})
        rest = {other: text for other, text in long.items() if other != key}
        with mlflow_errors():
            doc = {LONG: {**rest, **longer}} if rest != long or longer else None
            _models().change_version(name, found.version, tags=short or {key: None}, doc=doc, actor=_user())

    def _resolved(self, source: str, run_id: str | None, model_id: str | None) -> tuple[str, str | None]:
        """The location of a version's files, and the run that made it."""
        tracking = importlib.import_module("mlflow.server.handlers")._get_tracking_store()
        location = source
        self._check_seen(source, run_id)
        if urlsplit(source).scheme == "models":
            parsed = _parse_model_uri(source)
            if parsed.model_id is None:
                return self.get_model_version_download_uri(parsed.name, parsed.version), run_id
            model = tracking.get_logged_model(parsed.model_id)
            location, run_id = model.artifact_location, run_id or model.source_run_id
        if not run_id and model_id:
            run_id = tracking.get_logged_model(model_id).source_run_id
        self._check_seen("", run_id)
        return location, run_id

    def _check_seen(self, source: str, run_id: str | None) -> None:
        """Raises if the caller may not see the runs and files that a version refers to."""
        context = current()
        with mlflow_errors():
            if run_id:
                context.row(run_id)
            if ref := source_ref(source):
                context.row(run_in(ref) or "")
            if source.startswith(OURS):
                files.locate(context, urlsplit(source).path.lstrip("/"))


def _models() -> Models:
    return current().track.models


def _user() -> str:
    return current().caller.user


def _check_size(max_results: int, most: int) -> None:
    if max_results < 1 or max_results > most:
        raise MlflowException(
            f"Invalid value for request parameter max_results. It must be at most {most}, but got value {max_results}",
            INVALID_PARAMETER_VALUE,
        )


def _page(found: list[Any], size: int, token: str | None) -> PagedList:
    start = SearchUtils.parse_start_offset_from_page_token(token)
    more = SearchUtils.create_page_token(start + size) if start + size < len(found) else None
    return PagedList(found[start : start + size], more)
