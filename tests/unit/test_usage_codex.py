"""Codex counters: baselines, epochs, cache writes, the two witnesses (4.4, D5, D15, D16)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.usage_cases import (
    Rows,
    case_a,
    codex,
    file_call,
    kinds,
    observed_session,
    recorded,
)
from turnlog.model import Gap
from turnlog.usage import Reduction, reduce_usage

CALL = {
    "input_tokens": 1600,
    "cached_input_tokens": 400,
    "cache_write_input_tokens": 200,
    "output_tokens": 50,
    "reasoning_output_tokens": 20,
    "total_tokens": 1650,
}


def plain(total: int, last: int) -> dict[str, Any]:
    return codex((total, 0, 0, 0), (last, 0, 0, 0))


def turn_after(totals: list[int], *receipts: tuple[int, int]) -> Reduction:
    """A completed turn with these totals in an earlier input, then a turn with (total, last) receipts."""
    before = Rows()
    before.start("before")
    for total in totals:
        before.usage(plain(total, total), "before")
    before.done("before")
    rows = Rows(100)
    rows.start()
    for total, last in receipts:
        rows.usage(plain(total, last))
    return reduce_usage(rows, predecessors={("thread", "turn"): before})


def test_predecessor_of_another_input_gives_the_baseline() -> None:
    found = turn_after([20], (60, 10))
    assert (found.usage.total_input_tokens, found.usage.gaps) == (40, 0)


def test_named_without_rows_means_no_usable_predecessor() -> None:
    rows = Rows()
    rows.start("before")
    rows.usage(plain(20, 20), "before")
    rows.done("before")
    rows.start()
    rows.usage(plain(60, 10))
    assert reduce_usage(rows).usage.total_input_tokens == 60
    usage = reduce_usage(rows, predecessors={("thread", "turn"): []}).usage
    assert usage.total_input_tokens == 30
    assert kinds(usage) == ["start_unknown"]


def test_predecessor_that_completes_after_the_start_is_not_usable() -> None:
    rows = Rows()
    rows.start("before")
    rows.usage(plain(20, 20), "before")
    rows.start()
    rows.done("before")
    rows.usage(plain(60, 10))
    usage = reduce_usage(rows).usage
    assert usage.total_input_tokens == 30
    assert kinds(usage) == ["start_unknown"]


def test_predecessor_rows_after_the_start_do_not_count() -> None:
    rows = Rows()
    rows.start("before")
    rows.usage(plain(20, 20), "before")
    rows.done("before")
    rows.start()
    rows.usage(plain(25, 5), "before")
    rows.usage(plain(60, 10))
    assert reduce_usage(rows).usage.total_input_tokens == 25 + 40


def test_total_below_the_predecessors_last_is_a_new_epoch() -> None:
    found = turn_after([20, 40, 30], (25, 5), (27, 2))
    assert found.usage.total_input_tokens == 27
    assert found.usage.gap_list == (
        Gap(kind="counter_reset", stream="native:thread:turn", seq=101, counter="total_input", before=30, after=25),
    )


def test_a_reset_counter_gives_all_counters_base_zero() -> None:
    before = Rows()
    before.start("before")
    before.usage(codex((100, 50, 10, 0), (100, 50, 10, 0)), "before")
    before.done("before")
    rows = Rows(100)
    rows.start()
    rows.usage(codex((120, 7, 3, 0), (120, 7, 3, 0)))
    usage = reduce_usage(rows, predecessors={("thread", "turn"): before}).usage
    assert (usage.total_input_tokens, usage.output_tokens, usage.cache_read_tokens) == (120, 7, 3)
    assert kinds(usage) == ["counter_reset"]


def test_total_between_last_and_largest_adds_nothing() -> None:
    found = turn_after([20, 40, 30], (35, 5), (36, 1))
    assert found.usage.total_input_tokens is None
    assert [(gap.kind, gap.counter, gap.before, gap.after) for gap in found.usage.gap_list] == [
        ("decrease", "total_input", 40, 35),
        ("decrease", "input", 40, 35),
    ]


def test_growth_past_the_largest_counts_again() -> None:
    found = turn_after([20, 40, 30], (35, 5), (50, 15))
    assert found.usage.total_input_tokens == 10
    assert kinds(found.usage) == ["decrease", "decrease"]


def test_fall_below_the_baseline_inside_a_turn_is_a_decrease() -> None:
    found = turn_after([20], (60, 40), (10, 10))
    assert found.usage.total_input_tokens == 40
    assert [(gap.kind, gap.before, gap.after) for gap in found.usage.gap_list] == [("decrease", 40, -10)] * 2


def test_predecessor_baseline_that_lowers_a_counter_is_told() -> None:
    found = turn_after([20], (60, 50))
    assert found.usage.total_input_tokens == 40
    assert [(gap.kind, gap.counter, gap.before, gap.after) for gap in found.usage.gap_list] == [
        ("witness_mismatch", "input", 50, 40),
        ("witness_mismatch", "total_input", 50, 40),
    ]


def test_repeated_totals_of_the_predecessor_are_no_receipt_of_the_turn() -> None:
    """As seen on 0.171 after a steer: the turn's first update repeats the thread's totals and last request."""
    found = turn_after([1600], (1600, 1600), (3200, 1600))
    assert (found.usage.total_input_tokens, found.usage.gaps) == (1600, 0)
    only_repeated = turn_after([1600], (1600, 1600))
    assert (only_repeated.usage.total_input_tokens, only_repeated.usage.gaps) == (0, 0)


def test_predecessor_without_usage_leaves_the_start_unknown() -> None:
    before = Rows()
    before.start("before")
    before.done("before")
    rows = Rows(100)
    rows.start()
    rows.usage(plain(60, 10))
    usage = reduce_usage(rows, predecessors={("thread", "turn"): before}).usage
    assert usage.total_input_tokens == 10
    assert kinds(usage) == ["start_unknown"]


def test_start_is_unknown_once_per_stream() -> None:
    rows = Rows()
    for total in (100, 110, 120):
        rows.usage(plain(total, 10))
    usage = reduce_usage(rows).usage
    assert usage.total_input_tokens == 30
    assert kinds(usage) == ["start_unknown"]


def test_cache_writes_are_part_of_input() -> None:
    rows = Rows()
    rows.start()
    rows.usage(codex((1600, 50, 400, 20, 200), (1600, 50, 400, 20, 200), modelContextWindow=258_400))
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (1000, 400, 200)
    assert (usage.total_input_tokens, usage.output_tokens, usage.reasoning_tokens) == (1600, 50, 20)
    assert (usage.context_window_tokens, usage.peak_input_tokens, usage.gaps) == (258_400, 1600, 0)


def test_cache_writes_in_some_receipts_only() -> None:
    rows = Rows()
    rows.start()
    rows.usage(codex((10, 1, 0, 0, 4), (10, 1, 0, 0, 4)))
    rows.usage(codex((20, 2, 0, 0), (10, 1, 0, 0)))
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, usage.cache_write_tokens, usage.total_input_tokens) == (16, 4, 20)
    assert [(gap.kind, gap.counter, gap.seq) for gap in usage.gap_list] == [("missing_counter", "cache_write", 3)]


def test_cache_writes_that_a_predecessor_did_not_count() -> None:
    before = Rows()
    before.start("before")
    before.usage(codex((10, 1, 0, 0), (10, 1, 0, 0)), "before")
    before.done("before")
    rows = Rows(100)
    rows.start()
    rows.usage(codex((30, 2, 0, 0, 9), (20, 1, 0, 0, 5)))
    usage = reduce_usage(rows, predecessors={("thread", "turn"): before}).usage
    assert (usage.total_input_tokens, usage.cache_write_tokens) == (20, 5)
    assert [(gap.kind, gap.counter) for gap in usage.gap_list] == [("missing_counter", "cache_write")]


def test_falling_cache_reads_do_not_become_fresh_input() -> None:
    rows = Rows()
    rows.start()
    rows.usage(codex((40, 0, 10, 0), (40, 0, 10, 0)))
    rows.usage(codex((50, 0, 4, 0), (10, 0, 0, 0)))
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.total_input_tokens) == (40, 10, 50)
    assert kinds(usage) == ["decrease"]


def test_more_cached_than_sent_leaves_input_unknown() -> None:
    rows = Rows()
    rows.start()
    rows.usage(codex((10, 1, 12, 0), (10, 1, 12, 0)))
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, usage.total_input_tokens, usage.cache_read_tokens) == (None, 10, 12)


def test_smaller_peak_is_no_gap() -> None:
    rows = Rows()
    rows.start()
    rows.usage(plain(30, 30))
    rows.usage(plain(31, 1))
    usage = reduce_usage(rows).usage
    assert (usage.peak_input_tokens, usage.gaps) == (30, 0)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"total": None},
        {"last": {"inputTokens": 1}},
        {"total": {"inputTokens": -1}},
        {"total": {"inputTokens": 1.0}},
        {"total": {"inputTokens": True}},
        {"total": {"inputTokens": "1"}},
        {"total": {"inputTokens": 1}, "modelContextWindow": 0.5},
        [],
        None,
    ],
)
def test_undecodable_receipt_is_a_gap_and_nothing_else(payload: Any) -> None:
    rows = Rows()
    rows.start()
    bad = rows.usage(payload)
    usage = reduce_usage(rows).usage
    assert usage.streams == 0
    assert [(gap.kind, gap.stream, gap.seq) for gap in usage.gap_list] == [("schema", "native:thread:turn", bad.seq)]
    rows.usage(plain(5, 5))
    usage = reduce_usage(rows).usage
    assert (usage.total_input_tokens, usage.streams, usage.gaps) == (5, 1, 1)


def test_receipt_without_last_has_no_baseline() -> None:
    rows = Rows()
    rows.start()
    rows.usage({"total": {"inputTokens": 40}})
    usage = reduce_usage(rows).usage
    assert (usage.streams, usage.total_input_tokens) == (1, None)
    assert kinds(usage) == ["start_unknown"]


def test_stream_names_turn_time_and_rows() -> None:
    (stream,) = reduce_usage(case_a(Rows(7))).streams
    assert (stream.id, stream.provider, stream.source) == ("native:thread:turn", "codex", "native")
    assert (stream.thread, stream.turn, stream.at, stream.seqs) == ("thread", "turn", 7, (8, 9))
    assert stream.model is None


def test_providers_own_time_of_a_turn_counts() -> None:
    rows = Rows()
    rows.start(payload={"at": "1970-01-01T00:00:02Z"})
    rows.usage(plain(1, 1))
    assert reduce_usage(rows).streams[0].at == 2000


def test_calls_from_files() -> None:
    rows = Rows()
    rows.start()
    rows.usage(file_call("codex", "resp-1", CALL, at="1970-01-01T00:00:09.5Z"))
    rows.usage(file_call("codex", "resp-2", CALL))
    rows.usage(file_call("codex", "resp-2", CALL, model="again"))
    found = reduce_usage(rows)
    usage = found.usage
    assert (usage.streams, usage.final_streams, usage.gaps) == (2, 2, 0)
    assert (usage.input_tokens, usage.output_tokens, usage.total_input_tokens) == (2000, 100, 3200)
    assert (usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens) == (800, 400, 40)
    assert usage.peak_input_tokens == 1600
    assert [each.at for each in found.streams] == [9500, 1]
    assert [each.model for each in found.streams] == ["m", "m"]


def test_call_with_more_cached_than_sent() -> None:
    rows = Rows()
    rows.start()
    rows.usage(file_call("codex", "call", {"input_tokens": 5, "cached_input_tokens": 6}))
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, usage.total_input_tokens) == (None, 5)


def test_file_calls_are_summed_and_the_wire_compared() -> None:
    rows = Rows()
    rows.start()
    rows.usage(codex((1600, 50, 400, 20, 200), (1600, 50, 400, 20, 200)))
    rows.usage(file_call("codex", "resp-1", CALL))
    assert reduce_usage(rows).usage.gaps == 0
    rows.usage(file_call("codex", "resp-2", {**CALL, "output_tokens": 1}))
    found = reduce_usage(rows)
    assert (found.usage.streams, found.usage.output_tokens) == (2, 51)
    mismatches = {gap.counter: (gap.before, gap.after) for gap in found.loose_gaps}
    assert set(kinds(found.usage)) == {"witness_mismatch"}
    assert mismatches["output"] == (50, 51)
    assert mismatches["total_input"] == (1600, 3200)


def test_wire_without_its_start_says_too_little_by_nature() -> None:
    rows = Rows()
    rows.start()
    rows.usage(codex((3200, 100, 800, 40, 400), (1600, 50, 400, 20, 200)))
    rows.usage(file_call("codex", "resp-1", CALL))
    rows.usage(file_call("codex", "resp-2", CALL))
    assert reduce_usage(rows).usage.gaps == 0


def test_partial_recorder_gives_way_to_calls_from_files() -> None:
    rows = Rows()
    rows.start()
    rows.usage(file_call("codex", "resp-1", CALL))
    rows.seen(observed_session(), recorded(input_tokens=7, context_window_tokens=9))
    found = reduce_usage(rows)
    assert (found.usage.streams, found.usage.input_tokens, found.usage.gaps) == (1, 1000, 0)
    assert found.usage.context_window_tokens == 9


def test_continued_recorder_keeps_the_larger_value() -> None:
    rows = case_a()
    rows.seen(observed_session(), recorded(input_tokens=25, output_tokens=1, total_input_tokens=25))
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, usage.total_input_tokens, usage.output_tokens) == (25, 25, 5)
    assert set(kinds(usage)) == {"decrease"}


def test_continued_recorder_is_told_what_a_predecessor_took_away() -> None:
    before = Rows()
    before.start("before")
    before.usage(plain(20, 20), "before")
    before.done("before")
    rows = Rows(100)
    rows.start()
    rows.usage(plain(60, 50))
    rows.seen(observed_session(), recorded(input_tokens=5, output_tokens=0, total_input_tokens=5))
    usage = reduce_usage(rows, predecessors={("thread", "turn"): before}).usage
    assert usage.total_input_tokens == 40
    assert kinds(usage) == ["witness_mismatch", "witness_mismatch"]
