"""Opening a conversation: a new one is made at most once, an old one is resumed as itself or refused (6.3).

The answer of ``thread/start`` goes into a private file of the state folder before anybody else hears of it, so a crash
in between loses nothing. A conversation that never had a turn exists nowhere but in the memory of its engine; when that
is gone, nothing was in it, and making another one repeats nothing.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

import msgspec

from turnlog.errors import MissingError, RefusedError, UnavailableError, UncertainError
from turnlog.harness import HarnessConfig
from turnlog.harness.codex.connection import Connection, RpcError
from turnlog.harness.codex.decode import member, text_of
from turnlog.harness.codex.engine import write_private
from turnlog.harness.codex.permissions import settings

START_DEADLINE: Final = 20.0
"""Seconds for opening: a long conversation is read, and the user's MCP servers are started."""

_GONE: Final = ("no rollout found", "invalid session id")
_TAKEN: Final = "already has an active writer"


class Made(msgspec.Struct, frozen=True):
    """What the state folder knows about the conversation that is being made."""

    title: str
    thread: str | None


class Opened(msgspec.Struct, frozen=True):
    """An open conversation. ``fresh``: it was made just now, there is nothing to read yet."""

    thread: str
    fresh: bool
    model: str | None


async def open_thread(connection: Connection, config: HarnessConfig) -> Opened:
    """Resume the configured conversation, or make one. Raises MissingError, UnavailableError, UncertainError."""
    if config.thread is not None:
        return await _resume(connection, config, config.thread)
    path = config.state_dir / "codex-thread.made"
    made = _read(path)
    if made is not None and made.thread is not None:
        try:
            return await _resume(connection, config, made.thread)
        except MissingError:
            made = None  # it never had a turn
    if made is not None:
        # An answer was lost. An engine that lives has it loaded; one that is gone left it only if it had a turn.
        loaded = await _loaded(connection)
        if len(loaded) > 1:
            raise UncertainError(f"{len(loaded)} Codex conversations are open where one should be")
        if loaded:
            write_private(path, msgspec.json.encode(Made(config.title, loaded[0])))
            return Opened(loaded[0], fresh=True, model=None)
        if (found := await _named(connection, config)) is not None:
            return await _resume(connection, config, found)
    write_private(path, msgspec.json.encode(Made(config.title, None)))
    opened = await _start(connection, config)
    write_private(path, msgspec.json.encode(Made(config.title, opened.thread)))
    if config.title:
        # The name shows it in Codex's own lists; that it failed does not matter.
        with contextlib.suppress(RefusedError, UncertainError):
            await connection.request("thread/name/set", {"threadId": opened.thread, "name": config.title})
    return opened


async def _start(connection: Connection, config: HarnessConfig) -> Opened:
    try:
        answer = await connection.request("thread/start", _settings(config), deadline=START_DEADLINE)
    except UncertainError as lost:
        # This engine serves nobody else: what it has loaded is what we made.
        loaded = await _loaded(connection)
        if len(loaded) != 1:
            raise UncertainError(f"{lost.message}; {len(loaded)} conversations are there") from lost
        return Opened(loaded[0], fresh=True, model=None)
    except RpcError as error:
        raise UnavailableError(f"Codex does not begin a conversation: {error.detail}", hint=_hint(error)) from error
    thread = text_of(member(answer, "thread"), "id") if isinstance(answer, dict) else None
    if thread is None:
        raise UncertainError("Codex began a conversation but told no id")
    return Opened(thread, fresh=True, model=text_of(answer, "model"))


async def _resume(connection: Connection, config: HarnessConfig, thread: str) -> Opened:
    params = {**_settings(config), "threadId": thread, "excludeTurns": True}
    try:
        answer = await connection.request("thread/resume", params, deadline=START_DEADLINE)
    except UncertainError as error:
        raise UnavailableError(error.message) from error
    except RpcError as error:
        if any(part in error.detail for part in _GONE):
            raise MissingError(
                f"Codex has no conversation {thread}: {error.detail}",
                hint="it was deleted, belongs to another CODEX_HOME, or its first turn never began",
            ) from error
        if _TAKEN in error.detail:
            raise UnavailableError(
                f"another Codex has the conversation {thread} open", hint="end that one first; two must not write it"
            ) from error
        raise UnavailableError(f"Codex does not resume {thread}: {error.detail}", hint=_hint(error)) from error
    found = text_of(member(answer, "thread"), "id") if isinstance(answer, dict) else None
    if found != thread:
        raise UnavailableError(f"Codex was asked to resume {thread} and opened {found}", hint="nothing was sent to it")
    return Opened(thread, fresh=False, model=text_of(answer, "model"))


async def _loaded(connection: Connection) -> list[str]:
    try:
        answer = await connection.read("thread/loaded/list", {})
    except (RpcError, UnavailableError):
        return []
    data = answer.get("data")
    return [name for name in data if isinstance(name, str)] if isinstance(data, list) else []


async def _named(connection: Connection, config: HarnessConfig) -> str | None:
    """Return the conversation with our title: it is unique, and one with a turn is listed. UncertainError: several."""
    if not config.title:
        return None
    try:
        answer = await connection.read("thread/list", {"searchTerm": config.title, "limit": 20})
    except RpcError:
        return None
    data = answer.get("data")
    threads = [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
    names = [name for entry in threads if entry.get("name") == config.title and (name := text_of(entry, "id"))]
    if len(names) > 1:
        raise UncertainError(f"{len(names)} Codex conversations have the title {config.title!r}")
    return names[0] if names else None


def _settings(config: HarnessConfig) -> dict[str, Any]:
    params: dict[str, Any] = {"cwd": str(config.cwd), **settings(config.permissions)}
    if config.model is not None:
        params["model"] = config.model
    return params


def _hint(error: RpcError) -> str:
    return "correct config.toml of CODEX_HOME" if "config" in error.detail else "its own words are above"


def _read(path: Path) -> Made | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Made)
    except (OSError, msgspec.DecodeError):
        return None
