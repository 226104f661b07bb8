"""What the state folder knows about a conversation: which process holds it, what was sent and what has ended.

``claude-<word>.json`` names a process we started, as long as it may run: its stdin cannot be taken over, so the next
turnlog must wait for it. ``claude.sent`` gets a line before each request leaves and one after each end of a turn was
recorded: a request that is not in it never left, and a turn that is in it needs no second witness from the file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import msgspec

from turnlog.harness._process import end_group
from turnlog.process import Liveness, ProcessIdentity, liveness

QUIET_LIMIT: Final = 60.0
"""Seconds an earlier process may do nothing that shows in its session's file, before it is ended."""

LONGEST_WAIT: Final = 600.0
POLL: Final = 0.05


class Record(msgspec.Struct, frozen=True):
    """A process of ours and the conversation it holds."""

    thread: str
    engine: ProcessIdentity


class Marks(msgspec.Struct):
    """Requests that left and turns whose end is recorded. ``known`` is False when nothing was ever written."""

    sent: set[str]
    ended: set[str]
    known: bool


def private_folder(folder: Path) -> None:
    """Make the folder, readable by its owner alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def new_name() -> str:
    """Return a fresh name for the files of one process."""
    return f"claude-{secrets.token_hex(4)}"


def write_record(path: Path, record: Record) -> None:
    """Write a record at once, 0600."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(record))
    temporary.replace(path)


def mark(folder: Path, word: str, name: str) -> None:
    """Add a line to the marks; ``sent`` is on disk when this returns."""
    descriptor = os.open(folder / "claude.sent", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, f"{word} {name}\n".encode())
        if word == "sent":
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_marks(folder: Path) -> Marks:
    """Read the marks."""
    found = Marks(set(), set(), known=False)
    with contextlib.suppress(OSError):
        lines = (folder / "claude.sent").read_text(encoding="utf-8", errors="replace").splitlines()
        found.known = True
        for line in lines:
            word, _, name = line.partition(" ")
            if word in {"sent", "ended"}:
                (found.sent if word == "sent" else found.ended).add(name)
    return found


def running(folder: Path, thread: str) -> list[tuple[Path, Record]]:
    """Return the recorded processes of a conversation that may still run; forget the others."""
    found = []
    for path in sorted(folder.glob("claude-*.json")):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=Record)
        except (OSError, msgspec.DecodeError):
            record = None
        if record is None or _dead(record.engine):
            path.unlink(missing_ok=True)
        elif record.thread == thread:
            found.append((path, record))
    return found


async def outwait(folder: Path, thread: str, progress: Callable[[], object]) -> int:
    """Wait until earlier processes of a conversation have ended, then return how many there were.

    Without their stdin they finish the running turn and exit. One whose ``progress`` does not change for too long is
    ended: never two writers on one session.
    """
    earlier = running(folder, thread)
    started = last = time.monotonic()
    seen = progress()
    while any(not _dead(record.engine) for _, record in earlier):
        now, state = time.monotonic(), progress()
        if state != seen:
            seen, last = state, now
        if now - last > QUIET_LIMIT or now - started > LONGEST_WAIT:
            for _, record in earlier:
                await end_group(record.engine)
            break
        await anyio.sleep(POLL)
    for path, _ in earlier:
        path.unlink(missing_ok=True)
    return len(earlier)


def _dead(engine: ProcessIdentity) -> bool:
    return liveness(engine.boot_id, engine.pid, engine.started_at) is Liveness.DEAD
