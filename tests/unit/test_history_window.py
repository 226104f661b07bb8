"""Window, order and budget of lists (R15.4 to R15.6, D13)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnlog.errors import InvalidError
from turnlog.history import Candidate, budget, in_window, ordered


def capture(number: int, *, ended: int | None = None, held: bool = False) -> Candidate:
    return Candidate(
        session_id=f"conversation-{number}",
        capture=number,
        key=f"run_{number:032x}",
        started_at=number,
        ended_at=ended,
        held=held,
    )


SEED = Candidate(session_id="seed", capture=999, key="run_000000000000000000000000000000ff", started_at=1, held=True)
SIXTY = [SEED, capture(1, held=True), *(capture(number, ended=10_000) for number in range(2, 61))]


def test_seed_budget() -> None:
    kept, truncated = budget(SIXTY, 5)
    assert truncated
    assert [each.started_at for each in kept] == [60, 59, 58, 1, 1]
    assert {each.session_id for each in kept[3:]} == {"seed", "conversation-1"}


def test_seed_windows() -> None:
    recent = ordered(each for each in SIXTY if in_window(each, 59, include_finished=False))
    assert [each.started_at for each in recent] == [60, 59]
    assert sum(in_window(each, 59, include_finished=True) for each in SIXTY) == 59


def test_unfinished_old_input_is_outside_the_window() -> None:
    assert not in_window(SEED, 50, include_finished=True)


def test_held_inputs_may_exceed_the_limit() -> None:
    rows = [capture(number, held=True) for number in range(4)] + [capture(9, ended=9)]
    kept, truncated = budget(rows, 2)
    assert (len(kept), truncated) == (4, True)
    assert budget(rows[:4], 2) == (ordered(rows[:4]), False)


def test_unfinished_but_not_held_competes_like_any_other() -> None:
    kept, truncated = budget([capture(1), capture(2, ended=3), capture(3)], 2)
    assert ([each.started_at for each in kept], truncated) == ([3, 2], True)


def test_no_limit_keeps_all() -> None:
    assert budget(SIXTY, None) == (ordered(SIXTY), False)


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_must_be_positive(limit: int) -> None:
    with pytest.raises(InvalidError):
        budget(SIXTY, limit)


def orphan(session: str, thread: str | None, turn: str | None, key: str | None = None) -> Candidate:
    return Candidate(session_id=session, thread=thread, turn=turn, key=key, started_at=7)


def test_order() -> None:
    expected = [
        capture(8),
        orphan("z", "t", "t", "é"),
        orphan("y", "t", "t", "b"),
        orphan("a", None, None),
        orphan("a", "t", None),
        orphan("a", "t", "1"),
        orphan("a", "t", "2"),
        orphan("b", "a", "a"),
        capture(6),
    ]
    assert ordered(reversed(expected)) == expected


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=30), st.integers(1, 12), st.randoms())
def test_budget_keeps_what_is_held_and_the_newest(facts: list[tuple[int, bool]], limit: int, random: object) -> None:
    rows = [
        Candidate(session_id=f"s{place}", key=f"k{place:02}", started_at=at, held=held)
        for place, (at, held) in enumerate(facts)
    ]
    kept, truncated = budget(rows, limit)
    held = [each for each in rows if each.held]
    assert kept == ordered(kept)
    assert all(each in kept for each in held)
    assert len(kept) == min(len(rows), max(limit, len(held)))
    assert truncated == (len(kept) < len(rows))
    left = [each for each in rows if each not in kept]
    free = [each for each in kept if not each.held]
    assert not left or not free or ordered([*free, *left])[: len(free)] == free
