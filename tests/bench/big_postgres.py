"""A big PostgreSQL ledger, made quickly: plain SQL in one transaction, through the same triggers as every write."""

from __future__ import annotations

import psycopg

from tests.bench.big_ledger import usage
from tests.bench.usage_ledger import MODELS
from turnlog import open_ledger

SESSION = "'session_' || lpad(to_hex(i), 32, '0')"
KEY = "lpad(to_hex(i), 32, '0')"
RECEIPT = (
    "INSERT INTO session_events (session_id, provider_thread, provider_turn, kind, receipt_key, observed_at, payload"
)

AT_ONCE = 1_000
"""Sessions in one transaction: the triggers lock each of them, and a server has room for some thousand locks."""


def build(url: str, sessions: int, *, open_every: int = 0, usages: int = 2) -> int:
    """Fill an empty ledger as big_ledger does for SQLite. Returns the receipts."""
    open_ledger(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET jit = off; SET synchronous_commit = off")
        connection.execute("INSERT INTO execs (id, trace_id, started_at) VALUES ('exec', 'bench', 1)")
        for first in range(1, sessions + 1, AT_ONCE):
            with connection.transaction():
                _fill(connection, first, min(first + AT_ONCE - 1, sessions), open_every, usages)
            if first == 1:
                connection.execute("ANALYZE")  # the triggers' statements are planned for what is there
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        [(rows,)] = connection.execute("SELECT count(*) FROM session_events").fetchall()
        return int(rows)


def _fill(
    connection: psycopg.Connection[tuple[object, ...]], first: int, last: int, open_every: int, usages: int
) -> None:
    numbers = f"FROM generate_series({first}, {last}) AS n (i)"
    connection.execute(
        "INSERT INTO agent_sessions (id, title, title_source, created_at, input_published, cwd, provider, interactive,"
        f" completed_at) SELECT {SESSION}, 'Title ' || (i % 1000), 'generated', i * 1000, 1, '/home/somebody/project',"
        f" 'codex', i % 2, CASE WHEN i % 10 > 0 THEN i * 1000 + 900 END {numbers}"
    )
    connection.execute(
        "INSERT INTO session_events (session_id, kind, receipt_key, observed_at, payload)"
        f" SELECT {SESSION}, 'captured', {KEY}, i * 1000, json_build_object('artifact_key', {KEY}, 'caller_key',"
        f" lpad(to_hex(i % 100), 32, '0'))::text {numbers}"
    )
    connection.execute(
        f"UPDATE agent_sessions s SET current_capture = c.seq {numbers} JOIN captures c ON c.session_id = {SESSION}"
        " WHERE s.id = c.session_id"
    )
    turn = f"{SESSION}, 'thread_' || {KEY}, 'turn_' || {KEY}"
    connection.execute(
        f"{RECEIPT}, exec_id, provider_generation, captured_event) SELECT {turn}, 'started', '', i * 1000 + 500,"
        f" '{{}}', 'exec', 1, (SELECT seq FROM captures WHERE artifact_key = {KEY}) {numbers}"
    )
    for number in range(usages):
        key = f"md5(i || '.{number}') || md5('{number}.' || i)"
        connection.execute(
            f"{RECEIPT}) SELECT {turn}, 'usage', {key}, i * 1000 + 500, '{usage(number)}' {numbers} ORDER BY i"
        )
    done = f"WHERE {open_every} = 0 OR i % greatest({open_every}, 1) > 0"
    connection.execute(
        f"{RECEIPT}) SELECT {turn}, 'completed', '', i * 1000 + 500, '{{\"status\":\"completed\"}}' {numbers} {done}"
    )
    connection.execute(f"{RECEIPT}) SELECT {turn}, 'output', '', i * 1000 + 500, '{{\"text\":\"done\"}}' {numbers}")


def roll(url: str, sessions: int, calls: int) -> None:
    """Fill an empty ledger with the roll-ups of so many sessions and calls, as usage_ledger does for SQLite."""
    open_ledger(url).close()
    each = calls // sessions
    begin = f"(1740000000000 + (i::bigint * 7919 * 104729) % {365 * 86_400_000})"
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO rollup_state VALUES ('cursor', '0')")
        connection.execute("INSERT INTO rollup_prices VALUES (1, 'genai-prices', 'bench')")
        connection.cursor().executemany(
            "INSERT INTO rollup_kinds (id, provider, model) VALUES (%s, 'claude', %s)", list(enumerate(MODELS, 1))
        )
        connection.execute(
            f"INSERT INTO rollup_sessions (id, session_id) SELECT i, 'claude:' || i FROM generate_series(1, {sessions})"
            " AS n (i)"
        )
        connection.execute(
            "INSERT INTO usage_buckets (start, session, kind, first_at, last_at, streams, final_streams, unpriced,"
            " low_estimates, calls, input, output, total_input, cache_read, cache_write, cache_write_1h, estimated_usd)"
            " SELECT at / 900000, i, i % 4 + 1, min(at), max(at), count(*), count(*), 0, 0, count(*), 20 * count(*),"
            " 300 * count(*), 42020 * count(*), 40000 * count(*), 2000 * count(*), 0, 0.05 * count(*)"
            f" FROM (SELECT i, {begin} + c * 20000 AS at FROM generate_series(1, {sessions}) AS n (i),"
            f" generate_series(0, {each - 1}) AS k (c)) AS made GROUP BY at / 900000, i"
        )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
