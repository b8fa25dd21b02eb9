"""Values with the name of a secret: `api_key = "..."`, `WANDB_API_KEY=...`, `--password ...`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from muster.scan.placeholders import is_placeholder


def assigned(text: str) -> Iterator[tuple[str, int, str]]:
    """Kind, position and value of each; the lines of `text` are short."""
    if _NAMES.search(text) is None:
        return
    for regex in (_QUOTED, _BARE, _OPTION):
        for match in regex.finditer(text):
            name, value = match["name"], match["value"]
            if named_as_secret(name) and looks_random(value, 3.0 if len(value) < 24 else 3.3):
                yield "Secret by its name", match.start("value"), value


def named_as_secret(name: str) -> bool:
    """Whether a variable or option of that name holds a secret: `HF_TOKEN`, `api_key`, but not `eos_token`."""
    low = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip()).lower().replace("-", "_")
    return _SECRET.search(low) is not None and _INNOCENT.search(low) is None


def looks_random(value: str, bits: float = 2.5, least: int = 12) -> bool:
    """Letters and digits without the shape of a word, a path, an address or an identifier.

    `bits`: minimum Shannon entropy for each character.
    """
    if len(value) < least or is_placeholder(value) or _ORDINARY.search(value) is not None:
        return False
    counts = Counter(value)
    entropy = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return entropy >= bits and any(one.isdigit() for one in value) and any(one.isalpha() for one in value)


_WORDS: Final = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|credentials?|token"
    r"|(?:api|access|auth|account|client|private|secret|service|signing|encryption|master|storage|shared)_?key"
    r"|connection_?string|sas_?url)"
)
_SECRET: Final = re.compile(rf"(?:^|_){_WORDS}(?:_(?:value|prod|dev|test|id))?$|apikey$|authtoken$")
_INNOCENT: Final = re.compile(
    r"(?:^|_)(?:eos|bos|pad|unk|sep|cls|mask|end|start|stop|special|image|audio|video|eot|next|prev|last|page|cancel"
    r"|continuation|csrf|num|max|min|per|hash|digest|public|compass|by)_(?:\w+_)?(?:token|key|secret)$"
    r"|(?:token|secret|key)_id$|(?:^|_)by_?pass$|(?:^|_)(?:one|two|first|second|forward|backward)_pass$"
)
_NAMES: Final = re.compile(r"(?i)pass|pwd|secret|credential|token|key|connection|sas_?url")
_NAME: Final = r"(?P<name>[A-Za-z][A-Za-z0-9_.-]{2,63}?)"
_QUOTED: Final = re.compile(
    rf"(?<![A-Za-z0-9_]){_NAME}['\"]?\]?\s{{0,8}}(?::\s{{0,4}}[A-Za-z]{{1,20}}\s{{0,4}})?(?::=|=>|[=:,])\s{{0,8}}[rbuf]?"
    r"(?P<quote>['\"])(?P<value>[^'\"\s\\]{8,300})(?P=quote)"
)
# In `.env` files, shells and YAML: nothing but the value up to the end of the line
_BARE: Final = re.compile(
    rf"(?m)^\s{{0,20}}(?:export\s{{1,4}}|-\s{{1,4}}|set\s{{1,4}})?{_NAME}\s{{0,4}}[=:]\s{{0,4}}"
    r"(?P<value>[^\s'\"#;()\[\]{},]{12,300})\s{0,20}(?:#.{0,200})?$"
)
_OPTION: Final = re.compile(rf"--{_NAME}(?:=|\s{{1,4}})(?P<quote>['\"]?)(?P<value>[^\s'\"]{{12,300}})(?P=quote)")
# Words and identifiers, paths and addresses, versions, code, formats of dates
_ORDINARY: Final = re.compile(
    r"^[a-z]+(?:[_\-.:/ ][a-z0-9]{1,12})*$|^[A-Z]+(?:_[A-Z0-9]{1,12})*$|^[A-Z]?[a-z]+(?:[A-Z][a-z]+)*\d{0,2}$"
    r"|^(?:/|\./|~/|[A-Za-z]:\\)|^[a-z]+://|^(?:self|cls|os|args|config|settings|request|data)\.|\.(?:py|json|txt|ya?ml|pem)$"
    r"|^[\w.]+\[|^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$|^(?:sha\d+|md5)[:-]|^\d[\d.,:eE+-]*$"
    r"|^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$"
)
