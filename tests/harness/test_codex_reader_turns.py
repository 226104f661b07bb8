from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.codex_rollouts import (
    CHILD,
    T0,
    Rollout,
    ends,
    fact,
    gaps,
    inputs,
    kinds,
    of_kind,
    payload,
    read,
    uuid7,
)

TURN = uuid7(T0 + 5, 9)
NEXT = uuid7(T0 + 500, 9)


def turn(name: str = TURN) -> Rollout:
    return Rollout().started(name, started_at=T0 // 1000).context(turn_id=name).prompt("go")


def test_a_turn_has_the_programs_own_name_start_answer_and_end() -> None:
    rollout = turn().said("it is done").ended(TURN, "it is done", started_at=T0 // 1000, completed_at=T0 // 1000 + 9)
    reading = read(rollout)
    assert [(each.kind, each.turn) for each in reading.found] == [
        ("started", TURN),
        ("output", TURN),
        ("completed", TURN),
    ]
    start, answer, end = reading.found
    assert (start.at, payload(start)) == (T0, {"provider": "codex", "source": "file", "at": T0})
    assert payload(answer) == {"text": "it is done"}
    assert (end.at, payload(end)) == (
        T0 + 9000,
        {
            "provider": "codex",
            "source": "file",
            "status": "completed",
            "error": None,
            "started_at": T0 // 1000,
            "completed_at": T0 // 1000 + 9,
            "duration_ms": None,
        },
    )


def test_a_turn_whose_program_was_killed_has_no_end() -> None:
    reading = read(turn().said("on it").started(NEXT).prompt("again").count(10, 10).ended(NEXT))
    assert ends(reading) == [(NEXT, "completed")]
    assert [each.turn for each in of_kind(reading, "started")] == [TURN, NEXT]
    assert [(each.source, each.turn) for each in reading.noted] == [(f"unknown:{CHILD}:{TURN}", TURN)]


def test_a_turn_that_still_has_no_end_is_noted_until_it_has_one() -> None:
    rollout = turn()
    assert [each.source for each in read(rollout).noted] == [f"unknown:{CHILD}:{TURN}"]
    assert read(rollout.said("done").count(10, 10).ended(TURN)).noted == []


def test_a_stopped_turn_is_interrupted_and_what_it_used_last_is_unknown() -> None:
    reading = read(turn().event("turn_aborted", turn_id=TURN, reason="interrupted", duration_ms=12))
    assert ends(reading) == [(TURN, "interrupted")]
    assert payload(of_kind(reading, "completed")[0])["reason"] == "interrupted"
    assert (gaps(reading), inputs(reading)) == (["interrupted"], [])


def test_a_turn_with_an_error_failed_with_its_words() -> None:
    error = {"message": "We're busy", "codex_error_info": "internal_server_error"}
    reading = read(turn().ended(TURN, None, error=error, started_at=T0 // 1000))
    assert ends(reading) == [(TURN, "failed")]
    assert payload(of_kind(reading, "completed")[0])["error"] == error
    assert [(each.role, each.text, each.failed) for each in reading.spoken[-1].passages] == [
        ("note", "We're busy", True)
    ]


@pytest.mark.parametrize(
    ("before", "status"),
    [
        (lambda rollout: rollout.event("error", message="boom"), "failed"),
        (lambda rollout: rollout.count(0), "failed"),
        (lambda rollout: rollout.said("words"), "completed"),
        (lambda rollout: rollout.add("compacted", {"message": "s"}), "completed"),
        (lambda rollout: rollout, "unknown"),
    ],
)
def test_an_end_without_last_words_is_what_else_is_known(before: Any, status: str) -> None:
    rollout = before(turn())
    assert ends(read(rollout.ended(TURN, None))) == [(TURN, status)]


def test_an_end_of_newer_versions_without_error_is_a_completion() -> None:
    assert ends(read(turn().ended(TURN, None, started_at=T0 // 1000))) == [(TURN, "completed")]


def test_the_file_tells_the_end_when_it_comes_whatever_was_read_before() -> None:
    rollout = turn().count(100, 100)
    first = read(rollout)
    assert ends(first) == []
    assert ends(read(rollout.ended(TURN), cut=2)) == [(TURN, "completed")]


def test_secrets_in_errors_are_not_kept() -> None:
    error = {"message": "401 for Bearer sk-abcdefghijklmnopqrstuvwxyz0123456789"}
    found = of_kind(read(turn().ended(TURN, None, error=error)), "completed")[0]
    assert "abcdefghijklmnopqrstuvwxyz" not in found.payload


def test_a_review_is_a_turn_of_its_parent_and_runs_in_a_conversation_of_its_own() -> None:
    rollout = Rollout(ordinal=0).event("item_completed", turn_id=TURN, item={"type": "EnteredReviewMode"})
    rollout.started(NEXT, root_turn_id=TURN)
    rollout.event("item_completed", turn_id=NEXT, item={"type": "UserMessage", "content": [{"text": "Review it"}]})
    rollout.event("item_completed", turn_id=TURN, item={"type": "ExitedReviewMode"}).said("fine")
    reading = read(rollout.ended(TURN, None, started_at=T0 // 1000))
    assert [(each.kind, each.turn) for each in reading.found] == [("started", TURN), ("completed", TURN)]
    assert (gaps(reading), fact(reading, "title")) == ([], [])


def test_a_review_of_older_versions_ends_its_parents_turn_only() -> None:
    rollout = Rollout().event("entered_review_mode").started(NEXT).event("exited_review_mode").said("fine")
    assert [(each.kind, each.turn) for each in read(rollout.ended(TURN, "fine")).found] == [
        ("output", TURN),
        ("completed", TURN),
    ]


def test_turns_that_were_rolled_back_stay_spent() -> None:
    rollout = turn().count(1000, 1000).ended(TURN).event("thread_rolled_back", num_turns=1)
    reading = read(rollout)
    assert inputs(reading) == [1000]
    (noted,) = reading.noted
    assert orjson.loads(noted.evidence)["rolled_back"] == 1


def test_without_turn_ids_a_prompt_begins_a_turn_and_the_next_one_tells_its_answer() -> None:
    rollout = Rollout().context().prompt("one").said("first words").count(100, 100).said("last words")
    place = len(b"\n".join(rollout.lines)) + 1
    rollout.context().prompt("two").count(300, 200)
    reading = read(rollout)
    first, second = of_kind(reading, "started")
    assert second.turn == f"prompt-{place + len(rollout.lines[-4]) + 1}"
    assert [each.turn for each in of_kind(reading, "usage")] == [first.turn, second.turn]
    (answer,) = of_kind(reading, "output")
    assert (answer.turn, payload(answer)) == (first.turn, {"text": "last words"})
    assert of_kind(reading, "completed") == []


@pytest.mark.parametrize("order", [1, -1])
def test_both_copies_of_a_prompt_are_one_turn(order: int) -> None:
    rollout = Rollout().prompt("one")
    rollout.lines[1:] = rollout.lines[1:][::order]
    assert len(of_kind(read(rollout.count(10, 10)), "started")) == 1


def test_a_file_of_items_alone_has_turns_too() -> None:
    message = {"role": "user", "content": [{"type": "input_text", "text": "one"}]}
    rollout = Rollout().item("message", **message).said("a").item("message", **message).said("b")
    assert len(of_kind(read(rollout), "started")) == 2


def test_what_nobody_typed_begins_no_turn_and_gives_no_title() -> None:
    rollout = Rollout()
    for text in (
        "<environment_context>\n  <cwd>/src</cwd>\n</environment_context>",
        "# AGENTS.md instructions for /src\n\n<INSTRUCTIONS>be kind</INSTRUCTIONS>",
        "<user_instructions>be kind</user_instructions>",
        "<turn_aborted>\nThe user interrupted",
        "<user_action>\n  <context>User initiated a review",
    ):
        rollout.item("message", role="user", content=[{"type": "input_text", "text": text}])
    reading = read(rollout.prompt("<b>bold</b> is what I want"))
    assert len(of_kind(reading, "started")) == 1
    assert fact(reading, "title") == ["<b>bold</b> is what I want"]


def test_parts_that_the_file_says_are_not_typed_are_left_out() -> None:
    content = [{"type": "input_text", "text": "made"}, {"type": "input_text", "text": "typed"}]
    kinds_ = {"content_item_kinds": ["environments.environment_context", "user.text"]}
    message = {"role": "user", "content": content, "internal_chat_message_metadata_passthrough": kinds_}
    reading = read(Rollout().item("message", **message))
    assert [each.text for said in reading.spoken for each in said.passages] == ["typed"]


def test_the_title_is_the_request_behind_an_editors_context() -> None:
    rollout = Rollout().prompt(
        "# Context from my IDE setup:\n\n## Active file: a.ts\n\n## My request for Codex:\nfix  it\n"
    )
    assert fact(read(rollout), "title") == ["fix it"]


def test_a_name_that_was_given_ranks_higher() -> None:
    reading = read(turn().event("thread_name_updated", thread_name="Parser work"))
    assert [(each.title, each.title_rank) for each in reading.facts if each.title] == [("go", 0), ("Parser work", 1)]


def test_facts_of_a_conversation() -> None:
    rollout = Rollout(git={"repository_url": "git@example.org:a/b.git", "branch": "main"}, cli_version="0.58.0")
    reading = read(rollout.context("gpt-5.1-codex"))
    first = reading.facts[0]
    assert (first.session, first.at, first.cwd, first.remote, first.version) == (
        CHILD,
        T0,
        "/src/app",
        "git@example.org:a/b.git",
        "0.58.0",
    )
    assert fact(reading, "model") == ["gpt-5.1-codex"]


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "event_msg", "payload": {"type": ["x"]}},
        {"type": "event_msg", "payload": {"type": "item_completed", "item": {"type": {}}}},
        {"type": "event_msg", "payload": {"type": "task_started", "turn_id": 7, "started_at": 1e308}},
        {"type": "event_msg", "payload": {"type": "task_complete", "turn_id": None, "error": [1]}},
        {"type": "event_msg", "payload": {"type": "token_count", "info": {"total_token_usage": []}, "rate_limits": []}},
        {"type": "event_msg", "payload": {"type": "token_count", "rate_limits": {"primary": 3, "plan_type": {}}}},
        {"type": "response_item", "payload": {"type": {}, "role": [], "content": {"a": 1}}},
        {"type": "response_item", "payload": {"type": "message", "role": {}, "content": [1, None, {"text": 2}]}},
        {"type": "response_item", "payload": {"type": "function_call_output", "output": {"metadata": 1}}},
        {"type": "response_item", "payload": {"type": "local_shell_call", "action": {"command": [1]}}},
        {"type": "token_usage_record", "payload": {"usage": 3, "thread_id": 1, "response_id": []}},
        {"type": "session_meta", "payload": {"id": 3, "source": [], "git": 1, "history_base": "x"}},
        {"type": "turn_context", "payload": {"model": 5, "service_tier": 1}},
        {"type": {}, "payload": {}},
        {"type": ["a"]},
        {"type": "message", "role": ["user"], "content": 5},
        {"payload": 5},
        {"timestamp": 5, "type": "compacted", "payload": {"message": 5}},
        {},
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_records_of_any_shape_stop_nothing(odd: dict[str, Any], first: bool) -> None:
    rollout = Rollout() if not first else Rollout(headed=False)
    rollout.raw(orjson.dumps(odd)).started(TURN).count(10, 10).ended(TURN)
    reading = read(rollout)
    assert (inputs(reading), ends(reading)) == ([10], [(TURN, "completed")])


def test_deep_nesting_in_an_error_is_a_problem_of_its_line() -> None:
    deep: Any = "x"
    for _ in range(260):
        deep = [deep]
    rollout = turn().ended(TURN, None, error={"message": "m", "more": deep}).started(NEXT).count(5, 5)
    reading = read(rollout)
    assert (kinds(reading), inputs(reading)) == (["schema"], [5])


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=8,
)
_MEMBERS = [
    "id",
    "turn_id",
    "thread_id",
    "response_id",
    "role",
    "content",
    "output",
    "action",
    "arguments",
    "summary",
    "info",
    "usage",
    "rate_limits",
    "error",
    "started_at",
    "completed_at",
    "forked_from_id",
    "history_base",
    "source",
    "item",
    "thread_settings",
    "message",
    "last_agent_message",
    "model",
]
_EVENTS = [
    "token_count",
    "task_started",
    "task_complete",
    "turn_aborted",
    "user_message",
    "item_completed",
    "thread_rolled_back",
    "message",
    "function_call_output",
    "local_shell_call",
    "reasoning",
    "error",
    "entered_review_mode",
    "thread_settings_applied",
]
_KINDS = ["session_meta", "turn_context", "event_msg", "response_item", "token_usage_record", "compacted", "message"]
_RECORD = st.fixed_dictionaries(
    {
        "timestamp": st.sampled_from(["2026-09-21T14:13:20.000Z", "2026", "x"]) | _JSON,
        "type": st.sampled_from(_KINDS),
        "payload": _JSON
        | st.builds(
            lambda kind, members: {"type": kind} | members,
            st.sampled_from(_EVENTS) | _JSON,
            st.dictionaries(st.sampled_from(_MEMBERS), _JSON, max_size=6),
        ),
    },
    optional={"ordinal": _JSON, "metadata": _JSON, "role": _JSON, "content": _JSON, "id": _JSON},
)


@given(st.lists(_RECORD, max_size=6), st.integers(1, 3))
def test_no_record_stops_a_reading_and_its_states_go_on(records: list[dict[str, Any]], cut: int) -> None:
    data = b"\n".join(json.dumps(record).encode() for record in records)
    at_once, by_parts = read(data), read(data, cut=cut)
    assert at_once.lines == len(records)
    assert by_parts.found == at_once.found
