"""The numeric cases A to Y of semantics 4.6, with the numbers of architecture 5. (O and Q are the file reader's.)"""

from __future__ import annotations

import pytest

from tests.unit.usage_cases import (
    Rows,
    attempt_finished,
    attempt_started,
    case_a,
    claude_usage,
    claude_wire,
    codex,
    kinds,
    observed_session,
    opencode,
    recorded,
    tokens,
)
from turnlog.usage import reduce_usage


def test_a_two_receipts_of_a_codex_turn() -> None:
    found = reduce_usage(case_a())
    usage = found.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_input_tokens) == (18, 5, 20)
    assert (usage.peak_input_tokens, usage.reasoning_tokens, usage.cache_read_tokens) == (12, 1, 2)
    assert (usage.cost_usd, usage.cache_write_tokens) == (None, None)
    assert (usage.streams, usage.final_streams, usage.gaps) == (1, 0, 0)
    assert found.evidence_gaps == 1


def test_a_new_input_has_nothing() -> None:
    assert reduce_usage([]).usage.input_tokens is None


def case_b() -> Rows:
    rows = case_a()
    rows.seen(observed_session(), recorded(final=True, input_tokens=18, output_tokens=5, cost_usd=0.2))
    return rows


def test_b_final_recorder_is_filled_from_native() -> None:
    found = reduce_usage(case_b())
    usage = found.usage
    assert (usage.streams, usage.final_streams, usage.gaps) == (1, 1, 0)
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (18, 5, 0.2)
    assert (usage.total_input_tokens, usage.cache_read_tokens) == (20, 2)
    assert found.evidence_gaps == 1
    assert found.streams[0].source == "merged"


def case_c() -> Rows:
    rows = Rows(100)
    rows.start("partial")
    rows.usage(codex((100, 50, 2, 1), (10, 5, 2, 1)), "partial")
    return rows


def test_c_turn_with_unknown_baseline() -> None:
    rows = case_c()
    usage = reduce_usage(rows, predecessors={("thread", "partial"): []}).usage
    assert usage == reduce_usage(rows).usage
    assert (usage.total_input_tokens, usage.output_tokens, usage.input_tokens) == (10, 5, 8)
    assert usage.cache_read_tokens == 2
    assert (usage.streams, usage.final_streams) == (1, 0)
    assert kinds(usage) == ["start_unknown"]


def case_d() -> Rows:
    rows = case_c()
    rows.start("decrease")
    for total, last in ((20, 20), (40, 20), (30, 10)):
        rows.usage(codex((total, 0, 0, 0), (last, 0, 0, 0)), "decrease")
    return rows


def test_d_decrease_inside_a_turn() -> None:
    usage = reduce_usage(case_d()).usage
    assert (usage.total_input_tokens, usage.input_tokens) == (50, 48)
    assert kinds(usage) == ["decrease", "decrease", "start_unknown"]
    falls = {gap.counter: (gap.before, gap.after) for gap in usage.gap_list if gap.kind == "decrease"}
    assert falls == {"input": (40, 30), "total_input": (40, 30)}


def test_e_next_turn_counts_from_the_largest_total() -> None:
    rows = case_d()
    rows.done("decrease")
    rows.start("next")
    rows.usage(codex((60, 0, 0, 0), (10, 0, 0, 0)), "next")
    usage = reduce_usage(rows).usage
    assert (usage.total_input_tokens, usage.streams, usage.gaps) == (70, 3, 3)


def test_f_orphan_turn() -> None:
    rows = Rows()
    rows.usage(codex((12, 3, 0, 0), (12, 3, 0, 0)))
    rows.done()
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_input_tokens) == (12, 3, 12)
    assert (usage.streams, usage.final_streams) == (1, 0)
    assert kinds(usage) == ["start_unknown"]


def three_turns() -> Rows:
    rows = Rows()
    for turn, total, last in (("a", 20, 20), ("b", None, 30), ("c", 60, 10)):
        rows.start(turn)
        if total is not None:
            rows.usage(codex((total, 0, 0, 0, 0), (last, 0, 0, 0, 0)), turn)
        rows.done(turn)
    return rows


