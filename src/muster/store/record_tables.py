"""The tables of the record: runs and their parameters, metrics, artifacts and notes; created by `migrations/versions`.

runs            one row per run: of a job (same id), a script outside, an MLflow client, a program's trial, or imported
run_params, run_tags          names and values as text; also as a number if the text is one
run_changes     later changes of a parameter or tag
run_attempts    the first step and the environment of each attempt
run_phases      what the first rank of each attempt did, by hour
goodput, goodput_nodes        the time that ended attempts held, by class and day, and on which nodes
metric_tail     points as they arrived, one row per batch: cheap to write
metric_blocks   the same points by series, compressed, with buckets of minima and maxima: cheap to read
metric_series   one row per series: last value, extremes, counts
media           histograms, images, tables and texts at a step
blobs, artifacts              content by digest, and the names that runs gave it
scans           what scans found in content, as an artifact or as a file of code
blob_owners     users that uploaded content, and projects whose snapshots contain it: they may refer to it
checkpoints     saved checkpoints, and how to load them
links           lineage: what was made from what
notes           the logbook, by people and by Muster
experiments, saved_queries    groups of runs, and saved queries
models, model_versions, model_aliases, promotions             the registry
run_stages      reviews that were asked for, approvals and promotions of runs to stages
statements      signed statements of what models and stored checkpoints were built from
statements_due  what a statement is yet to be made of
optuna_journals, optuna_logs, optuna_snapshots                studies of Optuna, as its journal storage keeps them
track_marks     how far the event log is folded into these
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, Table, Text, text

from muster.store.tables import RowId, metadata

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("experiment", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("kind", Text, nullable=False),  # a job's kind
    # job, sdk, mlflow, child (a trial of another run's program), or import with its origin: `import:wandb`
    Column("source", Text, nullable=False),
    Column("phase", Text, nullable=False),  # a job's phase
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("parent", Text),  # the run that this one belongs to
    Column("deleted_at", Double),  # hidden since then, but not yet purged
    Column("valid", Boolean, nullable=False),
    Column("problems", Text, nullable=False),  # JSON list: required fields that it lacks
    Column("purpose", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("code_commit", Text, nullable=False),
    Column("code_branch", Text, nullable=False),
    Column("code_dirty", Boolean, nullable=False),
    Column("code_tree", Text, nullable=False),  # digest of the snapshot's manifest; empty when there is none
    Column("doc", Text, nullable=False),  # JSON: the rest of what was captured; see track/runs.py
    Index("runs_by_project", "project", "created_at"),
    Index("runs_by_experiment", "experiment", "created_at"),
    Index("runs_by_created", "created_at"),
    Index("runs_by_user", "user", "created_at"),
    Index(
        "runs_by_parent", "parent", sqlite_where=text("parent IS NOT NULL"), postgresql_where=text("parent IS NOT NULL")
    ),
)

run_params = Table(
    "run_params",
    metadata,
    Column("run", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("number", Double),  # the value of the text, if it is a finite number
    Column("attempt", Integer, nullable=False),  # the attempt that set the value; 0: none
    Index("run_params_by_key", "key", "number", "run"),
    sqlite_with_rowid=False,
)

run_tags = Table(
    "run_tags",
    metadata,
    Column("run", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Index("run_tags_by_key", "key", "run"),
    sqlite_with_rowid=False,
)

run_changes = Table(
    "run_changes",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("run", Text, nullable=False),
    Column("time", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("space", Text, nullable=False),  # params or tags
    Column("key", Text, nullable=False),
    Column("old", Text),
    Column("new", Text),
    Index("run_changes_by_run", "run", "id"),
    sqlite_autoincrement=True,
)

run_attempts = Table(
    "run_attempts",
    metadata,
    Column("run", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("first_step", BigInteger),  # the lowest step that its writer reported: it supersedes from there on
    Column("writer", Integer),  # the lowest rank that reported; `first_step` is from it
    Column("doc", Text, nullable=False),  # JSON: environment, and parameters as this attempt set them
)

run_phases = Table(
    "run_phases",
    metadata,
    Column("run", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("hour", BigInteger, primary_key=True, autoincrement=False),  # seconds since 1970
    Column("entries", Text, nullable=False),  # JSON; see track/phase_rows.py
    sqlite_with_rowid=False,
)

goodput = Table(
    "goodput",
    metadata,
    Column("run", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("day", BigInteger, primary_key=True, autoincrement=False),  # seconds since 1970, UTC
    Column("project", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("unit", Text, nullable=False),  # accelerator or cpu
    Column("units", BigInteger, nullable=False),  # thousandths that the attempt held
    Column("doc", Text, nullable=False),  # JSON: microseconds by class, and steps; see track/goodput_rows.py
    Column("stale", Boolean, nullable=False),  # reports arrived after it was computed
    Index("goodput_by_day", "day", "project"),
)

goodput_nodes = Table(
    "goodput_nodes",
    metadata,
    Column("run", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("node", Text, primary_key=True),
    Column("units", BigInteger, nullable=False),  # of the attempt's, on this node
    Index("goodput_nodes_by_node", "node", "run"),
)

metric_tail = Table(
    "metric_tail",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("run", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("points", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("metric_tail_by_run", "run", "id"),
    sqlite_autoincrement=True,
)

metric_blocks = Table(
    "metric_blocks",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("run", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("step_min", BigInteger, nullable=False),
    Column("step_max", BigInteger, nullable=False),
    Column("time_min", Double, nullable=False),
    Column("time_max", Double, nullable=False),
    Column("points", Integer, nullable=False),
    Column("buckets", LargeBinary, nullable=False),  # before the data: SQLite reads a row from its start
    Column("data", LargeBinary, nullable=False),
    Index("metric_blocks_by_series", "run", "name", "rank", "attempt", "id"),
    # Blocks to which the next points of their series may be added: a full block has 16,384 points.
    Index(
        "metric_blocks_unfull",
        "run",
        sqlite_where=text("points < 16384"),
        postgresql_where=text("points < 16384"),
    ),
    sqlite_autoincrement=True,
)

# SQLite stores a NaN as NULL, so NaN has its own column next to the number.
metric_series = Table(
    "metric_series",
    metadata,
    Column("run", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("rank", Integer, primary_key=True, autoincrement=False),
    Column("points", BigInteger, nullable=False),
    Column("nans", BigInteger, nullable=False),
    Column("last", Double),
    Column("last_nan", Boolean, nullable=False),
    Column("last_step", BigInteger, nullable=False),
    Column("last_time", Double, nullable=False),
    Column("last_attempt", Integer, nullable=False),
    Column("low", Double),  # of all finite and infinite values; NULL when every value was NaN
    Column("low_step", BigInteger),
    Column("high", Double),
    Column("high_step", BigInteger),
    Index("metric_series_by_name", "name", "rank", "last", "run"),
    sqlite_with_rowid=False,
)

media = Table(
    "media",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("run", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("time", Double, nullable=False),
    Column("kind", Text, nullable=False),  # histogram, image, table, text, audio, video, html, file
    Column("doc", Text, nullable=False),  # JSON: small data inline, or `digest` and `bytes`
    Index("media_by_run", "run", "name", "step"),
    sqlite_autoincrement=True,
)

run_stacks = Table(
    "run_stacks",
    metadata,
    Column("run", Text, primary_key=True),
    Column("id", BigInteger, primary_key=True, autoincrement=False),  # of the order, which all ranks answer
    Column("rank", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("time", Double, nullable=False),
    Column("world", Integer, nullable=False),
    Column("doc", Text, nullable=False),  # JSON: problem, processes
)

blobs = Table(
    "blobs",
    metadata,
    Column("digest", Text, primary_key=True),  # sha256, in hex
    Column("bytes", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
)

blob_owners = Table(
    "blob_owners",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("owner", Text, primary_key=True),  # `user:ada`, `project:vision`
    Column("time", Double, nullable=False),
    sqlite_with_rowid=False,
)

scans = Table(
    "scans",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("reading", Text, primary_key=True),  # artifact, text, notebook
    Column("version", Integer, nullable=False),  # of the scanner
    Column("findings", Text, nullable=False),  # JSON; "[]": nothing was found
    Column("time", Double, nullable=False),
    sqlite_with_rowid=False,
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("run", Text, primary_key=True),
    Column("path", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),  # file, media, code, diff, checkpoint, model
    Column("time", Double, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("doc", Text, nullable=False),  # JSON
    Index("artifacts_by_digest", "digest"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("run", Text, primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("path", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("time", Double, nullable=False),
    Column("doc", Text, nullable=False),  # JSON: sharding, format, how to load it, `gone_at` when it was pruned
)

links = Table(
    "links",
    metadata,
    # `data:c4-en@v3`, `run:gpt-17`, `checkpoint:gpt-17/400`, `artifact:gpt-17/report.html`, `model:gpt/3`
    Column("source", Text, primary_key=True),
    Column("target", Text, primary_key=True),  # what was made from or by the source
    Column("role", Text, primary_key=True),  # reads, writes, saves, starts_from, evaluates, registers, promotes
    Column("time", Double, nullable=False),
    Column("doc", Text, nullable=False),  # JSON
    Index("links_by_target", "target", "source"),
)

notes = Table(
    "notes",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("project", Text, nullable=False),
    Column("run", Text, nullable=False),  # empty: a note of the project
    Column("time", Double, nullable=False),
    Column("author", Text, nullable=False),
    Column(
        "kind", Text, nullable=False
    ),  # note, purpose, start, restart, preemption, stop, end, change, alert, promotion
    Column("text", Text, nullable=False),  # Markdown
    Column("doc", Text, nullable=False),  # JSON: attachments, diff, step
    Column("mark", Text),  # of notes that Muster writes: a mark is written only once
    Index("notes_by_run", "run", "id"),
    Index("notes_by_project", "project", "id"),
    Index(
        "notes_by_mark",
        "mark",
        unique=True,
        sqlite_where=text("mark IS NOT NULL"),
        postgresql_where=text("mark IS NOT NULL"),
    ),
    sqlite_autoincrement=True,
)

experiments = Table(
    "experiments",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("name", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("deleted_at", Double),
    Column("artifacts", Text, nullable=False),  # where its runs' artifacts are stored; empty: in Muster
    Column("tags", Text, nullable=False),  # JSON
    Index("experiments_by_name", "name", unique=True),
)

saved_queries = Table(
    "saved_queries",
    metadata,
    Column("project", Text, primary_key=True),  # empty: private to the user
    Column("user", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("time", Double, nullable=False),
    Column("doc", Text, nullable=False),  # JSON: query, sort, columns
)

models = Table(
    "models",
    metadata,
    Column("name", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("description", Text, nullable=False),
    Column("doc", Text, nullable=False),  # JSON: tags
)

model_versions = Table(
    "model_versions",
    metadata,
    Column("name", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("run", Text, nullable=False),  # empty when no run made it
    Column("source", Text, nullable=False),  # an artifact, checkpoint or address
    Column("stage", Text, nullable=False),  # none, staging, production, archived
    Column("user", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("description", Text, nullable=False),
    Column("doc", Text, nullable=False),  # JSON: tags, status
    Index("model_versions_by_run", "run"),
)

model_aliases = Table(
    "model_aliases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("alias", Text, primary_key=True),
    Column("version", Integer, nullable=False),
)

promotions = Table(
    "promotions",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("name", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("time", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("old", Text, nullable=False),  # stages
    Column("new", Text, nullable=False),
    Column("doc", Text, nullable=False),  # JSON: why, and the evidence: runs, metrics with their values then, notes
    Index("promotions_by_version", "name", "version", "id"),
    sqlite_autoincrement=True,
)

run_stages = Table(
    "run_stages",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("time", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("run", Text, nullable=False),  # that is approved or promoted
    Column("stage", Text, nullable=False),
    Column("action", Text, nullable=False),  # asked, approved, promoted
    Column("job", Text, nullable=False),  # of a promotion: the run that was made; it has reached the stage
    Column("doc", Text, nullable=False),  # JSON: why, and of a promotion the needs as they were found then
    Index("run_stages_by_run", "run", "id"),
    Index("run_stages_by_job", "job"),
    sqlite_autoincrement=True,
)

statements = Table(
    "statements",
    metadata,
    # `model:gpt/3`; `artifact:gpt-17/final`: a folder of files of the kind checkpoint or model, or one such file
    Column("ref", Text, primary_key=True),
    Column("subjects", Text, primary_key=True),  # digest of the names and digests of its files
    Column("run", Text, nullable=False),  # empty when no run made it
    Column("digest", Text, nullable=False),  # of the signed envelope, a blob
    Column("key", Text, nullable=False),  # id of the key that signed it
    Column("time", Double, nullable=False),
    Index("statements_by_run", "run"),
)

statements_due = Table(
    "statements_due",
    metadata,
    Column("ref", Text, primary_key=True),
    Column("run", Text, nullable=False),
    Column("time", Double, nullable=False),  # of the change that made it due
    Column("due_at", Double, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("problem", Text, nullable=False),  # of the last try
    Index("statements_due_by_time", "due_at"),
)

optuna_journals = Table(
    "optuna_journals",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("project", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("user", Text, nullable=False),  # who made it
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("logs", BigInteger, nullable=False),  # how many it has: the number of the next one
    Column("bytes", BigInteger, nullable=False),  # of its logs
    Index("optuna_journals_by_name", "project", "name", unique=True),
    sqlite_autoincrement=True,
)

optuna_logs = Table(
    "optuna_logs",
    metadata,
    Column("journal", BigInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),  # from 0, without a gap
    Column("key", Text),  # of the append, in its first log
    Column("data", Text, nullable=False),  # JSON as Optuna wrote it, with NaN and Infinity
    Index(
        "optuna_logs_by_key",
        "journal",
        "key",
        unique=True,
        sqlite_where=text("key IS NOT NULL"),
        postgresql_where=text("key IS NOT NULL"),
    ),
    sqlite_with_rowid=False,
)

optuna_snapshots = Table(
    "optuna_snapshots",
    metadata,
    Column("journal", BigInteger, primary_key=True, autoincrement=False),
    Column("format", Text, primary_key=True),  # the versions that can read it
    Column("logs", BigInteger, nullable=False),  # that it adds up
    Column("data", LargeBinary, nullable=False),
)

track_marks = Table(
    "track_marks",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
