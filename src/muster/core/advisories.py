"""Known vulnerable packages: advisories in OSV's format or pip-audit's report, compared with environments.

Versions are compared as PEP 440 says. What can't be compared counts as affected: a doubt is told, never passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from packaging.version import InvalidVersion, Version

from muster.core.cvss import base_score
from muster.core.lock_files import normalised

if TYPE_CHECKING:
    from muster.api.runs import VulnerableView

Severity = Literal["low", "medium", "high", "critical"]
SEVERITIES: Final[tuple[Severity, ...]] = ("low", "medium", "high", "critical")
BYTES_MAX: Final = 256 << 20  # of an advisory file
_WORDS: Final[Mapping[str, Severity]] = {
    "low": "low", "moderate": "medium", "medium": "medium", "high": "high", "critical": "critical",
}  # fmt: skip
_FLOORS: Final[tuple[tuple[float, Severity], ...]] = ((9.0, "critical"), (7.0, "high"), (4.0, "medium"), (0.0, "low"))


class BadAdvisories(ValueError):
    """The file has no advisories that can be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Span:
    """Versions from `introduced` on ("" or "0": all), before `fixed`, up to `last`."""

    introduced: str = ""
    fixed: str = ""
    last: str = ""


@dataclass(frozen=True, slots=True)
class Advisory:
    id: str
    package: str  # normalised
    spans: tuple[Span, ...] = ()
    versions: frozenset[str] = frozenset()  # affected ones, by name
    severity: Severity | None = None  # None: not known, which counts whatever the lowest that counts
    aliases: tuple[str, ...] = ()
    summary: str = ""
    fixed_in: tuple[str, ...] = ()

    def affects(self, version: str) -> bool:
        if version in self.versions:
            return True
        found = _version(version)
        if found is None:
            return bool(self.spans)  # in doubt
        if any(_version(one) == found for one in self.versions):
            return True
        return any(_within(found, span) for span in self.spans)

    def counts(self, least: Severity) -> bool:
        return self.severity is None or SEVERITIES.index(self.severity) >= SEVERITIES.index(least)


@dataclass(frozen=True, slots=True)
class Vulnerable:
    """A package of an environment, with the advisory about it."""

    package: str
    version: str
    advisory: Advisory

    def __str__(self) -> str:
        fixed = f", fixed in {' or '.join(self.advisory.fixed_in[:3])}" if self.advisory.fixed_in else ""
        return (
            f"{self.package} {self.version}: {self.advisory.id} ({self.advisory.severity or 'severity unknown'}{fixed})"
        )


