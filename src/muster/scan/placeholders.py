"""Values that stand in the place of a secret: examples, references to variables, and words."""

from __future__ import annotations

import re
from typing import Final


def is_placeholder(value: str) -> bool:
    low = value.strip().lower()
    return (
        len(set(low)) < 4
        or any(word in low for word in _WORDS)
        or _REFERENCE.search(value) is not None
        or _COUNTED.search(low) is not None
    )


_WORDS: Final = (
    "example", "placeholder", "changeme", "change_me", "change-me", "your_", "your-", "yourkey", "yourtoken", "dummy",
    "xxxx", "redacted", "insert", "replace", "sample", "notreal", "not-a-real", "fake", "deadbeef", "....", "****",
    "<", ">", "todo", "123456",
)  # fmt: skip
# `$NAME`, `${NAME}`, `{name}`, `%(name)s`, `os.environ[...]`, a call
_REFERENCE: Final = re.compile(r"^\$|\$\{|\{\{?\s*\w*\s*\}|%\(\w+\)|%s|environ|getenv|\(\)|\w\(|\[[a-zA-Z0-9]-|\(\?")
_COUNTED: Final = re.compile(r"(.)\1{7}|abcdef|password|passwd|^(?:secret|token|test)[-_\d]*$")
