"""The file of test cases of a policy: a cluster, and jobs with what admission is expected to say about each.

cluster:
  projects: {language: {ada: admin, bob: member}}          # or a list of names
  queues: {research: {project: language, max_priority: 75}}
  pools: {a100: {nodes: 4, accelerators: "A100:8", cpus: 64, memory: 512GB}}
  secrets: {language: [HF_TOKEN]}
cases:
  - name: an ordinary job
    job: {run: python train.py, project: language, queue: research, gpus: 8}
    user: bob
    expect: accepted
  - file: jobs/huge.yaml                # a job file, from the folder of this file
    role: member
    expect: {refused: [never_allowed]}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from muster.api.words import Role
from muster.control.bootstrap import first_events
from muster.core.document import Sort, read_document
from muster.core.entities.node import NodeJoined
from muster.core.entities.pool import PoolSet
from muster.core.entities.project import ProjectSet
from muster.core.entities.queue import QueueSet
from muster.core.entities.rules_in_force import RulesSet
from muster.core.errors import Problem, SpecError
from muster.core.event import Event
from muster.core.reasons import REASONS
from muster.core.report import Report, Stop, shown, spelled
from muster.core.resources import Resources
from muster.core.rules import Rules
from muster.core.state import State, apply
from muster.core.suggest import did_you_mean
from muster.core.units import InvalidValue, parse_accelerators, parse_size

Outcome = Literal["accepted", "warned", "refused"]
CASES: Final = Sort("test", "a mapping with `cases`", "cases: [{job: {run: python train.py}, expect: accepted}]")
NOT_ALLOWED: Final = "not_allowed"  # the role is too low, or there is none; not a reason of the list
BAD_SPEC: Final = "bad_spec"  # the job file has mistakes
SOMEBODY: Final = "somebody"
HINT: Final = "Mend each and run the tests again; docs/policy-tests.md has an example."
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]
_Code = Annotated[str, Field(max_length=63)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CasePool(_Strict):
    nodes: Annotated[int, Field(ge=1, le=10_000)] = 1
    accelerators: str = ""  # of each node, such as `A100:8`
    cpus: Annotated[float, Field(gt=0, le=100_000)] = 64
    memory: str = "512GB"
    labels: dict[str, str] = {}
    spot: bool = False


class CaseQueue(_Strict):
    project: _Name = "default"
    min_priority: Annotated[int, Field(ge=0, le=100)] = 0
    max_priority: Annotated[int, Field(ge=0, le=100)] = 100


class CaseCluster(_Strict):
    projects: dict[_Name, dict[str, Role]] | list[_Name] = {}
    queues: dict[_Name, CaseQueue] = {}
    pools: dict[_Name, CasePool] = {}
    secrets: dict[_Name, list[str]] = {}


class Expected(_Strict):
    outcome: Outcome
    codes: tuple[str, ...] = ()  # of a refusal: exactly these
    words: str = ""  # of a warning: that it has


class PolicyCase(_Strict):
    name: Annotated[str, Field(max_length=200)] = ""
    job: dict[Any, Any] | str | None = None
    file: str | None = None
    project: _Name | None = None  # in place of the job's
    user: Annotated[str, Field(min_length=1, max_length=100)] = SOMEBODY
    role: Literal["viewer", "member", "admin", "superuser"] | None = None
    expect: Expected


class PolicyCases(_Strict):
    cluster: CaseCluster = CaseCluster()
    cases: Annotated[list[PolicyCase], Field(max_length=10_000)]


def read_cases(text: str, source: str) -> PolicyCases:
    """Raises SpecError with every mistake."""
    report = Report()
    try:
        raw = read_document(text, report, CASES)
    except Stop:
        raise SpecError(report.problems(), source, HINT) from None
    plain = _plain(raw)
    problems = [*_spell_expected(plain)]
    try:
        found = PolicyCases.model_validate(plain) if not problems else None
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        for fault in faults[:100]:
            at = tuple(part for part in fault["loc"] if part != "[key]")
            problems.append(Problem(spelled(at), shown(fault["input"]), fault["msg"].lower(), "Correct it."))
        found = None
    problems += [*_wrong_jobs(found)] if found is not None else []
    if problems or found is None:
        raise SpecError(problems, source, HINT)
    return found


def state_of(cases: PolicyCases, rules: Rules, now: float) -> State:
    """The cluster of the cases, with these rules in force. Raises SpecError for resources that can't be read."""
    state, cluster, problems = State(), cases.cluster, list[Problem]()
    events = first_events(state, now)
    projects = cluster.projects if isinstance(cluster.projects, dict) else {name: {} for name in cluster.projects}
    events += [Event(ProjectSet(name, "", dict(members)), now) for name, members in projects.items()]
    events += [Event(QueueSet(name, **queue.model_dump()), now) for name, queue in cluster.queues.items()]
    for name, pool in cluster.pools.items():
        try:
            each = _resources(pool)
        except InvalidValue as error:
            hint = error.hint or 'Write, for example, `{accelerators: "A100:8", cpus: 64, memory: 512GB}`.'
            problems.append(Problem(f"cluster.pools.{name}", "resources that can't be read", "resources", hint))
            continue
        events.append(Event(PoolSet(name, "cluster", accelerator=each.accelerator, spot=pool.spot), now))
        for number in range(pool.nodes):
            joined = NodeJoined(f"{name}-{number}", name, each, dict(pool.labels))
            events.append(Event(joined, now))
    if problems:
        raise SpecError(problems, "The cluster of the cases", HINT)
    for event in [*events, Event(RulesSet(rules), now)]:
        apply(state, event)
    return state


