"""Where sources are read: in this process, or in others beside it when there is much to do.

A worker sends one block's reading at a time over a pipe, and waits when too much of it was not taken yet: memory is
bounded. Workers are started afresh (not forked), so that no database connection or lock is inherited, and with a
program of their own, so that nothing of the program that imports is run again.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Final

import msgspec

from turnlog import archive
from turnlog.errors import UnavailableError
from turnlog.harness.reading import Find, Reader, Source
from turnlog.intake import reader
from turnlog.intake.plan import by_worker
from turnlog.intake.pump import Chunk, Task, pump, whole_lines

PARALLEL: Final = 16 << 20
"""Bytes to read from which on a process of its own is worth its start."""

AHEAD: Final = 32 << 20
"""Bytes of messages that may wait while the ledger is being written."""

_MADE: Final = 200_000
"""Objects made and not freed before circles are looked for among them, where much is read; usually it is 700."""

_PIPE: Final = 1 << 20
"""Bytes that a pipe should hold: with the usual 64 KiB, waking each other costs three times what the copying does."""

_PROGRAM: Final = "import sys; sys.path[:] = sys.argv[2:]; from turnlog.intake.workers import work; work(sys.argv[1])"

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Chunk)


class _Order(msgspec.Struct, frozen=True):
    """What a worker is told: its tasks, where every conversation's own source is, how hard to compress."""

    tasks: list[Task]
    threads: dict[str, Source]
    level: int


def read_all(
    tasks: Sequence[Task], threads: dict[str, Source], readers: Mapping[str, Reader], *, size: int
) -> Iterator[Chunk]:
    """Yield every chunk of every task; those of one task in order. ``size``: bytes there are to read."""
    if size < PARALLEL:
        yield from _read(tasks, threads, readers.__getitem__, archive.SMALL)
        return
    count = min(max(1, (os.cpu_count() or 2) - 1), 4)
    # The ledger takes as long to be written as one worker takes to read: several have time to spare.
    level = archive.FAST if count == 1 else archive.SMALL
    workers = [_started(msgspec.msgpack.encode(_Order(share, threads, level))) for share in by_worker(tasks, count)]
    ahead = _Ahead([ours for _, ours in workers])
    try:
        yield from ahead
    finally:
        ahead.stop()
        for process, ours in workers:
            ours.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
            if process.returncode is None:
                process.terminate()
                process.wait()


def _started(order: bytes) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a worker; return it with the end of the pipe that its chunks come from."""
    ours, theirs = Pipe(duplex=False)
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):  # more than this user may have
            fcntl.fcntl(ours.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno()), *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    assert process.stdin is not None  # noqa: S101 - it was asked for
    with contextlib.suppress(BrokenPipeError), process.stdin:  # it has died: its other pipe tells that too
        process.stdin.write(order)
    return process, ours


class _Ahead:
    """Takes what workers send while the ledger is being written, up to ``AHEAD`` bytes of messages."""

    def __init__(self, pipes: list[Connection]) -> None:
        self._pipes = pipes
        self._held: deque[bytes] = deque()
        self._size = 0
        self._open = len(pipes)
        self._failed = False
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Chunk]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._held or self._open == 0 or self._failed)
                if not self._held:
                    if self._failed:
                        raise UnavailableError(
                            "a process that reads files has died", hint="try again; what was read before is kept"
                        )
                    return
                data = self._held.popleft()
                self._size -= len(data)
                self._changed.notify_all()
            chunk = _decoder.decode(data)
            del data  # a long line's is as big as what it holds
            yield chunk
            del chunk

    def stop(self) -> None:
        """End it; a worker that waits to send is ended by whoever started it."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        pipes = list(self._pipes)
        while pipes and not self._stopped:
            for ready in wait(pipes, timeout=0.1):
                assert isinstance(ready, Connection)  # noqa: S101 - only connections were given
                try:
                    data = ready.recv_bytes()
                except (EOFError, OSError):
                    with self._changed:
                        self._failed = True
                        self._changed.notify_all()
                    return
                with self._changed:
                    if data:
                        self._held.append(data)
                        self._size += len(data)
                    else:
                        pipes.remove(ready)
                        self._open -= 1
                    del data
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._size < AHEAD or self._stopped)


def work(descriptor: str) -> None:
    """Read the tasks that standard input names, as a worker process. An empty message says that all are done."""
    pipe = Connection(int(descriptor), readable=False)
    try:
        os.nice(5)
        told = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Order)
        with rarely_collected():
            for chunk in _read(told.tasks, told.threads, reader, told.level):
                data = _encoder.encode(chunk)
                del chunk  # a long line's is as big as the message, which may have to wait
                pipe.send_bytes(data)
                del data
        pipe.send_bytes(b"")
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # whoever asked is gone
    finally:
        pipe.close()


@contextlib.contextmanager
def rarely_collected() -> Iterator[None]:
    """Let the garbage collector look seldom: reading makes many objects and no circles.

    It is not turned off: this may be a thread among others of a program, whose garbage is found later then.
    """
    before = gc.get_threshold()
    gc.set_threshold(_MADE, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _read(
    tasks: Iterable[Task], threads: dict[str, Source], named: Callable[[str], Reader], level: int
) -> Iterator[Chunk]:
    find = finder(threads)
    for task in tasks:
        yield from pump(task, named(task.source.provider), find, level=level)


def finder(threads: Mapping[str, Source]) -> Find:
    """Return what finds the lines of a conversation on disk."""

    def find(thread: str) -> Iterator[bytes] | None:
        source = threads.get(thread)
        return None if source is None else whole_lines(source)

    return find
