"""Codex's own history of a conversation, in pages: what a look after a crash, or a lost line, can still find."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from turnlog.errors import MissingError, UnavailableError
from turnlog.harness.codex.connection import Connection, RpcError
from turnlog.harness.codex.decode import Turn, each, read_turn, text_of

PAGE: Final = 20
NEWEST: Final = 5
DEADLINE: Final = 30.0
"""Seconds for one page: a long conversation is read from its file."""

_VIEWS: Final = ("full", "summary", "notLoaded")
_NOTHING_YET: Final = "not materialized"
_MISSING: Final = ("no rollout found", "thread not loaded", "thread not found", "invalid session id")


async def turns(connection: Connection, thread: str, *, newest: int | None = None) -> AsyncIterator[Turn]:
    """Yield the turns of a conversation, oldest first; with ``newest`` only so many of the last ones.

    Raises MissingError when Codex does not know the conversation, UnavailableError.
    """
    if newest is not None:
        page, _, _ = await _page(connection, thread, None, newest, "desc")
        for turn in reversed(page):
            yield turn
        return
    cursor: str | None = None
    seen: set[str] = set()
    limit = PAGE
    while True:
        page, after, worked = await _page(connection, thread, cursor, limit, "asc")
        for turn in page:
            yield turn
        if after is None or after in seen:
            return
        seen.add(after)
        cursor, limit = after, min(PAGE, worked * 2)


async def _page(
    connection: Connection, thread: str, cursor: str | None, limit: int, order: str
) -> tuple[list[Turn], str | None, int]:
    """Return a page, the cursor of the next one, and the size that worked: an answer can be too long to read."""
    view = 0
    while True:
        params: dict[str, Any] = {"threadId": thread, "limit": limit, "sortDirection": order, "itemsView": _VIEWS[view]}
        if cursor is not None:
            params["cursor"] = cursor
        try:
            answer = await connection.read("thread/turns/list", params, deadline=DEADLINE)
        except RpcError as error:
            return [turn async for turn in _unpaged(connection, thread, error)], None, limit
        except UnavailableError:
            if connection.ended is not None or (limit == 1 and view + 1 == len(_VIEWS)):
                raise
            limit, view = (1, view) if limit > 1 else (1, view + 1)
            continue
        return each(answer.get("data"), read_turn), text_of(answer, "nextCursor"), limit


async def _unpaged(connection: Connection, thread: str, refusal: RpcError) -> AsyncIterator[Turn]:
    """Yield the turns where pages are refused: nothing there yet, or a version or an old file without pages."""
    if _NOTHING_YET in refusal.detail:
        return
    if any(part in refusal.detail for part in _MISSING):
        raise MissingError(
            f"Codex has no conversation {thread}: {refusal.detail}",
            hint="it was deleted, belongs to another CODEX_HOME, or its first turn never began",
        ) from refusal
    try:
        answer = await connection.read("thread/read", {"threadId": thread, "includeTurns": True}, deadline=DEADLINE)
    except RpcError as error:
        raise UnavailableError(
            f"Codex does not tell the turns of {thread}: {refusal.detail}; {error.detail}"
        ) from error
    found = answer.get("thread")
    for turn in each(found.get("turns") if isinstance(found, dict) else None, read_turn):
        yield turn
