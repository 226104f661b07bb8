"""The home of a process: the user's data folder of turnlog on one machine (semantics 1.1).

Its id is in ``home.json`` there. A folder that was copied to another machine, as with a cloned virtual machine, names
the machine it was made on: it gets an id of its own, and remembers the one it had.
"""

from __future__ import annotations

import contextlib
import os
import platform
import uuid
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from turnlog import config, process
from turnlog.clock import now_ms
from turnlog.ledger.backend import Tx

_FILE: Final = "home.json"


class Home(msgspec.Struct, frozen=True):
    """A home. ``created_at`` is unix ms; ``machine`` None = the machine has no id; ``was``: ids on other machines."""

    id: str
    name: str
    machine: str | None
    created_at: int
    was: tuple[str, ...] = ()


def folder() -> Path:
    """Return the user's data folder of turnlog."""
    return config.own_folder("data")


def here() -> Home | None:
    """Return the home of this process, made when there is none; None where its folder cannot be written.

    Read once in a process and folder.
    """
    return _read_or_make(folder(), process.machine_of(process.boot_id()))


def home_id() -> str | None:
    """Return the id of the home of this process; None = unknown."""
    home = here()
    return None if home is None else home.id


@lru_cache(maxsize=8)
def _read_or_make(place: Path, machine: str | None) -> Home | None:
    path = place / _FILE
    try:
        for _ in range(2):
            found = _read(path)
            if found is not None and machine in (None, found.machine):
                return found
            if found is not None and found.machine is None:
                return found  # nobody knows where it was made
            _make(path, machine, found)
        return _read(path)
    except OSError:
        return None


def _read(path: Path) -> Home | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Home)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _make(path: Path, machine: str | None, old: Home | None) -> None:
    """Write a new home. Of two processes that make the first one, one is faster and the other takes what it wrote."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = Home(f"home_{uuid.uuid4().hex}", platform.node() or "?", machine, now_ms(), (*old.was, old.id) if old else ())
    draft = path.with_name(f".{_FILE}.{new.id}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(msgspec.json.encode(new) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if old is None and not _broken(path):
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        else:
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _broken(path: Path) -> bool:
    """Tell whether there is a file that holds no home: a cut write of another program, not of ours."""
    return path.exists() and _read(path) is None


def note(tx: Tx) -> str | None:
    """Make the home of this process known to a ledger; return its id."""
    home = here()
    if home is None:
        return None
    tx.run("insert_home", id=home.id, name=home.name, machine=home.machine, at=home.created_at)
    return home.id
