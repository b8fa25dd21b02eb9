"""Starts a server and runs it until it is told to stop; jobs go on running without it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import socket
import stat
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import uvicorn

from muster.certificates import first_certificate
from muster.control.rules import read_policy, read_rules
from muster.control.secrets import load_keyring
from muster.core.errors import ConfigError, MusterError
from muster.engines.local_worker import boot_id
from muster.server import logs
from muster.server.app import create_app
from muster.server.limits import Limits
from muster.server.protocol import HEADER_BYTES, Connection, Connections, parser
from muster.server.service import Service
from muster.server.settings import Settings
from muster.store.registry import open_store

log = logging.getLogger("muster.server")

_BACKLOG = 2048
# Files in the home folder that contain tokens, passwords, encrypted secrets or users' data.
_PRIVATE = ("token", "muster.db", "muster.db-wal", "muster.db-shm", "mlflow.db", "config.toml", "server.log")
_FILES = 65_536  # open files, if the machine allows a process that many
# Seconds that a thread computes before another has its turn. A request takes dozens of turns, and waits for each while
# a forecast or a report is computed: with the 5 ms of Python it takes twice as long in all.
_TURN = 0.0005


def serve(settings: Settings, on_lead: Callable[[str], None] | None = None) -> None:
    """Runs the server until it stops. Raises ConfigError when it can't start.

    `on_lead` is called in a thread with the server's address when it leads for the first time.
    """
    settings.check()
    if settings.policy_file:
        read_rules(read_policy(settings.policy_file), str(settings.policy_file))
    _make_home(settings.home)
    logs.set_up(settings.log_level)
    sys.setswitchinterval(_TURN)
    _close_files(settings.home)
    listening = _listen(settings)
    host, port = listening.getsockname()[:2]
    scheme = "https" if settings.tls_cert else "http"
    url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    store = open_store(settings.url_of_store)
    store.open()
    keyring = load_keyring(settings.home / "key")
    certificate = first_certificate(Path(settings.tls_cert).read_text()) if settings.tls_cert else None
    service = Service(settings, store, keyring, [url], lambda: _write_address(settings.home, url, certificate))
    if on_lead is not None:
        service.on_lead = partial(on_lead, url)
    try:
        with asyncio.Runner(loop_factory=_fast_loop()) as runner:
            runner.run(_serve(settings, service, listening))
    finally:
        service.close()
        _forget_address(settings.home)
    if service.failure is not None:
        raise service.failure if isinstance(service.failure, MusterError) else ConfigError(str(service.failure))


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The event loop of the `fast` extra, if it is installed."""
    try:
        import uvloop  # noqa: PLC0415  (optional)
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(settings: Settings, service: Service, listening: socket.socket) -> None:
    config = uvicorn.Config(
        create_app(service),
        log_config=None,
        access_log=False,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        timeout_graceful_shutdown=5,
        server_header=False,
        http=parser(),
        ws="none",
        h11_max_incomplete_event_size=HEADER_BYTES,
        backlog=_BACKLOG,
    )
    server = _Server(config, service.limits)
    service.start()
    watching = asyncio.create_task(_watch(service, server))
    with _own_signals(server, service):
        await server.serve(sockets=[listening])
    watching.cancel()


class _Server(uvicorn.Server):
    """uvicorn's server with its own way to listen: connections under limits."""

    def __init__(self, config: uvicorn.Config, limits: Limits) -> None:
        super().__init__(config)
        self._limits = limits

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        config, loop = self.config, asyncio.get_running_loop()
        connections = Connections(self._limits, _open_files())

        def connection() -> Connection:
            made = config.http_protocol_class(
                config=config,
                server_state=self.server_state,
                app_state=self.lifespan.state,  # type: ignore[call-arg]
            )
            return Connection(made, connections)

        patience = self._limits.header_timeout if config.ssl else None
        for listening in sockets or ():
            made = await loop.create_server(
                connection, sock=listening, ssl=config.ssl, backlog=config.backlog, ssl_handshake_timeout=patience
            )
            self.servers.append(made)
        self._watching = loop.create_task(connections.watch())


def _open_files() -> int:
    """Raises the limit of open files as far as possible, since every launcher keeps a connection; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(wanted, soft)


async def _watch(service: Service, server: uvicorn.Server) -> None:
    """Stops the server when it can't lead; ends the streams as soon as the server is told to stop."""
    while not server.should_exit:
        if service.failure is not None:
            server.should_exit = True
        await asyncio.sleep(0.1)
    service.hub.close()
    if service.leader is not None:
        service.leader.execs.close()


@contextlib.contextmanager
def _own_signals(server: uvicorn.Server, service: Service):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """The first signal requests a clean stop; a second one doesn't wait for it."""

    def stop(number: int, frame: object) -> None:
        if server.should_exit:
            server.force_exit = True
        server.should_exit = True

    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _make_home(home: Path) -> None:
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The home folder {home} can't be made: {error.strerror}.", "Set MUSTER_HOME elsewhere."
        ) from error


def _close_files(home: Path) -> None:
    """Removes the permissions of others on private files, such as files that were copied here or made by hand."""
    for path in (home / name for name in _PRIVATE):
        try:
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                path.chmod(0o600)
                log.warning("%s could be read by others; it is its owner's alone now", path)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("%s can be read by others, and its mode can't be changed: %s", path, error.strerror)


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # Names the protocol, or the event loop would not disable Nagle's algorithm, which costs 40 ms per small answer.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"Can't listen on {settings.host}:{settings.port}: {error.strerror}.",
            "Stop what uses the port (`muster down`), or choose another with --port.",
        ) from error
    listening.listen(_BACKLOG)
    return listening


def _write_address(home: Path, url: str, certificate: str | None) -> None:
    """Writes the server's address and its certificate for clients and launchers on this machine."""
    fields = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()
    process = {"pid": os.getpid(), "start_ticks": int(fields[19]), "boot_id": boot_id()}
    text = json.dumps({"urls": [url], "certificate": certificate, **process})
    temporary = home / f"server.json.{os.getpid()}"
    temporary.write_text(text)
    temporary.replace(home / "server.json")


def _forget_address(home: Path) -> None:
    """Removes the address if it is still this server's."""
    path = home / "server.json"
    try:
        if json.loads(path.read_text())["pid"] == os.getpid():
            path.unlink()
    except (OSError, ValueError, KeyError):
        pass
