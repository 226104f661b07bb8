"""Recorder evidence: order, kinds, attempts, and what cannot be decoded (4.2, 4.3, 2.3.3 to 2.3.5, 3.6, 3.8)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.usage_cases import (
    Rows,
    attempt_finished,
    attempt_started,
    kinds,
    observed_session,
    recorded,
)
from turnlog.usage import reduce_usage
from turnlog.usage.evidence import decode_manifest, decode_terminal, event_times, ordinal

MANIFEST: dict[str, Any] = {
    "schema_version": 1,
    "artifact_key": "run_00000000000000000000000000000001",
    "created_at": "1970-01-01T00:00:01Z",
    "harness": "codex",
    "surface": "headless",
    "cwd": "/fixture",
    "subjects": [],
    "host": "fixture",
    "flow": {"kind": "step", "task_pr_id": "pr", "invocation_id": "i", "flow": "feature", "step": "review"},
}
TERMINAL = {"schema_version": 1, "outcome": "failed", "ended_at": "1970-01-01T00:00:02Z"}
ONE_RECEIPT = {
    "schema_version": 1,
    "seq": 0,
    "observed_at": "2026-09-29T00:00:00Z",
    **recorded(input_tokens=1),
}


def test_envelope_order_is_by_ordinal() -> None:
    rows = Rows()
    for number in (10, 9, 2):
        rows.line(recorded(number=number, input_tokens=number), ordinal=number)
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, usage.gaps) == (10, 0)


def test_envelope_number_that_does_not_rise() -> None:
    rows = Rows()
    for position in (0, 1):
        rows.observe(f"events.jsonl:{position}", {**ONE_RECEIPT, "observation_seq": position, "seq": 5})
    assert [(gap.kind, gap.stream) for gap in reduce_usage(rows).usage.gap_list] == [("order", None)]


def test_observation_number_that_does_not_rise() -> None:
    rows = Rows()
    rows.seen(recorded(number=4, input_tokens=1), recorded(number=4, input_tokens=2))
    usage = reduce_usage(rows).usage
    assert usage.input_tokens == 2
    assert [(gap.kind, gap.stream, gap.before, gap.after) for gap in usage.gap_list] == [("order", "recorder", 4, 4)]


def test_unknown_type() -> None:
    rows = Rows()
    rows.line({"type": "telepathy"})
    found = reduce_usage(rows)
    assert (kinds(found.usage), found.evidence_gaps_from_observations) == (["unknown_type"], 0)


def test_other_counter_kind_makes_no_stream() -> None:
    rows = Rows()
    rows.seen({**recorded(input_tokens=1), "counter_kind": "delta"})
    usage = reduce_usage(rows).usage
    assert (usage.streams, kinds(usage)) == (0, ["counter_kind"])


def test_unknown_start_counts_once() -> None:
    rows = Rows()
    for number in (1, 2, 3):
        rows.seen({**recorded(number=number, input_tokens=number), "start_known": False})
    assert kinds(reduce_usage(rows).usage) == ["start_unknown"]


def test_other_schema_is_still_counted() -> None:
    rows = Rows()
    rows.line(recorded(input_tokens=3), schema=2)
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, kinds(usage)) == (3, ["schema"])


def test_decrease_and_peak() -> None:
    rows = Rows()
    rows.seen(
        recorded(number=1, input_tokens=5, peak_input_tokens=5, context_window_tokens=9, cost_usd=0.2),
        recorded(number=2, input_tokens=4, peak_input_tokens=3, context_window_tokens=9, cost_usd=0.1),
    )
    usage = reduce_usage(rows).usage
    assert (usage.input_tokens, usage.peak_input_tokens, usage.cost_usd) == (5, 5, 0.2)
    assert sorted((gap.kind, gap.counter or "") for gap in usage.gap_list) == [
        ("decrease", "cost"),
        ("decrease", "input"),
    ]


def test_negative_cost_is_ignored() -> None:
    rows = Rows()
    rows.seen(recorded(input_tokens=1, cost_usd=-0.5))
    usage = reduce_usage(rows).usage
    assert (usage.cost_usd, kinds(usage)) == (None, ["schema"])


@pytest.mark.parametrize(
    "usage",
    [{"input_tokens": -1}, {"input_tokens": 1.0}, {"input_tokens": True}, {"model": 5}, {"cost_usd": "1"}, None],
)
def test_bad_counters_make_the_observation_undecodable(usage: Any) -> None:
    rows = Rows()
    rows.seen({**recorded(), "usage": usage})
    found = reduce_usage(rows)
    assert (found.usage.streams, found.usage.gaps, found.evidence_gaps_from_observations) == (0, 0, 1)


@pytest.mark.parametrize("member", ["schema_version", "seq", "observed_at", "type"])
def test_common_members_are_needed(member: str) -> None:
    rows = Rows()
    rows.observe("events.jsonl:0", ONE_RECEIPT)
    assert reduce_usage(rows).evidence_gaps_from_observations == 0
    rows = Rows()
    rows.observe("events.jsonl:0", {name: value for name, value in ONE_RECEIPT.items() if name != member})
    assert reduce_usage(rows).evidence_gaps_from_observations == 1


@pytest.mark.parametrize("source", ["events.jsonl:", "events.jsonl:x", "events.jsonl:-1", "events.jsonl:²"])
def test_bad_ordinal(source: str) -> None:
    rows = Rows()
    rows.observe(source, ONE_RECEIPT)
    found = reduce_usage(rows)
    assert (found.usage.streams, found.evidence_gaps_from_observations) == (0, 1)


def test_time_must_be_one() -> None:
    rows = Rows()
    rows.observe("events.jsonl:0", {**ONE_RECEIPT, "observed_at": "yesterday"})
    assert reduce_usage(rows).evidence_gaps_from_observations == 1


def test_observation_without_source() -> None:
    rows = Rows()
    row = rows.observe("manifest.json", MANIFEST)
    rows[0] = type(row)(**{name: getattr(row, name) for name in row.__struct_fields__} | {"payload": 5})
    assert reduce_usage(rows).evidence_gaps_from_observations == 1


def test_other_sources_are_passed_over() -> None:
    rows = Rows()
    rows.observe("provider-session:fresh", {"schema_version": 1})
    rows.observe("conflict:completed:thread:turn:00", {"any": "thing"})
    found = reduce_usage(rows)
    assert (found.evidence_gaps_from_observations, found.usage.gaps, found.evidence_gaps) == (0, 0, 1)


def test_attempts() -> None:
    rows = Rows()
    rows.line(attempt_started("one"), at=1000)
    rows.line(attempt_finished("one", "failed"), at=2000)
    rows.seen({"type": "provider_account_selected", "attempt_key": "two", "account_id": "label"})
    rows.seen(observed_session("here", "two"), recorded(attempt="two", input_tokens=1), recorded("s", attempt=""))
    found = reduce_usage(rows)
    one, two = found.attempts
    assert (one.key, one.provider, one.started_at, one.completed_at, one.outcome) == (
        "one",
        "codex",
        1000,
        2000,
        "failed",
    )
    assert (two.key, two.thread, two.started_at) == ("two", "here", None)
    assert [stream.thread for stream in found.streams] == ["here", None]


def test_recorder_stream_details() -> None:
    rows = Rows(50)
    rows.line({**recorded(input_tokens=1, model="precise"), "model": "rough"}, at=77_000)
    (stream,) = reduce_usage(rows).streams
    assert (stream.id, stream.source, stream.model, stream.at) == ("recorder", "recorder", "precise", 77_000)
    assert (stream.attempt_key, stream.turn, stream.seqs) == ("attempt", "turn", (50,))


def test_manifest_and_terminal() -> None:
    rows = Rows()
    rows.observe("manifest.json", MANIFEST)
    rows.observe("terminal.json", TERMINAL)
    found = reduce_usage(rows)
    assert found.evidence_gaps == 0
    assert found.manifest is not None
    assert found.manifest.flow is not None
    assert found.manifest.flow.task_pr_id == "pr"
    assert found.terminal is not None
    assert (found.terminal.outcome, found.terminal.ended_ms) == ("failed", 2000)


@pytest.mark.parametrize(
    "change",
    [{"schema_version": 2}, {"created_at": "now"}, {"cwd": None}, {"flow": {"kind": "other"}}, {"model": 1}],
)
def test_bad_manifest_counts_twice(change: dict[str, Any]) -> None:
    """Once as an observation that cannot be decoded, once as a missing manifest (4.2, R16.8)."""
    assert decode_manifest({**MANIFEST, **change}) is None
    rows = Rows()
    rows.observe("manifest.json", {**MANIFEST, **change})
    assert reduce_usage(rows).evidence_gaps == 2


@pytest.mark.parametrize(
    "change", [{"schema_version": 0}, {"outcome": "running"}, {"ended_at": None}, {"ended_at": "x"}]
)
def test_bad_terminal_is_treated_as_absent(change: dict[str, Any]) -> None:
    assert decode_terminal({**TERMINAL, **change}) is None
    rows = Rows()
    rows.observe("terminal.json", {**TERMINAL, **change})
    found = reduce_usage(rows)
    assert (found.terminal, found.evidence_gaps_from_observations) == (None, 1)


def test_ordinal() -> None:
    assert ordinal("events.jsonl:10") == 10
    assert ordinal("events.jsonl:") is None
    assert ordinal("10") is None


def test_event_times_keep_order_and_skip_what_has_none() -> None:
    assert event_times(
        [
            {"observed_at": "2026-10-01T00:00:00Z"},
            {"unparsed": "partial"},
            None,
            {"observed_at": "2026-10-01T00:20:00.5Z"},
        ]
    ) == [1_790_812_800_000, 1_790_814_000_500]
