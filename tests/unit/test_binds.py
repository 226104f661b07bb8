"""Usage around a bind: which turns came before it, which one it fell into, and what would be moved (4.7)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.history.binds import PHASES, Piece, Split, TurnSpan, split
from turnlog.usage.buckets import Sums

TASK = "task"
BIND = 100


def span(turn: str, began: int | None, ended: int | None, *, task: str | None = None, thread: str = "t") -> TurnSpan:
    return TurnSpan(thread, turn, None, began, 0 if began is None else began, ended, task)


def piece(turn: str, tokens: int, *, task: str | None = None, thread: str = "t", at: int = 0) -> Piece:
    return Piece(thread, turn, at, task, Sums(streams=1, final=1, input=tokens, gaps={}))


def tokens(found: Split) -> tuple[int | None, ...]:
    return tuple(found.sums[phase].input for phase in PHASES)


def test_the_worked_example() -> None:
    """1000 before, 230 in the binding turn over 2 steps, 4 after: the Task's 10004 become 11234."""
    spans = [span("one", 10, 50), span("two", 90, 150), span("three", 160, 170, task=TASK)]
    pieces = [
        piece("one", 1_000),
        piece("two", 200),
        piece("two", 30),
        piece("three", 4, task=TASK),
    ]
    found = split(pieces, spans, BIND, TASK)
    assert tokens(found) == (1_000, 230, 4)
    assert found.turns == {"before": 1, "during": 1, "after": 1}
    assert found.sums["during"].streams == 2
    assert (found.attributed.input, found.movable.input) == (4, 1_230)
    total = Sums(streams=9, final=9, input=10_000, gaps={})
    total.add(found.attributed)
    assert total.input == 10_004
    total.add(found.movable)
    assert total.input == 11_234


@pytest.mark.parametrize(
    ("turn", "phase"),
    [
        (span("x", 10, 99), "before"),
        (span("x", 10, 100), "before"),
        (span("x", 10, 101), "during"),
        (span("x", 99, None), "during"),
        (span("x", 100, 200), "after"),
        (TurnSpan("t", "x", 99, 105, 105, 200, None), "during"),  # asked for before, seen to start after
        (TurnSpan("t", "x", None, None, 50, 60, None), "before"),  # never seen to start
        (span("x", 10, 50, task=TASK), "after"),  # a clock that went back: the receipt decides
        (span("x", 10, None, task="other"), "during"),
    ],
)
def test_the_side_of_a_turn(turn: TurnSpan, phase: str) -> None:
    found = split([piece("x", 7, task=turn.task_id)], [turn], BIND, TASK)
    assert [each for each in PHASES if found.turns[each]] == [phase]
    assert [each for each in PHASES if found.sums[each].input] == [phase]


def test_a_turn_whose_end_is_unknown_is_not_the_binding_one_when_a_later_one_began() -> None:
    spans = [span("lost", 10, None), span("now", 60, None), span("other", 20, None, thread="u")]
    found = split([], spans, BIND, TASK)
    assert found.turns == {"before": 1, "during": 2, "after": 0}


def test_turns_for_other_work_are_not_moved() -> None:
    found = split([piece("x", 5, task="other")], [span("x", 1, 2, task="other")], BIND, TASK)
    assert (found.sums["before"].input, found.attributed.input, found.movable.input) == (5, None, None)


def test_usage_without_a_turn_is_placed_by_its_time() -> None:
    pieces = [Piece(None, None, at, None, Sums(gaps={"unreadable": 1})) for at in (50, 100)]
    found = split(pieces, [], BIND, TASK)
    assert [found.sums[each].gaps for each in PHASES] == [{"unreadable": 1}, {}, {"unreadable": 1}]
    assert found.movable.gaps == {"unreadable": 2}


def test_unknown_counters_stay_unknown() -> None:
    found = split([Piece("t", "x", 1, None, Sums(streams=1, gaps={}))], [span("x", 1, 2)], BIND, TASK)
    assert (found.sums["before"].streams, found.sums["before"].input, found.sums["after"].input) == (1, None, None)


SPANS = st.lists(
    st.builds(
        lambda turn, began, took, task: span(str(turn), began, None if took is None else began + took, task=task),
        st.integers(0, 8),
        st.integers(0, 200),
        st.none() | st.integers(0, 150),
        st.sampled_from([None, TASK, "other"]),
    ),
    unique_by=lambda each: each.turn,
)
PIECES = st.lists(
    st.builds(
        lambda turn, count, task: piece(str(turn), count, task=task),
        st.integers(0, 9),
        st.integers(0, 1_000),
        st.sampled_from([None, TASK, "other"]),
    )
)


@given(SPANS, PIECES, st.randoms())
def test_order_does_not_matter_and_nothing_is_lost_or_counted_twice(
    spans: list[TurnSpan], pieces: list[Piece], random: Random
) -> None:
    found = split(pieces, spans, BIND, TASK)
    shuffled, turned = list(pieces), list(spans)
    random.shuffle(shuffled)
    random.shuffle(turned)
    assert split(shuffled, turned, BIND, TASK) == found
    assert sum(each or 0 for each in tokens(found)) == sum(each.sums.input or 0 for each in pieces)
    assert sum(found.turns.values()) == len(spans)
    other = sum(each.sums.input or 0 for each in pieces if each.task_id == "other")
    assert (found.attributed.input or 0) + (found.movable.input or 0) + other == sum(
        each.sums.input or 0 for each in pieces
    )
