"""Claude's lines as receipts: the shapes of 2.1.197 and 2.1.332, by small made-up lines."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from turnlog.harness import Batch
from turnlog.harness.claude import decode
from turnlog.harness.claude.asks import ACTING, lasting
from turnlog.harness.claude.decode import Totals
from turnlog.harness.claude.observer import Observer
from turnlog.wire.jsonl import JsonlDecoder, JsonlProblem

THREAD = "5a1d0000-0000-4000-8000-000000000001"
A = "aaaaaaaa-0000-4000-8000-000000000001"
B = "bbbbbbbb-0000-4000-8000-000000000002"
C = "cccccccc-0000-4000-8000-000000000003"
USAGE = {"input_tokens": 10, "output_tokens": 3, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 2}
_number = itertools.count(1)


def model_usage(times: int = 1, cost: float = 0.5) -> dict[str, Any]:
    counts = {"inputTokens": 10, "outputTokens": 3, "cacheReadInputTokens": 4, "cacheCreationInputTokens": 2}
    return {"m": {**{name: value * times for name, value in counts.items()}, "costUSD": cost, "contextWindow": 9}}


def result(*named: str, main: str | None = None, **more: Any) -> dict[str, Any]:
    line: dict[str, Any] = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": "done",
        "session_id": THREAD,
        "uuid": f"result-{next(_number)}",
        "usage": USAGE,
        "total_cost_usd": 0.5,
        "modelUsage": model_usage(),
    }
    if named:
        line |= {"user_message_uuids": list(named), "user_message_uuid": main or named[-1]}
    return {**line, **more}


def init() -> dict[str, Any]:
    return {"type": "system", "subtype": "init", "session_id": THREAD}


def echo(uuid: str) -> dict[str, Any]:
    return {"type": "user", "uuid": uuid, "isReplay": True, "message": {"role": "user", "content": []}}


def status(*named: str) -> dict[str, Any]:
    more = {"user_message_uuids": list(named)} if named else {}
    return {"type": "system", "subtype": "status", "status": "requesting", **more}


def lifecycle(uuid: str, state: str) -> dict[str, Any]:
    return {"type": "command_lifecycle", "command_uuid": uuid, "state": state}


def assistant(message: str, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"id": message, "model": "m", "content": list(blocks), "stop_reason": None, "usage": USAGE}
    return {"type": "assistant", "message": body, "parent_tool_use_id": None, **more}


def stream(**event: Any) -> dict[str, Any]:
    return {"type": "stream_event", "event": event, "parent_tool_use_id": None}


def ask(name: str = "q1", **request: Any) -> dict[str, Any]:
    body = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "rm x"}, "tool_use_id": "t1"}
    return {"type": "control_request", "request_id": name, "request": {**body, **request}}


def observer(*sent: str, policy: str = "ask", own: tuple[str, ...] = ()) -> Observer:
    found = Observer(THREAD, policy, own)
    for request in sent:
        found.expect(request)
    return found


def take(found: Observer, *lines: Any) -> Batch:
    for line in lines:
        found.take(line)
    return found.drain()


def kinds(batch: Batch) -> list[tuple[str, str]]:
    return [(receipt.turn, receipt.kind) for receipt in batch.receipts]


def events(batch: Batch) -> list[tuple[str, str | None, str | None]]:
    return [(event.type, event.turn_id, event.status) for event in batch.events]


WHOLE = [(A, "started"), (A, "output"), (A, "usage"), (A, "completed")]


# --- which turn -----------------------------------------------------------------------------------------------------


def test_a_turn_of_2_1_332() -> None:
    found = observer(A)
    assert kinds(take(found, lifecycle(A, "queued"), lifecycle(A, "started"), init())) == []
    assert found.working()
    begun = take(found, status(A), echo(A))
    assert kinds(begun) == WHOLE[:1]
    assert events(begun) == [("turn_started", A, None)]
    ended = take(found, result(A), lifecycle(A, "completed"))
    assert kinds(ended) == WHOLE[1:]
    assert events(ended) == [("turn_completed", A, "completed")]
    assert not found.working()


def test_a_turn_of_2_1_197_is_its_echo() -> None:
    batch = take(observer(A), init(), status(), echo(A), result())
    assert kinds(batch) == WHOLE
    assert batch.notes == ()


def test_a_result_alone_starts_and_ends_its_turn() -> None:
    """A local command asks no model: only the result names it."""
    batch = take(observer(A), result(A))
    assert kinds(batch) == WHOLE
    assert events(batch) == [("turn_started", A, None), ("turn_completed", A, "completed")]


def test_results_are_matched_by_name_and_not_by_order() -> None:
    batch = take(observer(A, B), init(), status(B), result(B, result="b"), init(), status(A), result(A, result="a"))
    outputs = {receipt.turn: receipt.payload for receipt in batch.receipts if receipt.kind == "output"}
    assert outputs == {A: {"text": "a"}, B: {"text": "b"}}


def test_a_line_taken_into_the_running_turn_is_absorbed() -> None:
    for lines in (
        [init(), status(A), echo(A), echo(B), status(A, B), result(A, B, main=A)],
        [init(), echo(A), echo(B), status(), result()],
    ):
        found = observer(A, B)
        batch = take(found, *lines)
        assert kinds(batch) == WHOLE
        assert batch.settled == ((B, A),)
        assert [(n.source, n.turn, n.evidence) for n in batch.notes] == [(f"absorbed:{THREAD}:{B}", B, {"by": A})]
        assert not found.working()


def test_waiting_lines_merge_into_one_turn_that_belongs_to_the_last() -> None:
    for lines in (
        [echo(B), init(), status(B, A), echo(A), result(B, A, main=A)],
        [echo(B), init(), status(), echo(A), result()],
    ):
        batch = take(observer(A, B), *lines)
        assert kinds(batch) == WHOLE
        assert batch.settled == ((B, A),)


def test_a_turn_nobody_asked_for_has_an_id_of_its_own_and_no_start() -> None:
    own: dict[str, Any] = {"origin": {"kind": "task-notification"}}
    for last in (result(**own), result()):
        found = observer(A)
        take(found, init(), status(A), echo(A), result(A))
        batch = take(found, init(), status(), assistant("msg_1"), last)
        assert kinds(batch) == [("auto:msg_1", "output"), ("auto:msg_1", "usage"), ("auto:msg_1", "completed")]
        assert batch.events == ()
        assert batch.settled == ()


def test_a_turn_of_its_own_without_a_call_is_named_by_its_result() -> None:
    batch = take(observer(), init(), assistant("x", {"type": "text"}) | {"parent_tool_use_id": "t"}, result(uuid="r"))
    assert {receipt.turn for receipt in batch.receipts} == {"auto:r"}


@pytest.mark.parametrize("line", [result(uuid="r"), result(A, uuid="r", session_id=B)])
def test_a_result_that_belongs_to_nothing_is_kept_as_a_note(line: dict[str, Any]) -> None:
    batch = take(observer(A), line)
    assert (batch.receipts, batch.events) == ((), ())
    (note,) = batch.notes
    assert (note.source, note.turn) == (f"unmatched:{THREAD}:r", None)
    assert note.evidence["usage"]["usage"] == USAGE
    assert note.evidence["status"] == "completed"


def test_foreign_names_are_receipts_without_start_and_events() -> None:
    batch = take(observer(A), init(), status(C), echo(C), result(C))
    assert kinds(batch) == [(C, "output"), (C, "usage"), (C, "completed")]
    assert batch.events == ()


def test_requests_of_before_get_a_start_but_no_events() -> None:
    batch = take(observer(own=(A,)), init(), status(A), result(A))
    assert kinds(batch) == WHOLE
    assert batch.events == ()


def test_a_second_result_of_a_turn_only_counts() -> None:
    found = observer(A)
    take(found, init(), status(A), result(A))
    batch = take(found, init(), status(A), result(A, uuid="r2", result="other"))
    assert kinds(batch) == [(A, "usage")]
    assert [note.source for note in batch.notes] == [f"again:{THREAD}:r2"]


def test_a_turn_without_end_is_left_behind_by_the_next() -> None:
    found = observer(A, B)
    batch = take(found, init(), status(A), init(), status(B), result(B))
    assert (A, "completed") not in kinds(batch)
    assert batch.settled == ()
    assert found.turns.open_requests() == [A]


def test_dropped_lines_are_given_up() -> None:
    found = observer(A, B)
    batch = take(found, init(), status(A), lifecycle(B, "cancelled"), result(A), lifecycle(A, "cancelled"))
    assert batch.stalled == (B,)
    assert [note.source for note in batch.notes] == [f"cancelled:{THREAD}:{B}"]
    found.turns.withdrawn([A, B, C])
    assert found.drain() == Batch()
    assert not found.working()


# --- what a result says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "asked", "expected"),
    [
        ({"subtype": "success"}, False, "completed"),
        ({"subtype": "success", "is_error": True, "result": "API Error: 400"}, True, "failed"),
        ({"subtype": "error_during_execution", "terminal_reason": "aborted_streaming"}, False, "interrupted"),
        ({"subtype": "error_during_execution", "terminal_reason": "aborted_tools"}, True, "interrupted"),
        ({"subtype": "error_during_execution", "terminal_reason": "model_error"}, True, "failed"),
        ({"subtype": "error_during_execution"}, True, "interrupted"),
        ({"subtype": "error_during_execution"}, False, "failed"),
        ({"subtype": "error_max_turns"}, True, "failed"),
        ({}, False, "failed"),
    ],
)
def test_status(line: dict[str, Any], asked: bool, expected: str) -> None:
    assert decode.status_of(line, asked=asked) == expected


def test_an_interrupt_of_ours_counts_for_one_result() -> None:
    found = observer(A, B)
    found.interrupting()
    first = result(A, subtype="error_during_execution", is_error=True, result=None)
    second = result(B, subtype="error_during_execution", is_error=True, result=None)
    batch = take(found, init(), status(A), first, init(), status(B), second)
    ends = {r.turn: r.payload["status"] for r in batch.receipts if r.kind == "completed"}
    assert ends == {A: "interrupted", B: "failed"}
    usages = {r.turn: r.payload["interrupted"] for r in batch.receipts if r.kind == "usage"}
    assert usages == {A: True, B: False}


def test_completion_payload() -> None:
    line = result(A, uuid="r", terminal_reason="completed", stop_reason="end_turn", num_turns=2, duration_ms=7)
    (end,) = [r.payload for r in take(observer(A), line).receipts if r.kind == "completed"]
    assert end == {
        "status": "completed",
        "error": None,
        "result_id": "r",
        "subtype": "success",
        "errors": [],
        "terminal_reason": "completed",
        "stop_reason": "end_turn",
        "api_error_status": None,
        "num_turns": 2,
        "duration_ms": 7,
        "provider": "claude",
    }


def test_the_words_of_an_error_are_no_answer_and_hold_no_secret() -> None:
    words = "API Error: 400 Authorization: Bearer sk-ant-secret123456789012"
    batch = take(observer(A), init(), status(A), result(A, is_error=True, result=words, errors=["token=abc"]))
    assert kinds(batch) == [(A, "started"), (A, "usage"), (A, "completed")]
    end = batch.receipts[-1].payload
    assert (end["status"], end["errors"]) == ("failed", ["token=[redacted]"])
    assert end["error"].startswith("API Error: 400")
    assert "secret" not in str(batch)
    assert [event.type for event in batch.events] == ["turn_started", "error", "turn_completed"]
    assert batch.events[1].code == "claude_error"


@pytest.mark.parametrize(
    "words",
    [
        "Not logged in · Please run /login",
        "Invalid API key · Please run /login",
        "Failed to authenticate. API Error: 401 nope",
    ],
)
def test_a_missing_login_comes_with_a_hint(words: str) -> None:
    batch = take(observer(A), init(), status(A), result(A, is_error=True, result=words))
    message = batch.events[-2].message or ""
    assert message.startswith(words)
    assert "ANTHROPIC_API_KEY" in message
    assert batch.receipts[-1].payload["error"] == words, "the receipt has its words alone"


def test_structured_output_goes_before_text() -> None:
    batch = take(observer(A), result(A, structured_output={"a": 1}, result='{"a":1}'))
    assert [r.payload for r in batch.receipts if r.kind == "output"] == [{"value": {"a": 1}}]
    batch = take(observer(A), result(A, structured_output=None, result=""))
    assert [r.payload for r in batch.receipts if r.kind == "output"] == [{"text": ""}]


def test_usage_payload() -> None:
    told = model_usage(2)
    line = result(A, uuid="r", model_usage_since_last_result=told, modelUsage=model_usage(9), total_cost_usd=4.5)
    (usage,) = [r.payload for r in take(observer(A), line).receipts if r.kind == "usage"]
    assert usage == {
        "provider": "claude",
        "source": "wire",
        "result_id": "r",
        "model_usage": told,
        "usage": USAGE,
        "total_cost_usd": 4.5,
        "interrupted": False,
    }


def test_totals_without_differences_of_their_own() -> None:
    totals = Totals(fresh=True)
    assert totals.take({"modelUsage": model_usage(1, 0.1)}) == model_usage(1, 0.1)
    assert totals.take({"modelUsage": model_usage(3, 0.3)}) == model_usage(2, 0.2)
    assert totals.take({"modelUsage": model_usage(3, 0.3)}) == {}
    other = {"m": model_usage(3, 0.3)["m"], "n": model_usage(1, 0.1)["m"]}
    assert totals.take({"modelUsage": other}) == {"n": model_usage(1, 0.1)["m"]}
    assert totals.take({"modelUsage": model_usage(9)}) is None, "a model vanished"
    assert totals.take({"modelUsage": model_usage(1)}) is None, "fell"
    assert totals.take({}) is None
    assert totals.take({"modelUsage": model_usage(2)}) is None, "after a result without totals"
    assert totals.take({"modelUsage": model_usage(3)}) == model_usage(1, 0)
    assert totals.take({"modelUsage": {"m": {"inputTokens": "many"}}}) is None


def test_a_resumed_process_tells_no_difference_at_first() -> None:
    totals = Totals(fresh=False)
    assert totals.take({"modelUsage": model_usage(5)}) is None
    assert totals.take({"modelUsage": model_usage(6, 0.6)}) == model_usage(1, 0.1)


# --- events ---------------------------------------------------------------------------------------------------------


def test_pieces_and_the_rest_add_up() -> None:
    batch = take(
        observer(A),
        init(),
        status(A),
        stream(type="message_start", message={"id": "m1", "model": "m"}),
        stream(type="content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "hm"}),
        assistant("m1", {"type": "thinking", "thinking": "hm"}),
        stream(type="content_block_delta", index=1, delta={"type": "text_delta", "text": "hel"}),
        assistant("m1", {"type": "text", "text": "hello"}),
        stream(type="message_delta", usage={"output_tokens": 9}),
        assistant("m2", {"type": "text", "text": "whole"}),
    )
    said = [(e.type, e.content or (e.item or {}).get("text")) for e in batch.events[1:] if e.item]
    assert said == [
        ("reasoning_delta", "hm"),
        ("item_completed", "hm"),
        ("text_delta", "hel"),
        ("text_delta", "lo"),
        ("item_completed", "hello"),
        ("text_delta", "whole"),
        ("item_completed", "whole"),
    ]
    (usage,) = [e.usage for e in batch.events if e.type == "usage_checkpoint"]
    assert usage == {"message": "m1", "model": "m", "tokens": {"output_tokens": 9}}


def test_tools_have_outcome_and_duration() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "echo  hi\x1b[31m"}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "no"}
    batch = take(
        observer(A),
        init(),
        status(A),
        assistant("m1", call, timestamp="2026-01-01T00:00:00.000Z"),
        {"type": "user", "message": {"content": [answer]}, "timestamp": "2026-01-01T00:00:01.500Z"},
    )
    items = [event.item for event in batch.events if event.item]
    base = {"kind": "tool", "id": "t1", "name": "Bash", "summary": "echo hi"}
    assert items == [
        {**base, "state": "running", "duration_ms": None},
        {**base, "state": "error", "duration_ms": 1500},
    ]


def test_words_of_subagents_errors_and_strangers_are_not_shown() -> None:
    found = observer(A)
    text = {"type": "text", "text": "x"}
    child = {"parent_tool_use_id": "t1"}
    batch = take(
        found,
        init(),
        status(A),
        assistant("s1", text) | child,
        stream(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "x"}) | child,
        {"type": "assistant", "message": {"id": "e", "model": "<synthetic>", "content": [text]}},
    )
    assert [event.type for event in batch.events] == ["turn_started"]
    batch = take(found, result(A), init(), status(C), assistant("m", text), result(C))
    assert [event.type for event in batch.events] == ["turn_completed"]


def test_retries_and_limits() -> None:
    retry = {"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 6}
    batch = take(
        observer(A),
        init(),
        status(A),
        {**retry, "error_status": 429, "error": "rate_limit"},
        retry,
        {"type": "system", "subtype": "status", "status": "compacting"},
        {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}},
        {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "token": "x"}},
    )
    told = [(e.type, e.status or e.code, e.message) for e in batch.events[1:]]
    assert told == [
        ("status_changed", "retry", "429 rate_limit: attempt 1 of 6"),
        ("status_changed", "retry", "attempt 1 of 6"),
        ("status_changed", "compacting", None),
        ("error", "provider_rate_limited", None),
    ]
    assert batch.events[-1].evidence == {"status": "rejected", "token": "[redacted]"}


# --- permissions ----------------------------------------------------------------------------------------------------


def test_an_ask_is_told_once_and_settled_by_the_echo_of_its_answer() -> None:
    found = observer(A)
    batch = take(found, init(), status(A), ask())
    (question,) = batch.asks
    assert (question.id, question.thread, question.turn, question.action) == ("q1", THREAD, A, "Bash")
    assert question.detail == "rm x"
    line = found.asks.answer("q1", "once")
    assert line["response"]["response"] == {"behavior": "allow", "updatedInput": {"command": "rm x"}}
    assert found.drain() == Batch()
    found.answered("q1")
    found.answered("q1")
    (event,) = found.drain().events
    assert (event.type, event.turn_id, event.status, event.evidence) == ("permission_settled", A, "once", {"id": "q1"})


def test_an_ask_ends_without_our_answer() -> None:
    found = observer(A)
    cancel = {"type": "control_cancel_request", "request_id": "q1"}
    assert events(take(found, init(), status(A), ask(), cancel))[-1] == ("permission_settled", A, "cancelled")
    answer = {"type": "tool_result", "tool_use_id": "t1"}
    batch = take(found, ask("q2"), {"type": "user", "message": {"content": [answer]}})
    assert events(batch)[-1] == ("permission_settled", A, "cancelled")
    take(found, ask("q3"))
    found.use("next", fresh=False)
    assert events(found.drain()) == [("permission_settled", A, "cancelled")]


@pytest.mark.parametrize(("policy", "behavior", "word"), [("deny", "deny", "reject"), ("allow", "allow", "once")])
def test_policies_answer_by_themselves(policy: str, behavior: str, word: str) -> None:
    found = observer(A, policy=policy)
    batch = take(found, init(), status(A), ask())
    assert batch.asks == ()
    (reply,) = found.replies
    assert reply["response"]["response"]["behavior"] == behavior
    found.answered("q1")
    assert events(found.drain()) == [("permission_settled", A, word)]


def test_always_allows_what_was_suggested_for_this_conversation_only() -> None:
    rule = {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "rm *"}], "behavior": "allow"}
    wider = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    assert lasting("Bash", [{**rule, "destination": "localSettings"}, wider]) == [{**rule, "destination": "session"}]
    (own,) = lasting("Write", [wider])
    assert (own["rules"], own["destination"]) == ([{"toolName": "Write"}], "session")
    assert lasting("Write", None) == [own]


def test_requests_we_do_not_know_are_refused_and_noted() -> None:
    found = observer(A)
    batch = take(found, {"type": "control_request", "request_id": "h", "request": {"subtype": "hook_callback"}})
    assert [note.evidence["kind"] for note in batch.notes] == ["control_request/hook_callback"]
    assert found.replies[0]["response"]["subtype"] == "error"


def test_acting_tools_are_named() -> None:
    assert {"Bash", "Edit", "Write", "WebFetch", "Agent"} <= set(ACTING)


# --- what we do not know --------------------------------------------------------------------------------------------


def test_unknown_lines_are_counted_and_bounded() -> None:
    found = observer(A)
    lines = [{"type": "novelty", "n": number} for number in range(150)]
    batch = take(found, *lines, *([{"type": f"kind{n}"} for n in range(60)]), 7, {"no": "type"})
    counts = [(note.evidence["kind"], note.evidence["count"]) for note in batch.notes]
    assert counts[:3] == [("novelty", 1), ("novelty", 10), ("novelty", 100)]
    assert len({kind for kind, _ in counts}) == 21
    assert ("other", 1) in counts
    assert len(counts) < 30


def test_lines_that_are_no_json_are_noted_by_digest() -> None:
    found = observer(A)
    (problem,) = JsonlDecoder().feed(b"thread 'main' panicked token=abc\n")
    assert isinstance(problem, JsonlProblem)
    found.problem(problem)
    (note,) = found.drain().notes
    assert note.evidence["kind"] == "not_json"
    assert note.evidence["sha256"] == problem.sha256
    assert "abc" not in str(note)


def test_odd_members_are_survived() -> None:
    odd: list[Any] = [None, 5, "x", [], {}, [None]]
    found = observer(A)
    take(found, init(), status(A))
    for value in odd:
        take(
            found,
            {"type": "assistant", "message": value},
            {"type": "assistant", "message": {"content": value, "id": value}},
            {"type": "user", "message": value, "uuid": value},
            {"type": "user", "message": {"content": value}},
            {"type": "stream_event", "event": value},
            {"type": "stream_event", "event": {"type": "content_block_delta", "delta": value}},
            {"type": "system", "subtype": "status", "user_message_uuids": value},
            {"type": "system", "subtype": "background_tasks_changed", "tasks": value},
            {"type": "system", "subtype": value},
            {"type": "command_lifecycle", "command_uuid": value},
            {"type": "control_request", "request_id": value, "request": value},
            {"type": "control_request", "request_id": value, "request": {"subtype": "can_use_tool", "input": value}},
            {"type": "rate_limit_event", "rate_limit_info": value},
        )
        take(found, result(usage=value, modelUsage=value, total_cost_usd=value, errors=value, uuid=value))
        take(found, init(), status(A))
