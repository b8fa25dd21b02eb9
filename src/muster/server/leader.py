"""The parts of a server that run while it holds the lease: group commit, engines, control loop, ingest and record."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from muster.control import receivers
from muster.control.admission import Site
from muster.control.admission.inspected import Inspected
from muster.control.admission_hooks import read_admission_hooks, read_plugin_terms
from muster.control.alerts import Alerts
from muster.control.bootstrap import first_events, new_token, token_event
from muster.control.budget_watch import BudgetWatch
from muster.control.clock import SteadyClock
from muster.control.costs import CostLedger
from muster.control.counters import Counters
from muster.control.daily_costs import DailyCosts
from muster.control.damage_watch import DamageWatch
from muster.control.external_admission import ExternalAdmission
from muster.control.follow import Follower
from muster.control.forecast_process import ForecastProcess
from muster.control.forecaster import Forecaster
from muster.control.goodput import GoodputLedger
from muster.control.hangs import Hangs
from muster.control.hooks import KIND, Hooks, read_hooks
from muster.control.ingest import Ingest
from muster.control.ingest_run import reported_step
from muster.control.inspection import AdvisoryFile, Inspector
from muster.control.loop import Controller
from muster.control.meetings import Meetings
from muster.control.metric_tap import MetricTap
from muster.control.money_figures import UsualCosts
from muster.control.node_samples import NodeSamples
from muster.control.orders import save_orders, stack_orders
from muster.control.outbox import Outbox
from muster.control.promotion import version_needs
from muster.control.quota import UNLIMITED, Quota
from muster.control.registries import read_registries
from muster.control.report import KeptValues
from muster.control.rollup_writer import RollupWriter
from muster.control.rules import problems_here, read_policy, set_rules
from muster.control.secrets import Keyring
from muster.control.signing import Signer, first_key
from muster.control.spot_history import SpotHistory
from muster.control.statement_writer import StatementWriter
from muster.control.stragglers import Stragglers
from muster.control.studies.disk import CheckpointSpace
from muster.control.studies.ended_answers import EndedAnswers
from muster.control.studies.importances import Importances
from muster.control.studies.live import live_site
from muster.control.studies.studies import Studies
from muster.control.submit import peek
from muster.core.entities import reserved
from muster.core.errors import ConfigError, MusterError
from muster.core.event import SYSTEM, Event
from muster.core.server_events import ExecEnded, ServerLeads
from muster.core.spec import JobSpec
from muster.core.state import State
from muster.core.units import parse_duration, parse_size
from muster.engines.base import Member
from muster.engines.describe import Home
from muster.engines.isolation import read_local, remove_folder
from muster.engines.local import LocalConfig, LocalEngine, describe_machine
from muster.engines.many import Engines
from muster.engines.registry import LOCAL, check_engines, make_engine
from muster.monitor.sample import Sampler
from muster.server.auth import Identity
from muster.server.exec_log import left_open
from muster.server.execs import Exec, Execs
from muster.server.limits import Limits
from muster.server.settings import Settings
from muster.server.sign_ins import SignIns
from muster.server.web.sessions import Sessions
from muster.store.base import Entry, Lease, Proposal, Store
from muster.store.commit import GroupCommit
from muster.track.tracking import open_tracking

log = logging.getLogger("muster.server")

# A server makes few cycles and many objects: the default of 700 new ones would trigger the collector all the time.
GC_THRESHOLD = (50_000, 20, 50)

T = TypeVar("T")


class Leader:
    """Started when the lease is won, closed when it is lost; jobs go on running without it."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        keyring: Keyring,
        may_act: Callable[[], bool],
        on_events: Callable[[Sequence[Event]], None],
        urls: Sequence[str] = (),
    ) -> None:
        self.settings, self.store, self.keyring = settings, store, keyring
        self._on_events = on_events
        self.clock = SteadyClock()
        self.log_limit = int(parse_size(settings.log_limit))
        # A job may always ask for the default limit.
        self.log_limit_max = max(self.log_limit, int(parse_size(settings.log_limit_max)))
        self.quota = Limits.of(settings.limits).quota()
        self.inspector = Inspector(read_registries(settings.registries), AdvisoryFile(settings.advisory_path))
        self.external = ExternalAdmission(
            read_admission_hooks(settings.admission_hook), read_plugin_terms(settings.admission_plugins), self._inspect
        )
        self.commit = GroupCommit(store, on_commit=self._committed)
        self.counters, self.samples, self.sampler = Counters(), NodeSamples(), Sampler()
        self.engine = Engines(make_engines(settings, keyring, urls, self.log_limit))
        # Whether jobs run on this machine, so that admission can check their folders and commands.
        self.local = LOCAL in self.engine.members()
        hangs, stragglers = Hangs(lambda run: store.run(run).get("progress")), Stragglers()
        self.hangs = hangs
        self.controller = Controller(
            self.commit, self.engine, self.clock, keyring.attempt_token, may_act, partial(reported_step, store), hangs,
            stragglers, self.counters,
        )  # fmt: skip
        limit_of = self.quota.bytes_of if self.quota.limits_bytes else None
        self.track = open_tracking(
            store, self.commit, self.clock.now, settings.home, settings.artifacts, limit_of, remove_folder
        )
        self.inspector.snapshots = self.track.snapshots if self.track is not None else None
        intake = self.track.intake if self.track is not None else None
        late = parse_duration(settings.late_reports)
        self.tap = MetricTap()
        self.alerts = Alerts(
            store,
            self.commit,
            self.clock,
            self.tap,
            receivers.Receivers(receivers.read_receivers(settings.receivers)),
            may_act,
            self._server_figures,
            self.samples.machines,
            UsualCosts(store, self.track).at,
        )
        self.stack_orders, self.meetings = stack_orders(self.commit, self.clock.now), Meetings()
        self.save_orders = save_orders(self.commit, self.clock.now)
        self.ingest = Ingest(
            store,
            self.commit,
            self.clock,
            self.log_limit,
            intake,
            self.engine.cause,
            late,
            self.secret_values,
            self.tap,
            (self.stack_orders, self.save_orders),
            hangs,
            stragglers,
            self.alerts,
            self.counters,
            self.samples,
        )
        self.sign_ins = SignIns(self.commit, self.clock.now, lambda token: token in store.state().tokens, may_act)
        self.sessions = Sessions(keyring.sessions, keyring.installation, parse_duration(settings.session_lifetime))
        self.execs = Execs(Limits.of(settings.limits), lambda job: store.state().jobs.get(job), self._exec_ended)
        self.forecasts = ForecastProcess()
        self.forecaster = Forecaster(
            self.commit, lambda: self.controller.board, self.clock, may_act, self.ingest.expected_ends,
            self.forecasts.forecast,
        )  # fmt: skip
        forecasts = Follower(
            "forecasts", self.forecaster.fold, store, self.commit, may_act, kind="job.submitted", durable=False
        )
        self.followers = [RollupWriter(store, self.commit, self.clock, may_act).follower, forecasts]
        self.spot_history = SpotHistory(self.track)
        if self.track is not None:
            self.record = Follower("record", self.track.fold.fold, store, self.commit, may_act)
            self.ledger = GoodputLedger(store, self.track, self.clock.now)
            self.goodput = Follower("goodput", self.ledger.fold, store, self.commit, may_act, kind="attempt.ended")
            self.costs = CostLedger(store, self.track, self.ledger)
            self.cost_follower = Follower("costs", self.costs.fold, store, self.commit, may_act)
            self.followers += [self.record, self.goodput, self.cost_follower]
            self.daily_costs = DailyCosts(self.track, self.commit, self.clock, may_act, self.cost_follower.reach)
            self.report_values = KeptValues()
            self.track.models.promotions.asks = version_needs(self.track, store.state)
            self.statements = StatementWriter(self.track, Signer(store, keyring), may_act)
        self.studies, self.importances = self._make_studies(may_act), Importances()
        self.ended_studies = EndedAnswers()
        checkpoints = settings.home / "local" / "checkpoints"
        self.checkpoint_space = CheckpointSpace(self.commit, self.clock, may_act, checkpoints, remove_folder)
        self.outbox = self._make_outbox(may_act)
        self.budgets = BudgetWatch(self.commit, self.clock, may_act)
        self.damage = DamageWatch(self.tap, store, self.commit, self.clock)

    def start(self, lease: Lease) -> None:
        self.store.catch_up()
        gc.set_threshold(*GC_THRESHOLD)
        self.clock.catch_up(self.store.state().time)
        self.commit.start()
        leads, ends = ServerLeads(lease.holder, lease.epoch), left_open(self.store, self.clock.now())
        self.propose(lambda state: Entry([*ends, Event(leads, self.clock.now())]))
        self.propose(lambda state: Entry(first_events(state, self.clock.now())))
        self.propose(first_key(self.keyring, SYSTEM, self.clock.now()))
        self._first_rules()
        self._first_token()
        self._warn_of_names()
        self._restore_names()
        self.sessions.restore(self.store, self.clock.now())
        for member in self.engine.members().values():
            member.start()
        self._warn_of_isolation()
        self.controller.start()
        if not self.settings.hooks and "hooks" in self.store.marks():  # later hooks start from there
            self.propose(lambda state: Entry(marks={"hooks": state.version}))
        for follower in self.followers:
            follower.start()
        if self.outbox is not None:
            self.outbox.start()
        self.forecaster.start()
        self.sign_ins.start()
        self.damage.start()
        self.alerts.start()
        self.budgets.start()
        if self.studies is not None:
            self.studies.start()
            self.checkpoint_space.start()
        if self.track is not None:
            self.track.start()
            self.daily_costs.start()
            self.statements.start()

    def close(self) -> None:
        if self.track is not None:
            self.statements.close()
            self.daily_costs.close()
            self.track.close()
        if self.studies is not None:
            self.studies.close()
            self.checkpoint_space.close()
        self.budgets.close()
        self.alerts.close()
        self.damage.close()
        self.sign_ins.close()
        self.forecasts.close()
        self.forecaster.close()
        if self.outbox is not None:
            self.outbox.close()
        for follower in self.followers:
            follower.close(once_more=True)
        self.controller.close()
        self.engine.close()
        self.commit.close()

    def isolation_error(self) -> str:
        """Why a member's job can't be isolated on this machine; "" when it can, or when no jobs run here."""
        member = self.engine.members().get(LOCAL)
        return member.isolation_status().isolation_error if isinstance(member, LocalEngine) else ""

    def propose(self, proposal: Proposal) -> list[Event]:
        """Runs a proposal; what it wrote is durable on return."""
        return self.commit.submit(proposal).result()

    def look(self, look: Callable[[State], T]) -> T:
        """Reads the live state between two commits."""
        found: list[T] = []
        self.propose(peek(found, look))
        return found[0]

    def site(self, caller: Identity, trusted: bool) -> Site:
        """What admission needs to know of this server. Call it before the commit: it may have to run a process.

        `trusted`: all jobs are an administrator's own, which need not be isolated.
        """
        own: Site = {
            "quota": self.quota_of(caller),
            "may_read": self._readable(caller),
            "asking": self.external.asking(),
        }
        return {**self._site_of(trusted), **own}

    def _site_of(self, trusted: bool) -> Site:
        """`trusted`: for jobs of administrators."""
        return {
            "growth": self.engine.most(),
            "objections": self.engine.objections,
            "log_limit_max": self.log_limit_max,
            "quota": UNLIMITED if trusted else self.quota,
            "isolation_error": "" if trusted else self.isolation_error(),
            "purged": lambda run: self.track is not None and run in self.track.purged,
        }

    def _inspect(self, spec: JobSpec, user: str, tree: str) -> Inspected:
        return self.inspector.inspect(spec, user, tree, self.store.state())

    def _readable(self, caller: Identity) -> Callable[[str], bool]:
        """Whether the caller may see a project's runs."""
        projects = caller.projects(self.store.state())
        return lambda project: projects is None or project in projects

    def quota_of(self, caller: Identity) -> Quota:
        """The limits for the caller; administrators have none."""
        return UNLIMITED if caller.superuser else self.quota

    def _committed(self, events: Sequence[Event]) -> None:
        self.controller.on_commit(events)
        for follower in self.followers:
            follower.on_commit(events)
        self.alerts.on_commit(events)
        if self.studies is not None:
            self.studies.on_commit(events, self.store.state())
        self._on_events(events)
        self.counters.committed(events, self.store.state())

    def _exec_ended(self, one: Exec, seconds: float) -> None:
        """Records the end of an exec session. The event loop calls it, so it waits for no disk."""
        assert one.ended is not None
        ended = ExecEnded(one.id, one.worker, one.ended.code, one.ended.error, round(seconds, 3))
        event = Event(ended, self.clock.now(), one.user, one.project, one.job, one.attempt)
        with suppress(MusterError):  # this server is stopping
            self.commit.submit(lambda state: Entry([event]))

    def _make_studies(self, may_act: Callable[[], bool]) -> Studies | None:
        """None without a record: a study reads what its trials report."""
        if self.track is None:
            return None
        wake = threading.Event()
        site = live_site(self.store, self.track, self.clock.now, self.tap, wake, self._site_of, self.local)
        return Studies(self.commit, self.clock, site, may_act, wake)

    def _make_outbox(self, may_act: Callable[[], bool]) -> Outbox | None:
        """None if the store has no database for messages."""
        if self.store.database is None:
            return None
        named = read_hooks(self.settings.hooks)
        hooks = Hooks(named)
        if named:
            self.followers.append(Follower("hooks", hooks.fold, self.store, self.commit, may_act, begin="last"))
        kinds = {KIND: hooks.deliver, receivers.KIND: self.alerts.receivers.deliver}
        return Outbox(self.store.database, self.commit, self.clock, kinds, may_act)

    def _server_figures(self) -> dict[str, float]:
        """For the signals of the server itself."""
        usage = shutil.disk_usage(self.settings.home)
        found = {
            "events_behind": float(max((follower.lag().behind for follower in self.followers), default=0)),
            "disk_share": usage.used / usage.total,
        }
        if self.outbox is not None:
            found["messages_waiting"] = float(self.outbox.status()["waiting"])
        return found

    def _restore_names(self) -> None:
        state = self.store.state()
        engines = {pool.name: pool.engine for pool in state.pools.values()}
        nodes = [*state.nodes.values(), *state.machines.values()]
        self.engine.restore(engines, [(node.name, engines.get(node.pool, "")) for node in nodes])

    def secret_values(self, project: str, names: Sequence[str]) -> list[str]:
        """The secrets that can be decrypted. One that was sealed with another key was never given to a rank either."""
        found = []
        for name in names:
            cipher = self.store.secret(project, name)
            if cipher is not None:
                with suppress(ConfigError):
                    found.append(self.keyring.unseal(cipher))
        return found

    def _first_rules(self) -> None:
        """Sets the policy file of the settings; logs what does not fit the cluster yet."""
        path = self.settings.policy_file
        if path is None:
            return
        text = read_policy(path)
        self.propose(set_rules(text, SYSTEM, self.clock.now(), source=str(path), check=False))
        for problem in self.look(lambda state: problems_here(state.rules, state) if state.nodes else []):
            log.warning("%s: %s", path, problem)

    def _first_token(self) -> None:
        """Creates the first administrator's token if there is none, in a file that only its owner can read."""
        path = self.settings.home / "token"
        if any(t.superuser and t.revoked_at is None for t in self.store.state().tokens.values()) and path.exists():
            return
        identity, shown, kept = new_token()
        named = os.environ.get("USER") or os.environ.get("LOGNAME") or "admin"
        user = "admin" if reserved(named) else named
        descriptor = os.open(path.with_suffix(".new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(shown + "\n")
        event = token_event(identity, "first", user, kept, "admin", True, None, SYSTEM, self.clock.now())
        self.propose(lambda state: Entry([event]))
        path.with_suffix(".new").replace(path)
        log.info("wrote an administrator's token to %s", path)

    def _warn_of_names(self) -> None:
        """Warns of users with reserved names, which older versions allowed: in events they look like Muster itself."""
        state, now = self.store.state(), self.clock.now()
        live = {t.user for t in state.tokens.values() if t.revoked_at is None and (t.expires_at or now) >= now}
        members = {user for project in state.projects.values() for user in project.members}
        for user in sorted(filter(reserved, live | members)):
            log.warning("there is a user %r, which is a name of Muster itself: give that person another one", user)

    def _warn_of_isolation(self) -> None:
        """Warns of granted ids that were asked for and can't be had; other kinds of isolation are first tried when a
        member submits a job."""
        asked = self.settings.engines.get(LOCAL, {}).get("use_subuids", False)
        if asked and (isolation_error := self.isolation_error()):
            log.warning("%s; they are refused", isolation_error)


def make_engines(settings: Settings, keyring: Keyring, urls: Sequence[str], log_limit: int) -> list[Member]:
    """The configured engines; this machine if none is configured."""
    ca_file = os.path.abspath(settings.tls_cert) if settings.tls_cert else None  # noqa: PTH100  (keeps links)
    reached = settings.advertised or tuple(urls)
    home = Home(
        settings.home, keyring.installation, lambda: reached, settings.home / "server.json", ca_file, log_limit,
        keyring.engines, settings.trust_members, private_paths(settings), settings.spot_sources,
    )  # fmt: skip
    named = check_engines(settings.engines) or {LOCAL: {}}
    return [
        LocalEngine(engine_config(settings, log_limit)) if name == LOCAL else make_engine(name, given, home)
        for name, given in named.items()
    ]


def engine_config(settings: Settings, log_limit: int) -> LocalConfig:
    memory = int(parse_size(settings.memory)) if settings.memory else None
    return LocalConfig(
        root=settings.home / "local",
        nodes=describe_machine(settings.nodes, settings.accelerators, settings.cpus, memory, settings.pool),
        urls_file=settings.home / "server.json",
        log_limit=log_limit,
        ca_file=settings.tls_cert,
        real_devices=settings.accelerators is None,
        isolation=read_local(check_engines(settings.engines).get(LOCAL, {}), settings.trust_members),
        hidden=private_paths(settings),
        spot_notices=settings.spot_sources,
    )


def private_paths(settings: Settings) -> tuple[str, ...]:
    """Paths of the server that no job may see: its home, and what the settings put elsewhere.

    For a key and a database this includes their folders, unless the folder is at the top of the file system. Otherwise
    running sandboxes would see a file that replaces another one, such as the key of a renewed certificate.
    """
    paths = [str(settings.home), settings.artifacts if "://" not in settings.artifacts else None]
    scheme, _, database = settings.url_of_store.partition(":///")
    client_secret = settings.provider.client_secret_file if settings.provider is not None else None
    files = [settings.tls_key or "", database if scheme.startswith("sqlite") else "", str(client_secret or "")]
    for place in [place for file in files if file for place in (Path(file).absolute(), Path(file).resolve())]:
        whole = len(place.parent.parts) > 2
        paths += [str(place.parent)] if whole else [f"{place}{end}" for end in ("", "-wal", "-shm", "-journal")]
    return tuple(str(Path(path).absolute()) for path in paths if path)
