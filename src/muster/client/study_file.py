"""Reads what a user passes to `Client.tune`, in any of its forms: a study, and the job of its trials."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from muster.client.spec import Spec, file_text
from muster.client.study_function import function_job
from muster.client.surroundings import surroundings
from muster.core.errors import Invalid, Problem, SpecError
from muster.core.report import Plain, Report, Stop, is_null

if TYPE_CHECKING:
    from muster.core.spec import JobSpec

StudyForm = Mapping[str, Any] | str | Path | Callable[..., Any] | None
# Instead of a job with mistakes, so that the server looks at the rest of the study.
STAND_IN: Final[Mapping[str, Any]] = {"name": "job", "run": "true"}


@dataclass(frozen=True, slots=True)
class StudyFile:
    """`job` is as data, with absolute paths; None: others run the trials. `problems`: the mistakes in it."""

    text: str
    source: str
    job: dict[str, Any] | None = None
    spec: JobSpec | None = field(default=None, repr=False)
    project: str | None = None
    problems: tuple[Problem, ...] = ()
    name: str = ""  # of the study
    names: tuple[str, ...] = ()  # of the parameters that its program is expected to read
    read: tuple[Path, ...] = ()  # the files that all of this was read from

    def body(self) -> dict[str, Any]:
        """Of the request that starts it."""
        job = STAND_IN if self.problems else self.job
        made = {"text": self.text, "source": self.source, "job": dict(job) if job is not None else None}
        return {**made, **({"project": self.project} if self.project is not None else {})}


def read_study(
    study: StudyForm,
    job: Spec | None = None,
    fields: Mapping[str, Any] | None = None,
    *,
    base: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    project: str | None = None,
    defaults: Callable[[Path], Mapping[str, Any]] = lambda folder: surroundings(folder, local=False),
    local: bool = False,
) -> StudyFile:
    """`fields` replace those of the study file; `overrides` those of the job. `defaults`: what fills in the job, by the
    folder that it is in. `local`: the server is on this machine.

    Mistakes in the job are kept, so that they are told together with those of the study. Raises NotFound or Invalid for
    what can't be read at all.
    """
    function = study if callable(study) else None
    given = None if function is not None else study
    text, source, folder = None, "The study", base or Path.cwd()
    if isinstance(given, str | Path):
        text, source, beside = file_text(given, "study")
        folder = base or beside
        source = "The study" if source == "the study" else source
    report = Report()
    written = _document(text, report) if text is not None else _checked(given)
    if text is None or fields:
        written = _merged(_plain(written), _plain(fields or {}))
        text = json.dumps(written, indent=1, ensure_ascii=False)
    found = _Job(folder, overrides or {}, defaults, report)
    if function is not None:
        made = found.of({**function_job(function, _objectives(written), folder, local), **_mapping_of(job)}, "the job")
    else:
        made = found.read(job, written.get("job"))
    space = written.get("space")
    names = tuple(map(str, space)) if isinstance(space, Mapping) and function is None else ()
    read = [*found.files, *([Path(source)] if source != "The study" else [])]
    return StudyFile(
        text, source, found.data(made), made, project, tuple(found.problems), _name(written, made),
        names if made is not None else (),
        tuple(one.absolute() for one in read),
    )  # fmt: skip


class _Job:
    """Reads the job of a study, and keeps what is wrong with it."""

    def __init__(
        self, folder: Path, overrides: Mapping[str, Any], defaults: Callable[[Path], Mapping[str, Any]], report: Report
    ) -> None:
        self.folder, self.overrides, self.defaults, self.report = folder, overrides, defaults, report
        self.problems: list[Problem] = []
        self.files: list[Path] = []

    def read(self, job: Spec | None, written: Any) -> JobSpec | None:
        """`written`: under `job` of the study file, a path or the job itself; `job` goes before it."""
        if job is not None:
            if not isinstance(job, str | Path):
                return self.of(job, "the job")
            text, source, folder = file_text(job, "job")
            return self.of(text, source, folder if source != "the job" else self.folder)
        if is_null(written):
            return None
        if isinstance(written, Mapping):
            return self.of(written, "the study's job")
        path = self.folder / Path(str(written)).expanduser()
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not text"
            hint = "Write the path of a job file, from the folder of the study file, or the job itself."
            self.report.add(("job",), f"{written}: {why}", "a job file", hint)
            self.problems += self.report.problems()
            return None
        self.files.append(path)
        return self.of(text, str(written), path.absolute().parent)

    def of(self, job: Spec, source: str, folder: Path | None = None) -> JobSpec | None:
        # Imported late: few programs that use the client start a study, and this loads pydantic and YAML.
        from muster.core.dump import written_values  # noqa: PLC0415
        from muster.core.parse import Overrides, parse_job  # noqa: PLC0415

        place = folder or self.folder
        given = job if isinstance(job, str | Mapping) else written_values(cast("JobSpec", job))
        changes = Overrides(self.overrides, base=Path.cwd())
        try:
            return parse_job(given, source=source, base=place, defaults=self.defaults(place), overrides=changes)
        except SpecError as error:
            where = "" if source == "the study's job" else f"{source}: " if source != "the job" else "job: "
            for one in error.problems:
                at = one.where if where else f"job.{one.where}"
                self.problems.append(Problem(f"{where}{at}", one.given, one.expected, one.hint))
            return None

    def data(self, spec: JobSpec | None) -> dict[str, Any] | None:
        from muster.core.dump import written_values  # noqa: PLC0415

        return written_values(spec) if spec is not None else None


def _checked(given: Any) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        hint = "Pass a path, the text of a study file, a mapping, or a function."
        raise Invalid(f"A study can't be a {type(given).__name__}.", hint)
    return given or {}


def _merged(written: dict[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Limits are replaced one by one, everything else as a whole."""
    old, new = written.get("budget"), fields.get("budget")
    both = {"budget": {**old, **new}} if isinstance(old, Mapping) and isinstance(new, Mapping) else {}
    return {**written, **fields, **both}


