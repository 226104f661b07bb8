"""Adding streams up: null and zero, overflow, missing counters, doubtful recorders (4.1, 4.3, D15, D17, D18)."""

from __future__ import annotations

from typing import Any

from tests.unit.usage_cases import (
    Rows,
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
from turnlog.model import EventKind, Gap, Usage
from turnlog.usage import Stream, reduce_usage, total

I64_MAX = 2**63 - 1


def stream(name: str, **members: Any) -> Stream:
    return Stream(id=name, provider="codex", at=0, **members)


def test_nothing() -> None:
    assert total([]) == Usage()
    assert reduce_usage([]).usage == Usage()


def test_null_is_not_zero() -> None:
    usage = total([stream("a", input=0), stream("b", output=3)])
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == (0, 3, None)


def test_peak_and_window_are_maxima() -> None:
    usage = total([stream("a", peak=5, window=8), stream("b", peak=7, window=2), stream("c")])
    assert (usage.peak_input_tokens, usage.context_window_tokens) == (7, 8)


def test_cost_does_not_depend_on_order() -> None:
    costs = [0.1, 0.2, 0.3, 1e9, -0.0]
    forth = total([stream(str(cost), cost=cost) for cost in costs])
    back = total([stream(str(cost), cost=cost) for cost in reversed(costs)])
    assert forth.cost_usd == back.cost_usd


def test_overflow() -> None:
    usage = total([stream("a", input=I64_MAX, output=1), stream("b", input=1, output=2), stream("c", peak=2**64 - 1)])
    assert (usage.input_tokens, usage.output_tokens, usage.peak_input_tokens) == (None, 3, None)
    assert usage.gap_list == (Gap(kind="overflow", counter="input"), Gap(kind="overflow", counter="peak"))
    assert total([stream("a", input=I64_MAX)]).input_tokens == I64_MAX


def test_regrouping_adds_up() -> None:
    rows = Rows()
    rows.start()
    rows.usage(opencode("a", tokens(20, 5), modelID="m"))
    rows.usage(opencode("b", {"input": 10, "output": 5}, modelID="n"))
    found = reduce_usage(rows)
    parts = [total([each]) for each in found.streams]
    assert sum(part.input_tokens or 0 for part in parts) == found.usage.input_tokens
    assert sum(part.gaps for part in parts) == found.usage.gaps == 2
    assert total(found.streams, found.loose_gaps) == found.usage


def test_missing_counter_only_where_somebody_has_it() -> None:
    rows = Rows()
    rows.seen(recorded("one", input_tokens=1), recorded("two", turn="b", input_tokens=2, reasoning_tokens=1))
    assert reduce_usage(rows).usage.gaps == 0


def test_total_input_of_known_parts() -> None:
    rows = Rows()
    rows.seen(recorded(input_tokens=10, cache_read_tokens=4))
    assert reduce_usage(rows).usage.total_input_tokens == 14
    rows = Rows()
    rows.seen(recorded(cache_read_tokens=4))
    assert reduce_usage(rows).usage.total_input_tokens is None


def test_other_kinds_are_ignored_and_rows_may_repeat() -> None:
    rows = case_a()
    expected = reduce_usage(rows)
    rows.add(EventKind.REQUESTED, {"prompt": "x"}, "thread", "turn")
    rows.add(EventKind.CAPTURED, {"artifact_key": "k"}, None, None)
    assert reduce_usage([*reversed(rows), *rows]) == expected


def test_the_same_work_gives_the_same_numbers() -> None:
    """1000 fresh, 400 read, 200 written, 50 out of which 20 reasoning, through every provider (D15)."""
    payloads = [
        codex((1600, 50, 400, 20, 200), (1600, 50, 400, 20, 200)),
        opencode(
            "a",
            {"input": 1000, "output": 30, "reasoning": 20, "cache": {"read": 400, "write": 200}},
            "1.18.33",
        ),
        claude_wire({**claude_usage(1000, 200, 400, 50), "output_tokens_details": {"thinking_tokens": 20}}, None),
    ]
    seen = set()
    for payload in payloads:
        rows = Rows()
        rows.start()
        rows.usage(payload)
        usage = reduce_usage(rows).usage
        seen.add(
            (
                usage.input_tokens,
                usage.cache_read_tokens,
                usage.cache_write_tokens,
                usage.total_input_tokens,
                usage.output_tokens,
                usage.reasoning_tokens,
                usage.gaps,
            )
        )
    assert seen == {(1000, 400, 200, 1600, 50, 20, 0)}


def test_two_recorder_streams_of_one_turn_are_in_doubt() -> None:
    rows = case_a()
    rows.seen(
        observed_session(attempt="one"),
        observed_session(attempt="two"),
        recorded("r1", attempt="one", input_tokens=10, output_tokens=4),
        recorded("r2", attempt="two", input_tokens=9, output_tokens=0),
    )
    found = reduce_usage(rows)
    usage = found.usage
    assert (usage.streams, usage.final_streams) == (1, 0)
    assert (usage.input_tokens, usage.output_tokens, usage.total_input_tokens) == (19, 5, 20)
    assert kinds(usage) == ["ambiguous_recorder"]
    assert found.streams[0].attempt_key is None


def test_one_recorder_stream_for_two_threads_counts_once() -> None:
    rows = Rows()
    for thread in ("one", "two"):
        rows.start("turn", thread)
        rows.usage(codex((10, 1, 0, 0), (10, 1, 0, 0)), "turn", thread)
        rows.done("turn", thread)
    rows.seen(recorded(final=True, input_tokens=12, output_tokens=1))
    usage = reduce_usage(rows).usage
    assert (usage.streams, usage.input_tokens, usage.output_tokens) == (1, 20, 2)
    assert kinds(usage) == ["ambiguous_recorder"]


def test_doubt_about_opencode_messages_makes_one_stream() -> None:
    rows = Rows()
    rows.usage(opencode("a", tokens(20, 5)))
    rows.usage(opencode("b", tokens(10, 5)))
    rows.seen(recorded(provider="opencode", input_tokens=31, output_tokens=2))
    usage = reduce_usage(rows).usage
    assert (usage.streams, usage.final_streams, usage.input_tokens, usage.output_tokens) == (1, 1, 31, 10)
    assert kinds(usage) == ["ambiguous_recorder", "start_unknown"]


def test_doubt_without_usable_native_receipts_leaves_the_recorder() -> None:
    rows = Rows()
    rows.start()
    rows.usage({"total": None})
    rows.seen(recorded(input_tokens=3))
    usage = reduce_usage(rows).usage
    assert (usage.streams, usage.input_tokens, kinds(usage)) == (1, 3, ["schema"])


def test_recorder_of_another_provider_does_not_match() -> None:
    rows = case_a()
    rows.seen(recorded(provider="claude", input_tokens=1))
    assert reduce_usage(rows).usage.streams == 2


def test_one_stream_that_two_attempts_on_two_threads_mention() -> None:
    rows = Rows()
    for thread in ("one", "two"):
        rows.start("turn", thread)
        rows.usage(codex((10, 1, 0, 0), (10, 1, 0, 0)), "turn", thread)
    rows.seen(
        observed_session("one", "a"),
        observed_session("two", "b"),
        recorded(number=1, attempt="a", final=True, input_tokens=10),
        recorded(number=2, attempt="b", final=True, input_tokens=10),
    )
    usage = reduce_usage(rows).usage
    assert (usage.streams, usage.input_tokens) == (2, 20)


def test_native_gaps_do_not_follow_a_complete_recorder() -> None:
    rows = Rows()
    rows.usage(codex((100, 50, 2, 1), (10, 5, 2, 1)))
    everything: dict[str, Any] = {
        "input_tokens": 90,
        "output_tokens": 40,
        "total_input_tokens": 92,
        "cache_read_tokens": 2,
        "reasoning_tokens": 1,
    }
    rows.seen(observed_session(), recorded(final=True, **everything))
    found = reduce_usage(rows)
    assert (found.usage.gaps, found.streams[0].source) == (0, "recorder")
    del everything["reasoning_tokens"]
    rows = Rows()
    rows.usage(codex((100, 50, 2, 1), (10, 5, 2, 1)))
    rows.seen(observed_session(), recorded(final=True, **everything))
    assert kinds(reduce_usage(rows).usage) == ["start_unknown"]
