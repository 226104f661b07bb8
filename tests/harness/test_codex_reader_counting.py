from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.codex_rollouts import (
    CHILD,
    PARENT,
    T0,
    Rollout,
    gaps,
    inputs,
    kinds,
    of_kind,
    payload,
    read,
    spent,
    usage,
    uuid7,
)
from turnlog.harness.codex.counting import MARKERS, Counting, Memory
from turnlog.harness.codex.lineage import Kin

TURN = uuid7(T0 + 5, 9)
NEXT = uuid7(T0 + 500, 9)


def turn() -> Rollout:
    return Rollout().started(TURN).context(turn_id=TURN)


def test_totals_written_again_are_no_calls() -> None:
    reading = read(turn().count(1000, 1000).count(1000, 1000).count(1000, 1000).count(2500, 1500))
    assert inputs(reading) == [1000, 1500]
    assert reading.dropped == 2


def test_totals_with_no_info_but_rate_limits_are_no_usage() -> None:
    limits = {"primary": {"used_percent": 1.0, "window_minutes": 300, "resets_at": 1_790_010_000}, "secondary": None}
    reading = read(turn().event("token_count", info=None, rate_limits=limits))
    assert inputs(reading) == []
    (noted,) = [each for each in reading.noted if each.source.startswith("limits:")]
    assert noted.source == f"limits:{noted.at}"
    assert orjson.loads(noted.evidence) == {
        "provider": "codex",
        "at": noted.at,
        "primary": {"used_percent": 1.0, "window_minutes": 300, "resets_at": 1_790_010_000},
        "secondary": None,
        "plan": None,
        "credits": None,
        "limit": None,
    }


def test_rate_limits_are_noted_when_they_change() -> None:
    def limits(percent: float) -> dict[str, object]:
        return {
            "primary": {"used_percent": percent, "window_minutes": 300, "resets_in_seconds": 600},
            "plan_type": "pro",
        }

    rollout = turn()
    for percent in (1.0, 1.0, 2.0, 2.0):
        rollout.event("token_count", info=None, rate_limits=limits(percent))
    rollout.ended(TURN)
    assert [orjson.loads(each.evidence)["primary"]["used_percent"] for each in read(rollout).noted] == [1.0, 2.0]
    assert len([each for each in read(rollout, cut=1).noted if each.source.startswith("limits:")]) == 2


def test_a_call_is_told_by_model_tier_service_and_the_time_of_its_event() -> None:
    rollout = Rollout(model_provider="openai").started(TURN).context(turn_id=TURN).wait(3 * 86_400_000)
    reading = read(rollout.count(usage(100, 40, 10, 5), usage(100, 40, 10, 5), service_tier="Priority"))
    (found,) = of_kind(reading, "usage")
    assert (found.session, found.turn, found.at) == (CHILD, TURN, T0 + 30 + 3 * 86_400_000)
    assert payload(found) == {
        "provider": "codex",
        "source": "file",
        "call": found.call,
        "model": "gpt-5.5",
        "service": "openai",
        "tier": "priority",
        "at": found.at,
        "usage": {
            "input_tokens": 100,
            "cached_input_tokens": 40,
            "output_tokens": 10,
            "reasoning_output_tokens": 5,
        },
    }


def test_the_tier_of_the_thread_holds_until_it_changes() -> None:
    rollout = turn().event("thread_settings_applied", thread_settings={"service_tier": "fast"}).count(10, 10)
    rollout.event("thread_settings_applied", thread_settings={"service_tier": None}).count(20, 10)
    assert [payload(each).get("tier") for each in of_kind(read(rollout), "usage")] == ["fast", None]


def test_a_model_switch_counts_per_call() -> None:
    rollout = turn().count(10, 10).context("gpt-5.5-mini", turn_id=TURN).count(30, 20)
    reading = read(rollout)
    assert [payload(each)["model"] for each in of_kind(reading, "usage")] == ["gpt-5.5", "gpt-5.5-mini"]
    assert [each.model for each in reading.facts if each.model] == ["gpt-5.5", "gpt-5.5-mini"]


def test_an_exceeded_context_window_is_a_phantom_and_sets_the_counter_back() -> None:
    rollout = turn().count(84_000, 84_000).count(usage(0, 0, 0, 0, total=258_400), usage(0, 0, 0, 0, total=258_400))
    rollout.ended(TURN, None).started(NEXT).count(usage(0, 0, 0, 0, total=258_400))
    reading = read(rollout.count(usage(7943, 0, 143, 0, total=266_486), usage(7943, 0, 143, 0)))
    assert inputs(reading) == [84_000, 7943]
    assert gaps(reading) == []


def test_context_estimates_behind_a_compaction_are_no_usage() -> None:
    rollout = turn().count(1000, 1000).count(1600, 600).add("compacted", {"message": "so far"})
    reading = read(rollout.count(usage(1600, 0, 160, 0), usage(0, 0, 0, 0, total=6853)))
    assert inputs(reading) == [1000, 600]


