"""OpenCode's message list as receipts and events, without any I/O: appendix D and every shape of providers.md §2."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.harness.opencode.decode import Message, error_text, read_group, read_message
from turnlog.harness.opencode.events import Delta, Narrator
from turnlog.harness.opencode.observer import Look, Observer
from turnlog.receipts import canonical
from turnlog.testing.opencode_peer import assistant, tool, user

T = "ses_t"
R, F = "msg_r", "msg_f"
ABORTED = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}


class Reader:
    """An observer fed with whole lists, as after a full read."""

    def __init__(self, own: set[str] = frozenset({R})) -> None:  # type: ignore[assignment]
        self.observer = Observer(T, own)
        self.observer.narrated = set(own)
        self.seen: dict[str, str] = {}

    def read(self, *values: Any) -> Look:
        messages: dict[str, Message] = {}
        changed: set[str] = set()
        for value in values:
            value["info"].setdefault("sessionID", T)
            message = read_message(T, value)
            if message is None:
                continue
            messages[message.id] = message
            if self.seen.get(message.id) != canonical(value):
                self.seen[message.id] = canonical(value)
                changed.add(message.id)
        return self.observer.observe(messages, changed, "1.18.33")


def rows(look: Look) -> list[tuple[str, str]]:
    return [(r.kind, r.turn) for r in (*look.starts, *look.content, *look.completions)]


def events(look: Look) -> list[tuple[str, str | None, str | None]]:
    return [(e.type, e.turn_id, e.status) for e in (*look.start_events, *look.end_events)]


def decide(*values: Any, request: str = R, aborted: Any = ()) -> Any:
    messages = []
    for value in values:
        value["info"].setdefault("sessionID", T)
        message = read_message(T, value)
        assert message is not None
        messages.append(message)
    return read_group(request, sorted(messages, key=lambda message: message.order), aborted)


def test_appendix_d() -> None:
    reader = Reader()
    a = assistant("a", R, created=1)
    assert rows(look := reader.read(a)) == [("started", R)]
    assert events(look) == [("turn_started", R, None)]

    a = assistant("a", R, created=1, completed=2, finish="tool-calls", tools=[tool("c", "running")])
    assert rows(look := reader.read(a)) == [("usage", R)]
    assert events(look) == []

    a = assistant("a", R, created=1, completed=2, finish="tool-calls", tools=[tool("c", "completed")])
    x = assistant("x", F, created=1, completed=5, finish="stop", texts=["hi"])
    look = reader.read(a, x)
    # The group of R is dirty because a part changed; its usage is the same receipt again.
    assert rows(look) == [("usage", F), ("output", F), ("usage", R), ("completed", F)]
    assert [r.payload for r in look.content if r.kind == "output"] == [{"text": "hi"}]
    assert events(look) == []

    b = assistant("b", R, created=3, completed=4, finish="stop", texts=["done"])
    look = reader.read(a, x, b)
    assert rows(look) == [("usage", R), ("output", R), ("completed", R)]
    assert look.completions[0].payload == {
        "status": "completed",
        "error": None,
        "started_at": 1,
        "completed_at": 4,
        "message_id": "b",
        "provider": "opencode",
    }
    assert events(look) == [("turn_completed", R, "completed")]

    look = reader.read(a, x, b)
    assert (rows(look), events(look)) == ([], [])


def test_appendix_d_aborted() -> None:
    reader = Reader()
    reader.read(assistant("b", R, created=1))
    look = reader.read(assistant("b", R, created=1, completed=4, error=ABORTED))
    assert rows(look) == [("usage", R), ("completed", R)]
    assert look.completions[0].payload["status"] == "interrupted"
    assert look.completions[0].payload["error"] == ABORTED
    assert events(look) == [("error", R, None), ("turn_completed", R, "interrupted")]
    assert (look.end_events[0].code, look.end_events[0].message) == ("opencode_error", "Aborted")
    group = decide(assistant("b", R, created=1, completed=4, error=ABORTED, texts=["partial"]))
    assert group.output == {"text": "partial"}


@pytest.mark.parametrize("finish", ["unknown", "", None, "tool-calls", 5])
def test_no_completion_without_a_finish(finish: Any) -> None:
    group = decide(assistant("b", R, created=1, completed=4, finish=finish, texts=["x"]))
    assert (group.completion, group.output) == (None, None)


def test_no_completion_while_a_tool_of_any_message_runs() -> None:
    for state in ("pending", "running"):
        first = assistant("a", R, created=1, completed=2, finish="tool-calls", tools=[tool("c", state)])
        assert decide(first, assistant("b", R, created=3, completed=4, finish="stop")).completion is None
    first = assistant("a", R, created=1, completed=2, finish="tool-calls", tools=[tool("c", "error")])
    assert decide(first, assistant("b", R, created=3, completed=4, finish="stop")).completion is not None


def test_no_completion_before_the_message_is_completed() -> None:
    assert decide(assistant("b", R, created=1, finish="stop")).completion is None
    assert decide(assistant("b", R, created=1, error=ABORTED)).completion is None


def test_order_is_created_then_id() -> None:
    late = assistant("a", R, created=5, completed=6, finish="stop", texts=["late"])
    early = assistant("b", R, created=1, completed=2, finish="stop", texts=["early"])
    assert decide(late, early).output == {"text": "late"}
    tie = assistant("z", R, created=5, completed=6, finish="stop", texts=["z"])
    assert decide(late, tie).completion["message_id"] == "z"


@pytest.mark.parametrize("name", ["structured", "structured_output"])
def test_structured_answers_come_first(name: str) -> None:
    def answer(value: Any, texts: list[str]) -> Any:
        message = assistant("b", R, completed=4, finish="stop", texts=texts)
        message["info"][name] = value
        return decide(message).output

    assert answer({"a": [1, None]}, ["text"]) == {"value": {"a": [1, None]}}
    assert answer(None, ["text"]) == {"text": "text"}
    assert answer(False, []) == {"value": False}


def test_the_last_text_part_is_the_answer_and_leftovers_of_retries_are_not() -> None:
    message = assistant("b", R, completed=4, finish="stop", texts=["one", "two"])
    assert decide(message).output == {"text": "two"}
    leftover = {"id": "p", "type": "text", "text": "", "time": {"start": 3}}
    broken = assistant("b", R, completed=4, error={"name": "APIError", "data": {}})
    broken["parts"] = [leftover, leftover]
    assert decide(broken).output is None
    broken["parts"] = [{**leftover, "text": "kept", "time": {"start": 1, "end": 2}}, leftover]
    assert decide(broken).output == {"text": "kept"}
    assert decide(assistant("b", R, completed=4, finish="stop")).output is None
    assert decide(assistant("b", R, completed=4, finish="stop", texts=[""])).output == {"text": ""}


def test_an_abort_during_a_retry_completes_only_when_we_know_of_it() -> None:
    message = assistant("b", R, created=1, completed=4)
    assert decide(message).completion is None
    group = decide(message, aborted={"b"})
    assert (group.completion["status"], group.completion["basis"]) == ("interrupted", "abort_accepted")
    # The abort is no witness about another message, nor about one that has an end of its own.
    assert decide(message, aborted={"a"}).completion is None
    assert decide(assistant("b", R, completed=4, finish="tool-calls"), aborted={"b"}).completion is None
    done = decide(assistant("b", R, completed=4, finish="stop"), aborted={"b"}).completion
    assert (done["status"], "basis" in done) == ("completed", False)
    named = decide(assistant("b", R, completed=4, error=ABORTED), aborted={"b"}).completion
    assert (named["status"], "basis" in named) == ("interrupted", False)


def test_usage_carries_the_whole_info_the_version_and_no_secret() -> None:
    error = {"name": "APIError", "data": {"message": "token=abc", "responseHeaders": {"set-cookie": "sid=1"}}}
    reader = Reader()
    look = reader.read(assistant("b", R, created=1, completed=4, error=error, tokens={"input": 7}, modelID="m"))
    (usage,) = look.content
    assert usage.payload["session_version"] == "1.18.33"
    assert usage.payload["message"]["modelID"] == "m"
    assert usage.payload["message"]["tokens"] == {"input": 7}
    clean = {"message": "token=[redacted]", "responseHeaders": {"set-cookie": "[redacted]"}}
    assert usage.payload["message"]["error"]["data"] == clean
    assert look.completions[0].payload["error"]["data"] == clean
    assert look.end_events[0].message == "token=[redacted]"


def test_a_changed_snapshot_is_a_new_usage_and_says_its_boundaries_once() -> None:
    reader = Reader()
    b = assistant("b", R, completed=4, finish="stop", texts=["one"], tokens={"input": 1})
    reader.read(b)
    changed = assistant("b", R, completed=4, finish="stop", texts=["two"], tokens={"input": 2})
    look = reader.read(changed)
    # Both are given: intake keeps the first output and retains the difference (D9).
    assert rows(look) == [("usage", R), ("output", R), ("completed", R)]
    assert events(look) == []


def test_foreign_and_earlier_requests_get_receipts_but_no_events() -> None:
    reader = Reader(own={R})
    reader.observer.own.add("msg_before")
    look = reader.read(
        assistant("a", "msg_before", completed=2, finish="stop"), assistant("b", F, completed=2, finish="stop")
    )
    assert rows(look) == [
        ("started", "msg_before"),
        ("usage", "msg_before"),
        ("usage", F),
        ("completed", "msg_before"),
        ("completed", F),
    ]
    assert events(look) == []
    assert look.narrated == []


def test_what_is_not_of_this_thread_is_ignored() -> None:
    other = assistant("a", R, completed=2, finish="stop")
    other["info"]["sessionID"] = "ses_other"
    orphan = assistant("b", R, completed=2, finish="stop")
    del orphan["info"]["parentID"]
    strange: list[Any] = [None, 3, {}, {"info": None}, {"info": {"id": 1}}]
    assert [read_message(T, value) for value in strange] == [None] * 5
    assert rows(Reader().read(other, orphan, user("u"))) == []


def test_superseded_by_a_steer() -> None:
    reader = Reader(own={R, "msg_s"})
    first = assistant("a", R, created=1, completed=2, finish="tool-calls", tools=[tool("c", "completed")])
    look = reader.read(user(R), first)
    assert look.settled == []
    look = reader.read(user(R), first, user("msg_s", created=2), assistant("b", "msg_s", created=3))
    assert look.settled == [(R, "msg_s")]
    assert [(n.source, n.evidence, n.turn) for n in look.notes] == [
        (f"superseded:{T}:{R}", {"by": "msg_s"}, R),
    ]
    look = reader.read(
        user(R), first, user("msg_s", created=2), assistant("b", "msg_s", created=3, completed=4, finish="stop")
    )
    assert (look.settled, look.notes) == ([], [])
    assert [r.turn for r in look.completions] == ["msg_s"]
    assert reader.observer.open_requests() == []


@pytest.mark.parametrize(
    "last",
    [
        assistant("a", R, created=1),  # cut by a killed server
        assistant("a", R, created=1, completed=2),  # aborted while waiting to retry
        assistant("a", R, created=1, completed=2, finish="unknown"),
        assistant("a", R, created=1, completed=2, error=ABORTED, finish="tool-calls"),
        assistant("a", R, created=1, completed=2, finish="stop"),
    ],
)
def test_other_ends_are_not_superseded(last: Any) -> None:
    reader = Reader(own={R, "msg_s"})
    look = reader.read(user(R), last, user("msg_s", created=2), assistant("b", "msg_s", created=3))
    assert (look.settled, look.notes) == ([], [])


def test_absorbed_by_a_later_request_only() -> None:
    reader = Reader(own={R, "msg_q", "msg_s"})
    first = assistant("a", R, created=1)
    queued, last = user("msg_q", created=3), user("msg_s", created=4)
    # R's own loop goes on after the queued prompt arrived: that answers nothing.
    look = reader.read(user(R), first, queued, last, assistant("b", R, created=5, completed=6, finish="stop"))
    assert look.settled == []
    look = reader.read(
        user(R),
        first,
        queued,
        last,
        assistant("b", R, created=5, completed=6, finish="stop"),
        assistant("c", "msg_s", created=7),
    )
    assert look.settled == [("msg_q", "msg_s")]
    assert [n.source for n in look.notes] == [f"absorbed:{T}:msg_q"]


def test_a_summary_is_not_a_successor_but_a_failed_one_is() -> None:
    first = assistant("a", R, created=1, completed=2, finish="tool-calls")
    compaction = user("msg_c", created=3)
    summary = assistant("b", "msg_c", created=4, completed=5, finish="stop", summary=True, texts=["so far"])
    reader = Reader()
    assert reader.read(user(R), first, compaction, summary).settled == []
    look = reader.read(
        user(R), first, compaction, summary, user("msg_d", created=6), assistant("c", "msg_d", created=7)
    )
    assert look.settled == [(R, "msg_d")]
    failed = assistant("b", "msg_c", created=4, completed=5, error={"name": "UnknownError"}, summary=True)
    assert Reader().read(user(R), first, compaction, failed).settled == [(R, "msg_c")]


@given(st.permutations(range(6)), st.lists(st.integers(0, 6), max_size=4))
def test_any_way_of_reading_the_same_history_gives_the_same_receipts(order: list[int], cuts: list[int]) -> None:
    history = [
        user(R),
        assistant("a", R, created=1, completed=2, finish="tool-calls", tools=[tool("c", "completed")]),
        assistant("b", R, created=3, completed=4, finish="stop", texts=["done"]),
        user(F, created=5),
        assistant("x", F, created=6, completed=7, finish="stop", texts=["hi"]),
        assistant("y", "msg_z", created=8),
    ]

    def given_receipts(looks: list[Look]) -> set[str]:
        receipts = [r for look in looks for r in (*look.starts, *look.content, *look.completions)]
        return {canonical([r.thread, r.turn, r.kind, r.payload]) for r in receipts}

    at_once = given_receipts([Reader().read(*copy.deepcopy(history))])
    reader, looks = Reader(), []
    for start, end in itertools.pairwise([0, *sorted(cuts), 6]):
        looks.append(reader.read(*(history[n] for n in order[start:end])))
    # A prefix can complete a group that goes on; what the whole says must be among it.
    assert at_once <= given_receipts(looks)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ({"data": {"message": "a\nb"}, "message": "c"}, "a b"),
        ({"message": "c \x1b[31mred"}, "c red"),
        ({"data": {"message": 5}}, "OpenCode request did not complete"),
        (None, "OpenCode request did not complete"),
        ("text", "OpenCode request did not complete"),
        ({"message": "Authorization: Bearer x"}, "authorization: [redacted]"),
    ],
)
def test_error_words(error: Any, text: str) -> None:
    assert error_text(error) == text


# --- events ---------------------------------------------------------------------------------------------------------


def narrate(narrator: Narrator, value: Any) -> list[tuple[str, Any]]:
    value["info"].setdefault("sessionID", T)
    message = read_message(T, value)
    assert message is not None
    return [
        (e.type, e.content if e.content is not None else e.item and e.item.get("state"))
        for e in narrator.content(R, message)
    ]


def test_pieces_always_add_up_to_the_text() -> None:
    narrator = Narrator()
    message = read_message(T, {"info": {**assistant("b", R)["info"], "sessionID": T}, "parts": []})
    assert message is not None
    narrator.hold(Delta(T, "b", "prt_b_0", "hel"))
    narrator.hold(Delta(T, "unknown", "p", "later"))
    assert [e.content for e in narrator.pieces({"b": message}.get, lambda _: True)] == ["hel"]
    # The rest was lost with the stream: it comes with the part's end. A piece that comes too late is not said again.
    assert narrate(narrator, assistant("b", R, texts=["hello"])) == [("text_delta", "lo"), ("item_completed", None)]
    narrator.hold(Delta(T, "b", "prt_b_0", "lo"))
    assert list(narrator.pieces({"b": message}.get, lambda _: True)) == []
    assert narrate(narrator, assistant("b", R, texts=["hello"])) == []


def test_pieces_of_turns_that_are_not_ours_are_dropped() -> None:
    narrator = Narrator()
    message = read_message(T, {"info": {**assistant("b", F)["info"], "sessionID": T}, "parts": []})
    narrator.hold(Delta(T, "b", "p", "x"))
    assert list(narrator.pieces(lambda _: message, lambda _: False)) == []
    assert list(narrator.pieces(lambda _: message, lambda _: True)) == []


def test_a_tool_is_told_once_per_state_with_its_duration() -> None:
    narrator = Narrator()
    waiting = assistant("b", R, tools=[tool("c", "pending", time={})])
    assert narrate(narrator, waiting) == [("item_started", "pending")]
    running = assistant("b", R, tools=[tool("c", "running", input={"command": "ls\n-l"}, time={"start": 3})])
    assert narrate(narrator, running) == [("item_updated", "running")]
    assert narrate(narrator, running) == []
    done = assistant("b", R, tools=[tool("c", "completed", title="ls", time={"start": 3, "end": 8})])
    message = read_message(T, {"info": {**done["info"], "sessionID": T}, "parts": done["parts"]})
    assert message is not None
    (event,) = narrator.content(R, message)
    assert event.item == {
        "kind": "tool", "id": "prt_c", "name": "bash", "summary": "ls", "state": "completed", "duration_ms": 5,
    }  # fmt: skip


def test_usage_checkpoints_are_told_once_per_number() -> None:
    narrator = Narrator()
    first = assistant("b", R, completed=2, tokens={"input": 1})
    assert narrate(narrator, first) == [("usage_checkpoint", None)]
    assert narrate(narrator, first) == []
    assert narrate(narrator, assistant("b", R, completed=2, tokens={"input": 2})) == [("usage_checkpoint", None)]


# --- captures of the real program, when they are at hand --------------------------------------------------------------

GOLDEN = Path(__file__).parent / "data"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.messages.json")), ids=lambda path: path.name.split(".")[0])
def test_captured_lists(path: Path) -> None:
    """Lists that OpenCode 1.18.33 gave, with the receipts they must become."""
    messages = json.loads(path.read_text())
    thread = messages[0]["info"]["sessionID"]
    observer = Observer(thread)
    decoded = [message for value in messages if (message := read_message(thread, value))]
    look = observer.observe({m.id: m for m in decoded}, {m.id for m in decoded}, "1.18.33")
    found = {
        "kinds": [r.kind for r in (*look.content, *look.completions)],
        "statuses": [r.payload["status"] for r in look.completions],
        "outputs": [r.payload for r in look.content if r.kind == "output"],
        "input": sum(r.payload["message"]["tokens"]["input"] for r in look.content if r.kind == "usage"),
        "notes": [n.source.split(":")[0] for n in look.notes],
    }
    assert found == json.loads(path.with_name(path.name.replace("messages", "expected")).read_text())
