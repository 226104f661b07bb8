"""Where most receipts of a turn need not be looked at closely, the result is the one of looking at each."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.usage_cases import Rows, claude_usage, codex, counters, file_call, kinds, opencode, tokens
from turnlog.model import EventKind, Gap
from turnlog.usage import Stream, reduce_usage
from turnlog.usage import codex as counting

UNHURRIED = settings(deadline=None)  # a loaded machine is no failure
STEP = st.tuples(*[st.sampled_from([0, 0, 1, 5, 20])] * 5)
WORDS = st.fixed_dictionaries(
    {}, optional={"modelContextWindow": st.sampled_from([90, 100]), "model": st.sampled_from(["m", "n", "", None])}
)


@st.composite
def nearly_rising(draw: st.DrawFn) -> tuple[Rows, Rows]:
    """A Codex turn whose totals mostly rise, and the turn before it."""
    before, rows = Rows(), Rows(100)
    totals = [0] * 5
    for made, turn in ((before, "before"), (rows, "turn")):
        if draw(st.booleans()):
            made.start(turn)
        for step in draw(st.lists(STEP, min_size=1, max_size=6)):
            totals = [total + more for total, more in zip(totals, step, strict=True)]
            told = list(totals)
            if draw(st.integers(0, 7)) == 0:
                told[draw(st.integers(0, 4))] = draw(st.integers(0, 40))
            width = draw(st.sampled_from([3, 4, 5, 5, 5, 5]))
            last = draw(st.tuples(*[st.integers(0, 30)] * 5))
            made.usage({"total": counters(tuple(told[:width])), "last": counters(last[:width]), **draw(WORDS)}, turn)
        made.done(turn)
    return before, rows


@UNHURRIED
@given(nearly_rising(), st.booleans())
def test_a_rising_codex_turn_counts_as_if_each_receipt_were_folded(turns: tuple[Rows, Rows], known: bool) -> None:
    before, rows = turns
    given_before = {("thread", "turn"): list(before)} if known else {}
    short = reduce_usage(rows, predecessors=given_before)
    with patch.object(counting._Turn, "_rises", lambda _: False):
        assert reduce_usage(rows, predecessors=given_before) == short


def rises(*receipts: dict[str, Any]) -> bool:
    """Tell whether a turn that begins with a thread is folded by its last receipt alone."""
    rows = Rows()
    rows.start()
    for each in receipts:
        rows.usage(each)
    rows.done()
    asked: list[bool] = []
    ask = counting._Turn._rises

    def noting(turn: counting._Turn) -> bool:
        asked.append(ask(turn))
        return asked[-1]

    with patch.object(counting._Turn, "_rises", noting):
        reduce_usage(rows)
    return asked[-1]


FIRST = codex((10, 1, 4, 1), (10, 1, 4, 1), modelContextWindow=100)


def test_a_turn_whose_totals_grow_is_folded_by_its_last_receipt() -> None:
    assert rises(FIRST, codex((30, 3, 9, 2), (20, 2, 5, 1), modelContextWindow=100))


@pytest.mark.parametrize(
    "second",
    [
        codex((9, 3, 9, 2), (9, 2, 5, 1)),
        codex((30, 3, 9, 0), (20, 2, 5, 1)),
        codex((12, 3, 9, 2), (2, 2, 5, 1)),  # 3 fresh tokens where 6 were: the cache grew more than all input
        codex((30, 3, 9), (20, 2, 5)),
        codex((30, 3, 9, 2, 1), (20, 2, 5, 1, 1)),
        codex((30, 3, 9, 2), (20, 2, 5, 1), modelContextWindow=90),
    ],
    ids=["total", "reasoning", "fresh input", "counter lost", "counter found", "window"],
)
def test_a_turn_in_which_anything_falls_is_folded_receipt_by_receipt(second: dict[str, Any]) -> None:
    assert not rises(FIRST, second)


def test_what_only_an_earlier_receipt_of_a_rising_turn_tells_is_kept() -> None:
    rows = Rows()
    rows.start()
    rows.usage(codex((50, 1, 0, 0), (50, 1, 0, 0), modelContextWindow=100, model="m"))
    rows.usage(codex((60, 2, 0, 0), (10, 1, 0, 0), model="n"))
    [stream] = reduce_usage(rows).streams
    assert (stream.peak, stream.window, stream.model) == (50, 100, "m")
    assert (stream.total_input, stream.output, stream.seqs) == (60, 2, (2, 3))


def test_a_peak_counts_once_though_a_smaller_one_follows() -> None:
    rows = Rows()
    rows.start()
    for total, last in ((10, 10), (60, 50), (70, 10)):
        rows.usage(codex((total, 0, 0, 0), (last, 0, 0, 0)))
    found = reduce_usage(rows).usage
    assert (found.peak_input_tokens, found.total_input_tokens, kinds(found)) == (50, 70, [])


COUNT = st.none() | st.integers(0, 9)
MESSAGE = st.builds(
    lambda counts, reasoning, version, info: opencode(
        "message", tokens(*counts, **({} if reasoning is None else {"reasoning": reasoning})), version, **info
    ),
    st.tuples(COUNT, COUNT),
    COUNT,
    st.sampled_from([None, "1.1.65", "1.18.33"]),
    st.fixed_dictionaries(
        {},
        optional={
            "cost": st.sampled_from([None, 0, 0.5, -1, "much"]),
            "finish": st.sampled_from(["stop", None]),
            "error": st.sampled_from([{"name": "Aborted"}, {"data": {"statusCode": 404}}]),
            "modelID": st.just("m"),
            "providerID": st.sampled_from(["p", 7]),
            "time": st.just({"created": 7}),
        },
    ),
)
CALL = st.builds(
    lambda usage, words: file_call("claude", "call", claude_usage(*usage), **words),
    st.tuples(*[st.integers(0, 9)] * 4),
    st.fixed_dictionaries({}, optional={"tier": st.just("priority"), "request": st.just("r"), "at": st.just(7)}),
)


def told(payloads: list[Any], *, start: bool) -> list[Stream]:
    rows = Rows()
    if start:
        rows.start(observed_at=1)
    for each in payloads:
        rows.add(EventKind.USAGE, each, "thread", "turn", observed_at=1)
    return list(reduce_usage(rows).streams)


def once_each(gaps: tuple[Gap, ...]) -> list[tuple[str, str | None]]:
    return list(dict.fromkeys((gap.kind, gap.counter) for gap in gaps))


@UNHURRIED
@given(MESSAGE | CALL, st.booleans())
def test_what_is_told_once_counts_as_what_is_told_twice(payload: Any, start: bool) -> None:
    once, twice = told([payload], start=start), told([payload, payload], start=start)
    plain = [[msgspec.structs.replace(each, seqs=(), gaps=()) for each in streams] for streams in (once, twice)]
    assert plain[0] == plain[1]
    assert [once_each(each.gaps) for each in once] == [once_each(each.gaps) for each in twice]
    assert [len(each.seqs) for each in twice] == [2] * len(once)
