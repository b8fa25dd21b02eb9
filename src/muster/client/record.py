"""The part of the client for the record: runs outside of jobs, notes, logbooks, lineage and the model registry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from muster.client.artifacts import ArtifactCalls

Doc = dict[str, Any]  # JSON as the API documents it
_PAGE: Final = 500  # entries in one response
_PATIENCE: Final = 60.0  # seconds without a byte


class RecordCalls(ArtifactCalls):
    # --- runs -------------------------------------------------------------------------------------------------------

    def create_run(self, name: str = "", project: str = "default", **fields: Any) -> Doc:
        """Creates a run without a job. `fields`: params, tags, purpose, kind, phase, parent, created_at, id, ..."""
        return self._call("POST", "/v1/runs", {"name": name, "project": project, **fields})

    def update_run(self, ref: str | int, **changes: Any) -> Doc:
        """`changes`: name, purpose, experiment and, unless it is the run of a job, phase, started_at and ended_at."""
        return self._call("PATCH", _run(ref), changes)

    def delete_run(self, ref: str | int, purge: bool = False) -> Doc:
        """Hides the run; with `purge` it is deleted permanently, and "rows" says how many rows were deleted."""
        return dict(self._transport.call("DELETE", _run(ref), params={"purge": purge}))

    def restore_run(self, ref: str) -> Doc:
        """Lists a hidden run again; `ref` is its full id."""
        return self._call("POST", _run(ref, "restore"), {})

    def set_params(self, ref: str | int, values: Mapping[str, Any], refuse_change: bool = False) -> Doc:
        """Sets parameters and returns all of them; the old value of a changed one is kept as a change."""
        body = {"values": dict(values), "refuse_change": refuse_change}
        return dict(self._call("PUT", _run(ref, "params"), body)["params"])

    def set_tags(self, ref: str | int, values: Mapping[str, str | None]) -> Doc:
        """Sets tags and returns all of them; None removes one."""
        return dict(self._call("PUT", _run(ref, "tags"), {"values": dict(values)})["tags"])

    def run_changes(self, ref: str | int) -> list[Doc]:
        """Later changes of parameters and tags, oldest first."""
        return list(self._call("GET", _run(ref, "changes"))["changes"])

    def run_attempts(self, ref: str | int) -> list[Doc]:
        """The attempts: nodes, times, how each ended, environment, parameters."""
        return list(self._call("GET", _run(ref, "attempts"))["attempts"])

    def run_checkpoints(self, ref: str | int) -> list[Doc]:
        """The saved checkpoints and how to load them, ordered by step."""
        return list(self._call("GET", _run(ref, "checkpoints"))["checkpoints"])

    # --- logbook ----------------------------------------------------------------------------------------------------

    def note(self, ref: str | int, text: str, *, files: Iterable[str | Path] = (), step: int | None = None) -> Doc:
        """Adds a Markdown note to the logbook of a run; `files` become artifacts of the run under `notes/`."""
        paths = []
        for file in files:
            paths.append(f"notes/{Path(file).name}")
            self.put_artifact(ref, file, paths[-1])
        return self._call("POST", _run(ref, "notes"), {"text": text, "attachments": paths, "step": step})

    def project_note(self, project: str, text: str) -> Doc:
        return self._call("POST", f"/v1/projects/{_part(project)}/notes", {"text": text})

    def notes(
        self,
        ref: str | int | None = None,
        *,
        project: str | None = None,
        search: str | None = None,
        kinds: Sequence[str] = (),
        last: int | None = None,
    ) -> Iterator[Doc]:
        """Entries of a run's logbook, or of a project's with all its runs: all, or the `last` ones."""
        path = _run(ref, "notes") if ref is not None else f"/v1/projects/{_part(project or 'default')}/notes"
        params: Doc = {"search": search, "kind": list(kinds) or None, "limit": min(last or _PAGE, 1000)}
        if last is not None:
            yield from self._transport.call("GET", path, params={**params, "last": True})["entries"]
            return
        after: int | None = 0
        while after is not None:
            page = self._transport.call("GET", path, params={**params, "after": after})
            yield from page["entries"]
            after = page["next"]

    def logbook(self, ref: str | int | None = None, *, project: str | None = None) -> str:
        """The whole logbook as one Markdown document."""
        path = _run(ref, "logbook") if ref is not None else f"/v1/projects/{_part(project or 'default')}/logbook"
        with self._transport.open(path, {}, {}, _PATIENCE) as response:
            return response.read().decode()

    # --- lineage ----------------------------------------------------------------------------------------------------

    def lineage(self, ref: str | int, way: str = "both", depth: int | None = None) -> Doc:
        """What it was made from ("up") and what was made from it ("down"), as trees of {ref, role, about, nodes}.

        `ref`: a run, `data:NAME@VERSION`, `checkpoint:RUN/STEP`, `artifact:RUN/PATH` or `model:NAME/VERSION`.
        """
        path = f"/v1/lineage/{quote(str(ref), safe='/')}"
        return dict(self._transport.call("GET", path, params={"way": way, "depth": depth}))

    # --- models -----------------------------------------------------------------------------------------------------

    def models(self, project: str | None = None, contains: str | None = None) -> list[Doc]:
        params = {"project": project, "contains": contains}
        return list(self._transport.call("GET", "/v1/models", params=params)["models"])

    def model(self, name: str, version: int | None = None) -> Doc:
        """The model with its versions, or one version with its promotions."""
        return self._call("GET", _model(name) if version is None else _version(name, version))

    def create_model(self, name: str, project: str = "default", description: str = "") -> Doc:
        return self._call("POST", "/v1/models", {"name": name, "project": project, "description": description})

    def register_model(
        self,
        name: str,
        run: str | int | None = None,
        *,
        step: int | None = None,
        artifact: str | None = None,
        source: str = "",
        project: str | None = "default",
        description: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> Doc:
        """Registers the next version: a run, its checkpoint at a `step`, one of its artifacts, or any `source`.

        A model that does not exist is created in `project`.
        """
        if run is not None and step is not None:
            source = f"checkpoint:{run}/{step}"
        elif run is not None and artifact is not None:
            source = f"artifact:{run}/{artifact}"
        body = {"source": source, "run": None if run is None else str(run), "project": project,
                "description": description, "tags": dict(tags or {})}  # fmt: skip
        return self._call("POST", f"{_model(name)}/versions", body)

    def promote_model(self, name: str, version: int, stage: str, **given: Any) -> Doc:
        """`given`: why, evidence (runs), metrics (names), force, archive_others."""
        return self._call("POST", f"{_version(name, version)}/stage", {"stage": stage, **given})

    def set_model_alias(self, name: str, alias: str, version: int | None) -> Doc:
        """None removes the alias."""
        path = f"{_model(name)}/aliases/{_part(alias)}"
        return self._call("DELETE", path) if version is None else self._call("PUT", path, {"version": version})

    def delete_model(self, name: str, version: int | None = None) -> Doc:
        """Deletes one version, or the model with all its versions."""
        return self._call("DELETE", _model(name) if version is None else _version(name, version))

    def _call(self, method: str, path: str, body: Doc | None = None) -> Doc:
        return dict(self._transport.call(method, path, body=body))


def _part(text: str | int) -> str:
    return quote(str(text), safe="")


def _run(ref: str | int, *parts: str) -> str:
    return "/".join(["/v1/runs", _part(ref), *parts])


def _model(name: str) -> str:
    return f"/v1/models/{_part(name)}"


def _version(name: str, version: int) -> str:
    return f"{_model(name)}/versions/{version}"
