"""Shapes of the secrets of known services: those of detect-secrets that are sharp enough to refuse by, and some more.

The detectors of detect-secrets for entropy and for keywords are not used: they take digests, identifiers and test data
for secrets. `assignments` looks for values with the name of a secret instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, cast

from detect_secrets.plugins.artifactory import ArtifactoryDetector
from detect_secrets.plugins.aws import AWSKeyDetector
from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.plugins.discord import DiscordBotTokenDetector
from detect_secrets.plugins.github_token import GitHubTokenDetector
from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
from detect_secrets.plugins.jwt import JwtTokenDetector
from detect_secrets.plugins.mailchimp import MailchimpDetector
from detect_secrets.plugins.npm import NpmDetector
from detect_secrets.plugins.openai import OpenAIDetector
from detect_secrets.plugins.private_key import PrivateKeyDetector
from detect_secrets.plugins.pypi_token import PypiTokenDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.slack import SlackDetector
from detect_secrets.plugins.square_oauth import SquareOAuthDetector
from detect_secrets.plugins.stripe import StripeDetector
from detect_secrets.plugins.telegram_token import TelegramBotTokenDetector
from detect_secrets.plugins.twilio import TwilioKeyDetector

from muster.scan.placeholders import is_placeholder


@dataclass(frozen=True, slots=True)
class Pattern:
    kind: str
    regex: re.Pattern[str]
    needs: str = ""  # in lower case: text without it is not searched
    holds: Callable[[str, int, int], bool] = lambda text, start, stop: True
    whole: bool = True  # no letter or digit may stand beside the match
    group: int = 0  # of the match, which is the secret


def matches(text: str) -> Iterator[tuple[str, int, str]]:
    """Kind, position and value of each. The lines of `text` are short: see `secrets`."""
    low = text.lower()
    for pattern in PATTERNS:
        if pattern.needs and pattern.needs not in low:
            continue
        for match in pattern.regex.finditer(text):
            start, stop = match.span(pattern.group)
            if pattern.whole and _inside_a_word(text, start, stop):
                continue
            value = text[start:stop]
            if pattern.holds(text, start, stop) and not is_placeholder(value):
                yield pattern.kind, start, value


def _inside_a_word(text: str, start: int, stop: int) -> bool:
    before, after = text[start - 1 : start], text[stop : stop + 1]
    return (before.isalnum() or before == "_") or (after.isalnum() or after == "_")


def _key_follows(text: str, start: int, stop: int) -> bool:
    """A header with the beginning of a key after it, and not its mere mention."""
    return _KEY_BODY.search(text, stop, stop + 400) is not None


def _is_jwt(text: str, start: int, stop: int) -> bool:
    return stop - start >= 60 and bool(JwtTokenDetector.is_formally_valid(text[start:stop]))


def _mixed(text: str, start: int, stop: int) -> bool:
    """Digits and letters, and many different ones: no word, counter or padding."""
    value = text[start:stop]
    return len(set(value)) >= 10 and any(one.isdigit() for one in value) and any(one.isalpha() for one in value)


def _of(
    detector: type[RegexBasedDetector],
    needs: str = "",
    holds: Callable[[str, int, int], bool] = _mixed,
    whole: bool = True,
) -> list[Pattern]:
    kind = str(detector.secret_type)
    regexes = cast(Iterable[re.Pattern[str]], detector.denylist)  # a property, by its annotation
    return [Pattern(kind, regex, needs, holds, whole) for regex in regexes]


def _own(kind: str, regex: str, needs: str) -> Pattern:
    return Pattern(kind, re.compile(regex), needs, _mixed)


_KEY_BODY: Final = re.compile(r"[A-Za-z0-9+/]{40}")

PATTERNS: Final[tuple[Pattern, ...]] = (
    *_of(AWSKeyDetector),
    *_of(AzureStorageKeyDetector, "accountkey="),
    *_of(DiscordBotTokenDetector),
    *_of(GitHubTokenDetector, "gh"),
    *_of(GitLabTokenDetector),
    *_of(JwtTokenDetector, "eyj", _is_jwt, whole=False),
    *_of(MailchimpDetector, "-us"),
    *_of(NpmDetector, "_authtoken"),
    *_of(OpenAIDetector, "sk-"),
    *_of(PrivateKeyDetector, "private", _key_follows, whole=False),
    *_of(PypiTokenDetector, "pypi-"),
    *_of(SendGridDetector, "sg."),
    *_of(SlackDetector),
    *_of(SquareOAuthDetector, "sq0csp-"),
    *_of(StripeDetector, "k_live_"),
    *_of(TelegramBotTokenDetector, ":"),
    *_of(TwilioKeyDetector),
    *[one for one in _of(ArtifactoryDetector, "akc") if "AKC" in one.regex.pattern],
    _own("Anthropic Key", r"sk-ant-[A-Za-z0-9_-]{32,200}", "sk-ant-"),
    _own("Databricks Token", r"dapi[0-9a-f]{32}(?:-\d)?", "dapi"),
    _own("GitHub Token", r"github_pat_[A-Za-z0-9_]{60,200}", "github_pat_"),
    _own("Google API Key", r"AIza[0-9A-Za-z_-]{35}", "aiza"),
    _own("Hugging Face Token", r"(?:hf|api_org)_[A-Za-z0-9]{34,40}", "_"),
    _own("Muster Token", r"mst_[A-Za-z0-9]{1,40}_[A-Za-z0-9_-]{20,100}", "mst_"),
    _own("OpenAI Key", r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{40,250}", "sk-"),
    _own("Slack Token", r"xapp-\d-[A-Z0-9]{8,20}-\d{8,20}-[a-z0-9]{32,80}", "xapp-"),
    _own("Weights & Biases Key", r"wandb_v1_[A-Za-z0-9_-]{40,120}", "wandb_v1_"),
    Pattern(
        "Password in an address",
        re.compile(r"://[^\s:@/'\"{}$<>]{0,64}:([^\s:@/'\"{}$<>]{6,128})@(?!localhost|127\.|\[::1)"),
        "://",
        group=1,
    ),
    Pattern("Bearer token", re.compile(r"[Bb]earer\s{1,3}([A-Za-z0-9._~+/-]{20,500}=*)"), "bearer", _mixed, group=1),
)
