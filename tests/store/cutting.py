"""A socket in front of PostgreSQL's that cuts a connection at a chosen message, as a broken network would."""

from __future__ import annotations

import select
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_NAME = ".s.PGSQL.5432"


@dataclass
class Cutter:
    """Once armed, it cuts the first connection on which a message holds `word`: before the server gets it or after."""

    upstream: Path
    folder: Path
    word: bytes
    deliver: bool
    armed: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def url(self, url: str) -> str:
        return url.replace(str(self.upstream), str(self.folder))

    def serve(self, listening: socket.socket) -> None:
        with suppress(OSError):  # it is shut down at the end
            while True:
                client, _ = listening.accept()
                self.threads.append(threading.Thread(target=self._connection, args=(client,)))
                self.threads[-1].start()

    def _connection(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(str(self.upstream / _NAME))
            while not self.over.is_set():
                ready, _, _ = select.select([client, server], [], [], 0.1)  # seconds between looks at `over`
                if server in ready:
                    client.sendall(_received(server))
                if client in ready:
                    message = _received(client)
                    if self.armed.is_set() and self.word in message:
                        self.armed.clear()
                        if self.deliver:
                            server.sendall(message)
                            _received(server)  # it has answered, so it has done it
                        return
                    server.sendall(message)


@contextmanager
def cutting(upstream: Path, word: bytes, deliver: bool) -> Iterator[Cutter]:
    cutter = Cutter(upstream, upstream / "cut", word, deliver)
    cutter.folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(cutter.folder / _NAME))
        listening.listen()
        accepting = threading.Thread(target=cutter.serve, args=(listening,))
        accepting.start()
        try:
            yield cutter
        finally:
            cutter.over.set()
            listening.shutdown(socket.SHUT_RDWR)
            for thread in (accepting, *cutter.threads):
                thread.join()
    shutil.rmtree(cutter.folder)


def _received(end: socket.socket) -> bytes:
    message = end.recv(1 << 20)
    if not message:
        raise ConnectionError("the other end is gone")
    return message
