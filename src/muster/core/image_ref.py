"""Names of container images: `registry/repository:tag@digest`, as Docker, Podman and Kubernetes read them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import Final

HUB: Final = "docker.io"
_REGISTRY: Final = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:]{2,45}\])(?::[0-9]{1,5})?", re.I)
_REPOSITORY: Final = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ImageRef:
    """An image, with its registry written out. `tag` and `digest` are "" where the name has none."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        return f"{self.registry}/{self.repository}"

    @property
    def whole(self) -> str:
        return self.name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")

    @property
    def reference(self) -> str:
        """What a registry is asked for."""
        return self.digest or self.tag or "latest"


def parse_image(text: str) -> ImageRef | None:
    """None for a name that no registry could have."""
    name, at, digest = text.partition("@")
    if at and not DIGEST.fullmatch(digest):
        return None
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, path = first.lower(), rest
    else:
        registry, path = HUB, name
    path, colon, tag = path.partition(":")
    if registry in ("index.docker.io", "registry-1.docker.io"):
        registry = HUB
    if registry == HUB and "/" not in path:
        path = f"library/{path}"
    if len(path) > 255 or not _REGISTRY.fullmatch(registry) or not _REPOSITORY.fullmatch(path):
        return None
    if colon and not _TAG.fullmatch(tag):
        return None
    return ImageRef(registry, path, tag or ("" if digest else "latest"), digest)


def pinned(text: str, digest: str) -> str:
    """The image as it was written, with the digest that its tag stands for."""
    return text if "@" in text else f"{text}@{digest}"


def matches(pattern: str, *names: str) -> bool:
    """Whether one of the names is as the pattern says; `*` is any text, and nothing else is special."""
    return any(_compiled(pattern).fullmatch(name) for name in names if name)


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    # `fnmatch` takes [ and ? for patterns too; in the names of images and files they are letters.
    return re.compile(translate(pattern.replace("[", "[[]").replace("?", "[?]")))
