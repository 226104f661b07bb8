"""OpenCode counters: one stream per message, reasoning inside or outside of output (D15)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.usage_cases import Rows, kinds, observed_session, opencode, recorded, tokens
from turnlog import Event, EventKind
from turnlog.usage import Reduction, reduce_usage


def one(payload: dict[str, Any]) -> Reduction:
    rows = Rows()
    rows.start()
    rows.usage(payload)
    return reduce_usage(rows)


def counts(output: int, total: int | None = None) -> dict[str, Any]:
    members = {"input": 1000, "output": output, "reasoning": 20, "cache": {"read": 400, "write": 200}}
    return members if total is None else {**members, "total": total}


@pytest.mark.parametrize(
    ("told", "version"),
    [
        (counts(30, 1650), None),  # outside: 1000 + 30 + 20 + 400 + 200
        (counts(50, 1650), None),  # inside: 1000 + 50 + 400 + 200
        (counts(30, 1650), "1.1.65"),  # the total decides before the version
        (counts(50, 1650), "1.18.33"),
        (counts(30), "1.14.0"),
        (counts(30), "v1.18.33"),
        (counts(30), "2.0.0"),
        (counts(50), "1.13.9"),
        (counts(50), "0.99.1"),
        (counts(30, 7), "1.18.33"),  # a total that fits neither decides nothing
    ],
)
def test_output_includes_reasoning(told: dict[str, Any], version: str | None) -> None:
    usage = one(opencode("a", told, version)).usage
    assert (usage.output_tokens, usage.reasoning_tokens, usage.gaps) == (50, 20, 0)
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (1000, 400, 200)
    assert (usage.total_input_tokens, usage.peak_input_tokens) == (1600, 1600)


@pytest.mark.parametrize("version", [None, "local", ""])
def test_undecided_reasoning_is_left_with_a_gap(version: str | None) -> None:
    usage = one(opencode("a", counts(30, 9), version)).usage
    assert usage.output_tokens == 30
    assert kinds(usage) == ["reasoning_unknown"]


@pytest.mark.parametrize("reasoning", [0, None])
def test_without_reasoning_there_is_nothing_to_decide(reasoning: int | None) -> None:
    usage = one(opencode("a", tokens(10, 5, reasoning=reasoning))).usage
    assert (usage.output_tokens, usage.reasoning_tokens, usage.gaps) == (5, reasoning, 0)


def test_reasoning_gap_comes_once_per_message() -> None:
    rows = Rows()
    rows.start()
    rows.usage(opencode("a", counts(30)))
    rows.usage(opencode("a", counts(31)))
    assert kinds(reduce_usage(rows).usage) == ["reasoning_unknown"]


def test_message_details() -> None:
    found = one(opencode("a", tokens(1, 2), modelID="model-a", cost=0.0076, time={"created": 1_796_040_444_398}))
    (stream,) = found.streams
    assert (stream.id, stream.model, stream.cost) == ("native:thread:turn:a", "model-a", 0.0076)
    assert (stream.at, stream.final, stream.seqs) == (1_796_040_444_398, True, (2,))


def test_unknown_cache_part_leaves_the_peak_unknown() -> None:
    usage = one(opencode("a", {"input": 10, "output": 1, "cache": {"read": 4}})).usage
    assert (usage.peak_input_tokens, usage.total_input_tokens, usage.cache_write_tokens) == (None, 14, None)
    assert usage.gaps == 0


@pytest.mark.parametrize("identity", [None, ""])
def test_message_without_id_is_not_counted(identity: str | None) -> None:
    usage = one(opencode(identity, tokens(1, 1))).usage
    assert (usage.streams, kinds(usage)) == (0, ["message_id"])


@pytest.mark.parametrize(
    "message",
    [
        {"id": "a"},
        {"id": "a", "tokens": None},
        {"id": "a", "tokens": {"input": -1}},
        {"id": "a", "tokens": {"output": 1.5}},
        {"id": "a", "tokens": {"cache": {"read": True}}},
        {"id": 7, "tokens": {}},
    ],
)
def test_undecodable_message(message: dict[str, Any]) -> None:
    usage = one({"provider": "opencode", "message": message}).usage
    assert (usage.streams, kinds(usage)) == (0, ["schema"])


@pytest.mark.parametrize("cost", [-1, "0.1", True])
def test_impossible_cost_is_ignored(cost: Any) -> None:
    usage = one(opencode("a", tokens(1, 1), cost=cost)).usage
    assert (usage.cost_usd, usage.input_tokens) == (None, 1)
    assert [(gap.kind, gap.counter) for gap in usage.gap_list] == [("schema", "cost")]


def test_falling_cost_is_a_decrease() -> None:
    rows = Rows()
    rows.start()
    rows.usage(opencode("a", tokens(1, 1), cost=0.5))
    rows.usage(opencode("a", tokens(1, 2), cost=0.4))
    usage = reduce_usage(rows).usage
    assert usage.cost_usd == 0.5
    assert [(gap.kind, gap.counter) for gap in usage.gap_list] == [("decrease", "cost")]


def test_zeros_of_an_aborted_message_are_unknown() -> None:
    aborted = {"name": "MessageAbortedError"}
    found = one(opencode("a", tokens(0, 0), error=aborted, cost=0))
    usage = found.usage
    assert (usage.streams, usage.final_streams) == (1, 0)
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (None, None, None)
    assert kinds(usage) == ["interrupted"]
    assert one(opencode("a", tokens(3, 0), error=aborted)).usage.input_tokens == 3
    refused = {"name": "APIError", "data": {"statusCode": 400}}
    assert one(opencode("a", tokens(0, 0), error=refused)).usage.input_tokens == 0
    lost = {"name": "APIError", "data": {"statusCode": 500}}
    assert kinds(one(opencode("a", tokens(0, 0), error=lost)).usage) == ["interrupted"]


def test_final_recorder_wins_and_lacks_nothing() -> None:
    rows = Rows()
    rows.start()
    rows.usage(opencode("a", tokens(20, 5), cost=0.1))
    rows.usage(opencode("b", tokens(10, 5), cost=0.2))
    rows.seen(observed_session(), recorded(provider="opencode", final=True, input_tokens=25, output_tokens=11))
    found = reduce_usage(rows)
    usage = found.usage
    assert (usage.streams, usage.final_streams) == (1, 1)
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (25, 11, 0)
    assert usage.cost_usd == pytest.approx(0.3)
    assert [(gap.kind, gap.counter, gap.before, gap.after) for gap in usage.gap_list] == [
        ("witness_mismatch", "input", 30, 25)
    ]
    assert found.streams[0].seqs == (2, 3, 5)


def test_native_that_takes_from_a_partial_recorder_says_so() -> None:
    rows = Rows()
    rows.start()
    rows.usage(opencode("a", tokens(20, 5)))
    rows.seen(
        observed_session(),
        recorded(provider="opencode", input_tokens=21, output_tokens=5, peak_input_tokens=30, cost_usd=0.1),
    )
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, usage.peak_input_tokens, usage.cost_usd) == (20, 30, None)
    assert {(gap.kind, gap.counter, gap.before, gap.after) for gap in usage.gap_list} == {
        ("witness_mismatch", "input", 21, 20),
        ("witness_mismatch", "total_input", 21, 20),
        ("witness_mismatch", "cost", 0.1, None),
    }


def test_recorder_stays_when_no_native_receipt_can_be_used() -> None:
    rows = Rows()
    rows.start()
    rows.usage(opencode(None, tokens(20, 5)))
    rows.seen(observed_session(), recorded(provider="opencode", input_tokens=7))
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, usage.streams, kinds(usage)) == (7, 1, ["message_id"])


@pytest.mark.parametrize("word", ["unknown", "lost", "idle"])
def test_a_turn_whose_end_nobody_learned_is_a_gap(word: str) -> None:
    rows = [
        Event(
            seq=seq,
            session_id="s",
            thread=thread,
            turn=turn,
            kind=kind,
            provider_generation=None,
            exec_id=None,
            task_id=None,
            wave_id=None,
            observed_at=1,
            payload=payload,
        )
        for seq, thread, turn, kind, payload in [
            (1, "thread", "turn", EventKind.STARTED, {}),
            (2, None, None, EventKind.OBSERVED, {"source": f"{word}:thread:turn", "evidence": {}}),
        ]
    ]
    assert [gap.kind for gap in reduce_usage(rows[:1]).usage.gap_list] == [], "it may still run"
    (gap,) = reduce_usage(rows).usage.gap_list
    assert (gap.kind, gap.stream, gap.seq) == ("unfinished", "native:thread:turn", 1)
    done = msgspec.structs.replace(rows[0], seq=3, kind=EventKind.COMPLETED, payload={"status": "completed"})
    assert reduce_usage([*rows, done]).usage.gaps == 0
