"""Runs the cases of a policy through the admission checks, without a server, and compares with what is expected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from muster.api.words import Role
from muster.control.admission import Context
from muster.control.admission.warned import warnings_of
from muster.control.policy_cases import (
    BAD_SPEC,
    NOT_ALLOWED,
    Outcome,
    PolicyCase,
    PolicyCases,
    job_of,
    read_cases,
    state_of,
)
from muster.control.rules import problems_here, read_rules
from muster.control.submit import Submission, admit
from muster.core.entities.project import at_least
from muster.core.errors import Problem, Refused, SpecError
from muster.core.parse import parse_job
from muster.core.reasons import Reason
from muster.core.spec import JobSpec
from muster.core.state import State
from muster.scan.job import secrets_in_job

NOW: Final = 1_767_225_600.0  # 2026-01-01: cases have one time, so that they always mean the same


@dataclass(frozen=True, slots=True)
class Said:
    """What admission says about a case."""

    outcome: Outcome
    codes: tuple[str, ...] = ()
    details: tuple[str, ...] = ()  # of each code or warning


@dataclass(frozen=True, slots=True)
class CaseResult:
    case: PolicyCase
    number: int
    said: Said
    wrong: str = ""  # the difference; "" if there is none

    @property
    def title(self) -> str:
        return self.case.name or self.case.file or f"case {self.number}"


@dataclass(frozen=True, slots=True)
class PolicyTest:
    problems: list[Problem] = field(default_factory=list)  # of the policy on the cluster of the cases
    results: list[CaseResult] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.problems and not any(one.wrong for one in self.results)


def check_policy(policy: str, cases: str, folder: Path, policy_name: str, cases_name: str) -> PolicyTest:
    """Raises SpecError for files with mistakes, and for a policy that contradicts itself."""
    rules = read_rules(policy, policy_name)
    found = read_cases(cases, cases_name)
    state = state_of(found, rules, NOW)
    results = [_result(state, found, case, number, folder) for number, case in enumerate(found.cases, 1)]
    return PolicyTest(problems_here(rules, state), results)


def _result(state: State, cases: PolicyCases, case: PolicyCase, number: int, folder: Path) -> CaseResult:
    said = _said(state, cases, case, folder)
    return CaseResult(case, number, said, "; ".join(_differences(case, said)))


def _said(state: State, cases: PolicyCases, case: PolicyCase, folder: Path) -> Said:
    try:
        raw, base = job_of(case, folder)
        spec = parse_job(raw, source="the job", base=base.absolute())
    except SpecError as error:
        return Said("refused", (BAD_SPEC,), tuple(str(problem) for problem in error.problems))
    spec = spec.model_copy(update={"project": case.project}) if case.project is not None else spec
    trusted = case.role == "superuser"
    role = _role(state, case, spec)
    if not trusted and spec.project in state.projects and not at_least(role, "member"):
        who = f"{case.user} is {f'a {role}' if role else 'no member'} of {spec.project!r}, and a member may submit jobs"
        return Said("refused", (NOT_ALLOWED,), (who,))
    findings = tuple(secrets_in_job(spec.model_dump(mode="json", exclude_defaults=True)))
    context = replace(_context(state, cases, case.user, trusted), findings=findings)
    try:
        admit(Submission(spec, case.user, trusted=trusted, findings=findings), context)
    except Refused as error:
        return Said("refused", tuple(one.code for one in error.reasons), tuple(map(_told, error.reasons)))
    warned = warnings_of(spec, context)
    return Said("warned" if warned else "accepted", (), tuple(warned))


def _context(state: State, cases: PolicyCases, user: str, trusted: bool) -> Context:
    def has_secret(project: str, name: str) -> bool:
        return name in cases.cluster.secrets.get(project, ())

    made = Context(state, user, has_secret, local=False, now=NOW)
    return replace(made, trusted=trusted)


def _role(state: State, case: PolicyCase, spec: JobSpec) -> Role | None:
    """The role that the case names, else that of the cluster's members; a case that names no user is a member's."""
    if case.role is not None and case.role != "superuser":
        return case.role
    project = state.projects.get(spec.project)
    members = project.members if project is not None else {}
    return members.get(case.user, "member" if case.user not in _users(state) else None)


def _users(state: State) -> set[str]:
    """Users that the cluster of the cases names somewhere. Others are members wherever a case needs one."""
    return {user for project in state.projects.values() for user in project.members}


def _told(found: Reason) -> str:
    return f"{found.message}. {found.hint}".rstrip()


def _differences(case: PolicyCase, said: Said) -> Iterator[str]:
    expected = case.expect
    if expected.outcome != said.outcome:
        got = said.outcome + (f" for {', '.join(said.codes)}" if said.codes else "")
        wanted = expected.outcome + (f" for {', '.join(expected.codes)}" if expected.codes else "")
        yield f"expected {wanted}, got {got}"
        return
    if expected.codes:
        if missing := sorted(set(expected.codes) - set(said.codes)):
            yield f"not refused for {', '.join(missing)}"
        if others := sorted(set(said.codes) - set(expected.codes)):
            yield f"refused for {', '.join(others)} too"
    if expected.words and not any(expected.words.lower() in one.lower() for one in said.details):
        yield f"no warning has the words {expected.words!r}"