def test_falling_totals_are_a_new_epoch() -> None:
    first, second = usage(1000, 800, 100, 40), usage(900, 700, 60, 20)
    reading = read(Rollout().count(first).count(usage(0, 0, 0, 0)).count(second))
    assert spent(reading) == [(1000, 800, 100, 40), (900, 700, 60, 20)]


def test_a_fall_to_more_than_the_last_response_is_counted_with_its_gap() -> None:
    reading = read(turn().count(5000, 5000).count(3000, 1000))
    assert inputs(reading) == [5000, 3000]
    assert gaps(reading) == ["counter_reset"]


def test_a_part_that_falls_while_the_rest_grows_is_no_new_epoch() -> None:
    reading = read(turn().count(usage(1000, 800, 100, 0)).count(usage(1500, 700, 150, 0), usage(500, 0, 50, 0)))
    assert spent(reading) == [(1000, 800, 100, 0), (500, 0, 50, 0)]
    assert gaps(reading) == ["decrease"]


def test_a_jump_above_the_last_response_is_counted_with_its_gap() -> None:
    reading = read(turn().count(1000, 1000).count(5000, 1500))
    assert inputs(reading) == [1000, 4000]
    assert payload(of_kind(reading, "usage")[1])["gaps"] == [
        {"kind": "witness_mismatch", "counter": "input_tokens", "before": 1500, "after": 4000},
        {"kind": "witness_mismatch", "counter": "output_tokens", "before": 150, "after": 400},
    ]


def test_a_response_and_its_step_count_once() -> None:
    rollout = turn().record("r1", 1000, 1000, turn_id=TURN).count(1000, 1000)
    reading = read(rollout.record("r2", 1500, 2500, turn_id=TURN).count(2500, 1500))
    assert inputs(reading) == [1000, 1500]
    assert [each.call for each in of_kind(reading, "usage")] == [f"codex:{CHILD}:r1", f"codex:{CHILD}:r2"]
    assert reading.dropped == 2


def test_a_step_written_before_its_response_counts_once() -> None:
    assert inputs(read(turn().count(1000, 1000).record("r1", 1000, 1000, turn_id=TURN))) == [1000]


def test_two_responses_behind_one_step_count_once_each() -> None:
    rollout = turn().record("r1", 1000, turn_id=TURN).record("r2", 1500, turn_id=TURN).count(2500, 1500)
    assert inputs(read(rollout)) == [1000, 1500]


def test_the_step_of_a_lost_response_counts() -> None:
    rollout = turn().raw(b'{"timestamp":"2026-09-21T14:13:20.020Z","type":"token_usage_rec')
    reading = read(rollout.count(1000, 1000).record("r2", 1500, 2500, turn_id=TURN).count(2500, 1500))
    assert inputs(reading) == [1000, 1500]
    assert kinds(reading) == ["not_json"]


def test_a_response_of_a_compaction_without_a_step_counts() -> None:
    rollout = turn().count(2500, 2500).record("resp_c", 4600, turn_id=TURN)
    rollout.add("compacted", {"message": "so far", "compaction_response_id": "resp_c"}).count(3000, 500)
    reading = read(rollout)
    assert inputs(reading) == [2500, 4600, 500]
    assert gaps(reading) == []


def test_a_response_nested_in_a_compaction_is_not_counted() -> None:
    told = {"thread_id": CHILD, "turn_id": TURN, "response_id": "r1", "usage": usage(1000, 0, 100, 0)}
    rollout = turn().record("r1", 1000, 1000, turn_id=TURN)
    assert inputs(read(rollout.add("compacted", {"message": "", "latest_token_usage_record": told}))) == [1000]


def test_a_compaction_that_older_logs_do_not_count_is_a_gap() -> None:
    rollout = turn().said("working").count(1000, 1000).add("compacted", {"message": "a summary"})
    assert gaps(read(rollout)) == ["compaction_unrecorded"]


@pytest.mark.parametrize("summary", [True, False])
def test_a_compaction_with_a_step_of_its_own_is_no_gap(summary: bool) -> None:
    rollout = turn().said("working").count(1000, 1000)
    if summary:
        rollout.said("a summary")
    rollout.count(1600, 600).add("compacted", {"message": "So far:\na summary"})
    reading = read(rollout)
    assert (inputs(reading), gaps(reading)) == ([1000, 600], [])


def test_a_response_told_twice_counts_once() -> None:
    rollout = turn().record("r1", 1000, 1000, turn_id=TURN).record("r1", 1000, 1000, turn_id=TURN)
    reading = read(rollout)
    assert (inputs(reading), reading.dropped) == ([1000], 1)


def test_responses_of_another_thread_are_inherited() -> None:
    rollout = turn().record("r0", 900, turn_id=TURN, thread_id=PARENT).record("r1", 1000, turn_id=TURN)
    reading = read(rollout)
    assert (inputs(reading), reading.inherited) == ([1000], 1)


