"""The tracking store for MLflow's own server: experiments and runs are in Muster's record, the rest in MLflow's tables.

Objects that only MLflow has (traces, logged models, assessments, scorers, evaluation data sets) stay in MLflow's
tables, in a database beside Muster's. Those tables refer to experiments, so experiments are mirrored there. Every query
asks Muster which of them the caller may see.
"""

from __future__ import annotations

import json
from typing import Any, Final

from mlflow.entities import Experiment, LoggedModelOutput, Metric, Run, RunInfo, RunStatus, ViewType
from mlflow.entities.entity_type import EntityAssociationType
from mlflow.entities.metric import MetricWithRunId
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST
from mlflow.store.entities.paged_list import PagedList
from mlflow.store.tracking.dbmodels.models import SqlEvaluationDataset, SqlExperiment, SqlRun, SqlTraceInfo
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore, _DatasetSummary
from mlflow.utils.proto_json_utils import message_to_json

from muster.core.json_text import parse
from muster.track.mlflow import experiments, history, log_calls, run_calls
from muster.track.mlflow.context import current
from muster.track.mlflow.data_calls import summaries
from muster.track.mlflow.entities import ask, experiment_of, mlflow_errors, run_of, tags_of
from muster.track.mlflow.names import LOGGED_MODELS

_VIEWS: Final = {ViewType.ACTIVE_ONLY: "ACTIVE_ONLY", ViewType.DELETED_ONLY: "DELETED_ONLY", ViewType.ALL: "ALL"}


