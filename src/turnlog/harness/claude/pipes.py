"""Pipes of a program: how they are opened, read, waited for, and logged within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from turnlog.errors import UnavailableError

LOG_LIMIT: Final = 1 << 20
_TAIL: Final = 4000


def spawn(argv: list[str], cwd: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a program with three pipes, in a session and process group of its own. Raises UnavailableError."""
    try:
        return subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise UnavailableError(f"cannot start {argv[0]}: {error}", hint="check the program and the folder") from error


class BoundedLog:
    """A private file (0600) that keeps the newest part of what is written; made when there is something to write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tail = b""
        """The newest bytes."""

        self._size = 0

    def write(self, data: bytes) -> None:
        self.tail = (self.tail + data)[-_TAIL:]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        if self._size + len(data) > LOG_LIMIT:
            flags, self._size = flags | os.O_TRUNC, 0
            data = b"[older lines were dropped]\n" + data[-LOG_LIMIT // 2 :]
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, flags, 0o600)
            try:
                self._size += os.write(descriptor, data)
            finally:
                os.close(descriptor)


class Pipe(asyncio.Protocol):
    """Hands on what a pipe brings, and that it ended."""

    def __init__(self, take: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._take = take
        self._ended = ended

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()


async def writable(descriptor: int, seconds: float) -> bool:
    """Wait until a descriptor takes bytes; False when it does not in time."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(descriptor, ready.set)
    try:
        await asyncio.wait_for(ready.wait(), max(0.0, seconds))
    except TimeoutError:
        return False
    finally:
        loop.remove_writer(descriptor)
    return True
