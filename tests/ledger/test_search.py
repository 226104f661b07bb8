"""Search over a real full-text table and archive: what is found, in which order, and what a damage costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ledger.shelf import BEGIN, Shelf, read
from turnlog.errors import InvalidError
from turnlog.ledger.search import Let
from turnlog.queries.search import Hit, Results, search


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf(tmp_path / "ledger.db")
    yield made
    made.store.close()


def fill(shelf: Shelf) -> None:
    one = shelf.conversation("one", cwd="/w/app")
    two = shelf.conversation("two", provider="claude", repo="/w/other")
    a, b = shelf.source("/x/one.jsonl"), shelf.source("/x/two.jsonl", provider="claude")
    shelf.write(
        one,
        a,
        [
            ("user", "please fix the login test"),
            [("reasoning", "the login needs a time zone"), ("assistant", "Fixing the login now")],
            ("tool_input", '{"command":"pytest tests/login_test.py"}'),
            ("tool_output", "1 failed: zone of time"),
        ],
    )
    shelf.write(two, b, [("user", "größe of the LOGIN page"), ("assistant", "done")], at=BEGIN + 86_400_000, turn=None)


def found(shelf: Shelf, query: str, **let: object) -> list[str]:
    return [hit.snippet or "" for hit in search(shelf.store, query, read, let=Let(**let)).hits]  # type: ignore[arg-type]


def test_words_must_all_be_there_and_the_best_comes_first(shelf: Shelf) -> None:
    fill(shelf)
    assert found(shelf, "login test") == ["please fix the login test", '{"command":"pytest tests/login_test.py"}']
    assert found(shelf, "login fix") == ["please fix the login test"]
    assert found(shelf, "login nowhere") == []


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("login", 5),
        ('"time zone"', 1),
        ("time zone", 2),
        ("fix*", 2),
        ('"time zo"*', 1),
        ("login -test -page", 2),
        ("failed OR page", 2),
        ("GROSSE OR große", 1),
        ("groß* OR done", 2),
        ("login_test.py", 1),
    ],
)
def test_how_many_match(shelf: Shelf, query: str, count: int) -> None:
    fill(shelf)
    assert len(found(shelf, query)) == count


def test_filters(shelf: Shelf) -> None:
    fill(shelf)
    assert len(found(shelf, "login", provider="claude")) == 1
    assert len(found(shelf, "login", session="codex:one")) == 4
    assert len(found(shelf, "login", roles=(0,))) == 2
    assert len(found(shelf, "login", roles=(2, 3), provider="codex")) == 2
    assert len(found(shelf, "login", since=BEGIN + 1000)) == 4
    assert len(found(shelf, "login", project="app")) == 4
    assert len(found(shelf, "login", project="/w/other")) == 1
    assert len(found(shelf, "login", project="/w/")) == 5
    assert found(shelf, "login", project="ap") == []
    assert found(shelf, "login", session="codex:none") == []


def test_a_hit_tells_where_it_is(shelf: Shelf) -> None:
    fill(shelf)
    (hit,) = search(shelf.store, "Fixing", read).hits
    assert (hit.session, hit.provider, hit.turn, hit.role) == ("codex:one", "codex", "t1", "assistant")
    assert hit.at == BEGIN + 1000
    assert hit.snippet == "Fixing the login now"
    assert hit.marks == ((0, 6),)
    assert hit.score > 0
    (other,) = search(shelf.store, "größe", read).hits
    assert (other.turn, other.at) == (None, BEGIN + 86_400_000)


def test_what_has_no_time_is_not_since(shelf: Shelf) -> None:
    session, source = shelf.conversation("timeless"), shelf.source("/x/t.jsonl")
    shelf.write(session, source, [("user", "needle")], at=None)
    assert len(found(shelf, "needle")) == 1
    assert found(shelf, "needle", since=1) == []


def test_pages_give_every_match_once_in_one_order(shelf: Shelf) -> None:
    session, source = shelf.conversation("many"), shelf.source("/x/m.jsonl")
    lines = [("user", f"needle number {number}" + " hay" * (number % 7)) for number in range(53)]
    shelf.write(session, source, lines)  # type: ignore[arg-type]
    whole = search(shelf.store, "needle", read, limit=100)
    assert whole.next is None
    assert len(whole.hits) == 53
    assert [hit.score for hit in whole.hits] == sorted((hit.score for hit in whole.hits), reverse=True)
    hits: list[Hit] = []
    cursor = None
    for _ in range(6):
        page: Results = search(shelf.store, "needle", read, limit=10, cursor=cursor)
        hits += page.hits
        cursor = page.next
        shelf.write(session, source, [("user", "a needle that came later")])  # no page may be moved by it
    assert cursor is None
    assert [hit.snippet for hit in hits] == [hit.snippet for hit in whole.hits]


def test_of_equal_ones_the_newest_comes_first(shelf: Shelf) -> None:
    session, source = shelf.conversation("same"), shelf.source("/x/s.jsonl")
    shelf.write(session, source, [("user", "needle hay")] * 5)
    assert [hit.at for hit in search(shelf.store, "needle", read).hits] == [BEGIN + 1000 * n for n in (4, 3, 2, 1, 0)]


def test_where_too_many_match_the_newest_are_ranked_and_it_is_told(shelf: Shelf) -> None:
    session, source = shelf.conversation("common"), shelf.source("/x/c.jsonl")
    lines = [("user" if number % 2 else "note", f"the {number}") for number in range(100)]
    shelf.write(session, source, lines)  # type: ignore[arg-type]
    for let, first in ((Let(), 90), (Let(roles=(0,)), 81), (Let(session="codex:common"), 90)):
        page = search(shelf.store, "the", read, let=let, limit=6, most=10)
        assert page.ranked == "recent"
        rest = search(shelf.store, "the", read, let=let, limit=6, most=10, cursor=page.next)
        assert (rest.ranked, rest.next) == ("recent", None)
        numbers = [int((hit.snippet or "").split()[1]) for hit in (*page.hits, *rest.hits)]
        assert len(numbers) == 10
        assert min(numbers) == first
    assert search(shelf.store, "the", read, most=100).ranked == "all"


def test_a_cursor_of_another_search_and_one_that_is_none_are_refused(shelf: Shelf) -> None:
    fill(shelf)
    cursor = search(shelf.store, "login", read, limit=2).next
    assert cursor is not None
    assert len(search(shelf.store, "login", read, limit=2, cursor=cursor).hits) == 2
    for query, let, bad in (
        ("page", Let(), cursor),
        ("login", Let(provider="codex"), cursor),
        ("login", Let(), "nonsense"),
        ("login", Let(), "é"),
        ("login", Let(), ""),
    ):
        with pytest.raises(InvalidError, match="cursor"):
            search(shelf.store, query, read, let=let, cursor=bad)
    for limit in (0, -1, 1_001):
        with pytest.raises(InvalidError, match="hits"):
            search(shelf.store, "login", read, limit=limit)


def test_a_damaged_piece_is_told_and_the_other_hits_are_whole(shelf: Shelf) -> None:
    fill(shelf)
    shelf.sql("UPDATE archive SET data = zeroblob(20) WHERE source_id = 2")
    shown = search(shelf.store, "login", read)
    assert len(shown.hits) == 5
    assert [hit.session for hit in shown.hits if hit.snippet is None] == ["claude:two"]
    (problem,) = shown.problems
    assert "the archive is damaged" in problem
    assert "source 2, byte 0" in problem


def test_a_piece_that_is_gone_leaves_its_hits_without_snippet(shelf: Shelf) -> None:
    fill(shelf)
    shelf.sql("DELETE FROM archive WHERE source_id = 2")
    shown = search(shelf.store, "login", read)
    assert [hit.session for hit in shown.hits if hit.snippet is None] == ["claude:two"]


def test_a_line_over_several_pieces_has_a_snippet(shelf: Shelf) -> None:
    session, source = shelf.conversation("long"), shelf.source("/x/l.jsonl")
    shelf.write(session, source, [("tool_output", "hay " * 700_000 + "needle"), ("user", "behind it")])
    (hit,) = search(shelf.store, "needle", read).hits
    assert (hit.snippet or "").endswith("hay needle")
    (hit,) = search(shelf.store, "behind", read).hits
    assert hit.snippet == "behind it"


def test_secrets_are_hidden_in_snippets_unless_they_are_asked_for(shelf: Shelf) -> None:
    session, source = shelf.conversation("secret"), shelf.source("/x/s.jsonl")
    shelf.write(session, source, [("tool_output", "export password=hunter22 now")])
    assert found(shelf, "export") == ["export password=[redacted] now"]
    assert [hit.snippet for hit in search(shelf.store, "export", read, redact=False).hits] == [
        "export password=hunter22 now"
    ]


def test_words_forgotten_with_their_source_are_not_found(shelf: Shelf) -> None:
    fill(shelf)
    shelf.sql("DELETE FROM passage_words WHERE rowid IN (SELECT id FROM passages WHERE source_id = 1)")
    shelf.sql("DELETE FROM passages WHERE source_id = 1")
    assert [hit.session for hit in search(shelf.store, "login", read).hits] == ["claude:two"]


MARKS = ["(", ")", "*", "-", "+", "^", ":", ",", ";", "{", "}", "%", "--", '"', "'", "\\", "\x00", "\u200b", "\ud800"]
WORDS = ["OR", "AND", "NOT", "NEAR(", "text:", "rank", "login", "zone", "é", "日"]
SYNTAX = st.lists(st.sampled_from([*MARKS, *WORDS]), max_size=12).flatmap(
    lambda parts: st.sampled_from(["", " "]).map(lambda gap: gap.join(parts))
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.one_of(SYNTAX, st.text(max_size=60)))
def test_no_query_is_a_syntax_error(shelf: Shelf, query: str) -> None:
    if not shelf.sql("SELECT 1 FROM passages"):
        fill(shelf)
    try:
        shown = search(shelf.store, query, read)
    except InvalidError as error:
        assert "search" in error.message  # noqa: PT017 - either is right
        return
    for hit in shown.hits:
        assert hit.marks
