"""Receipts of usage as imports and drivers leave them, and raw rows beside them."""

from __future__ import annotations

from typing import Any

from tests.ledger.sqlite_setup import SqliteSetup
from turnlog import Ledger
from turnlog.clock import to_rfc3339

DAY = 1_770_076_800_000
"""2026-02-03T00:00:00Z"""

MINUTE = 60_000
HOUR = 60 * MINUTE


def call(
    name: str, at: int, *, fresh: int = 10, out: int = 5, model: str = "claude-opus-4-5", **usage: Any
) -> dict[str, Any]:
    """A usage receipt of one call, as a Claude file tells it."""
    counters = {
        "input_tokens": fresh,
        "output_tokens": out,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 0},
    }
    return {
        "provider": "claude",
        "source": "file",
        "call": name,
        "model": model,
        "at": to_rfc3339(at),
        "usage": {**counters, **usage},
    }


def result(at: int, *, fresh: int, out: int, cost: float) -> dict[str, Any]:
    """What a driven Claude told of a whole turn, its subagents included."""
    usage = {
        "inputTokens": fresh,
        "outputTokens": out,
        "cacheReadInputTokens": 0,
        "cacheCreationInputTokens": 0,
        "costUSD": cost,
    }
    return {
        "provider": "claude",
        "source": "wire",
        "result_id": f"r{at}",
        "model_usage": {"claude-opus-4-5": usage},
        "usage": {},
        "total_cost_usd": cost,
        "interrupted": False,
    }


def conversation(ledger: Ledger, name: str, *, repo: str | None = "/src/app", provider: str = "claude") -> str:
    """An imported conversation without turns."""
    return ledger.create_session(id=f"{provider}:{name}", cwd="/src/app/sub", repo=repo, provider=provider).id


def turn(ledger: Ledger, session: str, name: str, at: int, *receipts: dict[str, Any]) -> None:
    """One whole turn."""
    thread = session.partition(":")[2]
    ledger.record(session, thread, name, "started", {"at": to_rfc3339(at)})
    for receipt in receipts:
        ledger.record(session, thread, name, "usage", receipt)
    ledger.record(session, thread, name, "completed", {"status": "completed"})


def source(setup: SqliteSetup, path: str = "/home/me/.claude/a.jsonl", number: int = 1) -> None:
    """A file that was read."""
    setup.raw_sql(
        "INSERT INTO sources (id, provider, path, kind, first_read_at, read_at)"
        " VALUES (:id, 'claude', :path, 'jsonl', 1, 1)",
        {"id": number, "path": path},
    )


def place(setup: SqliteSetup, seq: int, offset: int, name: str, number: int = 1) -> None:
    """Where a receipt was read."""
    setup.raw_sql(
        "INSERT INTO receipt_places VALUES (:seq, :source, :offset, :call)",
        {"seq": seq, "source": number, "offset": offset, "call": name},
    )


def sighting(setup: SqliteSetup, name: str, session: str, *, owned: bool) -> None:
    """A conversation that tells of a call."""
    setup.raw_sql(
        "INSERT INTO calls (call, session_id, at, weight, owned) VALUES (:call, :session, 1, 0, :owned)",
        {"call": name, "session": session, "owned": int(owned)},
    )


def problem(setup: SqliteSetup, session: str | None, offset: int = 0) -> None:
    """Bytes that could not be read and may have held usage."""
    setup.raw_sql(
        "INSERT INTO source_problems VALUES (1, :offset, 'torn', 10, '', :session, 1, 1)",
        {"offset": offset, "session": session},
    )


def subagent(
    setup: SqliteSetup, session: str, parent: str, *, turn: str | None = None, began: int | None = None
) -> None:
    """Note that a conversation is a subagent of the one on the thread ``parent``."""
    setup.raw_sql(
        "INSERT INTO native_sessions (session_id, provider, native_id, began_at, parent_id, parent_turn, relation)"
        " VALUES (:session, 'claude', :native, :began, :parent, :turn, 'subagent')",
        {"session": session, "native": session.partition(":")[2], "began": began, "parent": parent, "turn": turn},
    )