def job_of(case: PolicyCase, folder: Path) -> tuple[Mapping[Any, Any] | str, Path]:
    """What the case submits, as data or as the text of a job file, and the folder that its paths start from."""
    if case.job is not None:
        return case.job, folder
    path = folder / str(case.file)
    try:
        return path.read_text(), path.parent
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        hint = "Give a path that starts from the folder of the cases."
        raise SpecError(
            [Problem("file", str(case.file), f"a job file that can be read: {why}", hint)], "the case"
        ) from None


def _resources(pool: CasePool) -> Resources:
    kind, count, _ = parse_accelerators(pool.accelerators) if pool.accelerators else ("", 0, 1000)
    return Resources(round(pool.cpus * 1000), parse_size(pool.memory), count, kind)


def _spell_expected(plain: Any) -> list[Problem]:
    """Puts every `expect` into its long form: `accepted`, `{refused: CODE}`, `{warned: WORDS}`."""
    cases, problems = plain.get("cases"), list[Problem]()
    if not isinstance(cases, list):
        return [Problem("cases", shown(cases), "a list of cases", f"Write, for example, `{CASES.example}`.")]
    for number, case in enumerate(cases):
        given = case.get("expect") if isinstance(case, dict) else None
        long = _expected(given)
        if long is None:
            hint = "Write `accepted`, `warned`, `refused`, `{refused: CODE}` or `{warned: WORDS}`."
            problems.append(Problem(f"cases[{number}].expect", shown(given), "what admission should say", hint))
        else:
            case["expect"] = long
    return problems


def _expected(given: Any) -> dict[str, Any] | None:
    if isinstance(given, str) and given in ("accepted", "warned", "refused"):
        return {"outcome": given}
    if not isinstance(given, dict) or len(given) != 1:
        return None
    ((outcome, value),) = given.items()
    if outcome == "refused":
        codes = [value] if isinstance(value, str) else value
        if isinstance(codes, list) and codes and all(isinstance(code, str) for code in codes):
            return {"outcome": "refused", "codes": codes}
    if outcome == "warned" and isinstance(value, str):
        return {"outcome": "warned", "words": value}
    return None


def _wrong_jobs(found: PolicyCases) -> list[Problem]:
    known = [*(code for code, kind in REASONS.items() if kind.category == "refusal"), NOT_ALLOWED, BAD_SPEC]
    problems = []
    for number, case in enumerate(found.cases):
        if (case.job is None) == (case.file is None):
            hint = "Write the job under `job`, or the path of a job file under `file`."
            problems.append(Problem(f"cases[{number}]", "a case", "one of `job` and `file`", hint))
        for code in case.expect.codes:
            if code not in known:
                hint = did_you_mean(code, known, "docs/troubleshooting.md lists them.")
                problems.append(Problem(f"cases[{number}].expect.refused", code, "the code of a refusal", hint))
    return problems


def _plain(raw: Any) -> Any:
    """The document with its unquoted words read as YAML means them: numbers, flags and nothing."""
    if isinstance(raw, Mapping):
        return {str(key): value if key == "job" else _plain(value) for key, value in raw.items()}
    if isinstance(raw, list | tuple):
        return [_plain(item) for item in raw]
    return str(raw) if isinstance(raw, str) else raw