@dataclass(frozen=True, slots=True)
class Advisories:
    by_package: Mapping[str, Sequence[Advisory]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(len(found) for found in self.by_package.values())

    def check(self, packages: Mapping[str, str | Sequence[str] | None], least: Severity = "low") -> list[Vulnerable]:
        """Of packages and their versions; the gravest first."""
        found: list[Vulnerable] = []
        for package, given in packages.items():
            about = [one for one in self.by_package.get(normalised(package), ()) if one.counts(least)]
            for version in (given,) if isinstance(given, str) else given or ("",):  # "": installed in no known version
                found += [Vulnerable(package, version, one) for one in about if one.affects(version)]
        order = {severity: rank for rank, severity in enumerate((*SEVERITIES, None))}
        return sorted(found, key=lambda one: (-order[one.advisory.severity], one.package, one.advisory.id))


def read_advisories(raws: Iterable[bytes]) -> Advisories:
    """Of files in OSV's format (one advisory, a list, `{"vulns": [...]}` or one on each line), or pip-audit's JSON.
    Raises BadAdvisories for a file that is neither: a part that was left out would pass silently."""
    by_package: dict[str, list[Advisory]] = {}
    for raw in raws:
        for one in _entries(raw):
            by_package.setdefault(one.package, []).append(one)
    return Advisories(by_package)


def captured_packages(doc: Mapping[str, Any]) -> dict[str, str | None]:
    """The packages in the document of a run. Its ranks report them, so that they may be anything."""
    environment = doc.get("environment")
    packages = environment.get("packages") if isinstance(environment, Mapping) else None
    listed = packages if isinstance(packages, Mapping) else {}
    return {str(name): version if isinstance(version, str) else None for name, version in listed.items()}


def vulnerable_views(found: Sequence[Vulnerable]) -> list[VulnerableView]:
    return [
        {
            "package": one.package, "version": one.version, "advisory": one.advisory.id,
            "severity": one.advisory.severity, "aliases": list(one.advisory.aliases),
            "summary": one.advisory.summary, "fixed_in": list(one.advisory.fixed_in),
        }
        for one in found
    ]  # fmt: skip


def _entries(raw: bytes) -> Iterator[Advisory]:
    try:
        documents = _documents(raw)
        for document in documents:
            if "dependencies" in document:
                yield from _of_pip_audit(document)
            elif "vulns" in document and "affected" not in document:
                for one in document["vulns"]:
                    yield from _of_osv(one)
            else:
                yield from _of_osv(document)
    except BadAdvisories:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadAdvisories(f"it can't be read: {type(error).__name__}: {str(error)[:200]}") from None


def _documents(raw: bytes) -> list[dict[str, Any]]:
    if len(raw) > BYTES_MAX:
        raise BadAdvisories(f"it has more than {BYTES_MAX:,} bytes")
    try:
        found = json.loads(raw)
    except ValueError:
        found = [json.loads(line) for line in raw.splitlines() if line.strip()]  # one on each line
    listed = found if isinstance(found, list) else [found]
    if not listed or not all(isinstance(one, dict) for one in listed):
        raise BadAdvisories("it is neither advisories in OSV's format nor a report of pip-audit")
    return listed


def _of_osv(one: Mapping[str, Any]) -> Iterator[Advisory]:
    if not isinstance(one["id"], str) or not isinstance(one.get("affected", []), list):
        raise BadAdvisories("an advisory has no `id`, or no list of what it is about")
    if one.get("withdrawn"):
        return
    general = _severity(one)
    for about in one.get("affected", ()):
        package = about.get("package") or {}
        if str(package.get("ecosystem", "")).partition(":")[0].lower() != "pypi":
            continue
        spans = [span for held in about.get("ranges", ()) if held["type"] != "GIT" for span in _spans(held["events"])]
        yield Advisory(
            one["id"], normalised(str(package["name"])), tuple(spans), frozenset(map(str, about.get("versions", ()))),
            _severity(about) or general, tuple(map(str, one.get("aliases", ())))[:20],
            str(one.get("summary") or one.get("details") or "")[:300],
            tuple(span.fixed for span in spans if span.fixed),
        )  # fmt: skip


def _spans(events: Sequence[Mapping[str, str]]) -> Iterator[Span]:
    """OSV's events of one range: each beginning with the end that follows it."""
    begun: str | None = None
    for event in events:
        if "introduced" in event:
            if begun is not None:
                yield Span(begun)
            begun = str(event["introduced"])
        elif begun is not None and ("fixed" in event or "last_affected" in event):
            yield Span(begun, str(event.get("fixed", "")), str(event.get("last_affected", "")))
            begun = None
    if begun is not None:
        yield Span(begun)


def _severity(one: Mapping[str, Any]) -> Severity | None:
    """What the database says in a word, else from the CVSS vector."""
    for place in ("database_specific", "ecosystem_specific"):
        said = (one.get(place) or {}).get("severity")
        if isinstance(said, str) and said.lower() in _WORDS:
            return _WORDS[said.lower()]
    scores = [score for held in one.get("severity") or () if (score := base_score(str(held.get("score")))) is not None]
    return next(word for floor, word in _FLOORS if max(scores) >= floor) if scores else None


def _of_pip_audit(report: Mapping[str, Any]) -> Iterator[Advisory]:
    """Of the packages of one environment: exactly these versions are affected."""
    for package in report["dependencies"]:
        for one in package.get("vulns", ()):
            yield Advisory(
                str(one["id"]), normalised(str(package["name"])), (), frozenset([str(package["version"])]), None,
                tuple(map(str, one.get("aliases", ())))[:20], str(one.get("description") or "")[:300],
                tuple(map(str, one.get("fix_versions", ()))),
            )  # fmt: skip


def _within(version: Version, span: Span) -> bool:
    begin, fixed, last = (_version(text) for text in (span.introduced, span.fixed, span.last))
    if span.introduced not in ("", "0") and begin is not None and version < begin:
        return False
    if span.fixed and fixed is not None and version >= fixed:
        return False
    return not (span.last and last is not None and version > last)


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
