"""The types of values in the fields of a job file."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import ConfigDict, Field

TEN_YEARS: Final = 315_360_000.0  # seconds
ONE_DAY: Final = 86_400.0
# One argument of a Linux process holds 131,072 bytes; 32,000 characters fit in any encoding.
TEXT_MAX: Final = 32_000
DURATION_WORDS: Final = "a duration such as `6h`, `90m`, `1h30m`, `2:30:00` or a number of seconds"
LABEL_WORDS: Final = "letters, digits, `-`, `_` and `.`, at most 63"

Text = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=TEXT_MAX)]
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=255)]
TagName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=100)]
DataName = Annotated[str, Field(pattern=r"^[^\s\x00]+$", max_length=1000)]
# A job by its name, by its id, or as a task of an array by either and its index.
JobName = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]*[a-z0-9])?(\[[0-9]{1,9}\])?$", max_length=100)]
Seconds = Annotated[float, Field(gt=0, le=TEN_YEARS)]
Bytes = Annotated[int, Field(ge=1, le=2**60)]
# For every model of the file. They have no Python-level validators: a server loads 100,000 jobs in a second or two.
CANONICAL: Final = ConfigDict(frozen=True, extra="forbid")
