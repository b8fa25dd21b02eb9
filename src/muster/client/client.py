"""The blocking client, `muster.Client`: the calls of the API as methods. `async_client` has the asynchronous one."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

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
from muster.client.blocking import BlockingTransport, blocking, iterating
from muster.client.connection import Connection
from muster.client.job import Job
from muster.client.run import Run
from muster.client.study import Study


class Client(Connection[Job, Run, Study]):
    """A client of a Muster server, or of several servers of one cluster.

    The address comes from the arguments, else from MUSTER_URL and MUSTER_TOKEN, else from the folder `home`
    (MUSTER_HOME, or ~/.muster) of a server on this machine. Nothing is sent before the first call.

    Every call may raise a `muster.core.errors.MusterError`. `timeout` is in seconds, for one response.
    """

    _transport_class = BlockingTransport

    # jobs
    submit = blocking(job_calls.submit)
    check = blocking(job_calls.check)
    submit_many = blocking(job_calls.submit_many)
    jobs = blocking(job_calls.jobs)
    job = blocking(job_calls.job)
    line = blocking(job_calls.line)
    spec = blocking(job_calls.spec)
    stop = blocking(job_calls.stop)
    save = blocking(job_calls.save)
    set_priority = blocking(job_calls.set_priority)
    resume = blocking(job_calls.resume)
    why = blocking(job_calls.why)
    forecast = blocking(job_calls.forecast)
    attempts = blocking(job_calls.attempts)
    summary = blocking(job_calls.summary)
    metrics = blocking(job_calls.metrics)
    exec = blocking(exec_calls.exec_)
    stacks = blocking(stack_calls.stacks)
    profile = blocking(stack_calls.profile)
    sample = iterating(stack_calls.sample)
    diagnosis = blocking(stack_calls.diagnosis)
    kept_stacks = blocking(stack_calls.kept_stacks)
    copy_to = blocking(copy_calls.copy_to)
    copy_from = blocking(copy_calls.copy_from)

    # watching
    wait = blocking(watch_calls.wait)
    changes = iterating(watch_calls.changes)
    watch = iterating(watch_calls.watch)
    logs = iterating(watch_calls.logs)
    events = iterating(watch_calls.events)

    # runs
    runs = blocking(run_calls.runs)
    search_runs = blocking(run_calls.search_runs)
    run = blocking(run_calls.run)
    run_page = blocking(run_calls.run_page)
    goodput = blocking(run_calls.goodput)
    reproduction = blocking(run_calls.reproduction)
    frame = blocking(run_calls.frame)
    compare = blocking(run_calls.compare)
    queries = blocking(run_calls.queries)
    save_query = blocking(run_calls.save_query)
    remove_query = blocking(run_calls.remove_query)

    # studies
    tune = blocking(tune_calls.tune)
    check_study = blocking(tune_calls.check_study)
    studies = blocking(study_calls.studies)
    study = blocking(study_calls.study)
    study_status = blocking(study_calls.study_status)
    study_report = blocking(study_calls.study_report)
    study_file = blocking(study_calls.study_file)
    trials = blocking(study_calls.trials)
    wait_study = blocking(study_calls.wait_study)
    watch_study = iterating(study_calls.watch_study)
    stop_study = blocking(study_calls.stop_study)
    resume_study = blocking(study_calls.resume_study)
    extend_study = blocking(study_calls.extend_study)
    change_study = blocking(tune_calls.change_study)
    enqueue = blocking(study_calls.enqueue)
    ask = blocking(study_calls.ask)
    report_trial = blocking(study_calls.report_trial)
    tell = blocking(study_calls.tell)
    winner_job = blocking(promotion.winner_job)
    promote = blocking(promotion.promote)

    # the record
    create_run = blocking(record_calls.create_run)
    update_run = blocking(record_calls.update_run)
    delete_run = blocking(record_calls.delete_run)
    restore_run = blocking(record_calls.restore_run)
    set_params = blocking(record_calls.set_params)
    set_tags = blocking(record_calls.set_tags)
    run_changes = blocking(record_calls.run_changes)
    run_attempts = blocking(record_calls.run_attempts)
    run_checkpoints = blocking(record_calls.run_checkpoints)
    note = blocking(record_calls.note)
    project_note = blocking(record_calls.project_note)
    notes = iterating(record_calls.notes)
    logbook = blocking(record_calls.logbook)
    lineage = blocking(record_calls.lineage)
    data_sets = blocking(record_calls.data_sets)
    data_set = blocking(record_calls.data_set)
    models = blocking(record_calls.models)
    model = blocking(record_calls.model)
    create_model = blocking(record_calls.create_model)
    register_model = blocking(record_calls.register_model)
    promote_model = blocking(record_calls.promote_model)
    roll_back_model = blocking(record_calls.roll_back_model)
    set_model_alias = blocking(record_calls.set_model_alias)
    delete_model = blocking(record_calls.delete_model)

    # promotion
    run_promotion = blocking(stage_calls.run_promotion)
    promote_run = blocking(stage_calls.promote_run)
    ask_for_review = blocking(stage_calls.ask_for_review)
    reviews = blocking(stage_calls.reviews)
    approve_promotion = blocking(stage_calls.approve_promotion)

    # provenance
    signing_keys = blocking(provenance_calls.signing_keys)
    rotate_signing_key = blocking(provenance_calls.rotate_signing_key)
    model_statement = blocking(provenance_calls.model_statement)
    model_files = blocking(provenance_calls.model_files)
    statements = blocking(provenance_calls.statements)
    artifact_statement = blocking(provenance_calls.artifact_statement)

    # studies
    optuna_journals = blocking(optuna_calls.optuna_journals)
    delete_optuna_journal = blocking(optuna_calls.delete_optuna_journal)

    # content
    artifacts = blocking(artifact_calls.artifacts)
    artifact_folder = blocking(artifact_calls.artifact_folder)
    put_artifact = blocking(artifact_calls.put_artifact)
    get_artifact = blocking(artifact_calls.get_artifact)
    read_artifact = blocking(artifact_calls.read_artifact)
    remove_artifact = blocking(artifact_calls.remove_artifact)
    collect = blocking(artifact_calls.collect)
    code = blocking(artifact_calls.code)
    get_content = blocking(artifact_calls.get_content)
    upload = blocking(artifact_calls.upload)
    capture = blocking(artifact_calls.capture)

    # costs
    prices = blocking(cost_calls.prices)
    set_prices = blocking(cost_calls.set_prices)
    budgets = blocking(cost_calls.budgets)
    set_budget = blocking(cost_calls.set_budget)
    remove_budget = blocking(cost_calls.remove_budget)
    grant = blocking(cost_calls.grant)
    cost_advice = blocking(cost_calls.cost_advice)

    # alerts
    alerts = blocking(alert_calls.alerts)
    alert = blocking(alert_calls.alert)
    ranks = blocking(alert_calls.ranks)
    alert_rules = blocking(alert_calls.alert_rules)
    acknowledge_alert = blocking(alert_calls.acknowledge_alert)
    set_alert_rules = blocking(alert_calls.set_alert_rules)
    try_alert_rules = blocking(alert_calls.try_alert_rules)
    silence = blocking(alert_calls.silence)
    end_silence = blocking(alert_calls.end_silence)

    # costs
    cost = blocking(cost_calls.cost)
    cost_frame = blocking(cost_calls.cost_frame)
    cost_families = blocking(cost_calls.cost_families)
    cost_runs = blocking(cost_calls.cost_runs)
    cost_waste = blocking(cost_calls.cost_waste)
    cost_forecast = blocking(cost_calls.cost_forecast)
    cost_change = blocking(cost_calls.cost_change)
    cost_spot = blocking(cost_calls.cost_spot)
    cost_hours = blocking(cost_calls.cost_hours)
    explain_cost = blocking(cost_calls.explain_cost)
    cost_statements = blocking(cost_calls.cost_statements)
    cost_focus = iterating(cost_calls.cost_focus)

    # preflight
    preflight_plan = blocking(preflight_calls.preflight_plan)
    certify = blocking(preflight_calls.certify)
    certificates = blocking(preflight_calls.certificates)
    waive_preflight = blocking(preflight_calls.waive_preflight)
    revoke_certificate = blocking(preflight_calls.revoke_certificate)

    # queues, nodes, engines
    queues = blocking(admin_calls.queues)
    create_queue = blocking(admin_calls.create_queue)
    forecasts = blocking(admin_calls.forecasts)
    calibration = blocking(admin_calls.calibration)
    rules = blocking(admin_calls.rules)
    set_rules = blocking(admin_calls.set_rules)
    check_policy = blocking(policy_calls.check_policy)
    check_packages = blocking(policy_calls.check_packages)
    check_run_environment = blocking(policy_calls.check_run_environment)
    nodes = blocking(admin_calls.nodes)
    capacity = blocking(admin_calls.capacity)
    set_health = blocking(admin_calls.set_health)
    check_node = blocking(admin_calls.check_node)
    node_record = blocking(admin_calls.node_record)
    node_history = blocking(admin_calls.node_history)
    service_levels = blocking(admin_calls.service_levels)
    failures = blocking(admin_calls.failures)
    report = blocking(admin_calls.report)
    engines = blocking(admin_calls.engines)
    engine = blocking(admin_calls.engine)
    diagnose = iterating(admin_calls.diagnose)
    engine_usage = blocking(admin_calls.engine_usage)
    reconcile_engine = blocking(admin_calls.reconcile_engine)

    # projects and tokens
    projects = blocking(admin_calls.projects)
    create_project = blocking(admin_calls.create_project)
    set_member = blocking(admin_calls.set_member)
    remove_member = blocking(admin_calls.remove_member)
    secrets = blocking(admin_calls.secrets)
    set_secret = blocking(admin_calls.set_secret)
    remove_secret = blocking(admin_calls.remove_secret)
    tokens = blocking(admin_calls.tokens)
    create_token = blocking(admin_calls.create_token)
    revoke_token = blocking(admin_calls.revoke_token)
    session_link = blocking(admin_calls.session_link)
    share_run = blocking(admin_calls.share_run)
    revoke_share = blocking(admin_calls.revoke_share)
    provider_accounts = blocking(admin_calls.provider_accounts)
    release_provider_account = blocking(admin_calls.release_provider_account)

    # the server
    ready = blocking(admin_calls.ready)
    clock = blocking(admin_calls.clock)
    health = blocking(admin_calls.health)
    server = blocking(admin_calls.server)
    whoami = blocking(admin_calls.whoami)
    close = blocking(admin_calls.close)

    # any path
    call = blocking(run_calls.call)
    read = blocking(run_calls.read)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _job(self, view: Any) -> Job:
        return Job.from_view(view, self)

    def _run(self, view: Any) -> Run:
        return Run.from_view(view, self)

    def _study(self, view: Any) -> Study:
        return Study.from_view(view, self)