class MusterStore(SqlAlchemyStore):  # type: ignore[misc]
    """Answers every call for the caller of the current request; see `context.CURRENT`."""

    # --- experiments ------------------------------------------------------------------------------------------------

    def create_experiment(self, name: str, artifact_location: str | None = None, tags: Any = None) -> str:
        made = ask(experiments.create, name=name, artifact_location=artifact_location, tags=tags_of(tags))
        self.mirror([(int(made["experiment_id"]), True)])  # the caller may refer to it before the next request
        return str(made["experiment_id"])

    def get_experiment(self, experiment_id: str) -> Experiment:
        return experiment_of(ask(experiments.get, experiment_id=experiment_id or "0")["experiment"])

    def get_experiment_by_name(self, experiment_name: str) -> Experiment | None:
        try:
            return experiment_of(ask(experiments.get_by_name, experiment_name=experiment_name)["experiment"])
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise

    def search_experiments(
        self,
        view_type: int = ViewType.ACTIVE_ONLY,
        max_results: int = 1000,
        filter_string: str | None = None,
        order_by: Any = None,
        page_token: str | None = None,
    ) -> PagedList:
        found = ask(
            experiments.search,
            view_type=_VIEWS[view_type],
            max_results=max_results,
            filter=filter_string,
            order_by=list(order_by or ()),
            page_token=page_token,
        )
        return PagedList([experiment_of(one) for one in found.get("experiments", ())], found.get("next_page_token"))

    def delete_experiment(self, experiment_id: str) -> None:
        ask(experiments.delete, experiment_id=experiment_id)

    def restore_experiment(self, experiment_id: str) -> None:
        ask(experiments.restore, experiment_id=experiment_id)

    def rename_experiment(self, experiment_id: str, new_name: str) -> None:
        ask(experiments.update, experiment_id=experiment_id, new_name=new_name)

    def set_experiment_tag(self, experiment_id: str, tag: Any) -> None:
        ask(experiments.set_tag, experiment_id=experiment_id, key=tag.key, value=tag.value)

    def delete_experiment_tag(self, experiment_id: str, key: str) -> None:
        ask(experiments.delete_tag, experiment_id=experiment_id, key=key)

    # --- runs -------------------------------------------------------------------------------------------------------

    def create_run(self, experiment_id: str, user_id: str, start_time: int, tags: Any, run_name: str) -> Run:
        given = {"user_id": user_id or None, "start_time": start_time, "run_name": run_name}
        return run_of(ask(run_calls.create, experiment_id=experiment_id, tags=tags_of(tags), **given)["run"])

    def get_run(self, run_id: str) -> Run:
        return run_of(ask(run_calls.get, run_id=run_id)["run"])

    def update_run_info(self, run_id: str, run_status: Any, end_time: int | None, run_name: str | None) -> RunInfo:
        status = None if run_status is None else RunStatus.to_string(run_status)
        ask(run_calls.update, run_id=run_id, status=status, end_time=end_time, run_name=run_name)
        return self.get_run(run_id).info

    def delete_run(self, run_id: str) -> None:
        ask(run_calls.delete, run_id=run_id)

    def restore_run(self, run_id: str) -> None:
        ask(run_calls.restore, run_id=run_id)

    def _search_runs(
        self,
        experiment_ids: Any,
        filter_string: Any,
        run_view_type: Any,
        max_results: Any,
        order_by: Any,
        page_token: Any,
    ) -> tuple[list[Run], str | None]:
        found = ask(
            run_calls.search,
            experiment_ids=list(experiment_ids),
            filter=filter_string,
            run_view_type=_VIEWS[run_view_type],
            max_results=max_results,
            order_by=list(order_by or ()),
            page_token=page_token,
        )
        return [run_of(one) for one in found.get("runs", ())], found.get("next_page_token")

    # --- logging ----------------------------------------------------------------------------------------------------

    def log_metric(self, run_id: str, metric: Metric) -> None:
        self.log_batch(run_id, [metric], [], [])

    def log_param(self, run_id: str, param: Any) -> None:
        ask(log_calls.log_param, run_id=run_id, key=param.key, value=param.value)

    def set_tag(self, run_id: str, tag: Any) -> None:
        ask(log_calls.set_tag, run_id=run_id, key=tag.key, value=tag.value)

    def delete_tag(self, run_id: str, key: str) -> None:
        ask(run_calls.delete_tag, run_id=run_id, key=key)

    def log_batch(self, run_id: str, metrics: Any, params: Any, tags: Any) -> None:
        points = [{"key": one.key, "value": one.value, "timestamp": one.timestamp, "step": one.step} for one in metrics]
        ask(log_calls.log_batch, run_id=run_id, metrics=points, params=tags_of(params), tags=tags_of(tags))
        if any(metric.model_id for metric in metrics):
            self._log_model_metrics(run_id, metrics, experiment_id=self._mirror_run(run_id))

    def record_logged_model(self, run_id: str, mlflow_model: Any) -> None:
        tags = self.get_run(run_id).data.tags
        models = [*parse(tags.get(LOGGED_MODELS, "[]")), mlflow_model.get_tags_dict()]
        ask(log_calls.set_tag, run_id=run_id, key=LOGGED_MODELS, value=json.dumps(models))

    def log_inputs(self, run_id: str, datasets: Any = None, models: Any = None) -> None:
        given = [json.loads(message_to_json(one.to_proto())) for one in datasets or ()]
        read = [{"model_id": model.model_id} for model in models or ()]
        ask(run_calls.log_inputs, run_id=run_id, datasets=given, models=read)

    def log_outputs(self, run_id: str, models: list[LoggedModelOutput]) -> None:
        made = [{"model_id": model.model_id, "step": model.step} for model in models]
        ask(run_calls.log_outputs, run_id=run_id, models=made)

    def get_metric_history(
        self, run_id: str, metric_key: str, max_results: int | None = None, page_token: str | None = None
    ) -> PagedList:
        found = ask(history.get, run_id=run_id, metric_key=metric_key, max_results=max_results, page_token=page_token)
        return PagedList([_metric(one) for one in found.get("metrics", ())], found.get("next_page_token"))

    def get_metric_history_bulk(self, run_ids: Any, metric_key: str, max_results: int) -> list[MetricWithRunId]:
        found = ask(history.bulk, run_id=list(run_ids), metric_key=metric_key, max_results=max_results)
        return [MetricWithRunId(_metric(one), one["run_id"]) for one in found.get("metrics", ())]

    def get_metric_history_bulk_interval(
        self, run_ids: Any, metric_key: str, max_results: int, start_step: int | None, end_step: int | None
    ) -> list[MetricWithRunId]:
        bounds = {"start_step": start_step, "end_step": end_step, "max_results": max_results}
        found = ask(history.interval, run_ids=list(run_ids), metric_key=metric_key, **bounds)
        return [MetricWithRunId(_metric(one), one["run_id"]) for one in found.get("metrics", ())]

    def get_max_step_for_metric(self, run_id: str, metric_key: str) -> int:
        return max((metric.step for metric in self.get_metric_history(run_id, metric_key)), default=0)

    def _search_datasets(self, experiment_ids: Any) -> list[_DatasetSummary]:
        return [_DatasetSummary(**one) for one in ask(summaries, experiment_ids=list(experiment_ids))["summaries"]]

    # --- MLflow's own tables, filtered by what the caller may see ---------------------------------------------------

    def create_issue(self, *args: Any, **given: Any) -> Any:
        if given.get("source_run_id"):
            self._mirror_run(given["source_run_id"])
        return super().create_issue(*args, **given)

    def _get_query(self, session: Any, model: Any) -> Any:
        query = super()._get_query(session, model)
        if hasattr(model, "experiment_id"):
            visible = self._visible()
            return query if visible is None else query.filter(model.experiment_id.in_(visible))
        projects = current().caller.projects() if hasattr(model, "workspace") else None
        return query if projects is None else query.filter(model.workspace.in_(projects))

    def _with_workspace_field(self, instance: Any) -> Any:
        """Sets MLflow's workspace to the project, for objects that belong to no experiment."""
        if hasattr(instance, "workspace") and not isinstance(instance, SqlExperiment):
            with mlflow_errors():
                instance.workspace = current().caller.default_project()
        return super()._with_workspace_field(instance)

    def _experiment_where_clauses(self) -> list[Any]:
        visible = self._visible()
        return [] if visible is None else [SqlExperiment.experiment_id.in_(visible)]

    def _filter_experiment_ids(self, session: Any, experiment_ids: Any, lifecycle_stage: str | None = None) -> Any:
        visible = self._visible()
        ids = [int(one) for one in experiment_ids]
        kept = ids if visible is None else [one for one in ids if one in visible]
        return super()._filter_experiment_ids(session, kept, lifecycle_stage)

    def _filter_entity_ids(self, session: Any, entity_type: Any, entity_ids: list[str]) -> list[str]:
        if entity_type == EntityAssociationType.EXPERIMENT:
            return [str(one) for one in self._filter_experiment_ids(session, entity_ids)]
        if entity_type == EntityAssociationType.RUN:
            context = current()
            found = context.track.runs.many(entity_ids)
            return [one for one in entity_ids if one in found and context.caller.sees(found[one].project)]
        model, column = {
            EntityAssociationType.TRACE: (SqlTraceInfo, SqlTraceInfo.request_id),
            EntityAssociationType.EVALUATION_DATASET: (SqlEvaluationDataset, SqlEvaluationDataset.dataset_id),
        }.get(entity_type, (None, None))
        if model is None or column is None:
            return entity_ids
        asked = column.in_(entity_ids)
        seen = {row[0] for row in self._get_query(session, model).filter(asked).with_entities(column)}
        there = {row[0] for row in session.query(column).filter(asked)}
        return [one for one in entity_ids if one in seen or one not in there]  # a trace may be linked before it arrives

    def _validate_run_accessible(self, session: Any, run_id: str) -> None:
        with mlflow_errors():
            current().row(run_id)

    def _validate_trace_accessible(self, session: Any, trace_id: str) -> None:
        if self._get_query(session, SqlTraceInfo).filter_by(request_id=trace_id).first() is None:
            raise MlflowException(f"Trace with ID '{trace_id}' not found.", RESOURCE_DOES_NOT_EXIST)

    def _validate_dataset_accessible(self, session: Any, dataset_id: str) -> None:
        if self._get_query(session, SqlEvaluationDataset).filter_by(dataset_id=dataset_id).first() is None:
            raise MlflowException(f"Dataset '{dataset_id}' not found.", RESOURCE_DOES_NOT_EXIST)

    def _get_sql_assessment(self, session: Any, trace_id: str, assessment_id: str) -> Any:
        self._validate_trace_accessible(session, trace_id)
        return super()._get_sql_assessment(session, trace_id, assessment_id)

    def _initialize_store_state(self) -> None:
        """Creates no experiment: experiments are in Muster."""

    def _visible(self) -> set[int] | None:
        context = current()
        projects = context.caller.projects()
        return None if projects is None else {one.id for one in context.track.experiments.list(projects, hidden=None)}

    def _mirror_run(self, run_id: str) -> int:
        """Mirrors a run that MLflow's tables refer to. Returns its experiment."""
        with mlflow_errors():
            row = current().row(run_id)
        with self.ManagedSessionMaker(read_only=False) as session:
            session.merge(SqlRun(run_uuid=row.id, experiment_id=row.experiment, name=row.name, status="RUNNING"))
        return int(row.experiment)

    def mirror(self, found: list[tuple[int, bool]]) -> None:
        """Mirrors experiments, given with whether each is active, for rows that refer to them."""
        with self.ManagedSessionMaker(read_only=False) as session:
            for number, active in found:
                stage = "active" if active else "deleted"
                given = {"name": str(number), "artifact_location": "", "lifecycle_stage": stage, "workspace": "default"}
                session.merge(SqlExperiment(experiment_id=number, **given))


def _metric(view: dict[str, Any]) -> Metric:
    return Metric(view["key"], float(view["value"]), view["timestamp"], view["step"])
