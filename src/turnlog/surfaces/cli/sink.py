"""Writing beside the event loop: a reader that is slow, stopped or gone never holds up what is recorded."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from typing import IO


def silence(stream: IO[str]) -> None:
    """Send what is still written to a stream nowhere: its reader is gone, which is that reader's right."""
    with contextlib.suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)


class Sink:
    """A thread that writes to stdout and stderr in the order of the calls."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[IO[str], str] | None] = queue.SimpleQueue()
        self._gone: set[int] = set()
        self._thread = threading.Thread(target=self._work, name="turnlog output", daemon=True)
        self._thread.start()

    def out(self, text: str) -> None:
        """Write data."""
        self._queue.put((sys.stdout, text))

    def err(self, text: str) -> None:
        """Write everything else."""
        self._queue.put((sys.stderr, text))

    def close(self) -> None:
        """Wait until everything is written; idempotent."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            stream, text = item
            if id(stream) in self._gone:
                continue
            try:
                stream.write(text)
                stream.flush()
            except (OSError, ValueError):
                # The reader left or the disk is full: the turn goes on, it is recorded elsewhere.
                self._gone.add(id(stream))
                silence(stream)
