"""The process of one exec session on the node: runs the command as a rank would run, and carries its bytes.

It connects to the server, never the other way round. It ends with the session, with the launcher, and when the server
was out of reach for long; then its command is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlencode

from muster import copying, wire
from muster.exec_frames import CHUNK, DATA, EOF, SIGNAL, SIZE, STDERR, WAIT, WINDOW, Decoder, Ended, Frame, encode
from muster.masking import Masker
from muster.runtime import processes
from muster.runtime.channel import BACKOFF_FIRST, Away, Channel
from muster.runtime.folder import Folder
from muster.runtime.ranks import TO_DEFAULT, environment, workdir
from muster.runtime.sandbox import Sandbox

PATIENCE: Final = 30.0  # seconds without the server, after which the command is killed
GRACE: Final = 2.0  # seconds between SIGHUP and SIGKILL
NO_COMMAND: Final = 127  # as shells have it
NOT_RUN: Final = 126


class Over(Exception):
    """The server has ended the session, or was out of reach for too long."""


def main() -> None:
    processes.die_with_parent()
    given = json.load(sys.stdin.buffer)
    if os.getppid() != given["parent"]:
        return
    processes.set_process_name("muster-exec")
    processes.adopt_orphans()
    launch = wire.Launch.from_json(given["launch"])
    folder = Folder(Path(given["folder"]))
    folder.isolated = launch.isolation is not None
    sandbox = Sandbox.joined(launch.isolation, folder.path, given["namespaces"]) if launch.isolation else None
    with contextlib.suppress(Over):
        Session(given["exec"], launch, folder, given["secrets"], sandbox).run()


class Link:
    """One direction of the session. Repeats requests, which the offsets make harmless, while the server is away."""

    def __init__(self, launch: wire.Launch, ident: str) -> None:
        self._channel = Channel(launch.urls, launch.urls_file, launch.token, launch.ca_file)
        self._path = f"/v1/ingest/exec/{ident}"

    def call(self, method: str, rest: str, body: bytes | None = None) -> bytes:
        """The body of the answer. Raises Over."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                status, answer = self._channel.call(method, self._path + rest, body)
                if status == 200:
                    return answer
                if status < 500 and status != 429:
                    raise Over(answer[:500].decode(errors="replace"))
                self._channel.turn_away()
            except Away:
                pass
            if time.monotonic() > until:
                raise Over("the server was out of reach")
            time.sleep(BACKOFF_FIRST)