def test_g_older_turn_cannot_stand_in_for_the_predecessor() -> None:
    rows = three_turns()
    rows.seen(
        observed_session(),
        recorded("recorder-b", turn="b", final=True, input_tokens=30, output_tokens=0, total_input_tokens=30),
    )
    usage = reduce_usage(rows).usage
    assert (usage.total_input_tokens, usage.streams, usage.final_streams) == (60, 3, 1)
    assert kinds(usage) == ["missing_counter", "missing_counter", "start_unknown"]
    missing = {(gap.stream, gap.counter) for gap in usage.gap_list if gap.kind == "missing_counter"}
    assert missing == {("recorder-b", "cache_read"), ("recorder-b", "cache_write")}


def test_h_opencode_snapshots() -> None:
    rows = Rows()
    rows.start()
    for fresh in (20, 40, 30):
        rows.usage(opencode("a", tokens(fresh, 5)))
    rows.usage(opencode("b", tokens(10, 5)))
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, usage.output_tokens) == (50, 10)
    assert (usage.streams, usage.final_streams) == (2, 2)
    assert [(gap.kind, gap.counter, gap.before, gap.after, gap.seq) for gap in usage.gap_list] == [
        ("decrease", "input", 40, 30, 4),
        ("decrease", "total_input", 40, 30, 4),
    ]


def test_i_attempts_alone_are_no_usage() -> None:
    rows = Rows()
    rows.line(attempt_started("attempt-1"), ordinal=1, at=20_000)
    rows.line(attempt_started("attempt-0"), ordinal=0, at=10_000)
    found = reduce_usage(rows)
    assert (found.usage.gaps, found.usage.streams, found.usage.input_tokens) == (0, 0, None)
    assert found.first_attempt_at == 10_000


def test_j_undecodable_observation() -> None:
    rows = Rows()
    rows.observe("events.jsonl:1", {"schema_version": 1, "seq": 1, "type": "usage", "usage": {"input_tokens": 12}})
    found = reduce_usage(rows)
    assert (found.usage.streams, found.usage.gaps) == (0, 0)
    assert found.evidence_gaps_from_observations == 1


def test_k_attempt_switch() -> None:
    rows = Rows()
    rows.seen(
        attempt_started("attempt-1"),
        recorded("one", attempt="attempt-1", input_tokens=10, output_tokens=4),
        attempt_finished("attempt-1"),
        attempt_started("attempt-2"),
        recorded("two", attempt="attempt-2", input_tokens=12, output_tokens=5),
    )
    found = reduce_usage(rows)
    assert [(each.input, each.output, each.final) for each in found.streams] == [(10, 4, False), (12, 5, False)]
    assert (found.usage.streams, found.usage.final_streams, found.usage.gaps) == (2, 0, 0)


def test_l_failed_attempt_then_success() -> None:
    rows = Rows()
    rows.seen(
        recorded("one", 1, attempt="attempt-1", input_tokens=10),
        recorded("one", 2, attempt="attempt-1", input_tokens=15, output_tokens=4),
        attempt_finished("attempt-1"),
        recorded("two", 1, attempt="attempt-2", input_tokens=12, output_tokens=3),
        recorded("two", 2, attempt="attempt-2", final=True, cost_usd=0.25),
    )
    rows.observe("terminal.json", {"schema_version": 1, "outcome": "completed", "ended_at": "2026-09-29T00:00:00Z"})
    found = reduce_usage(rows)
    usage = found.usage
    assert (usage.streams, usage.final_streams, usage.gaps) == (2, 1, 0)
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (27, 7, 0.25)
    assert usage.total_input_tokens == 27
    assert found.terminal is not None
    assert found.terminal.outcome == "completed"


def test_m_absent_counters_are_not_inherited() -> None:
    rows = Rows()
    rows.seen(
        recorded("one", 1, input_tokens=10),
        recorded("one", 2, output_tokens=4),
        recorded("two", 1, turn="later", input_tokens=3),
    )
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, usage.output_tokens) == (13, 4)
    assert [(gap.kind, gap.stream, gap.counter) for gap in usage.gap_list] == [("missing_counter", "two", "output")]


