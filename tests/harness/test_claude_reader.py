"""Claude's session files as receipts: calls, turns, conversations."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.claude_reading import (
    AT,
    LATER,
    OTHER,
    SESSION,
    WHEN,
    file_of,
    progress,
    prompt,
    read,
    record,
    result,
    said,
    synthetic,
    system,
    text,
    tool,
    usage,
)
from turnlog.harness.claude import conversation
from turnlog.harness.claude.conversation import HELD
from turnlog.harness.salvage import instant
from turnlog.usage.identity import unmarked

MUCH_LATER = "2026-02-03T04:19:00.000Z"
CHILD = f"{SESSION}/a1"
AGENT = f"/x/projects/-app/{SESSION}/subagents/agent-a1.jsonl"

# --- calls ----------------------------------------------------------------------------------------------------------


def test_a_call_is_told_once_in_the_shape_that_is_counted() -> None:
    found = read(prompt("p1"), said("m1", text("x"), used=usage(1)), said("m1", text("y"), used=usage(120)))
    receipts = [each for each in found.found if each.kind == "usage"]
    assert len(receipts) == 1
    assert (receipts[0].call, receipts[0].session, receipts[0].turn, receipts[0].at) == (
        "claude:m1",
        SESSION,
        "p1",
        WHEN,
    )
    assert orjson.loads(receipts[0].payload) == {
        "provider": "claude",
        "source": "file",
        "call": "m1",
        "model": "m-1",
        "usage": usage(120),
        "at": AT,
    }
    assert found.dropped == 1


def test_repeated_lines_of_a_message_count_once_with_the_final_output() -> None:
    used = [usage(1), usage(1), usage(120)]
    assert read(prompt("p1"), *(said("m1", used=each) for each in used)).calls() == {"claude:m1": (10, 120)}
    assert read(prompt("p1"), *(said("m1", used=each) for each in reversed(used))).calls() == {"claude:m1": (10, 120)}


def test_lines_of_a_message_may_be_separated_by_others() -> None:
    found = read(
        prompt("p1"),
        said("m1", tool("t1"), used=usage(1)),
        result("t1"),
        said("m2", text("x"), used=usage(5)),
        said("m1", tool("t2"), used=usage(90)),
        result("t2"),
    )
    assert found.calls() == {"claude:m1": (10, 90), "claude:m2": (10, 5)}
    assert len(found.turns("usage")) == 2


def test_a_message_that_crosses_midnight_is_counted_when_it_began() -> None:
    first = said("m1", text("x"), used=usage(1), timestamp="2026-02-03T23:59:59.000Z")
    last = said("m1", tool(), used=usage(80), timestamp="2026-02-04T00:00:03.000Z")
    found = [each for each in read(prompt("p1"), first, last).found if each.kind == "usage"]
    assert [(each.at, orjson.loads(each.payload)["at"]) for each in found] == [
        (1_770_163_199_000, "2026-02-03T23:59:59.000Z")
    ]
    assert found[0].offset == len(file_of(prompt("p1"), first))


def test_a_missing_request_id_makes_no_second_call() -> None:
    found = read(prompt("p1"), said("m1"), said("m1", requestId="r1"), said("m1"))
    assert list(found.calls().values()) == [(10, 50)]


def test_an_id_used_again_by_a_gateway_is_another_call() -> None:
    found = read(
        prompt("p1"),
        said("m1", requestId="r1", used=usage(5, fresh=10)),
        said("m1", requestId="r2", used=usage(7, fresh=900)),
        said("m1", requestId="r2", used=usage(9, fresh=900)),
        said("m2", requestId="r3"),
        said("m2", requestId="r4"),
    )
    assert requests(found) == {("claude:m1", "r1", 10, 5), ("claude:m1", "r2", 900, 9), ("claude:m2", "r3", 10, 50)}


def test_an_id_used_again_after_many_other_calls_is_told_by_its_own_request() -> None:
    reused = [said("m1", requestId=f"r{number}", used=usage(number, fresh=100 + number)) for number in range(12)]
    others = [said(f"x{number}", requestId="q") for number in range(2 * HELD)]
    expected = {("claude:m1", f"r{number}", 100 + number, number) for number in range(12)}
    for lines in ([*reused, *others, *reused], [*reversed(reused), *others]):
        assert {each for each in requests(read(prompt("p1"), *lines)) if each[0] == "claude:m1"} == expected


def requests(found: Any) -> set[tuple[str, str | None, int, int]]:
    """(id, request, fresh input, output) of each usage receipt."""
    told = [(each.call, orjson.loads(each.payload)) for each in found.found if each.kind == "usage"]
    return {
        (unmarked(str(call))[0], value.get("request"), value["usage"]["input_tokens"], value["usage"]["output_tokens"])
        for call, value in told
    }


def test_a_call_without_message_id_is_named_by_its_record() -> None:
    unnamed = said("m1", uuid="u7")
    del unnamed["message"]["id"]
    assert read(prompt("p1"), unnamed).calls() == {"claude:u7": (10, 50)}
    del unnamed["uuid"]
    first, second = (list(read(prompt("p1"), unnamed, *more).calls()) for more in ([], [unnamed]))
    assert first == second
    assert first[0].startswith("claude:line:")


def test_model_switches_are_told_per_call() -> None:
    found = read(prompt("p1"), said("m1", model="opus"), said("m2", model="sonnet"))
    models = [orjson.loads(each.payload)["model"] for each in found.found if each.kind == "usage"]
    assert models == ["opus", "sonnet"]
    assert found.fact()["model"] == "sonnet"


def test_tier_speed_and_the_cache_split_stay_in_the_usage() -> None:
    split = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 100_000}
    used = usage(
        cache_creation_input_tokens=100_000,
        cache_creation=split,
        service_tier="priority",
        speed="fast",
        inference_geo="eu",
        server_tool_use={"web_search_requests": 2},
    )
    found = read(prompt("p1"), said("m1", used=used))
    assert found.payload("usage", "p1")["usage"] == used
    assert found.troubles == []
    wrong = read(prompt("p1"), said("m1", used=used | {"cache_creation_input_tokens": 7}))
    assert [(each.kind, each.usage) for each in wrong.troubles] == [("cache_split", False)]


def iterations(*others: int, top: int) -> dict[str, Any]:
    entries = [{**usage(50), "type": "message"}]
    entries += [{**usage(each, fresh=1), "type": "advisor_message", "model": "big"} for each in others]
    return usage(top, iterations=entries)


def test_advisor_calls_beside_the_sums_are_counted() -> None:
    found = read(prompt("p1"), said("m1", used=iterations(7, 8, top=50)))
    assert found.calls() == {"claude:m1": (10, 50), "claude:m1#advisor:1": (1, 7), "claude:m1#advisor:2": (1, 8)}
    models = {each.call: orjson.loads(each.payload)["model"] for each in found.found if each.kind == "usage"}
    assert models["claude:m1#advisor:2"] == "big"


def test_advisor_calls_inside_the_sums_are_not_counted_again() -> None:
    used = iterations(7, top=57) | {"input_tokens": 11, "cache_read_input_tokens": 8}
    found = read(prompt("p1"), said("m1", used=used))
    assert found.calls() == {"claude:m1": (11, 57)}
    assert found.troubles == []


def test_advisor_calls_that_fit_neither_way_are_a_gap() -> None:
    found = read(prompt("p1"), said("m1", used=iterations(7, top=400)))
    assert found.calls() == {"claude:m1": (10, 400)}
    assert [(each.kind, each.usage) for each in found.troubles] == [("advisor_usage", True)]


def test_errors_that_claude_wrote_itself_are_no_requests() -> None:
    found = read(prompt("p1"), synthetic("API Error: 500", isApiErrorMessage=True))
    assert found.calls() == {}
    assert "model" not in found.fact()
    assert found.payload("completed", "p1")["status"] == "failed"


def test_retries_are_no_requests_and_no_end() -> None:
    retries = [system("api_error", retryAttempt=number, error={}, uuid=f"e{number}") for number in (1, 2)]
    found = read(prompt("p1"), *retries, said("m1", text("x"), stop="end_turn"))
    assert found.calls() == {"claude:m1": (10, 50)}
    assert found.payload("completed", "p1")["status"] == "completed"
    assert read(prompt("p1"), *retries).turns("completed") == []


@pytest.mark.parametrize("value", [-5, 1.5, "7", True, 2**64])
def test_a_counter_that_is_none_is_a_problem_and_the_rest_counts(value: Any) -> None:
    raw = orjson.dumps(said("m1", used=usage(120) | {"cache_read_input_tokens": "VALUE"}))
    found = read(prompt("p1"), raw.replace(b'"VALUE"', json.dumps(value).encode()))
    assert found.calls() == {"claude:m1": (10, 120)}
    assert "cache_read_input_tokens" not in found.payload("usage", "p1")["usage"]
    assert [(each.kind, each.usage) for each in found.troubles] == [("bad_counter", True)]


def test_a_repeated_key_is_a_problem_only_where_a_counter_is_touched() -> None:
    raw = orjson.dumps(said("m1", used={"input_tokens": 10, "output_tokens": 5}))
    twice = raw.replace(b'"output_tokens":5', b'"output_tokens":5,"output_tokens":6')
    found = read(prompt("p1"), twice)
    assert found.calls() == {"claude:m1": (10, 6)}
    assert found.kinds() == ["duplicate_key"]
    harmless = raw.replace(b'"version":"2.1.40"', b'"version":"2.1.40","version":"2.1.41"')
    assert read(prompt("p1"), harmless).troubles == []
    given_away = said("m1", tool(output_tokens=3, input_tokens=4), used={"input_tokens": 10, "output_tokens": 5})
    assert read(prompt("p1"), given_away).troubles == []


def test_a_call_without_usage_is_a_gap() -> None:
    silent = said("m1", text("x"))
    del silent["message"]["usage"]
    found = read(prompt("p1"), silent)
    assert found.calls() == {}
    assert [(each.kind, each.usage, each.detail) for each in found.troubles] == [("missing_usage", True, "m1")]
    assert read(prompt("p1"), silent, said("m1")).troubles == []


def test_a_result_without_its_call_is_a_gap() -> None:
    found = read(prompt("p1"), result("t9"), said("m2", text("x")))
    assert [(each.kind, each.session, each.usage) for each in found.troubles] == [("missing_call", SESSION, True)]
    slice_of_a_longer_file = read(result("t9"), said("m2", text("x")))
    assert slice_of_a_longer_file.troubles == []


# --- turns ----------------------------------------------------------------------------------------------------------


def test_a_whole_turn() -> None:
    found = read(prompt("p1"), said("m1", tool()), result(), said("m2", text("done"), stop="end_turn"))
    assert [each.kind for each in found.found] == ["started", "usage", "usage", "output", "completed"]
    assert found.payload("output", "p1") == {"text": "done"}
    assert found.payload("completed", "p1") == {
        "status": "completed",
        "error": None,
        "message_id": "m2",
        "stop_reason": "end_turn",
        "completed_at": AT,
        "provider": "claude",
        "source": "file",
    }
    assert found.fact() == {
        "session": SESSION,
        "at": WHEN,
        "cwd": "/home/dev/app",
        "version": "2.1.40",
        "model": "m-1",
        "title": "go",
        "title_rank": 0,
    }


@pytest.mark.parametrize("note", ["stop_hook_summary", "turn_duration"])
def test_without_stop_reasons_claudes_note_of_the_end_completes_a_turn(note: str) -> None:
    found = read(prompt("p1"), said("m1", text("done")), system(note))
    assert found.payload("completed", "p1")["status"] == "completed"
    assert found.payload("output", "p1") == {"text": "done"}


def test_without_stop_reasons_a_text_before_the_next_prompt_was_an_answer() -> None:
    found = read(prompt("p1"), said("m1", text("done")), prompt("p2"), said("m2", text("half")))
    assert found.turns("completed") == [(SESSION, "p1")]
    assert found.payload("output", "p1") == {"text": "done"}


def test_where_stop_reasons_are_told_their_absence_means_a_cut() -> None:
    found = read(
        *(prompt("p1"), said("m1", text("done"), stop="end_turn")),
        *(prompt("p2"), said("m2", text("half"))),
        *(prompt("p3"), said("m3", text("done"), stop="end_turn")),
    )
    assert found.turns("completed") == [(SESSION, "p1"), (SESSION, "p3")]


@pytest.mark.parametrize(
    "rest",
    [
        [],
        [said("m1", tool())],
        [said("m1", tool()), result()],
        [said("m1", text("half"))],
        [said("m1", text("x"), tool("t2")), system("turn_duration", preventedContinuation=True)],
        [synthetic("No response requested.")],
    ],
)
def test_a_cut_turn_has_no_end(rest: list[dict[str, Any]]) -> None:
    found = read(prompt("p1"), *rest)
    assert found.turns("started") == [(SESSION, "p1")]
    assert found.turns("completed") == found.turns("output") == []


def test_marks_of_an_interruption_end_a_turn() -> None:
    mark = prompt("i", "[Request interrupted by user for tool use]")
    found = read(prompt("p1"), said("m1", tool()), result(), mark)
    assert found.payload("completed", "p1")["status"] == "interrupted"
    assert found.turns("started") == [(SESSION, "p1")]


def test_a_message_aborted_mid_stream_interrupts_unless_another_follows() -> None:
    cut = said("m1", text("half"), isAbortedMidStream=True)
    assert read(prompt("p1"), cut, prompt("p2")).payload("completed", "p1")["status"] == "interrupted"
    followed = read(prompt("p1"), cut, said("m2", text("whole"), stop="end_turn"))
    assert followed.payload("completed", "p1")["status"] == "completed"
    assert followed.calls() == {"claude:m1": (10, 50), "claude:m2": (10, 50)}


def test_a_retracted_message_is_billed_but_no_answer() -> None:
    back = system("model_refusal_fallback", retractedMessageUuids=["a-m1"])
    found = read(prompt("p1"), said("m1", text("no"), stop="end_turn"), back, prompt("p2"))
    assert found.calls() == {"claude:m1": (10, 50)}
    assert found.turns("output") == []


def test_a_turn_that_claude_began_itself_is_named_by_its_first_call() -> None:
    told = prompt("n1", "<task-notification>\n<task-id>x</task-id>")
    found = read(prompt("p1"), said("m1", text("x"), stop="end_turn"), told, said("m2", text("y"), stop="end_turn"))
    assert found.turns("started") == [(SESSION, "p1"), (SESSION, "auto:m2")]
    assert found.turns("completed") == [(SESSION, "p1"), (SESSION, "auto:m2")]
    assert read(prompt("p1"), told).turns("started") == [(SESSION, "p1")]


def test_lines_before_any_prompt_have_a_turn_named_by_the_first_and_no_start() -> None:
    found = read(result("t0"), said("m1", text("x"), stop="end_turn"), prompt("p1"))
    assert found.turns("usage") == [(SESSION, "r-t0")]
    assert found.turns("started") == [(SESSION, "p1")]


def test_what_is_no_prompt_begins_no_turn() -> None:
    found = read(
        prompt("c1", "<command-name>/model</command-name>"),
        prompt("c2", "<local-command-stdout>ok</local-command-stdout>"),
        prompt("c3", "<bash-input>ls</bash-input>"),
        prompt("c4", "Caveat", isMeta=True),
        prompt("c5", "Summary", isCompactSummary=True),
        record("queue-operation", operation="enqueue", content="go"),
        prompt("p1", "go"),
        prompt("p1", "go"),
    )
    assert found.turns("started") == [(SESSION, "p1")]


def test_a_prompt_of_an_image_alone_begins_a_turn() -> None:
    image = record("user", uuid="p1", message={"role": "user", "content": [{"type": "image", "source": {}}]})
    assert read(image).turns("started") == [(SESSION, "p1")]


def test_a_compaction_is_noted_with_unknown_usage_and_is_no_prompt() -> None:
    edge = system("compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 150_000})
    summary = prompt("c", "So far", isCompactSummary=True)
    found = read(prompt("p1"), said("m1", text("x")), edge, summary, prompt("p2"), said("m2", text("y")))
    assert [(each.source, orjson.loads(each.evidence)) for each in found.noted] == [
        (
            "compaction:s-compact_boundary",
            {"provider": "claude", "trigger": "auto", "before_tokens": 150_000, "after_tokens": None, "usage": None},
        )
    ]
    assert found.turns("started") == [(SESSION, "p1"), (SESSION, "p2")]


def test_a_turn_that_stops_before_its_answer_is_noted_as_without_end() -> None:
    found = read(prompt("p1"), said("m1", tool("t1")), prompt("p2"))
    assert [(each.source, each.turn) for each in found.noted] == [
        (f"unknown:{SESSION}:p1", "p1"),
        (f"unknown:{SESSION}:p2", "p2"),
    ]
    assert read(prompt("p1"), said("m1", text("the end"))).noted == []


def test_calls_older_than_their_file_came_to_it_when_it_was_begun() -> None:
    begun = record("queue-operation", operation="enqueue", timestamp=LATER)
    found = read(begun, prompt("p1"), said("m1", text("x")), prompt("p2"), said("m2", text("y"), timestamp=MUCH_LATER))
    calls = [each for each in found.found if each.kind == "usage"]
    assert [(each.call, each.at) for each in calls] == [
        ("claude:m1", instant(LATER)),
        ("claude:m2", instant(MUCH_LATER)),
    ]
    assert orjson.loads(calls[0].payload)["at"] == AT, "when it was made stays"
    again = read(prompt("p1"), said("m1", text("x")), begun, said("m2", text("y")))
    assert {each.at for each in again.found if each.kind == "usage"} == {WHEN}, "it was begun with the first message"


def test_two_writers_are_noted_and_a_rewind_is_not() -> None:
    first = [prompt("p1", parentUuid="root"), said("m1", text("x"), parentUuid="p1")]
    again = [prompt("p2", parentUuid="a-m1"), said("m2", text("x"), parentUuid="p2")]
    other = [prompt("p3", parentUuid="a-m1"), said("m3", text("x"), parentUuid="p3")]
    rewound = read(*first, *again, *other, prompt("p4", parentUuid="a-m3"), said("m4", parentUuid="p4"))
    assert rewound.noted == []
    mixed = read(*first, *again, *other, prompt("p4", parentUuid="a-m2"), said("m4", parentUuid="p4"))
    assert [each.source for each in mixed.noted] == [f"concurrent_writers:{SESSION}"]
    assert len(mixed.calls()) == 4


def test_parallel_tool_calls_are_no_second_writer() -> None:
    found = read(
        prompt("p1"),
        said("m1", tool("t1"), uuid="a1", parentUuid="p1"),
        said("m1", tool("t2"), uuid="a2", parentUuid="a1"),
        result("t1", parentUuid="a1"),
        result("t2", parentUuid="a2"),
        said("m2", text("x"), parentUuid="r-t1"),
        said("m3", text("x"), parentUuid="r-t2"),
    )
    assert found.noted == []
    assert found.troubles == []


# --- conversations --------------------------------------------------------------------------------------------------


def test_the_inner_id_wins_and_the_file_name_is_an_alias() -> None:
    found = read(prompt("p1"), said("m1", text("x")), path="/x/projects/-app/other-name.jsonl")
    assert found.turns("usage") == [(SESSION, "p1")]
    assert found.fact()["aliases"] == ("other-name",)
    assert "aliases" not in read(prompt("p1")).fact()


def test_a_line_belongs_to_the_session_it_names_and_a_copied_history_to_the_old_one() -> None:
    old: dict[str, Any] = {"sessionId": OTHER}
    found = read(prompt("p1", **old), said("m1", text("x"), **old), prompt("p2"), said("m2", text("y")))
    assert found.turns("usage") == [(OTHER, "p1"), (SESSION, "p2")]
    assert (found.fact()["parent"], found.fact()["relation"]) == (OTHER, "continuation")
    assert "aliases" not in found.fact(OTHER)


def test_a_resumed_copy_has_the_same_calls_and_turns() -> None:
    first = [prompt("p1"), said("m1", text("x"))]
    copied = [{**each, "sessionId": OTHER} for each in first]
    again = read(*copied, said("m2", text("y"), sessionId=OTHER), path=f"/x/{OTHER}.jsonl")
    assert set(read(*first).calls()) | set(again.calls()) == {"claude:m1", "claude:m2"}
    assert again.turns("usage")[0] == (OTHER, "p1")


def test_a_fork_names_its_origin_as_rival() -> None:
    mark: dict[str, Any] = {"forkedFrom": {"sessionId": OTHER, "messageUuid": "a-m1"}}
    found = read(prompt("p1", **mark), said("m1", text("x"), **mark), prompt("p2"), said("m2", text("y")))
    assert [each.rivals for each in found.found if each.kind == "usage"] == [(OTHER,), ()]
    assert (found.fact()["parent"], found.fact()["relation"]) == (OTHER, "fork")


def test_stale_ids_on_notes_create_no_session() -> None:
    stale = {"sessionId": OTHER}
    found = read(
        system("stop_hook_summary", **stale),
        prompt("p1"),
        record("progress", data={"type": "hook_progress"}, **stale),
        said("m1", text("x")),
        system("turn_duration", **stale),
        {"type": "summary", "summary": "Elsewhere", "leafUuid": "zz"},
        {"type": "file-history-snapshot", "messageId": "p1", "snapshot": {}},
    )
    assert {each.session for each in found.facts} == {SESSION}
    assert found.fact()["title"] == "go"
    assert found.turns("completed") == []


def test_records_rewritten_with_random_ids_stay_in_their_file() -> None:
    lines = []
    for number in range(5):
        line = said("m", sessionId=f"anonymous-{number}", used=usage(number + 1))
        del line["uuid"], line["message"]["id"]
        lines.append(line)
    found = read(*lines, path="/x/projects/p/9013aaa5.jsonl")
    assert {session for session, _ in found.turns("usage")} == {"anonymous-0"}
    assert len(found.calls()) == 5


def test_titles_are_ranked() -> None:
    found = read(prompt("p1", "Fix\n the   parser"), said("m1", text("x"), uuid="leaf"))
    assert (found.fact()["title"], found.fact()["title_rank"]) == ("Fix the parser", 0)
    titles = [
        {"type": "summary", "summary": "Parser fixed", "leafUuid": "leaf"},
        {"type": "ai-title", "aiTitle": "The parser", "sessionId": SESSION},
        {"type": "custom-title", "customTitle": "Mine", "sessionId": SESSION},
    ]
    for number, expected in enumerate([("Parser fixed", 1), ("The parser", 1), ("Mine", 2)]):
        told = read(prompt("p1"), said("m1", text("x"), uuid="leaf"), *titles[: number + 1]).fact()
        assert (told["title"], told["title_rank"]) == expected


def test_a_lower_title_behind_a_higher_one_is_none() -> None:
    custom = {"type": "custom-title", "customTitle": "Mine", "sessionId": SESSION}
    made = {"type": "ai-title", "aiTitle": "The parser", "sessionId": SESSION}
    lines = [prompt("p1"), said("m1", text("x"), timestamp=LATER), custom, made]
    told = read(*lines).fact()
    assert (told["title"], told["title_rank"], told["title_at"]) == ("Mine", 2, WHEN + 233_993)


def test_a_record_without_a_time_has_that_of_the_one_before_it() -> None:
    timeless = {**said("m2", text("y")), "timestamp": None}
    for cuts in ((), (1,)):
        found = read(prompt("p1"), said("m1", text("x"), timestamp=LATER), timeless, cuts=cuts)
        assert [each.at for each in found.found if each.call == "claude:m2"] == [WHEN + 233_993]
        assert found.kinds() == ["time_missing"]


def test_where_a_session_moved_and_its_worktree() -> None:
    moved = {"type": "relocated", "relocatedCwd": "/home/dev/tree", "sessionId": SESSION}
    tree = {"type": "worktree-state", "sessionId": SESSION, "worktreeSession": {"originalCwd": "/home/dev/app"}}
    told = read(prompt("p1"), moved, tree).fact()
    assert (told["cwd"], told["root"]) == ("/home/dev/tree", "/home/dev/app")


# --- subagents ------------------------------------------------------------------------------------------------------

SIDE: dict[str, Any] = {"isSidechain": True, "agentId": "a1"}


def test_an_agents_file_is_a_conversation_below_its_parent() -> None:
    found = read(prompt("s1", "look", **SIDE), said("m1", text("x"), stop="end_turn", **SIDE), path=AGENT)
    assert {(each.session, each.turn) for each in found.found} == {(CHILD, "agent:a1")}
    assert [each.kind for each in found.found] == ["started", "usage", "output", "completed"]
    told = found.fact(CHILD)
    assert (told["parent"], told["relation"], told["title"]) == (SESSION, "subagent", "look")
    assert {each.session for each in found.facts} == {CHILD}


def test_the_older_place_beside_the_parent() -> None:
    found = read(prompt("s1", **SIDE), said("m1", **SIDE), path="/x/projects/-app/agent-a1.jsonl")
    assert found.turns("usage") == [(CHILD, "agent:a1")]


def test_equal_agent_ids_of_two_parents_are_two_conversations() -> None:
    paths = [f"/x/projects/-app/{parent}/subagents/agent-a1.jsonl" for parent in (SESSION, OTHER)]
    owners = [read(prompt("s1", **SIDE, sessionId=each.split("/")[4]), said("m1"), path=each) for each in paths]
    assert [each.turns("started")[0][0] for each in owners] == [CHILD, f"{OTHER}/a1"]


def test_an_agents_parent_turn_by_its_prompt_or_its_tool() -> None:
    parent = file_of(
        *(prompt("p1", promptId="q1"), said("m1", text("x"))),
        *(prompt("p2", promptId="q2"), said("m2", tool("t7", "Task"))),
    ).split(b"\n")
    found = read(prompt("s1", promptId="q2", **SIDE), path=AGENT, parents={SESSION: parent})
    assert found.fact(CHILD)["parent_turn"] == "p2"
    assert "parent_turn" not in read(prompt("s1", promptId="q9", **SIDE), path=AGENT, parents={}).fact(CHILD)


def test_the_parent_tells_which_turn_began_an_agent() -> None:
    answer = result("t1", toolUseResult={"status": "completed", "agentId": "a1", "totalTokens": 9})
    found = read(prompt("p1"), said("m1", tool("t1", "Task")), answer)
    assert found.fact(CHILD) == {
        "session": CHILD,
        "parent": SESSION,
        "relation": "subagent",
        "parent_turn": "p1",
        "title_rank": 0,
    }
    assert found.calls() == {"claude:m1": (10, 50)}


def test_sidechain_lines_count_in_the_child_they_name_else_in_the_parent() -> None:
    unnamed = said("m2", text("y"), isSidechain=True)
    found = read(prompt("p1"), said("m1", text("x"), stop="end_turn"), unnamed, said("m3", **SIDE))
    assert found.turns("usage") == [(SESSION, "p1"), (SESSION, "p1"), (CHILD, "agent:a1")]
    assert found.payload("output", "p1") == {"text": "x"}


def test_usage_that_progress_lines_embed_is_the_childs_call() -> None:
    inner = said("m9", text("y"), used=usage(33))
    parent = read(prompt("p1"), said("m1", tool("t1", "Task")), progress("a1", inner), progress("a1", inner))
    assert parent.calls() == {"claude:m1": (10, 50), "claude:m9": (10, 33)}
    child = read(prompt("s1", **SIDE), said("m9", text("y"), used=usage(33), **SIDE), path=AGENT)
    embedded, own = ([each for each in found.found if each.call == "claude:m9"] for found in (parent, child))
    assert [(each.session, each.turn, each.payload) for each in embedded] == [
        (each.session, each.turn, each.payload) for each in own
    ]
    assert parent.fact(CHILD)["parent_turn"] == "p1"


def test_more_agents_at_once_than_are_remembered() -> None:
    notes = [progress(f"a{agent}", said(f"m{agent}-{step}")) for step in range(2) for agent in range(100)]
    end = [result("t1"), said("m2", text("x"), stop="end_turn")]
    found = read(prompt("p1"), said("m1", tool("t1", "Task")), *notes, *end)
    assert len(found.calls()) == 202
    assert {turn for session, turn in found.turns("usage") if session == f"{SESSION}/a7"} == {"agent:a7"}
    assert found.turns("completed") == [(SESSION, "p1")]


def test_an_agent_whose_file_is_gone_began_with_the_prompt_that_its_parent_repeats() -> None:
    first = progress("a1", prompt("s1", "look"))
    found = read(prompt("p1"), first, progress("a1", said("m9", text("y"))))
    assert found.turns("started") == [(SESSION, "p1"), (CHILD, "agent:a1")]


def test_a_side_question_copies_a_conversation_and_adds_one_call() -> None:
    history = [said(f"m{number}", text("x")) for number in range(60)]
    main = read(prompt("p1"), *history)
    side = read(
        *(prompt("p1", **SIDE), *({**each, **SIDE} for each in history), said("m60", text("y"), **SIDE)), path=AGENT
    )
    assert len(main.calls() | side.calls()) == 61


def test_a_child_that_goes_on_behind_its_announced_end_counts() -> None:
    told = prompt("n1", "<task-notification>\n<status>completed</status>")
    parent = read(prompt("p1"), said("m1", text("x"), stop="end_turn"), told)
    assert parent.turns("completed") == [(SESSION, "p1")]
    late = read(
        *(prompt("s1", **SIDE), said("m2", text("x"), **SIDE), said("m3", text("y"), timestamp=LATER, **SIDE)),
        path=AGENT,
        looks=[1],
    )
    assert late.calls() == {"claude:m2": (10, 50), "claude:m3": (10, 50)}


# --- order, repetition, parts -----------------------------------------------------------------------------------------

STORY = [
    result("t0"),
    prompt("p1"),
    said("m1", text("a"), used=usage(1)),
    said("m1", tool("t1", "Task"), used=usage(60), uuid="a-m1b"),
    progress("a1", said("m8", text("z"))),
    result("t1", toolUseResult={"agentId": "a1"}),
    said("m2", text("b"), stop="end_turn"),
    system("turn_duration"),
    prompt("n1", "<task-notification>x"),
    said("m3", text("c"), stop="end_turn"),
    system("compact_boundary"),
    prompt("c1", "so far", isCompactSummary=True),
    prompt("p2"),
    said("m4", text("d"), **SIDE),
    said("m5", tool("t5"), isSidechain=True),
    prompt("i1", "[Request interrupted by user]"),
    prompt("p3", sessionId=OTHER),
    said("m6", text("e"), sessionId=OTHER, stop="end_turn"),
]


@given(st.sets(st.integers(0, len(STORY) - 1)))
@settings(max_examples=60, deadline=None)
def test_reading_in_parts_tells_the_same_as_reading_at_once(cuts: set[int]) -> None:
    whole, parts = read(*STORY), read(*STORY, cuts=cuts)
    assert parts.found == whole.found
    assert parts.noted == whole.noted
    assert parts.spoken == whole.spoken
    assert parts.troubles == whole.troubles
    assert {each.session: parts.fact(each.session) for each in parts.facts} == {
        each.session: whole.fact(each.session) for each in whole.facts
    }


@given(st.sets(st.integers(0, len(STORY) - 1)))
@settings(max_examples=60, deadline=None)
def test_looks_at_a_growing_file_count_the_same_and_complete_each_turn_once(looks: set[int]) -> None:
    whole, parts = read(*STORY), read(*STORY, looks=looks)
    assert parts.calls() == whole.calls()
    assert sorted(parts.turns("completed")) == sorted(set(parts.turns("completed")))
    assert set(whole.turns("completed")) == set(parts.turns("completed"))
    for kind in ("started", "output", "completed"):
        told = {(each.turn, each.payload) for each in whole.found if each.kind == kind}
        assert {(each.turn, each.payload) for each in parts.found if each.kind == kind} == told


@given(st.permutations([said("m1", text("a"), used=usage(each, fresh=3)) for each in (1, 8, 200)]))
def test_the_order_of_a_messages_lines_does_not_matter(lines: list[dict[str, Any]]) -> None:
    assert read(prompt("p1"), *lines).calls() == {"claude:m1": (3, 200)}


def test_a_turn_that_goes_on_behind_its_end_is_noted_and_completed_once() -> None:
    found = read(
        *(prompt("p1"), said("m1", text("x"), stop="end_turn"), said("m2", text("y"), stop="end_turn")), looks=[1]
    )
    assert found.turns("completed") == [(SESSION, "p1")]
    assert found.payload("output", "p1") == {"text": "x"}
    assert [each.source for each in found.noted] == [f"reopened:{SESSION}:p1"]


@pytest.mark.parametrize(
    ("said_text", "title"),
    [
        ("<command-message>init is analyzing…</command-message>\n<command-name>/init</command-name>", "/init "),
        ("<command-name>/fix</command-name> <command-args>the tests</command-args>", "/fix the tests"),
        ("<ide_opened_file>/a/b.py</ide_opened_file> why is it slow?", "why is it slow?"),
        ("<ide_opened_file>/a/b.py</ide_opened_file>", "<ide_opened_file>/a/b.py</ide_opened_file>"),
    ],
)
def test_a_title_is_what_was_asked_without_what_a_program_put_around(said_text: str, title: str) -> None:
    assert conversation._asked(said_text) == title
