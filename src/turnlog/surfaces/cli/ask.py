"""Asking the person at this terminal, in a way that can be taken back when the answer comes from elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
from typing import Final

ANSWERS: Final = {"o": "once", "a": "always", "r": "reject", "once": "once", "always": "always", "reject": "reject"}
_LINE: Final = 4096


def at_terminal() -> bool:
    """Tell whether a person can be asked here: input and error output are a terminal, and we are in its foreground."""
    try:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (AttributeError, OSError, ValueError):
        return False


def forget_typed(descriptor: int) -> None:
    """Drop what was typed before: it is no answer to a question that comes now."""
    with contextlib.suppress(termios.error):
        termios.tcflush(descriptor, termios.TCIFLUSH)


async def read_line(descriptor: int) -> str | None:
    """Read one line from a terminal; None at its end. Cancelling it leaves nothing behind that could eat a line."""
    ready = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
    try:
        line = os.read(descriptor, _LINE)
    except OSError:
        return None  # the terminal went away
    return line.decode(errors="replace").strip() if line else None
