"""The right that each MLflow route needs. Routes that read are listed here; all others count as writes.

A route is its method and its path. Values in a path (a tag's key, a model's name) don't change the route. A route that
a later MLflow adds counts as a write until it is listed.
"""

from __future__ import annotations

import re
from typing import Final, Literal

Right = Literal["read", "write", "admin"]

# Under /api/N.0/mlflow/; `*` stands for one part of a path.
_GETS: Final = (
    "artifacts/list",
    "datasets/*",
    "datasets/*/experiment-ids",
    "datasets/*/records",
    "datasets/search",
    "experiments/get",
    "experiments/get-by-name",
    "experiments/search",
    "get-trace-artifact",
    "issues/*",
    "label-schemas/get",
    "label-schemas/get-by-name",
    "label-schemas/list",
    "logged-models/*",
    "logged-models/*/artifacts/directories",
    "logged-models/*/artifacts/files",
    "metrics/get-history",
    "metrics/get-history-bulk",
    "metrics/get-history-bulk-interval",
    "model-versions/get",
    "model-versions/get-download-uri",
    "model-versions/search",
    "registered-models/alias",
    "registered-models/get",
    "registered-models/get-latest-versions",
    "registered-models/search",
    "review-queues/get",
    "review-queues/get-by-name",
    "review-queues/items/list",
    "review-queues/list",
    "runs/get",
    "server-info",
    "traces",
    "traces/*",
    "traces/*/assessments/*",
    "traces/*/info",
    "traces/batchGet",
    "traces/get",
    "ui-telemetry",
)
# Reads whose arguments are too long for a URL.
_POSTS: Final = (
    "artifacts/presigned-download-url",
    "datasets/search",
    "experiments/search",
    "experiments/search-datasets",
    "issues/search",
    "logged-models/search",
    "registered-models/get-latest-versions",
    "runs/search",
    "traces/batchGetInfos",
    "traces/calculate-filter-correlation",
    "traces/metrics",
    "traces/search",
)
# Parts that hold keys of other services, make outgoing calls, run code or cost money. They don't know projects.
_ADMIN: Final = re.compile(
    r"/gateway(/.*)?"
    r"|/api/\d\.\d/jobs(/.*)?"
    r"|/api/\d\.\d/mlflow/(gateway|gateway-proxy|webhooks|mcp-servers|jobs|assistant|demo|prompt-optimization|scorers?"
    r"|genai|workspaces)(/.*)?"
    r"|/api/\d\.\d/mlflow/issues/invoke(/.*)?",
    re.DOTALL,
)
_SLASHES: Final = re.compile(r"/{2,}")
_PAGES: Final = re.compile(
    r"/|/(static-files|build)/.+|/get-artifact|/model-versions/get-artifact|/health|/version"
    r"|/api/2\.0/mlflow-artifacts/(artifacts(/.*)?|presigned/.+)"
)


def _pattern(routes: tuple[str, ...]) -> re.Pattern[str]:
    each = "|".join(re.escape(route).replace(r"\*", "[^/]+") for route in routes)
    return re.compile(rf"/api/\d\.\d/mlflow/({each})")


_READ_BY_GET: Final = _pattern(_GETS)
_READ_BY_POST: Final = _pattern(_POSTS)


def right_for(method: str, path: str) -> Right:
    """The right for a path under /mlflow. The browser's /ajax-api is the same as /api.

    A path with repeated slashes still matches the administrators' parts. Reads match only the normal spelling.
    """
    if _ADMIN.fullmatch(_as_api(_SLASHES.sub("/", path))):
        return "admin"
    plain = _as_api(path)
    if method in ("GET", "HEAD"):
        found = _PAGES.fullmatch(plain) or _READ_BY_GET.fullmatch(plain)
    else:
        found = _READ_BY_POST.fullmatch(plain) if method == "POST" else None
    return "read" if found or plain == "/graphql" or method == "OPTIONS" else "write"


def _as_api(path: str) -> str:
    return path.replace("/ajax-api/", "/api/", 1) if path.startswith("/ajax-api/") else path