def test_n_checkpoint_never_becomes_final() -> None:
    rows = Rows()
    rows.seen(recorded(input_tokens=10, output_tokens=4), attempt_finished(outcome="completed"))
    assert reduce_usage(rows).usage.final_streams == 0


def test_p_other_schema() -> None:
    rows = Rows()
    rows.line(attempt_started(), schema=999)
    found = reduce_usage(rows)
    assert kinds(found.usage) == ["schema"]
    assert found.first_attempt_at is None


def two_messages(*, start: bool = True) -> Rows:
    rows = Rows()
    if start:
        rows.start()
    rows.usage(opencode("a", tokens(20, 5)))
    rows.usage(opencode("b", tokens(10, 5)))
    rows.done()
    return rows


def test_r_two_messages() -> None:
    usage = reduce_usage(two_messages()).usage
    assert (usage.input_tokens, usage.output_tokens, usage.peak_input_tokens) == (30, 10, 20)
    assert (usage.streams, usage.final_streams, usage.gaps) == (2, 2, 0)


def test_s_two_messages_without_start() -> None:
    usage = reduce_usage(two_messages(start=False)).usage
    assert (usage.input_tokens, usage.output_tokens, usage.peak_input_tokens) == (30, 10, 20)
    assert kinds(usage) == ["start_unknown", "start_unknown"]


def test_t_native_messages_beat_a_partial_recorder() -> None:
    rows = two_messages()
    rows.seen(observed_session(), recorded(provider="opencode", input_tokens=7, output_tokens=1))
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, usage.output_tokens) == (30, 10)
    assert (usage.streams, usage.final_streams, usage.gaps) == (2, 2, 0)


def test_u_partial_recorder_of_codex_is_continued() -> None:
    rows = case_a()
    rows.seen(observed_session(), recorded(number=4, input_tokens=10, output_tokens=3, total_input_tokens=12))
    found = reduce_usage(rows)
    usage = found.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_input_tokens) == (18, 5, 20)
    assert (usage.streams, usage.final_streams, usage.gaps) == (1, 0, 0)
    assert (found.streams[0].id, found.streams[0].source) == ("recorder", "merged")


def test_v_recorder_of_an_unknown_thread() -> None:
    rows = case_a()
    rows.seen(recorded(final=True, input_tokens=18, output_tokens=5))
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, usage.output_tokens) == (18, 5)
    assert (usage.total_input_tokens, usage.cache_read_tokens) == (20, 2)
    assert (usage.streams, usage.final_streams) == (1, 1)
    assert kinds(usage) == ["ambiguous_recorder"]


def test_w_recorder_of_another_thread() -> None:
    rows = case_a()
    rows.seen(observed_session("elsewhere"), recorded(final=True, input_tokens=18, output_tokens=5))
    usage = reduce_usage(rows).usage
    assert (usage.streams, usage.final_streams) == (2, 1)
    assert (usage.input_tokens, usage.output_tokens, usage.total_input_tokens) == (36, 10, 38)
    assert [(gap.kind, gap.counter) for gap in usage.gap_list] == [("missing_counter", "cache_read")]


def test_x_three_turns_without_the_recorder() -> None:
    usage = reduce_usage(three_turns()).usage
    assert (usage.total_input_tokens, usage.streams) == (30, 2)
    assert kinds(usage) == ["start_unknown"]


def test_y_claude_result() -> None:
    rows = Rows()
    rows.start()
    rows.usage(claude_wire(claude_usage(2000, 400, 800, 100, hour=100), 0.02492))
    rows.done()
    usage = reduce_usage(rows).usage
    assert (usage.total_input_tokens, usage.input_tokens, usage.output_tokens) == (3200, 2000, 100)
    assert (usage.cache_read_tokens, usage.cache_write_tokens, usage.cache_write_1h_tokens) == (800, 400, 100)
    assert usage.peak_input_tokens is None
    assert usage.cost_usd == pytest.approx(0.02492)
    assert (usage.streams, usage.final_streams, usage.gaps) == (1, 1, 0)
