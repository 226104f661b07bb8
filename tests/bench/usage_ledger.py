"""Ledgers full of usage, made quickly: as an import leaves them, or with the roll-ups already there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import apsw
import orjson

from turnlog import open_ledger
from turnlog.clock import to_rfc3339
from turnlog.receipts import receipt_key

MODELS = ("claude-opus-4-6", "claude-sonnet-4-5", "gpt-5-codex", "gpt-5")
BEGIN = 1_740_000_000_000
"""2025-02-19"""

YEAR = 365 * 86_400_000


def payload(number: int, at: int, model: str) -> str:
    """A usage receipt of ordinary size, as a Claude file tells it."""
    value = {
        "provider": "claude",
        "source": "file",
        "call": f"msg_01{number * 2654435761 % 2**64:x}Zq{number:x}",
        "model": model,
        "at": to_rfc3339(at),
        "usage": {
            "input_tokens": 3 + number % 50,
            "cache_creation_input_tokens": 2_000 + number % 700,
            "cache_read_input_tokens": 40_000 + number % 9_000,
            "cache_creation": {"ephemeral_5m_input_tokens": 2_000 + number % 700, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 100 + number % 400,
            "service_tier": "standard",
            "inference_geo": "not_available",
        },
    }
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def connect(path: Path) -> apsw.Connection:
    open_ledger(f"sqlite:///{path}").close()
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def imported(path: Path, sessions: int, calls: int) -> None:
    """Make a ledger with so many imported conversations of Claude and model calls; five calls to a turn."""
    connection = connect(path)
    chance = random.Random(1)
    with connection:
        for session in range(sessions):
            name = f"claude:{session:032x}"
            begin = BEGIN + chance.randrange(YEAR)
            connection.execute(
                "INSERT INTO agent_sessions (id, title, title_source, created_at, input_published, cwd, provider,"
                " provider_thread) VALUES (?, 'Imported', 'generated', ?, 0, ?, 'claude', ?)",
                (name, begin, f"/home/somebody/project{session % 40}", f"{session:032x}"),
            )
            connection.execute(
                "INSERT INTO session_events (session_id, kind, receipt_key, observed_at, payload)"
                " VALUES (?, 'captured', ?, ?, '{}')",
                (name, f"{session:032x}", begin),
            )
            capture = connection.last_insert_rowid()
            connection.execute("UPDATE agent_sessions SET current_capture = ? WHERE id = ?", (capture, name))
            connection.executemany(
                "INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key,"
                " observed_at, payload, captured_event) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                list(_rows(session, name, begin, calls // sessions, capture)),
            )
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("ANALYZE")
    connection.close()


def _rows(session: int, name: str, begin: int, calls: int, capture: int) -> Iterator[tuple[object, ...]]:
    thread, model = f"{session:032x}", MODELS[session % len(MODELS)]
    for call in range(calls):
        at = begin + call * 12_000
        turn = f"{session:028x}{call // 5:08x}"
        if call % 5 == 0:
            yield name, thread, turn, "started", "", at, f'{{"at":"{to_rfc3339(at)}"}}', capture
        text = payload(session * 1_000_000 + call, at, model)
        yield name, thread, turn, "usage", receipt_key("usage", text), at, text, None
        if call % 5 == 4:
            yield name, thread, turn, "output", "", at, '{"text":"done"}', None
            yield name, thread, turn, "completed", "", at, '{"status":"completed"}', None


def sums(n: int) -> tuple[float, ...]:
    """What so many calls of the made streams add up to."""
    return (n, n, n, 20 * n, 300 * n, 42_020 * n, 40_000 * n, 2_000 * n, 0.05 * n)


def rolled(path: Path, sessions: int, calls: int) -> None:
    """Make a ledger with the roll-ups of so many sessions and calls, without the receipts that reports never read."""
    connection = connect(path)
    chance = random.Random(1)
    with connection:
        connection.execute("INSERT INTO rollup_state VALUES ('cursor', '0')")
        connection.execute("INSERT INTO rollup_prices VALUES (1, 'genai-prices', 'bench')")
        connection.executemany(
            "INSERT INTO rollup_kinds (id, provider, model) VALUES (?, 'claude', ?)", list(enumerate(MODELS, 1))
        )
        for session in range(1, sessions + 1):
            connection.execute(
                "INSERT INTO rollup_sessions (id, session_id) VALUES (?, ?)", (session, f"claude:{session}")
            )
            begin = BEGIN + chance.randrange(YEAR)
            times = [begin + call * 20_000 for call in range(calls // sessions)]
            kind = session % len(MODELS) + 1
            connection.executemany(
                "INSERT INTO streams (session, number, kind, capture, seq, at, source, final, counted, calls, input,"
                " output, total_input, cache_read, cache_write, cache_write_1h, peak, estimated_usd, prices,"
                " low_estimate)"
                " VALUES (?, ?, ?, 1, 1, ?, 'native', 1, 1, 1, 20, 300, 42020, 40000, 2000, 0, 42020, 0.05, 1, 0)",
                [(session, number, kind, at) for number, at in enumerate(times)],
            )
            quarters: dict[int, int] = {}
            for at in times:
                quarters[at // 900_000] = quarters.get(at // 900_000, 0) + 1
            connection.executemany(
                "INSERT INTO usage_buckets (start, session, kind, first_at, last_at, streams, final_streams, unpriced,"
                " low_estimates, calls, input, output, total_input, cache_read, cache_write, cache_write_1h,"
                " estimated_usd) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?, ?, ?, ?, ?, 0, ?)",
                [
                    (quarter, session, kind, quarter * 900_000, quarter * 900_000 + 1, *sums(n))
                    for quarter, n in quarters.items()
                ],
            )
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("ANALYZE")
    connection.close()
