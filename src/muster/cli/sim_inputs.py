"""What `muster sim` reads: traces, clusters, policies, price books; mistakes in them are errors of usage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from muster.api.errors import ErrorView
from muster.cli.alerts import read_rules
from muster.cli.call import Usage
from muster.cli.connect import client
from muster.cli.jobs import FINISHED
from muster.core.errors import SpecError
from muster.core.prices import PriceBook
from muster.cost.price_file import parse_prices
from muster.monitor.alerts.rule import RuleSet
from muster.monitor.alerts.rule_file import default_rules, parse_alert_rules
from muster.sim.cluster import ClusterFile, Layout, cluster_file_of, read_cluster
from muster.sim.model import Setup
from muster.sim.money import at_one_time
from muster.sim.presets import Preset, find_policy
from muster.sim.traces import READERS, Trace, read_history, read_trace
from muster.sim.traces.base import Options
from muster.sim.traces.history import cluster_of
from muster.sim.whatif import Changes, make_setup


class Unusable(Usage):
    """A file or option that the simulation can't use; reports the mistakes in it."""

    def __init__(self, error: SpecError) -> None:
        super().__init__(error.message, error.hint)
        self._document = error.to_dict()

    def to_dict(self) -> ErrorView:
        return self._document


@contextmanager
def as_usage_error() -> Iterator[None]:
    """Turns errors in the input into usage errors."""
    try:
        yield
    except SpecError as error:
        raise Unusable(error) from None


def policies_of(words: Sequence[str]) -> dict[str, Preset]:
    """The policies, each under a unique name."""
    found: dict[str, Preset] = {}
    for word in words:
        name, preset = find_policy(word)
        if name in found:
            name = word
        if name in found:
            raise Usage(f"--policy {word} was given twice.", "Give each policy once.")
        found[name] = preset
    return found


def alert_rules(file: str) -> RuleSet:
    return default_rules() if file == "default" else parse_alert_rules(read_rules(file), source=file)


def price_book(file: str) -> PriceBook:
    text = bytes_of(file, "--prices", "a price book")
    return at_one_time(parse_prices(text, source=file), time.time())


def bytes_of(file: str, option: str, what: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise Usage(f"{option}: {file} can't be read: {error.strerror}.", f"Name {what} in YAML.") from error


def from_server(cluster: str | None, wanted: Options) -> tuple[Trace, ClusterFile]:
    with client() as to:
        source = to.target.urls[0]
        jobs = [job.raw for job in to.jobs(phase=FINISHED, limit=None)]
        nodes = [] if cluster else to.nodes()
    file = read_cluster(Path(cluster)) if cluster else ClusterFile(source, cluster_of(nodes))
    return read_history(jobs, source, wanted.max_bad), file


def from_file(trace: str | None, cluster: str | None, wanted: Options, format: str | None) -> tuple[Trace, ClusterFile]:
    if trace is None:
        raise Usage("No trace was given.", "Name a file, or replay the server's own jobs with --history.")
    if format is not None and format not in READERS:
        raise Usage(f"--format: got {format!r}.", f"Expected one of {', '.join(READERS)}.")
    path = Path(trace)
    where = Path(cluster) if cluster else cluster_file_of(path)
    file = read_cluster(where) if where else None
    found = read_trace(path, replace(wanted, per_node=file.per_node if file else None), format)
    if file is None and found.ledger.cluster is not None:
        file = ClusterFile(trace, found.ledger.cluster)
    if file is None:
        hint = 'Give --cluster with a file such as `pools: {a100: {nodes: 16, accelerators: "A100:8"}}`.'
        raise Usage(f"{trace} does not say what it ran on, and there is no cluster file beside it.", hint)
    return found, file


def layouts_of(file: ClusterFile, confined: bool, shared: bool) -> list[Layout]:
    """Virtual clusters are confined, as in the original cluster, unless the options say otherwise."""
    if not file.virtual:
        if confined or shared:
            option = "--confined" if confined else "--shared"
            raise Usage(f"{option}: {file.source} has no virtual clusters.", "Leave it out.")
        return ["plain"]
    both: list[Layout] = ["confined", "shared"]
    return both if confined and shared else both[1:] if shared else both[:1]


def setups_of(
    policies: Mapping[str, Preset], file: ClusterFile, layouts: Sequence[Layout], changes: Changes
) -> list[Setup]:
    return [
        make_setup(_label(name, preset, layout if len(layouts) > 1 else ""), preset, file, layout, changes)
        for layout in layouts
        for name, preset in policies.items()
    ]


def _label(name: str, preset: Preset, layout: str) -> str:
    words = ", ".join(filter(None, ["oracle" if preset.exact else "", layout]))
    return f"{name} ({words})" if words else name


def check_writable(path: str | None) -> None:
    """Checked before the work, not after it."""
    if path is not None and (Path(path).is_dir() or not Path(path).absolute().parent.is_dir()):
        raise Usage(f"--report: {path} can't be written.", "Name a file in a folder that exists.")
