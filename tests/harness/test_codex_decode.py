"""Codex's words as receipts: pure, with small messages in the shape of each kind that the captures have."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.harness import Child, ConversationEvent
from turnlog.harness.codex import decode
from turnlog.harness.codex.decode import Turn, completion, error_text, output, read_turn
from turnlog.harness.codex.events import Narrator
from turnlog.harness.codex.observer import Look, Observer
from turnlog.harness.codex.permissions import COMMAND, MORE, ask_line, check_policy, reply
from turnlog.harness.codex.requests import Requests
from turnlog.harness.codex.strange import KINDS, Strangers
from turnlog.harness.codex.structured import Schemas, demand, strict
from turnlog.model import Event, EventKind
from turnlog.receipts import Receipt, canonical
from turnlog.testing.codex_peer import answer_item, completed, started, turn, usage, user_item
from turnlog.usage.reduce import reduce_usage
from turnlog.wire.jsonrpc import Notification, Request

T = "T"


class Heard:
    """An observer that is fed by hand, with what it said."""

    def __init__(self, folder: Path, own: tuple[str, ...] = ()) -> None:
        self.requests = Requests(own)
        self.requests.thread = T
        self.schemas = Schemas(folder)
        self.strangers = Strangers(T)
        self.observer = Observer(T, self.requests, self.schemas, self.strangers)
        self.look = Look()
        self.seq = 0

    def hear(self, method: str, thread: str = T, **params: Any) -> None:
        self.seq += 1
        message = Notification(method, {"threadId": thread, **params})
        self.requests.tap(message, self.seq)
        self.observer.settle(self.look)
        self.observer.hear(method, message.params, self.look)

    def play(self, *actions: dict[str, Any]) -> None:
        for action in actions:
            params = dict(action["params"])
            self.hear(action["say"], params.pop("threadId"), **params)

    def kinds(self, turn: str | None = None) -> list[str]:
        return [r.kind for r in self.look.receipts if turn is None or r.turn == turn]

    def payloads(self, kind: str, turn: str) -> list[Any]:
        return [r.payload for r in self.look.receipts if (r.kind, r.turn) == (kind, turn)]


@pytest.fixture
def heard(tmp_path: Path) -> Heard:
    return Heard(tmp_path)


def used(name: str, total: dict[str, Any]) -> dict[str, Any]:
    return {"say": "thread/tokenUsage/updated", "params": {"threadId": T, "turnId": name, "tokenUsage": total}}


def events_of(receipts: list[Receipt]) -> list[Event]:
    """Return receipts as the ledger keeps them: each once."""
    seen: set[str] = set()
    events: list[Event] = []
    for receipt in receipts:
        key = canonical([receipt.thread, receipt.turn, receipt.kind, receipt.payload])
        if key not in seen:
            seen.add(key)
            events.append(
                Event(
                    seq=len(events) + 1,
                    session_id="s",
                    thread=receipt.thread,
                    turn=receipt.turn,
                    kind=EventKind(receipt.kind),
                    provider_generation=None,
                    exec_id=None,
                    task_id=None,
                    wave_id=None,
                    observed_at=len(events),
                    payload=receipt.payload,
                )
            )
    return events


# --- turns ----------------------------------------------------------------------------------------------------------


def read(value: dict[str, Any]) -> Turn:
    found = read_turn(value)
    assert found is not None
    return found


@pytest.mark.parametrize("value", [None, [], {}, {"id": 1, "status": "completed"}, {"id": "t"}, {"status": "failed"}])
def test_what_is_no_turn(value: Any) -> None:
    assert read_turn(value) is None


def test_a_completion_keeps_the_times_as_they_are_said_and_hides_secrets() -> None:
    error = {"message": "401: token=abcdef", "codexErrorInfo": {"httpConnectionFailed": {"httpStatusCode": 401}}}
    assert completion(read(turn("t", "failed", error=error))) == {
        "status": "failed",
        "error": {"message": "401: token=[redacted]", "codexErrorInfo": error["codexErrorInfo"]},
        "started_at": 1_796_000_000,
        "completed_at": 1_796_000_001,
        "duration_ms": 1000,
    }


def test_an_inferred_end_counts_only_for_a_dead_process() -> None:
    cut = read(turn("t", "interrupted", completedAt=None, durationMs=None))
    assert completion(cut) is None
    payload = completion(cut, dead=True)
    assert payload is not None
    assert (payload["status"], payload["basis"], payload["completed_at"]) == ("interrupted", "process_ended", None)
    stopped = completion(read(turn("t", "interrupted")))
    assert stopped is not None
    assert "basis" not in stopped


@pytest.mark.parametrize("status", ["inProgress", "paused", ""])
def test_what_is_no_end_completes_nothing(status: str) -> None:
    assert completion(read(turn("t", status)), dead=True) is None


def test_a_legacy_turn_without_times() -> None:
    old = {"id": "rollout-5", "items": [answer_item("old")], "status": "completed", "rootTurnId": None}
    payload = completion(read(old))
    assert payload is not None
    assert (payload["started_at"], payload["completed_at"], payload["error"]) == (None, None, None)
    assert decode.last_answer(read(old)) == "old"


def test_the_answer_is_the_last_message_without_another_phase() -> None:
    items = [answer_item("a"), answer_item("b", "final_answer"), answer_item("c", "commentary"), user_item("r")]
    assert decode.last_answer(read(turn("t", items=items))) == "b"
    assert decode.last_answer(read(turn("t", items=[answer_item("c", "partial_answer")]))) is None
    assert decode.last_answer(read(turn("t", items=[{"type": "agentMessage"}, "nonsense"]))) is None


def test_words_of_an_error() -> None:
    assert error_text({"message": "a\nb", "additionalDetails": "c"}) == "a b: c"
    assert error_text({"message": "\x1b[31mred\x1b[0m"}) == "red"
    assert error_text(None) == decode.GENERIC_ERROR
    assert error_text(None, interrupted=True) == "Interrupted"


def test_children_in_both_shapes() -> None:
    spawn = {"type": "collabAgentToolCall", "tool": "spawnAgent", "receiverThreadIds": ["C", T, 5], "prompt": "do\n it"}
    assert decode.children_of(T, "t", spawn) == [Child("C", T, "t", "do it")]
    assert decode.children_of(T, "t", {**spawn, "senderThreadId": "P"}) == [Child("C", "P", "t", "do it")]
    assert decode.children_of(T, "t", {**spawn, "tool": "wait"}) == []
    activity = {"type": "subAgentActivity", "agentThreadId": "C", "agentPath": "/a", "kind": "started"}
    assert decode.children_of(T, "t", activity) == [Child("C", T, "t", "/a")]


# --- what is heard --------------------------------------------------------------------------------------------------


def test_receipts_keep_the_order_of_the_stream(heard: Heard) -> None:
    heard.play(started("t1"), used("t1", usage(100)), completed("t1", text="one"))
    heard.play(started("t2"), used("t2", usage(300, 200)), completed("t2", "failed"))
    assert heard.kinds() == ["started", "usage", "output", "completed", "started", "usage", "completed"]
    assert heard.payloads("usage", "t1") == [usage(100)]


def test_a_completion_whose_items_are_only_a_summary(heard: Heard) -> None:
    heard.play(started("t1"))
    heard.hear("item/completed", turnId="t1", item=answer_item("heard"))
    heard.play(completed("t1", itemsView="notLoaded"))
    assert heard.payloads("output", "t1") == [{"text": "heard"}]


def test_compaction_repeats_totals_and_estimates_the_last_call(heard: Heard) -> None:
    """After a compaction ``last`` is an estimate that no call used, and the totals repeat (providers.md §3)."""
    before = usage(1600)
    estimate = {**before, "last": {**before["last"], "totalTokens": 6045, "inputTokens": 6045}}
    heard.play(started("t1"), used("t1", before), used("t1", before), completed("t1", text="x"))
    heard.play(started("t2"), used("t2", estimate), used("t2", usage(3200, 1600)), completed("t2", text="y"))
    assert len(heard.payloads("usage", "t1")) == 2, "the ledger keeps one of two that are equal"
    rows = events_of(heard.look.receipts)
    first = [event for event in rows if event.turn == "t1"]
    reduced = reduce_usage(rows, predecessors={(T, "t2"): first})
    assert (reduced.usage.total_input_tokens, reduced.usage.gaps) == (3200, 0)


def test_a_turn_of_another_client_gets_receipts_but_no_events(heard: Heard) -> None:
    heard.play(started("t1"), completed("t1", text="x"))
    assert heard.kinds() == ["started", "output", "completed"]
    assert heard.look.events == []


def test_unfinished_and_strange_parameters_are_no_news(heard: Heard) -> None:
    shapes: list[dict[str, Any]] = [
        {},
        {"turn": {}},
        {"turn": {"id": 1}},
        {"turnId": "t", "tokenUsage": 5},
        {"turnId": None},
    ]
    for params in shapes:
        for method in ("turn/started", "turn/completed", "item/completed", "thread/tokenUsage/updated", "error"):
            heard.hear(method, **params)
    assert heard.look.receipts == []


def test_narration_of_our_turn(heard: Heard) -> None:
    heard.requests.send("r", 0)
    heard.requests.decide("r", "t1")
    heard.play(started("t1"))
    failed = {"message": "Reconnecting... 1/2", "codexErrorInfo": "other", "additionalDetails": "cut"}
    heard.hear("error", turnId="t1", error=failed, willRetry=True)
    heard.hear("item/agentMessage/delta", turnId="t1", itemId="m1", delta="he")
    heard.hear("item/completed", turnId="t1", item=answer_item("hello"))
    heard.hear("item/reasoning/summaryTextDelta", turnId="t1", itemId="r1", delta="hm")
    heard.hear("item/completed", turnId="t1", item={"type": "reasoning", "id": "r1", "summary": ["hm", "so"]})
    patch = {"type": "fileChange", "id": "f1", "status": "completed", "changes": [{"path": "a"}, {"path": "b"}]}
    heard.hear("item/completed", turnId="t1", item=patch)
    call = {"type": "mcpToolCall", "id": "c1", "server": "srv", "tool": "look", "status": "failed", "durationMs": 7}
    heard.hear("item/completed", turnId="t1", item=call)
    heard.hear("item/started", turnId="t1", item={"type": "newThing", "id": "n1"})
    heard.hear("error", turnId="t1", error=failed, willRetry=False)
    heard.play(completed("t1", "failed", error=failed))
    told = [(e.type, e.status, e.content, (e.item or {}).get("name")) for e in heard.look.events]
    assert told == [
        ("turn_started", None, None, None),
        ("status_changed", "retry", None, None),
        ("status_changed", "busy", None, None),
        ("text_delta", None, "he", None),
        ("text_delta", None, "llo", None),
        ("item_completed", None, None, None),
        ("reasoning_delta", None, "hm", None),
        ("item_completed", None, None, None),
        ("item_completed", None, None, "apply_patch"),
        ("item_completed", None, None, "srv.look"),
        ("item_started", None, None, "newThing"),
        ("error", None, None, None),
        ("turn_completed", "failed", None, None),
    ]
    items = {item["id"]: item for event in heard.look.events if (item := event.item)}
    assert (items["f1"]["summary"], items["c1"]["duration_ms"], items["r1"]["text"]) == ("a, b", 7, "hm\nso")


def test_a_command_without_a_duration_of_its_own() -> None:
    item = {"type": "commandExecution", "id": "c", "command": "ls", "status": "inProgress", "startedAtMs": 5}
    (event,) = Narrator().tell("item/started", {"turnId": "t", "item": item})
    assert event == ConversationEvent(
        "item_started",
        turn_id="t",
        item={"kind": "command", "id": "c", "name": "shell", "summary": "ls", "state": "running", "duration_ms": None},
    )
    back = {**item, "status": "completed", "completedAtMs": 3, "exitCode": 1}
    (event,) = Narrator().tell("item/completed", {"turnId": "t", "item": back})
    assert event.item is not None
    assert (event.item["duration_ms"], event.item["exit_code"]) == (None, 1), "a clock that went back tells nothing"


# --- requests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply_first", [True, False])
def test_reply_and_start_in_either_order(heard: Heard, reply_first: bool) -> None:
    heard.requests.send("r", heard.seq)
    if reply_first:
        heard.requests.decide("r", "t1")
        heard.play(started("t1"))
    else:
        heard.play(started("t1"))
        assert heard.look.events == []
        heard.requests.decide("r", "t1")
    heard.observer.settle(heard.look)
    assert heard.look.accepted == [("r", "t1")]
    assert [event.type for event in heard.look.events] == ["turn_started"]


def test_what_was_seen_before_the_request_was_only_joined(heard: Heard) -> None:
    heard.play(started("t1"))
    heard.requests.send("r", heard.seq)
    heard.requests.decide("r", "t1")
    heard.observer.settle(heard.look)
    assert (heard.look.accepted, heard.look.settled) == ([], [("r", "t1")])


def test_a_second_request_that_names_our_running_turn_joined_it(heard: Heard) -> None:
    heard.requests.send("r1", 0)
    heard.requests.send("r2", 0)
    heard.requests.decide("r1", "t1")
    heard.requests.decide("r2", "t1")
    heard.requests.decide("r1", "t1")
    heard.observer.settle(heard.look)
    assert (heard.look.accepted, heard.look.settled) == ([("r1", "t1")], [("r2", "t1")])


def test_held_events_of_a_turn_that_was_not_ours_are_dropped(heard: Heard) -> None:
    heard.requests.send("r", 0)
    heard.play(started("t1"))
    heard.requests.decide("r", "t2")
    heard.observer.settle(heard.look)
    heard.play(started("t2"))
    assert [event.turn_id for event in heard.look.events] == ["t2"]


@given(st.integers())
def test_any_order_of_messages_gives_each_receipt_at_most_once(seed: int) -> None:
    order = random.Random(seed)
    heard = Heard(Path("/nonexistent"))
    heard.requests.send("r", 0)
    actions = [
        started("t1"),
        used("t1", usage(10)),
        {"say": "item/completed", "params": {"threadId": T, "turnId": "t1", "item": answer_item("x")}},
        {"say": "item/completed", "params": {"threadId": T, "turnId": "t1", "item": user_item("r")}},
        completed("t1"),
        started("t2"),
        completed("t2", "failed"),
    ]
    order.shuffle(actions)
    heard.play(*actions)
    heard.observer.settle(heard.look)
    for name in ("t1", "t2"):
        for kind in ("started", "output", "completed"):
            assert heard.kinds(name).count(kind) <= 1
    boundaries = [event.type for event in heard.look.events if event.type.startswith("turn_")]
    assert boundaries in (["turn_started", "turn_completed"], ["turn_started"], [])
    assert len(heard.look.accepted) + len(heard.look.settled) == 1


# --- schemas --------------------------------------------------------------------------------------------------------

OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "fits"),
    [
        (OBJECT, True),
        ({**OBJECT, "properties": {"a": OBJECT}}, True),
        ({**OBJECT, "properties": {"a": {"type": "array", "items": OBJECT}}}, True),
        ({**OBJECT, "properties": {"a": {"anyOf": [OBJECT, {"type": "null"}]}}}, True),
        ({**OBJECT, "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": OBJECT}}, True),
        (True, False),
        ({}, False),
        ({"type": "array", "items": OBJECT}, False),
        ({**OBJECT, "required": []}, False),
        ({**OBJECT, "additionalProperties": True}, False),
        ({**OBJECT, "properties": {"a": {"type": "object"}}}, False),
        ({**OBJECT, "properties": {"a": {"not": {}}}}, False),
        ({**OBJECT, "anyOf": [OBJECT]}, False),
        ({**OBJECT, "properties": []}, False),
        ({**OBJECT, "$defs": {"x": {"type": "object"}}}, False),
    ],
)
def test_which_schemas_the_model_takes(schema: Any, fits: bool) -> None:
    assert strict(schema) is fits


def test_values_are_checked() -> None:
    assert output('{"a":"x"}', OBJECT) == {"value": {"a": "x"}}
    assert output('{"a":1}', OBJECT) == {"text": '{"a":1}'}
    assert output("prose", OBJECT) == {"text": "prose"}
    assert output("1", True) == {"value": 1}
    assert output("1", None) == {"text": "1"}
    assert output("1", {"type": 5}) == {"text": "1"}
    assert '"type":"object"' in demand("go", OBJECT)


def test_schemas_are_kept_on_disk(tmp_path: Path) -> None:
    Schemas(tmp_path).keep("r1", OBJECT)
    with (tmp_path / "codex-schemas.jsonl").open("ab") as file:
        file.write(b'{"request":"torn')
    again = Schemas(tmp_path)
    assert (again.of("r1"), again.of("r2"), again.of(None)) == (OBJECT, None, None)
    assert (tmp_path / "codex-schemas.jsonl").stat().st_mode & 0o777 == 0o600


# --- the rest -------------------------------------------------------------------------------------------------------


def test_replies_to_permissions() -> None:
    def ask(**params: Any) -> Request:
        return Request(1, COMMAND, params)

    assert reply(ask(), "once") == {"decision": "accept"}
    assert reply(ask(), "always") == {"decision": "acceptForSession"}
    assert reply(ask(kind="writeStdin"), "always") == {"decision": "accept"}
    assert reply(ask(), "reject") == {"decision": "decline"}
    more = Request(1, MORE, {"permissions": {"network": {}}})
    assert reply(more, "reject") == {"permissions": {}}
    assert reply(more, "once")["scope"] == "turn"
    assert ask_line(ask(command="a\n b", reason="why"), None) == "a b (why)"
    assert check_policy("deny") == "deny"


def test_strangers_are_bounded_and_quick() -> None:
    strangers = Strangers(T)
    notes = strangers.message(Notification("new/one", {"text": "y" * (10 << 20), "deep": [[[[[[[[1]]]]]]]]}))
    assert len(canonical(notes[0].evidence)) < 5000
    assert strangers.message(Notification("new/one", {})) == []
    assert strangers.message(Notification("account/whatever", {})) == []
    for number in range(200):
        notes += strangers.message(Notification(f"new/{number}", {}))
    assert len(notes) == KINDS
    assert sum(strangers.counts.values()) == 202
