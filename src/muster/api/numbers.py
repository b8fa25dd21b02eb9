"""The one rule for numbers in JSON, which has no NaN and no infinities: they are sent as these texts.

`null` never stands for such a number. It means that there is no value.
"""

import math
from typing import Final, Literal

Special = Literal["NaN", "Infinity", "-Infinity"]
JsonFloat = float | Special
SPECIAL: Final[dict[str, float]] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def json_number(value: float) -> JsonFloat:
    """The number as JSON can hold it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def number(value: JsonFloat | None) -> float:
    """Inverse of `json_number`; NaN for a value that is missing."""
    if value is None:
        return math.nan
    return SPECIAL[value] if isinstance(value, str) else value