def _document(text: str, report: Report) -> Mapping[str, Any]:
    """Nothing of a text that can't be read: the server tells what is wrong with it."""
    from muster.core.document import Sort, read_document  # noqa: PLC0415  (PyYAML)

    try:
        return read_document(text, report, Sort("study", "a mapping", "study: lr"))
    except Stop:
        return {}


def _name(written: Mapping[str, Any], job: JobSpec | None) -> str:
    """As the server gives it; "" if it gives one that says nothing."""
    given = written.get("study")
    if not is_null(given):
        return str(given).strip()
    return f"{job.name[:50]}-study" if job is not None else ""


def _objectives(written: Mapping[str, Any]) -> list[str]:
    """The metrics of a study, in their order. What is wrong with them is told by the server."""
    given = written.get("objective")
    several = [one for one in (given if isinstance(given, list | tuple) else [given]) if isinstance(one, Mapping)]
    return [str(one[way]) for one in several for way in ("minimize", "maximize") if way in one]


def _mapping_of(job: Spec | None) -> dict[str, Any]:
    if job is None:
        return {}
    if not isinstance(job, Mapping):
        raise Invalid("A function and a job were given.", "With a function, `job` may be a mapping of more fields.")
    return {key: value for key, value in job.items() if key != "run"}


def _plain(value: Any) -> Any:
    """Data for JSON that means what was written: `3e-4` and `yes` without quotes are no texts."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range):
        return [_plain(one) for one in value]
    if isinstance(value, Plain):
        from muster.tune.space_file import read_value  # noqa: PLC0415  (pydantic)

        return None if is_null(value) else read_value(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):  # a scalar of NumPy
        return _plain(value.item())
    raise Invalid(f"A study can't hold {value!r:.80}.", "Write numbers, texts, lists and mappings of them.")
