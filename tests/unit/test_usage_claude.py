"""Claude counters: per call from files, per turn from the wire, cost from running totals (D1)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.usage_cases import (
    Rows,
    claude_usage,
    claude_wire,
    file_call,
    kinds,
    observed_session,
    recorded,
)
from turnlog.usage import Reduction, reduce_usage

CALL = claude_usage(1000, 200, 400, 50, hour=50)
TURN_OF_TWO = claude_usage(2000, 400, 800, 100, hour=100)
ZEROS = claude_usage(0, 0, 0, 0, hour=0)


def one(*payloads: dict[str, Any], start: bool = True) -> Reduction:
    rows = Rows()
    if start:
        rows.start()
    for payload in payloads:
        rows.usage(payload)
    return reduce_usage(rows)


def turns(*costs: float | None) -> Rows:
    rows = Rows()
    for number, cost in enumerate(costs, start=1):
        rows.start(f"turn-{number}")
        rows.usage(claude_wire(CALL, cost, result_id=f"result-{number}"), f"turn-{number}")
        rows.done(f"turn-{number}")
    return rows


def test_calls_from_a_file() -> None:
    found = one(file_call("claude", "msg-1", CALL), file_call("claude", "msg-2", CALL))
    usage = found.usage
    assert (usage.streams, usage.final_streams, usage.gaps) == (2, 2, 0)
    assert (usage.input_tokens, usage.output_tokens, usage.total_input_tokens) == (2000, 100, 3200)
    assert (usage.cache_read_tokens, usage.cache_write_tokens, usage.cache_write_1h_tokens) == (800, 400, 100)
    assert (usage.peak_input_tokens, usage.cost_usd) == (1600, None)
    assert [each.id for each in found.streams] == ["native:thread:turn:msg-1", "native:thread:turn:msg-2"]


def test_repeated_lines_of_a_call_keep_the_maximum() -> None:
    early = {**CALL, "output_tokens": 1}
    for order in ((early, CALL), (CALL, early)):
        usage = one(*(file_call("claude", "msg", each) for each in order)).usage
        assert (usage.streams, usage.output_tokens, usage.gaps) == (1, 50, 0)


def test_an_id_used_again_for_another_request_is_two_calls_of_the_turn() -> None:
    other = claude_usage(7, 1, 0, 3, hour=0)
    first, second = (
        {**file_call("claude", "msg", each), "request": name} for name, each in (("a", CALL), ("b", other))
    )
    for payloads in ((first, second), (second, first, second)):
        usage = one(*payloads).usage
        assert (usage.streams, usage.input_tokens, usage.output_tokens) == (2, 1007, 53)
    same = {**file_call("claude", "msg", CALL), "request": "b"}
    assert one(first, same, file_call("claude", "msg", other)).usage.streams == 1


def test_searches_of_the_web_are_kept_as_what_changes_a_price() -> None:
    searched = {**CALL, "server_tool_use": {"web_search_requests": 1}}
    for payload in (file_call("claude", "msg", searched), claude_wire(searched, 0.5)):
        assert [each.tier for each in one(payload).streams] == ["web_search"]
    assert [each.tier for each in one(claude_wire(CALL, 0.5)).streams] == [None]


def test_calls_without_a_start() -> None:
    usage = one(file_call("claude", "msg-1", CALL), file_call("claude", "msg-2", CALL), start=False).usage
    assert kinds(usage) == ["start_unknown", "start_unknown"]


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (file_call("claude", None, CALL), "message_id"),
        (file_call("claude", "", CALL), "message_id"),
        (file_call("claude", "msg", None), "schema"),
        (file_call("claude", "msg", {"input_tokens": -3}), "schema"),
        (file_call("claude", "msg", {"output_tokens": 1.0}), "schema"),
        (claude_wire(None, 0.1), "schema"),
        (claude_wire({"input_tokens": True}, 0.1), "schema"),
        (claude_wire(None, 0.1, model_usage={"m": {"inputTokens": -1}}), "schema"),
        ({"provider": "claude", "source": "wire"}, "schema"),
    ],
)
def test_undecodable(payload: dict[str, Any], kind: str) -> None:
    usage = one(payload).usage
    assert (usage.streams, kinds(usage)) == (0, [kind])


def test_model_usage_counts_subagents_too() -> None:
    models = {
        "big": {
            "inputTokens": 3000,
            "outputTokens": 150,
            "cacheReadInputTokens": 1200,
            "cacheCreationInputTokens": 600,
            "cacheCreationEphemeral1hInputTokens": 150,
            "thinkingTokens": 7,
            "contextWindow": 1_000_000,
        },
        "small": {
            "inputTokens": 1000,
            "outputTokens": 50,
            "cacheReadInputTokens": 400,
            "cacheCreationInputTokens": 200,
            "cacheCreationEphemeral1hInputTokens": 0,
            "thinkingTokens": 0,
            "contextWindow": 200_000,
        },
    }
    found = one(claude_wire(CALL, 0.1, model_usage=models))
    usage = found.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_input_tokens) == (4000, 200, 6400)
    assert (usage.cache_write_1h_tokens, usage.reasoning_tokens) == (150, 7)
    assert usage.context_window_tokens == 1_000_000
    assert found.streams[0].model is None


def test_one_model_names_the_stream() -> None:
    models = {
        "big": {
            "inputTokens": 9,
            "outputTokens": 1,
            "cacheReadInputTokens": 0,
            "cacheCreationInputTokens": 0,
        }
    }
    (stream,) = one(claude_wire(CALL, 0.1, model_usage=models)).streams
    assert (stream.model, stream.input, stream.cache_write_1h) == ("big", 9, 50)


def test_empty_model_usage_falls_back_to_usage() -> None:
    assert one(claude_wire(CALL, 0.1, model_usage={})).usage.input_tokens == 1000


def test_model_without_a_counter_leaves_its_sum_unknown() -> None:
    models = {"a": {"inputTokens": 5, "outputTokens": 1}, "b": {"outputTokens": 2}}
    usage = one(claude_wire(CALL, 0.1, model_usage=models)).usage
    assert (usage.input_tokens, usage.output_tokens) == (None, 3)


def test_older_shape_has_no_cost() -> None:
    usage = one({"provider": "claude", "usage": CALL}).usage
    assert (usage.input_tokens, usage.total_input_tokens, usage.cost_usd) == (1000, 1600, None)
    assert (usage.streams, usage.final_streams, usage.gaps) == (1, 1, 0)


def test_thinking_is_part_of_output() -> None:
    usage = one(claude_wire({**CALL, "output_tokens_details": {"thinking_tokens": 20}}, 0.1)).usage
    assert (usage.output_tokens, usage.reasoning_tokens) == (50, 20)


def test_results_of_one_turn_add_up() -> None:
    first, second = claude_wire(CALL, 0.1, result_id="a"), claude_wire(CALL, 0.3, result_id="b")
    usage = one(first, second).usage
    assert (usage.streams, usage.input_tokens, usage.cost_usd) == (1, 2000, 0.3)
    again = one(first, {**first, "note": "told again"}, second).usage
    assert (again.input_tokens, again.cost_usd, again.gaps) == (2000, 0.3, 0)


def test_interrupted_zeros_are_unknown() -> None:
    usage = one(claude_wire(ZEROS, 0, interrupted=True)).usage
    assert (usage.streams, usage.final_streams) == (1, 0)
    assert (usage.input_tokens, usage.output_tokens, usage.total_input_tokens) == (None, None, None)
    assert usage.cost_usd is None
    assert kinds(usage) == ["interrupted"]


def test_interrupted_counts_what_it_says() -> None:
    models = {"m": {"inputTokens": 1000, "outputTokens": 29, "cacheReadInputTokens": 0}}
    usage = one(claude_wire(ZEROS, 0.1, model_usage=models, interrupted=True)).usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (1000, 29, None)
    assert (usage.cost_usd, usage.final_streams) == (0.1, 0)


def test_cost_is_the_difference_of_running_totals() -> None:
    found = reduce_usage(turns(0.10, 0.25, 0.45))
    assert [each.cost for each in found.streams] == [0.10, 0.15, 0.20]
    assert (found.usage.cost_usd, found.usage.gaps) == (0.45, 0)


def test_falling_total_is_a_new_process() -> None:
    assert [each.cost for each in reduce_usage(turns(0.10, 0.25, 0.20)).streams] == [0.10, 0.15, 0.20]


def test_predecessor_of_another_input_gives_the_base() -> None:
    before, rows = turns(0.10, 0.25), Rows(100)
    rows.start("turn-3")
    rows.usage(claude_wire(CALL, 0.45), "turn-3")
    given = [row for row in before if row.turn == "turn-2"]
    assert reduce_usage(rows, predecessors={("thread", "turn-3"): given}).usage.cost_usd == 0.20
    assert reduce_usage(rows, predecessors={("thread", "turn-3"): []}).usage.cost_usd == 0.45
    assert reduce_usage([*before, *rows], predecessors={("thread", "turn-3"): given}).usage.cost_usd == 0.45


def test_cost_is_unknown_after_a_turn_without_a_total() -> None:
    usage = reduce_usage(turns(None, 0.25)).usage
    assert usage.cost_usd is None
    assert [(gap.kind, gap.stream, gap.counter) for gap in usage.gap_list] == [
        ("start_unknown", "native:thread:turn-2", "cost")
    ]


def test_cost_is_unknown_without_a_start() -> None:
    usage = one(claude_wire(CALL, 0.25), start=False).usage
    assert (usage.cost_usd, usage.input_tokens) == (None, 1000)
    assert kinds(usage) == ["start_unknown"]


def test_threads_have_their_own_totals() -> None:
    rows = Rows()
    for thread in ("one", "two"):
        rows.start("turn", thread)
        rows.usage(claude_wire(CALL, 0.1), "turn", thread)
        rows.done("turn", thread)
    assert reduce_usage(rows).usage.cost_usd == 0.2


def test_impossible_total_is_ignored() -> None:
    usage = one(claude_wire(CALL, -1.0)).usage
    assert (usage.cost_usd, usage.input_tokens) == (None, 1000)
    assert [(gap.kind, gap.counter) for gap in usage.gap_list] == [("schema", "cost")]


def test_final_wire_is_summed_and_the_file_compared() -> None:
    calls = [file_call("claude", name, CALL) for name in ("msg-1", "msg-2")]
    found = one(*calls, claude_wire(TURN_OF_TWO, 0.1))
    usage = found.usage
    assert (usage.streams, usage.final_streams, usage.gaps) == (1, 1, 0)
    assert (usage.input_tokens, usage.peak_input_tokens, usage.cost_usd) == (2000, 1600, 0.1)
    assert (found.streams[0].model, found.streams[0].seqs) == ("m", (2, 3, 4))


def test_differing_file_is_told() -> None:
    usage = one(file_call("claude", "msg-1", CALL), claude_wire(TURN_OF_TWO, 0.1)).usage
    assert usage.input_tokens == 2000
    assert {(gap.counter, gap.before, gap.after) for gap in usage.gap_list} == {
        ("input", 2000, 1000),
        ("output", 100, 50),
        ("total_input", 3200, 1600),
        ("cache_read", 800, 400),
        ("cache_write", 400, 200),
        ("cache_write_1h", 100, 50),
    }
    assert set(kinds(usage)) == {"witness_mismatch"}


def test_a_file_without_the_subagents_of_a_turn_agrees_with_its_main_loop() -> None:
    models = {
        "m": {
            "inputTokens": 2000,
            "outputTokens": 100,
            "cacheReadInputTokens": 800,
            "cacheCreationInputTokens": 400,
            "cacheCreationEphemeral1hInputTokens": 100,
        }
    }
    usage = one(file_call("claude", "msg-1", CALL), claude_wire(CALL, 0.1, model_usage=models)).usage
    assert (usage.input_tokens, usage.output_tokens, kinds(usage)) == (2000, 100, [])
    other = one(file_call("claude", "msg-1", {**CALL, "output_tokens": 51}), claude_wire(CALL, 0.1, model_usage=models))
    assert [(gap.counter, gap.before, gap.after) for gap in other.usage.gap_list] == [("output", 50, 51)]


def test_file_is_summed_when_the_wire_was_interrupted() -> None:
    found = one(file_call("claude", "msg-1", CALL), claude_wire(ZEROS, 0.1, interrupted=True))
    usage = found.usage
    assert (usage.streams, usage.final_streams, usage.input_tokens) == (1, 1, 1000)
    assert (usage.cost_usd, usage.peak_input_tokens) == (0.1, 1600)
    assert kinds(usage) == ["interrupted"]


def test_recorder_beside_a_result() -> None:
    rows = Rows()
    rows.start()
    rows.usage(claude_wire(CALL, 0.1))
    rows.seen(
        observed_session(),
        recorded(provider="claude", final=True, input_tokens=1000, peak_input_tokens=1500, cost_usd=0.1),
    )
    usage = reduce_usage(rows).usage
    assert (usage.streams, usage.final_streams, usage.gaps) == (1, 1, 0)
    assert (usage.cache_read_tokens, usage.peak_input_tokens, usage.cost_usd) == (400, 1500, 0.1)


def test_a_turns_own_cost_beats_the_difference_of_totals() -> None:
    """After a killed process the total goes on from an older state: 0.10, 0.16 (killed), 0.13 is 0.03, not 0.13."""
    rows = Rows()
    for turn, total, own in (("a", 0.10, 0.10), ("b", 0.16, 0.06), ("c", 0.13, 0.03)):
        rows.start(turn=turn)
        used = {"model": {"inputTokens": 10, "outputTokens": 1, "costUSD": own}}
        rows.usage(
            {
                "provider": "claude",
                "source": "wire",
                "result_id": turn,
                "model_usage": used,
                "usage": None,
                "total_cost_usd": total,
                "interrupted": False,
            },
            turn=turn,
        )
        rows.done(turn=turn)
    usage = reduce_usage(rows).usage
    assert usage.cost_usd == pytest.approx(0.19)
    assert usage.input_tokens == 30
