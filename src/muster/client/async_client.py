"""The asynchronous client, `muster.AsyncClient`: the same calls as those of `muster.Client`, to be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar

import httpx

from muster.client import (
    admin_calls,
    alert_calls,
    artifact_calls,
    copy_calls,
    cost_calls,
    exec_calls,
    job_calls,
    optuna_calls,
    policy_calls,
    preflight_calls,
    promotion,
    provenance_calls,
    record_calls,
    run_calls,
    stack_calls,
    stage_calls,
    study_calls,
    tune_calls,
    watch_calls,
)
from muster.client.connection import Connection
from muster.client.http import Blocks, Transport
from muster.client.job import AsyncJob
from muster.client.run import AsyncRun
from muster.client.study import AsyncStudy

AT_ONCE: Final = 64  # requests under way; more wait for their turn. Streams are not counted
T = TypeVar("T")
P = ParamSpec("P")


class AsyncTransport(Transport):
    """Suspends while it waits for the server, so that a call can be cancelled at any time. For one event loop."""

    async def blocks(self, response: httpx.Response, size: int | None = None) -> AsyncGenerator[bytes, None]:
        async for block in response.aiter_bytes(size):
            yield block

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def work(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(function, *args, **kwargs)

    def waiter(self) -> Callable[[Awaitable[Any]], Any]:
        loop = asyncio.get_running_loop()

        async def result(of: Awaitable[Any]) -> Any:
            return await of

        return lambda of: asyncio.run_coroutine_threadsafe(result(of), loop).result()

    async def each(self, lanes: int, function: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
        left = iter(items)

        async def lane() -> None:
            for item in left:
                await function(item)

        tasks = [asyncio.create_task(lane()) for _ in range(lanes)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _exchange(self, method: str, url: str, parts: Mapping[str, Any], stream: bool) -> httpx.Response:
        request = self._http.build_request(method, url, **parts)
        if stream:
            return await self._http.send(request, stream=True)
        async with self._turns:
            return await self._http.send(request)

    async def _finish(self, response: httpx.Response) -> None:
        await response.aclose()

    async def _disconnect(self) -> None:
        await self._http.aclose()

    def _body(self, make: Blocks) -> Any:
        return _Body(make)

    @cached_property
    def _turns(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(AT_ONCE)

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        # Streams hold their connections, so a limit on those would make other calls wait for them.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=AT_ONCE)
        return httpx.AsyncClient(**self._settings(), limits=limits)


class _Body:
    def __init__(self, make: Blocks) -> None:
        self._make = make

    async def __aiter__(self) -> AsyncIterator[bytes]:
        blocks = iter(self._make())
        while (block := await asyncio.to_thread(next, blocks, None)) is not None:
            yield block


class AsyncClient(Connection[AsyncJob, AsyncRun, AsyncStudy]):
    """A client for programs with an event loop: every method of `Client`, with the same arguments, to be awaited.

    What is an iterator there is an asynchronous one here: `async for line in client.logs(job, follow=True)`. Any number
    of calls may be under way; to cancel one closes its connection. A client belongs to one event loop. Files are read
    and written in threads.

    The address comes from the arguments, else from MUSTER_URL and MUSTER_TOKEN, else from the folder `home`
    (MUSTER_HOME, or ~/.muster) of a server on this machine. Nothing is sent before the first call.

    Every call may raise a `muster.core.errors.MusterError`. `timeout` is in seconds, for one response.
    """

    _transport_class = AsyncTransport

    # jobs
    submit = job_calls.submit
    check = job_calls.check
    submit_many = job_calls.submit_many
    jobs = job_calls.jobs
    job = job_calls.job
    line = job_calls.line
    spec = job_calls.spec
    stop = job_calls.stop
    save = job_calls.save
    set_priority = job_calls.set_priority
    resume = job_calls.resume
    why = job_calls.why
    forecast = job_calls.forecast
    attempts = job_calls.attempts
    summary = job_calls.summary
    metrics = job_calls.metrics
    exec = exec_calls.exec_
    stacks = stack_calls.stacks
    profile = stack_calls.profile
    sample = stack_calls.sample
    diagnosis = stack_calls.diagnosis
    kept_stacks = stack_calls.kept_stacks
    copy_to = copy_calls.copy_to
    copy_from = copy_calls.copy_from

    # watching
    wait = watch_calls.wait
    changes = watch_calls.changes
    watch = watch_calls.watch
    logs = watch_calls.logs
    events = watch_calls.events

    # runs
    runs = run_calls.runs
    search_runs = run_calls.search_runs
    run = run_calls.run
    run_page = run_calls.run_page
    goodput = run_calls.goodput
    reproduction = run_calls.reproduction
    frame = run_calls.frame
    compare = run_calls.compare
    queries = run_calls.queries
    save_query = run_calls.save_query
    remove_query = run_calls.remove_query

    # studies
    tune = tune_calls.tune
    check_study = tune_calls.check_study
    studies = study_calls.studies
    study = study_calls.study
    study_status = study_calls.study_status
    study_report = study_calls.study_report
    study_file = study_calls.study_file
    trials = study_calls.trials
    wait_study = study_calls.wait_study
    watch_study = study_calls.watch_study
    stop_study = study_calls.stop_study
    resume_study = study_calls.resume_study
    extend_study = study_calls.extend_study
    change_study = tune_calls.change_study
    enqueue = study_calls.enqueue
    ask = study_calls.ask
    report_trial = study_calls.report_trial
    tell = study_calls.tell
    winner_job = promotion.winner_job
    promote = promotion.promote

    # the record
    create_run = record_calls.create_run
    update_run = record_calls.update_run
    delete_run = record_calls.delete_run
    restore_run = record_calls.restore_run
    set_params = record_calls.set_params
    set_tags = record_calls.set_tags
    run_changes = record_calls.run_changes
    run_attempts = record_calls.run_attempts
    run_checkpoints = record_calls.run_checkpoints
    note = record_calls.note
    project_note = record_calls.project_note
    notes = record_calls.notes
    logbook = record_calls.logbook
    lineage = record_calls.lineage
    data_sets = record_calls.data_sets
    data_set = record_calls.data_set
    models = record_calls.models
    model = record_calls.model
    create_model = record_calls.create_model
    register_model = record_calls.register_model
    promote_model = record_calls.promote_model
    roll_back_model = record_calls.roll_back_model
    set_model_alias = record_calls.set_model_alias
    delete_model = record_calls.delete_model

    # promotion
    run_promotion = stage_calls.run_promotion
    promote_run = stage_calls.promote_run
    ask_for_review = stage_calls.ask_for_review
    reviews = stage_calls.reviews
    approve_promotion = stage_calls.approve_promotion

    # provenance
    signing_keys = provenance_calls.signing_keys
    rotate_signing_key = provenance_calls.rotate_signing_key
    model_statement = provenance_calls.model_statement
    model_files = provenance_calls.model_files
    statements = provenance_calls.statements
    artifact_statement = provenance_calls.artifact_statement

    # studies
    optuna_journals = optuna_calls.optuna_journals
    delete_optuna_journal = optuna_calls.delete_optuna_journal

    # content
    artifacts = artifact_calls.artifacts
    artifact_folder = artifact_calls.artifact_folder
    put_artifact = artifact_calls.put_artifact
    get_artifact = artifact_calls.get_artifact
    read_artifact = artifact_calls.read_artifact
    remove_artifact = artifact_calls.remove_artifact
    collect = artifact_calls.collect
    code = artifact_calls.code
    get_content = artifact_calls.get_content
    upload = artifact_calls.upload
    capture = artifact_calls.capture

    # costs
    prices = cost_calls.prices
    set_prices = cost_calls.set_prices
    budgets = cost_calls.budgets
    set_budget = cost_calls.set_budget
    remove_budget = cost_calls.remove_budget
    grant = cost_calls.grant
    cost_advice = cost_calls.cost_advice

    # alerts
    alerts = alert_calls.alerts
    alert = alert_calls.alert
    ranks = alert_calls.ranks
    alert_rules = alert_calls.alert_rules
    acknowledge_alert = alert_calls.acknowledge_alert
    set_alert_rules = alert_calls.set_alert_rules
    try_alert_rules = alert_calls.try_alert_rules
    silence = alert_calls.silence
    end_silence = alert_calls.end_silence

    # costs
    cost = cost_calls.cost
    cost_frame = cost_calls.cost_frame
    cost_families = cost_calls.cost_families
    cost_runs = cost_calls.cost_runs
    cost_waste = cost_calls.cost_waste
    cost_forecast = cost_calls.cost_forecast
    cost_change = cost_calls.cost_change
    cost_spot = cost_calls.cost_spot
    cost_hours = cost_calls.cost_hours
    explain_cost = cost_calls.explain_cost
    cost_statements = cost_calls.cost_statements
    cost_focus = cost_calls.cost_focus

    # preflight
    preflight_plan = preflight_calls.preflight_plan
    certify = preflight_calls.certify
    certificates = preflight_calls.certificates
    waive_preflight = preflight_calls.waive_preflight
    revoke_certificate = preflight_calls.revoke_certificate

    # queues, nodes, engines
    queues = admin_calls.queues
    create_queue = admin_calls.create_queue
    forecasts = admin_calls.forecasts
    calibration = admin_calls.calibration
    rules = admin_calls.rules
    set_rules = admin_calls.set_rules
    check_policy = policy_calls.check_policy
    check_packages = policy_calls.check_packages
    check_run_environment = policy_calls.check_run_environment
    nodes = admin_calls.nodes
    capacity = admin_calls.capacity
    set_health = admin_calls.set_health
    check_node = admin_calls.check_node
    node_record = admin_calls.node_record
    node_history = admin_calls.node_history
    service_levels = admin_calls.service_levels
    failures = admin_calls.failures
    report = admin_calls.report
    engines = admin_calls.engines
    engine = admin_calls.engine
    diagnose = admin_calls.diagnose
    engine_usage = admin_calls.engine_usage
    reconcile_engine = admin_calls.reconcile_engine

    # projects and tokens
    projects = admin_calls.projects
    create_project = admin_calls.create_project
    set_member = admin_calls.set_member
    remove_member = admin_calls.remove_member
    secrets = admin_calls.secrets
    set_secret = admin_calls.set_secret
    remove_secret = admin_calls.remove_secret
    tokens = admin_calls.tokens
    create_token = admin_calls.create_token
    revoke_token = admin_calls.revoke_token
    session_link = admin_calls.session_link
    share_run = admin_calls.share_run
    revoke_share = admin_calls.revoke_share
    provider_accounts = admin_calls.provider_accounts
    release_provider_account = admin_calls.release_provider_account

    # the server
    ready = admin_calls.ready
    clock = admin_calls.clock
    health = admin_calls.health
    server = admin_calls.server
    whoami = admin_calls.whoami
    close = admin_calls.close

    # any path
    call = run_calls.call
    read = run_calls.read

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _job(self, view: Any) -> AsyncJob:
        return AsyncJob.from_view(view, self)

    def _run(self, view: Any) -> AsyncRun:
        return AsyncRun.from_view(view, self)

    def _study(self, view: Any) -> AsyncStudy:
        return AsyncStudy.from_view(view, self)
