"""The last known rate limits: the newest of each provider, whatever else the ledger holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ledger.sqlite_setup import raw
from turnlog.ledger import Store, open_store
from turnlog.ledger.backend import named_queries
from turnlog.queries.limits import Limit, LimitWindow, last_limits
from turnlog.receipts import Observation, new_artifact_key
from turnlog.testing.clock import FakeClock

FIVE_HOURS, WEEK = 300, 10_080


class Book:
    """A ledger with one conversation, into which limits are noted."""

    def __init__(self, path: Path) -> None:
        self.store: Store = open_store(f"sqlite:///{path}", now=FakeClock())
        from turnlog import Ledger

        self.key = new_artifact_key()
        Ledger(self.store).create_session(id="s", cwd="/f", artifact_key=self.key)

    def note(self, at: int, evidence: dict[str, Any]) -> None:
        self.store.events.retain("s", Observation(self.key, f"limits:{at}", at, evidence))


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "ledger.db")


def told(provider: str, used: float, **more: Any) -> dict[str, Any]:
    return {"provider": provider, "primary": {"used_percent": used, "window_minutes": FIVE_HOURS, **more}}


def test_nothing_is_known_of_an_empty_ledger(book: Book) -> None:
    assert last_limits(book.store) == []


def test_the_newest_of_each_provider_counts(book: Book) -> None:
    book.note(30, told("codex", 58.5, resets_at=1_763_422_724))
    book.note(40, told("claude", 10))
    book.note(20, told("codex", 99))
    secondary = {"used_percent": 42, "window_minutes": WEEK, "resets_in_seconds": 60}
    book.note(50, {**told("claude", 11, resets_at=1_763_422_724_000), "secondary": secondary, "plan_type": "max"})
    assert last_limits(book.store) == [
        Limit(
            provider="claude",
            at=50,
            windows=(
                LimitWindow(used_percent=11.0, window_minutes=FIVE_HOURS, resets_at=1_763_422_724_000),
                LimitWindow(used_percent=42.0, window_minutes=WEEK, resets_at=60_050),
            ),
            plan="max",
        ),
        Limit(
            provider="codex",
            at=30,
            windows=(LimitWindow(used_percent=58.5, window_minutes=FIVE_HOURS, resets_at=1_763_422_724_000),),
        ),
    ]


@pytest.mark.parametrize(
    "evidence",
    [
        {"provider": "codex", "primary": None, "secondary": None},
        {"provider": None, "primary": {"used_percent": 99}},
        {"primary": {"used_percent": 99}},
        {"provider": 7, "primary": {"used_percent": 99}},
    ],
)
def test_what_says_nothing_does_not_hide_what_was_known(book: Book, evidence: dict[str, Any]) -> None:
    book.note(1, told("codex", 5))
    book.note(2, evidence)
    assert [(each.provider, each.at) for each in last_limits(book.store)] == [("codex", 1)]


def test_a_payload_that_cannot_be_read_is_left_out(book: Book, tmp_path: Path) -> None:
    book.note(1, told("codex", 5))
    with raw(tmp_path / "ledger.db") as connection:
        connection.execute("UPDATE session_events SET payload = '{\"used_percent\"' WHERE kind = 'observed'")
    assert last_limits(book.store) == []


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["claude", "codex"]), st.integers(1, 1_000)), unique_by=lambda row: row[1]))
def test_the_order_in_which_they_are_read_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int]]
) -> None:
    books = [Book(tmp_path_factory.mktemp("limits") / "ledger.db") for _ in range(2)]
    for book, order in zip(books, (rows, sorted(rows, reverse=True)), strict=True):
        for provider, at in order:
            book.note(at, told(provider, at / 10))
    first, second = (last_limits(book.store) for book in books)
    newest = {name: max(at for each, at in rows if each == name) for name in sorted({row[0] for row in rows})}
    assert first == second
    assert {limit.provider: limit.at for limit in first} == newest
    for book in books:
        book.store.close()


@pytest.mark.parametrize("name", ["next_limits_provider", "last_limits"])
def test_they_are_found_by_their_index(book: Book, tmp_path: Path, name: str) -> None:
    with raw(tmp_path / "ledger.db") as connection:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        bindings = {"after": "", "provider": "codex"}
        steps = [
            str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {named_queries('sqlite')[name]}", bindings)
        ]
    assert len(steps) == 1, steps
    assert steps[0].startswith("SEARCH session_events USING INDEX events_limits (<expr>"), steps
