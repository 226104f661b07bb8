"""A ledger as a whole, in a form without row numbers: two ledgers that hold the same are equal here.

Every table is named here; one that is not makes the comparison fail, so that none is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import apsw

from tests.ledger.sqlite_setup import raw
from turnlog.archive import decompress

EVENT: Final = (
    "(SELECT e.session_id || ' ' || coalesce(e.provider_thread, '') || ' ' || coalesce(e.provider_turn, '') || ' '"
    " || e.kind || ' ' || e.receipt_key FROM session_events e WHERE e.seq = {})"
)
SOURCE: Final = "(SELECT s.path || coalesce(' replaced ' || s.replaced_at, '') FROM sources s WHERE s.id = {})"
NATIVE: Final = "(SELECT n.session_id FROM native_sessions n WHERE n.id = {})"
ROLLED: Final = "(SELECT r.session_id FROM rollup_sessions r WHERE r.id = {})"
KIND: Final = (
    "(SELECT json_array(k.provider, k.service, k.model, k.task_id, k.wave_id) FROM rollup_kinds k WHERE k.id = {})"
)
PRICES: Final = "(SELECT p.source || p.version FROM rollup_prices p WHERE p.id = {})"

REFERENCES: Final = {
    ("agent_sessions", "current_capture"): EVENT,
    ("session_events", "captured_event"): EVENT,
    ("captures", "seq"): EVENT,
    ("turns", "start_seq"): EVENT,
    ("turns", "capture"): EVENT,
    ("turns", "completion_seq"): EVENT,
    ("intents", "seq"): EVENT,
    ("intents", "capture"): EVENT,
    ("releases", "seq"): EVENT,
    ("receipt_places", "seq"): EVENT,
    ("receipt_places", "source_id"): SOURCE,
    ("archive", "source_id"): SOURCE,
    ("session_sources", "source_id"): SOURCE,
    ("source_problems", "source_id"): SOURCE,
    ("passages", "source_id"): SOURCE,
    ("passages", "native"): NATIVE,
    ("streams", "session"): ROLLED,
    ("streams", "kind"): KIND,
    ("streams", "capture"): EVENT,
    ("streams", "prices"): PRICES,
    ("loose_gaps", "session"): ROLLED,
    ("loose_gaps", "kind"): KIND,
    ("usage_buckets", "session"): ROLLED,
    ("usage_buckets", "kind"): KIND,
}

NUMBERS: Final = {
    ("session_events", "seq"),
    ("sources", "id"),
    ("native_sessions", "id"),
    ("passages", "id"),
    ("rollup_kinds", "id"),
    ("rollup_prices", "id"),
    ("rollup_sessions", "id"),
    ("streams", "number"),
    ("streams", "seq"),  # of several receipts of one call the first
    ("loose_gaps", "number"),
}
"""Columns that only say which came first."""

APART: Final = {
    *("ledger_meta", "homes", "sqlite_sequence", "rollup_state", "rollup_dirty", "pushed"),
    *("passage_words", "passage_words_config", "passage_words_data", "passage_words_docsize", "passage_words_idx"),
}
"""Tables of the ledger's own name, of the engine, and of the state of caches; words are read below."""


def whole(path: Path, *, without: tuple[tuple[str, str], ...] = ()) -> dict[str, list[str]]:
    """Return every row of every table, sorted; ``without`` names columns to leave out."""
    with raw(path) as connection:
        return {name: sorted(rows) for name, rows in _tables(connection, {*NUMBERS, *without})}


def _tables(connection: apsw.Connection, without: set[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    names = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
    for (name,) in list(connection.execute(names)):
        if name in APART:
            continue
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
        taken = [column for column in columns if (name, column) not in without]
        shown = ", ".join(REFERENCES.get((name, column), 'x."{}"').format(_of(name, column)) for column in taken)
        rows = [_plain(name, taken, row) for row in connection.execute(f"SELECT {shown} FROM {name} x")]
        yield name, rows
    yield "words", list(_words(connection))


def _of(name: str, column: str) -> str:
    return f'x."{column}"' if (name, column) in REFERENCES else column


def _plain(name: str, columns: list[str], row: tuple[Any, ...]) -> str:
    told = dict(zip(columns, row, strict=True))
    if name == "archive":
        told["data"] = decompress(told["data"], told["size"])
    return repr(told)


def _words(connection: apsw.Connection) -> Iterator[str]:
    connection.execute("CREATE VIRTUAL TABLE temp.seen USING fts5vocab(main, passage_words, instance)")
    yield from (
        repr(row)
        for row in connection.execute(
            'SELECT v.term, v."offset", s.path, p."offset", p.part, p.key FROM temp.seen v'
            " LEFT JOIN passages p ON p.id = v.doc LEFT JOIN sources s ON s.id = p.source_id"
        )
    )
    connection.execute("DROP TABLE temp.seen")


def differences(one: dict[str, list[str]], other: dict[str, list[str]]) -> str:
    """Say what two ledgers do not have in common; nothing where they are equal."""
    told = []
    for name, here in one.items():
        for mark, rows, others in (("-", here, other[name]), ("+", other[name], here)):
            left = list(others)
            for row in rows:
                if row in left:
                    left.remove(row)
                else:
                    told.append(f"{mark} {name} {row}")
    return "\n".join(told)
