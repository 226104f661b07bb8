"""A program held by three pipes: what it says is read as it comes, its complaints go to a private, bounded log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

import anyio
import psutil

from turnlog.errors import RefusedError, UnavailableError
from turnlog.harness._process import Program
from turnlog.process import ProcessIdentity, identify

LOG_LIMIT: Final = 1 << 20
"""Bytes of a log file; when it is full it becomes ``….log.1`` and a new one begins, so twice this is kept."""

BUFFER: Final = 1 << 18
UNREAD_LIMIT: Final = 64 << 20
"""Bytes that may wait for a program that does not read."""

CLOSE_GRACE: Final = 3.0
"""Seconds a program has to leave by itself once its standard input is closed."""


class Pipe:
    """A running program in a session and process group of its own. Made by ``Pipe.start``."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        log: Path,
        reader: asyncio.StreamReader,
        transports: tuple[asyncio.BaseTransport, ...],
    ) -> None:
        identity = identify(popen.pid) or ProcessIdentity(None, popen.pid, 0)
        self.program = Program(popen, identity, log)
        self.reader = reader
        self._popen = popen
        self._transports = transports

    @classmethod
    async def start(cls, argv: list[str], *, cwd: Path, env: Mapping[str, str], log: Path) -> Pipe:
        """Start ``argv``; stderr goes to ``log`` (0600). Raises UnavailableError when it cannot run."""
        sink = BoundedLog(log)
        try:
            popen = subprocess.Popen(  # noqa: ASYNC220 - its pipes are read on the loop, its exit is waited for in a thread
                argv,
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            sink.close()
            raise UnavailableError(
                f"cannot start {argv[0]}: {error}", hint="check the program and the folder"
            ) from error
        assert popen.stdin and popen.stdout and popen.stderr  # noqa: S101, PT018 - asked for above
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=BUFFER)
        incoming, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), popen.stdout)
        errors, _ = await loop.connect_read_pipe(lambda: _Pump(sink), popen.stderr)
        outgoing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, popen.stdin)
        return cls(popen, log, reader, (outgoing, incoming, errors))

    def write(self, line: bytes) -> None:
        """Hand a line over. Raises RefusedError when it certainly does not leave."""
        outgoing = self._transports[0]
        assert isinstance(outgoing, asyncio.WriteTransport)  # noqa: S101
        if outgoing.is_closing():
            raise RefusedError("the program is gone; nothing was sent")
        if outgoing.get_write_buffer_size() > UNREAD_LIMIT:
            raise RefusedError("the program does not read what it is sent")
        outgoing.write(line)

    async def end(self) -> None:
        """Close its input, and end it with everything it started when it does not leave by itself. Bounded."""
        family = _family(self.program.identity.pid) if self.program.exit_code() is None else []
        self._transports[0].close()
        await self.reap()
        await self.program.end()
        # Commands run in groups of their own; one may have survived its agent.
        for member in family:
            with contextlib.suppress(psutil.Error):
                if member.is_running() and member.status() != psutil.STATUS_ZOMBIE:
                    member.kill()
        self.close()
        await asyncio.sleep(0)  # the transports close at the next turn of the loop

    async def reap(self) -> None:
        """Wait a short time for the program to leave by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            await anyio.to_thread.run_sync(self._popen.wait, CLOSE_GRACE)

    def close(self) -> None:
        """Close our ends of all pipes."""
        for transport in self._transports:
            transport.close()


class BoundedLog:
    """A file of limited size, and its predecessor. A flood costs neither memory nor disk, and loses the middle."""

    def __init__(self, path: Path, limit: int = LOG_LIMIT) -> None:
        self._path = path
        self._limit = limit
        self._size = 0
        self._file: IO[bytes] | None = self._open()

    def write(self, data: bytes) -> None:
        """Keep ``data``; what cannot be written (full disk) is dropped."""
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            if self._size and self._size + len(data) > self._limit:
                self._file.close()
                self._path.replace(self._path.with_name(self._path.name + ".1"))
                self._file, self._size = self._open(), 0
            self._file.write(data[-self._limit :])
            self._size += min(len(data), self._limit)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> IO[bytes]:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        return os.fdopen(descriptor, "wb", buffering=0)


class _Pump(asyncio.Protocol):
    """Takes what a program complains about as fast as it comes."""

    def __init__(self, log: BoundedLog) -> None:
        self._log = log

    def data_received(self, data: bytes) -> None:
        self._log.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._log.close()


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
