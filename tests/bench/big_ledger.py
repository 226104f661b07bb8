"""A big ledger, made quickly: plain SQL in one transaction, through the same triggers as every other write."""

from __future__ import annotations

from pathlib import Path

import apsw

from turnlog import open_ledger
from turnlog.receipts import canonical

DENSE = 50
"""Usage receipts of one input in a ledger of 5 M receipts and 100 000 inputs: Codex tells one per model response."""


def usage(number: int) -> str:
    """Return the usage receipt of a turn's nth model response, as Codex tells it: totals that rise."""
    last = {
        "cachedInputTokens": 11_000,
        "inputTokens": 12_000 + number,
        "outputTokens": 300,
        "reasoningOutputTokens": 90,
        "totalTokens": 12_300 + number,
    }
    total = {name: value * (number + 1) for name, value in last.items()}
    return canonical({"last": last, "modelContextWindow": 272_000, "total": total})


def build(path: Path, sessions: int, *, open_every: int = 0, usages: int = 2) -> int:
    """Create a ledger with one finished turn in each session; every nth turn stays open. Returns the receipts."""
    open_ledger(f"sqlite:///{path}").close()
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with connection:
            _fill(connection, sessions, open_every, usages)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("ANALYZE")
        return int(next(connection.execute("SELECT count(*) FROM session_events"))[0])
    finally:
        connection.close()


def _fill(connection: apsw.Connection, sessions: int, open_every: int, usages: int) -> None:
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :sessions)"
    params: dict[str, object] = {"sessions": sessions, "open_every": open_every}
    connection.execute("INSERT INTO execs (id, trace_id, started_at) VALUES ('exec', 'bench', 1)")
    connection.execute(
        f"{numbers} INSERT INTO agent_sessions (id, title, title_source, created_at, input_published, cwd, provider,"
        " interactive, completed_at) SELECT printf('session_%032x', i), 'Title ' || (i % 1000), 'generated', i * 1000,"
        " 1, '/home/somebody/project', 'codex', i % 2, CASE WHEN i % 10 > 0 THEN i * 1000 + 900 END FROM n",
        params,
    )
    connection.execute(
        f"{numbers} INSERT INTO session_events (session_id, kind, receipt_key, observed_at, payload)"
        " SELECT printf('session_%032x', i), 'captured', printf('%032x', i), i * 1000,"
        " json_object('artifact_key', printf('%032x', i), 'caller_key', printf('%032x', i % 100)) FROM n",
        params,
    )
    connection.execute(
        "UPDATE agent_sessions SET current_capture = (SELECT seq FROM captures WHERE session_id = agent_sessions.id)"
    )
    _turns(connection, "started", "'{}'", params, "1", capture=True)
    for number in range(usages):
        told = {**params, "usage": usage(number)}
        _turns(connection, "usage", ":usage", told, "1", key="lower(hex(randomblob(32)))")
    _turns(connection, "completed", '\'{"status":"completed"}\'', params, "(:open_every = 0 OR i % :open_every > 0)")
    _turns(connection, "output", '\'{"text":"done"}\'', params, "1")


def _turns(
    connection: apsw.Connection,
    kind: str,
    payload: str,
    params: dict[str, object],
    where: str,
    *,
    key: str = "''",
    capture: bool = False,
) -> None:
    columns = ", exec_id, provider_generation, captured_event" if capture else ""
    values = ", 'exec', 1, (SELECT seq FROM captures WHERE artifact_key = printf('%032x', i))" if capture else ""
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :sessions)"
    connection.execute(
        f"{numbers} INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key,"
        f" observed_at, payload{columns}) SELECT printf('session_%032x', i), printf('thread_%032x', i),"
        f" printf('turn_%032x', i), :kind, {key}, i * 1000 + 500, {payload}{values} FROM n WHERE {where}",
        {**params, "kind": kind},
    )
