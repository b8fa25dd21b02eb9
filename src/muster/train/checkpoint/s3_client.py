"""The S3 client as checkpoints use it: the same requests, with the errors of checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.objects import s3
from muster.objects.s3 import FIRST_PAUSE, LONGEST_PAUSE, TIMEOUT, TRIES, Reply
from muster.train.errors import CheckpointDamaged, CheckpointError

__all__ = ["FIRST_PAUSE", "LONGEST_PAUSE", "TIMEOUT", "TRIES", "CheckpointS3", "Reply", "client"]


@dataclass
class CheckpointS3(s3.S3Client):
    def request(
        self,
        method: str,
        name: str = "",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"",
        into: memoryview | None = None,
        accept: tuple[int, ...] = (),
    ) -> Reply:
        """As in `muster.objects.s3`; raises CheckpointError."""
        try:
            return super().request(method, name, query, headers, body, into, accept)
        except s3.ShortAnswer as error:
            raise CheckpointDamaged(str(error)) from error
        except s3.S3Error as error:
            raise CheckpointError(str(error)) from error


def client(bucket: str) -> CheckpointS3:
    """With endpoint, region and keys from the environment, under the names that other S3 tools use."""
    try:
        return CheckpointS3(*s3.account(bucket))
    except s3.S3Error as error:
        raise CheckpointError(str(error)) from error
