"""Who called: an engine tells every program it starts which conversation it serves (semantics 1.4).

``TURNLOG_CALLER`` is set in the environment of each engine, so a turnlog that an agent runs knows its caller, and a
process that outlives its engine can still be told whose it was.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from turnlog.api import Ledger
from turnlog.ledger import shown
from turnlog.model import Driver, Exec, Session

VARIABLE: Final = "TURNLOG_CALLER"
_LEDGER: Final = "TURNLOG_LEDGER"


class Caller(msgspec.Struct, frozen=True):
    """The conversation an engine was started for, by whom, for which input, and in which ledger."""

    session_id: str
    provider_generation: int
    origin_exec_id: str
    artifact_key: str
    ledger: str


def environment(ledger: Ledger, session: Session, driver: Driver) -> dict[str, str]:
    """Return what to add to the environment of an engine that this driver starts.

    An agent and what it runs are told which ledger it is, and not the password that may stand in its URL.
    """
    caller = Caller(
        session.id, driver.provider_generation, driver.provider_exec_id or "", session.artifact_key, ledger.url
    )
    told = {VARIABLE: msgspec.json.encode(caller).decode()}
    named = os.environ.get(_LEDGER)
    if named and shown(named) != named:
        told[_LEDGER] = shown(named)
    return told


def read(environ: Mapping[str, str]) -> Caller | None:
    """Return the caller of this process, or None for a person or an unreadable value."""
    text = environ.get(VARIABLE)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Caller)
    except msgspec.DecodeError:
        return None


def start_exec(ledger: Ledger, caller: Caller | None, *, command: list[str], cwd: str) -> Exec:
    """Record this process; its parent is the driving exec only if the caller's engine is the current one (1.4)."""
    if caller is None:
        return ledger.start_exec(command=command, cwd=cwd)
    origin = ledger.exec(caller.origin_exec_id)  # unknown when this command was told to use another ledger
    return ledger.start_exec(
        command=command,
        cwd=cwd,
        parent_id=origin.id if origin is not None else None,
        via_agent=True,
        caller_session_id=caller.session_id,
        caller_provider_generation=caller.provider_generation,
    )


def calling_input(ledger: Ledger, caller: Caller | None) -> str | None:
    """Return the artifact key of the input that asked: the current one for the current engine, else the engine's own.

    A stale engine never speaks for the input of a newer driver.
    """
    if caller is None:
        return None
    driver, session = ledger.driver(caller.session_id), ledger.session(caller.session_id)
    if driver is None or session is None:
        return caller.artifact_key or None
    current = (driver.provider_generation, driver.provider_exec_id)
    if driver.exec_id is not None and current == (caller.provider_generation, caller.origin_exec_id):
        return session.artifact_key
    return caller.artifact_key or None
