"""Other processes at the same ledger, started and spoken to without sleeping."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]


class Child:
    """A Python program that reads lines of ours and writes lines back."""

    def __init__(self, program: str, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", program, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def line(self) -> str:
        """Wait for one line; an ended child is an error."""
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, f"the child ended with {self.process.wait()}"
        return text.rstrip("\n")

    def say(self, text: str = "") -> None:
        pipe = self._stdin()
        pipe.write(text + "\n")
        pipe.flush()

    def finish(self) -> list[str]:
        """Let it come to its end; return what it still said."""
        rest, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return list(rest.splitlines())

    def kill(self) -> list[str]:
        """End it with SIGKILL; return what it had said and we had not read."""
        self.process.kill()
        assert self.process.stdout is not None
        rest = self.process.stdout.read()
        self.process.wait()
        return list(rest.splitlines())

    def _stdin(self) -> IO[str]:
        assert self.process.stdin is not None
        return self.process.stdin


@contextmanager
def child(program: str, *args: str) -> Iterator[Child]:
    """Run a child; it does not outlive the block."""
    started = Child(program, *args)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
        for pipe in (started.process.stdin, started.process.stdout):
            if pipe is not None and not pipe.closed:
                with suppress(BrokenPipeError):
                    pipe.close()
        started.process.wait()