def test_the_repeated_end_of_a_file_adds_nothing() -> None:
    rollout = turn().count(1000, 1000).count(2500, 1500).count(3550, 1050)
    rollout.lines += rollout.lines[-2:]
    reading = read(rollout)
    assert (inputs(reading), gaps(reading)) == ([1000, 1500, 1050], [])


def test_totals_out_of_order_sum_to_the_same_with_a_gap() -> None:
    rollout = turn().count(1000, 1000).count(2500, 1500).count(3550, 1050)
    rollout.lines[-2:] = reversed(rollout.lines[-2:])
    reading = read(rollout)
    assert sum(inputs(reading)) == 3550
    assert "order" in gaps(reading)


@pytest.mark.parametrize("bad", [-5, 1.5, 2**63, 2**70, "12", True, [1]])
def test_a_counter_that_is_none_is_a_problem_and_the_others_count(bad: object) -> None:
    rollout = turn().event("token_count", info={"total_token_usage": usage(1000, 0, 100, 0) | {"output_tokens": bad}})
    reading = read(rollout.count(1500, 500))
    assert kinds(reading) == ["bad_counter"]
    assert reading.troubles[0].usage
    assert inputs(reading) == [1000, 500]
    assert sum(each[2] for each in spent(reading)) == 150


def test_a_counter_named_twice_is_a_problem() -> None:
    rollout = turn().count(1000, 1000)
    rollout.lines[-1] = rollout.lines[-1].replace(b'"input_tokens":1000', b'"input_tokens":9,"input_tokens":1000', 1)
    reading = read(rollout)
    assert (kinds(reading), inputs(reading)) == (["duplicate_key"], [1000])


def test_cache_writes_stay_inside_the_input() -> None:
    reading = read(turn().count(usage(100, 40, 10, 5, 30), usage(100, 40, 10, 5, 30)))
    assert payload(of_kind(reading, "usage")[0])["usage"] == {
        "input_tokens": 100,
        "cached_input_tokens": 40,
        "cache_write_input_tokens": 30,
        "output_tokens": 10,
        "reasoning_output_tokens": 5,
    }


def test_bare_items_tell_no_usage_and_say_so() -> None:
    lines = [
        b'{"id":"%b","timestamp":"2025-08-01T10:00:00.000Z","instructions":null,"git":{"branch":"main"}}'
        % CHILD.encode(),
        b'{"record_type":"state"}',
        b'{"type":"message","id":null,"role":"user","content":[{"type":"input_text","text":"do it"}]}',
        b'{"type":"message","id":"m1","role":"assistant","content":[{"type":"output_text","text":"done"}]}',
    ]
    reading = read(b"\n".join(lines))
    assert (inputs(reading), gaps(reading)) == ([], ["usage_unknown"])
    assert reading.facts[0].at == 1_754_042_400_000
    assert [(each.kind, each.turn) for each in reading.found] == [
        ("started", f"prompt-{len(lines[0]) + len(lines[1]) + 2}")
    ]


def test_a_turn_whose_program_told_no_counts_says_so() -> None:
    assert gaps(read(turn().said("hello").event("token_count", info=None).ended(TURN))) == ["usage_unknown"]


_STEPS = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 2)), max_size=30)


@given(_STEPS, st.booleans())
def test_repetitions_never_change_a_sum(steps: list[tuple[int, int]], records: bool) -> None:
    rollout, total = turn(), 0
    for place, (step, again) in enumerate(steps):
        total += step
        if records and step:
            rollout.record(f"r{place}", usage(step, 0, 0, 0), usage(total, 0, 0, 0), turn_id=TURN)
        for _ in range(1 + again):
            rollout.count(usage(total, 0, 0, 0), usage(step, 0, 0, 0))
    assert sum(inputs(read(rollout))) == total


@given(_STEPS, st.integers(1, 5))
def test_going_on_from_a_state_finds_the_same(steps: list[tuple[int, int]], cut: int) -> None:
    rollout, total = turn(), 0
    for place, (step, again) in enumerate(steps):
        total = total + step if again else step
        rollout.count(usage(total, 0, total // 9, 0), usage(step, 0, 0, 0))
        if place % 4 == 0:
            rollout.ended(TURN).started(f"turn-{place}").context(turn_id=f"turn-{place}")
    at_once, by_parts = read(rollout), read(rollout, cut=cut)
    assert by_parts == at_once


def test_the_marked_lines_alone_give_the_same_receipts() -> None:
    rollout = turn().prompt("go").said("working").count(1000, 1000).record("r2", 500, 1500, turn_id=TURN)
    rollout.item("function_call", name="shell", arguments="{}").count(1500, 500).ended(TURN)
    counting = Counting(Memory(Kin(CHILD)), lambda _: None)
    offset = 0
    for line in rollout.lines:
        if any(mark in line for mark in MARKERS):
            counting.take(orjson.loads(line), offset)
        offset += len(line) + 1
    assert counting.found == of_kind(read(rollout), "usage")
