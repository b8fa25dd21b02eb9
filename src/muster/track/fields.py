"""Fields that a project may require of a run: which ones a submission has, and hints for the missing ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

SEEDS: Final = ("seed", "random_seed", "manual_seed")  # names of parameters that are seeds
# Hints for missing fields. Any other field is a tag.
HINTS: Final[Mapping[str, str]] = {
    "owner": "submit it with a token of your own",
    "purpose": "say why in `purpose`",
    "data": "name the data sets in `data`, or report them with `runtime.data(...)`",
    "code": "submit it from a git checkout, or let its working directory be captured",
    "seed": "give `--seed N`, or report it with `runtime.params(seed=N)`",
}


def lacking(wanted: Collection[str], has: Collection[str]) -> list[str]:
    """The wanted fields that are missing. `has` contains fields, parameters and tags; tags also as `tags.NAME`."""
    return [name for name in wanted if name not in has]


def hint_of(name: str) -> str:
    return HINTS.get(name) or f"set the tag `{name.removeprefix('tags.')}`"


def given_by_spec(
    user: str, purpose: str | None, data: Collection[str], tags: Mapping[str, str], params: Mapping[str, str]
) -> set[str]:
    """Names of the fields that a submission has."""
    has = {name for name, value in (("owner", user), ("purpose", purpose), ("data", data)) if value}
    if any(name in params for name in SEEDS):
        has.add("seed")
    return has | {key for key, value in tags.items() if value} | {f"tags.{k}" for k, v in tags.items() if v} | {*params}