class Session:
    """One command with its streams. Two threads: one feeds its input, the main one sends its output."""

    def __init__(
        self, ident: str, launch: wire.Launch, folder: Folder, secrets: dict[str, str], sandbox: Sandbox | None
    ) -> None:
        self._ident, self._launch, self._folder, self._secrets = ident, launch, folder, secrets
        self._sandbox = sandbox
        self._link = Link(launch, ident)
        self._sent = 0
        self._input = -1
        self._terminal = -1
        self._pid = 0
        self._fault = ""  # why the session can't go on, if it is this side that ends it
        self._over, self._tell_over = os.pipe()

    def run(self) -> None:
        asked = json.loads(self._link.call("GET", ""))
        try:
            streams = self._start(asked)
        except OSError as error:
            self._end(Ended(None, f"node {self._launch.node} refused to start a process: {error}"))
            return
        threading.Thread(target=self._feed, name="input", daemon=True).start()
        try:
            values = () if asked.get("copy") else self._secrets.values()  # a file is copied as it is
            self._pump(streams, Masker(values), Masker(self._secrets.values()))
        except Over:
            self._kill()
            if self._fault:
                self._end(Ended(None, self._fault))
            return
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        self._end(Ended(code if code >= 0 else 128 - code, ""))

    def _start(self, asked: dict[str, Any]) -> dict[int, int]:
        """Starts the command. Returns the descriptors of its output, each with the kind of its frames."""
        command, env = [str(word) for word in asked["command"]], self._environment(asked)
        if asked["tty"]:
            self._terminal, inner = os.openpty()
            self._resize(WINDOW.pack(*asked["tty"]))
            ours, theirs = {self._terminal: DATA}, (inner, inner, inner)
            self._input = self._terminal
        else:
            (read, self._input), (out, out_write), (err, err_write) = os.pipe(), os.pipe(), os.pipe()
            with contextlib.suppress(OSError):  # the system's limit for a user's pipes may be reached
                fcntl.fcntl(out_write, fcntl.F_SETPIPE_SZ, CHUNK)
            ours, theirs = {out: DATA, err: STDERR}, (read, out_write, err_write)
        pid = os.fork() if self._sandbox is None else self._sandbox.fork()
        if pid == 0:
            _become(command, env, workdir(self._launch), theirs, bool(asked["tty"]), asked.get("copy"))
        self._pid = pid
        for fd in set(theirs):
            os.close(fd)
        return ours

    def _environment(self, asked: dict[str, Any]) -> dict[str, str]:
        """That of a rank, without the names by which a program becomes the rank's: it would report in its place."""
        local = int(asked["rank"]) - self._launch.worker * self._launch.nproc
        env = environment(self._launch, local, self._folder, self._secrets, os.environ)
        for name in (wire.RANK_DIR, wire.CONTROL, wire.MIRROR):
            env.pop(name, None)
        if asked["tty"] and asked["term"]:
            env["TERM"] = str(asked["term"])
        return {**env, wire.EXEC: self._ident}

    def _pump(self, streams: dict[int, int], *maskers: Masker) -> None:
        """Sends the output until the command has ended. Raises Over."""
        by_kind = dict(zip((DATA, STDERR), maskers, strict=True))
        selector = selectors.DefaultSelector()
        ended = os.pidfd_open(self._pid)
        for fd in (*streams, self._over, ended):
            selector.register(fd, selectors.EVENT_READ)
        for fd in streams:
            os.set_blocking(fd, False)
        running = True
        while running:
            ready = {int(key.fileobj) for key, _ in selector.select(WAIT)}  # type: ignore[arg-type]
            if self._over in ready:
                raise Over
            running = ended not in ready
            found = b""
            for fd in ready & streams.keys() if running else tuple(streams):  # at its end, all that is there
                got = 0
                chunk: bytes | None = b""
                while got < CHUNK and (chunk := _read(fd)):  # more can't be its own: a pipe holds no more
                    found += encode(streams[fd], by_kind[streams[fd]].feed(chunk))
                    got += CHUNK if running else len(chunk)
                if running and chunk is None:  # its end
                    selector.unregister(fd)
                    del streams[fd]
            self._send(found)  # empty: tells the server that the command still runs
        rest = b"".join(encode(kind, held) for kind, masker in by_kind.items() if (held := masker.finish()))
        self._send(rest)

    def _send(self, data: bytes) -> None:
        end = self._sent + len(data)
        while True:
            at = self._sent
            part = data[len(data) - (end - at) :][:CHUNK]
            answer = json.loads(self._link.call("POST", f"/output?at={at}", part))
            self._sent = int(answer["end"])
            if self._sent >= end:
                return

    def _end(self, ended: Ended) -> None:
        told = {"error": ended.error[:500]} if ended.code is None else {"code": ended.code}
        self._link.call("POST", f"/end?{urlencode(told)}")

    def _feed(self) -> None:
        """In its own thread: takes the client's input from the server, until the session is over."""
        link, decoder, at = Link(self._launch, self._ident), Decoder(), 0
        try:
            while True:
                data = link.call("GET", f"/input?at={at}&wait={WAIT:g}")
                at += len(data)
                for frame in decoder.feed(data):
                    self._take(frame)
        except (Over, ValueError) as error:
            self._fault = "" if isinstance(error, Over) else "the client sent what is no exec stream"
            os.write(self._tell_over, b"\0")

    def _take(self, frame: Frame) -> None:
        if frame.kind == DATA:
            self._write(frame.data)
        elif frame.kind == EOF and self._terminal >= 0:
            self._write(b"\x04")
        elif frame.kind == EOF and self._input >= 0:
            os.close(self._input)
            self._input = -1
        elif frame.kind == SIZE:
            self._resize(frame.data)
        elif frame.kind == SIGNAL and len(frame.data) == 1:
            with contextlib.suppress(OSError, ValueError):
                os.killpg(self._pid, frame.data[0])

    def _write(self, data: bytes) -> None:
        """Waits until the command reads; meanwhile nothing more is taken from the server."""
        while data and self._input >= 0:
            try:
                data = data[os.write(self._input, data) :]
            except BlockingIOError:
                time.sleep(0.01)  # a terminal, whose one descriptor is read without waiting
            except OSError:
                return  # it has closed its input

    def _resize(self, data: bytes) -> None:
        if self._terminal >= 0 and len(data) == WINDOW.size:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetwinsize(self._terminal, WINDOW.unpack(data))

    def _kill(self) -> None:
        """The command may react to SIGHUP; what is left of it is killed, by the launcher too."""
        for signum in (signal.SIGHUP, signal.SIGCONT):
            with contextlib.suppress(OSError):
                os.killpg(self._pid, signum)
        until = time.monotonic() + GRACE
        while time.monotonic() < until and os.waitpid(self._pid, os.WNOHANG)[0] == 0:
            time.sleep(0.05)
        with contextlib.suppress(OSError):
            os.killpg(self._pid, signal.SIGKILL)


def _read(fd: int) -> bytes | None:
    """What can be read now: empty if nothing, None at the end."""
    try:
        return os.read(fd, CHUNK) or None
    except BlockingIOError:
        return b""
    except OSError:  # a terminal that nobody has open any more
        return None


def _become(
    command: list[str],
    env: dict[str, str],
    folder: str,
    streams: tuple[int, int, int],
    on_tty: bool,
    copy: str | None,
) -> NoReturn:
    """In the child: becomes the command, or copies, with no other rights than the command would have."""
    status = NOT_RUN
    try:
        for signum in TO_DEFAULT:
            signal.signal(signum, signal.SIG_DFL)
        os.setsid()
        processes.die_with_parent()
        if on_tty:
            fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
        os.chdir(folder)
        if not copy:
            os.execvpe(command[0], command, env)  # noqa: S606  (what the user asked for)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        status = copying.main(copy, command[0])
    except BaseException as error:
        status = NO_COMMAND if isinstance(error, FileNotFoundError) else NOT_RUN
        os.write(2, f"muster: can't run {command[0]} in {folder}: {error}\n".encode())
    finally:
        os._exit(status)
