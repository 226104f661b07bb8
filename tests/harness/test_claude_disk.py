"""Claude's session files as receipts: what a file tells of a turn, and what it leaves unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from turnlog.errors import RefusedError, UnavailableError
from turnlog.harness import Batch, Delivery, HarnessConfig
from turnlog.harness.claude import disk, history, record
from turnlog.harness.claude.memory import Memory
from turnlog.process import identify

THREAD = "5a1d0000-0000-4000-8000-000000000001"
A = "aaaaaaaa-0000-4000-8000-000000000001"
B = "bbbbbbbb-0000-4000-8000-000000000002"
C = "cccccccc-0000-4000-8000-000000000003"
WHEN = "2026-02-03T04:05:06.007Z"


def usage(output: int = 50) -> dict[str, Any]:
    return {"input_tokens": 1000, "output_tokens": output, "cache_read_input_tokens": 4}


def prompt(uuid: str, text: str = "go", **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    return {"type": "user", "uuid": uuid, "message": message, "promptSource": "sdk", "promptId": f"p-{uuid}", **more}


def said(
    name: str, *blocks: dict[str, Any], stop: str | None = "end_turn", output: int = 50, **more: Any
) -> dict[str, Any]:
    message = {"id": name, "role": "assistant", "model": "m", "content": list(blocks), "stop_reason": stop}
    return {"type": "assistant", "timestamp": WHEN, "message": {**message, "usage": usage(output)}, **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(name: str = "t1", tool: str = "Bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": tool, "input": {}}


def answer(name: str = "t1", **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": name, "content": "x"}
    return {"type": "user", "uuid": f"u-{name}", "message": {"role": "user", "content": [block]}, **more}


def note(words: str) -> dict[str, Any]:
    return {"type": "user", "uuid": "n", "isMeta": True, "message": {"role": "user", "content": words}}


def mark(words: str = "[Request interrupted by user]") -> dict[str, Any]:
    return {"type": "user", "uuid": "i", "message": {"role": "user", "content": [text(words)]}}


def synthetic(words: str, **more: Any) -> dict[str, Any]:
    message = {"id": "s", "model": "<synthetic>", "content": [text(words)], "stop_reason": "stop_sequence"}
    return {"type": "assistant", "timestamp": WHEN, "message": message, **more}


def lines(*entries: dict[str, Any] | bytes) -> bytes:
    return b"".join((each if isinstance(each, bytes) else orjson.dumps(each)) + b"\n" for each in entries)


def read(folder: Path, *entries: dict[str, Any] | bytes, own: str = A, agents: dict[str, bytes] | None = None) -> Batch:
    path = folder / f"{THREAD}.jsonl"
    path.write_bytes(lines(*entries))
    for name, content in (agents or {}).items():
        agent = folder / THREAD / "subagents" / name
        agent.parent.mkdir(parents=True, exist_ok=True)
        agent.write_bytes(content)
    owned = frozenset(own.split())
    batches = [history.read_batch(THREAD, disk.read_session(path, owned), owned, (), ()) for _ in range(2)]
    assert batches[0] == batches[1]
    return batches[0]


def kinds(batch: Batch) -> list[tuple[str, str]]:
    return [(receipt.turn, receipt.kind) for receipt in batch.receipts]


def payload(batch: Batch, kind: str, turn: str = A) -> Any:
    found = [receipt.payload for receipt in batch.receipts if (receipt.turn, receipt.kind) == (turn, kind)]
    return found[0] if found else None


def calls(batch: Batch, turn: str = A) -> list[tuple[str, int]]:
    usages = [r.payload for r in batch.receipts if (r.turn, r.kind) == (turn, "usage")]
    return [(each["call"], each["usage"]["output_tokens"]) for each in usages]


def test_a_whole_turn(tmp_path: Path) -> None:
    batch = read(tmp_path, prompt(A), said("m1", text("first"), stop="end_turn"), said("m1", text("last")))
    assert kinds(batch) == [(A, "started"), (A, "usage"), (A, "output"), (A, "completed")]
    assert payload(batch, "usage") == {
        "provider": "claude",
        "source": "file",
        "call": "m1",
        "model": "m",
        "usage": usage(),
        "at": WHEN,
    }
    assert payload(batch, "output") == {"text": "last"}
    assert payload(batch, "completed") == {
        "status": "completed",
        "error": None,
        "message_id": "m1",
        "stop_reason": "end_turn",
        "completed_at": WHEN,
        "provider": "claude",
        "source": "file",
    }
    assert batch.stalled == ()


def test_lines_of_one_call_count_once_with_the_most_output(tmp_path: Path) -> None:
    batch = read(
        tmp_path,
        prompt(A),
        said("m1", text("x"), stop=None, output=1),
        said("m1", call(), stop="tool_use", output=50),
        answer(),
        said("m2", text("y"), output=7),
    )
    assert calls(batch) == [("m1", 50), ("m2", 7)]
    assert payload(batch, "output") == {"text": "y"}


@pytest.mark.parametrize(
    "rest",
    [
        [],
        [said("m1", text("I will"), call(), stop="tool_use")],
        [said("m1", call(), stop="tool_use"), answer()],
        [said("m1", text("par"), stop=None)],
        [said("m1", text("long"), stop="max_tokens"), note("Output token limit hit. Resume directly")],
        [said("m1", text("x")), note("[structured-output-enforce] You MUST call the StructuredOutput tool")],
        [said("m1", text("x"), call("t1"), call("t2"), stop="end_turn"), answer("t1")],
        [synthetic("No response requested.")],
    ],
)
def test_a_cut_turn_has_no_end(tmp_path: Path, rest: list[dict[str, Any]]) -> None:
    batch = read(tmp_path, prompt(A), *rest)
    assert payload(batch, "completed") is payload(batch, "output") is None
    assert payload(batch, "started") == {}
    assert batch.stalled == (A,)
    assert [each.source for each in batch.notes] == [f"idle:{THREAD}:{A}"]


@pytest.mark.parametrize(
    ("rest", "status", "error"),
    [
        ([synthetic("API Error: 400 token=abc", isApiErrorMessage=True)], "failed", "API Error: 400 token=[redacted]"),
        ([said("m1", text("par"), stop=None, output=1), mark()], "interrupted", "Interrupted"),
        (
            [said("m1", call(), stop="tool_use"), answer(), mark("[Request interrupted by user for tool use]")],
            "interrupted",
            "Interrupted",
        ),
    ],
)
def test_other_ends(tmp_path: Path, rest: list[dict[str, Any]], status: str, error: str) -> None:
    batch = read(tmp_path, prompt(A), *rest)
    end = payload(batch, "completed")
    assert (end["status"], end["error"]) == (status, error)
    assert payload(batch, "output") is None


def test_an_error_that_was_overcome_is_none(tmp_path: Path) -> None:
    batch = read(tmp_path, prompt(A), synthetic("API Error", isApiErrorMessage=True), said("m1", text("ok")))
    assert payload(batch, "completed")["status"] == "completed"


def test_what_is_said_beside_a_turn_does_not_reopen_it(tmp_path: Path) -> None:
    local = [
        note("<local-command-caveat>The command below was run directly"),
        {"type": "user", "uuid": "c", "message": {"content": "<command-name>/model</command-name>"}},
        {"type": "user", "uuid": "d", "message": {"content": "<local-command-stdout>ok</local-command-stdout>"}},
        {"type": "system", "subtype": "turn_duration"},
    ]
    batch = read(
        tmp_path, prompt(A), said("m1", text("ok")), *local, prompt(B), said("m2", text("two")), own=f"{A} {B}"
    )
    assert payload(batch, "output") == {"text": "ok"}
    assert payload(batch, "output", B) == {"text": "two"}


def test_a_structured_answer_ends_its_turn(tmp_path: Path) -> None:
    value = {"type": "attachment", "attachment": {"type": "structured_output", "data": {"a": 1}}}
    batch = read(tmp_path, prompt(A), said("m1", call(), stop="tool_use"), value, answer(toolEndsTurn=True))
    assert payload(batch, "output") == {"value": {"a": 1}}
    assert payload(batch, "completed")["status"] == "completed"


def test_lines_that_were_taken_along(tmp_path: Path) -> None:
    queued = {"type": "attachment", "attachment": {"type": "queued_command", "source_uuid": B}}
    batch = read(tmp_path, prompt(A, mergedSendUuids=[C, A]), said("m1", text("x")), queued, own=f"{A} {B} {C}")
    assert sorted(batch.settled) == [(B, A), (C, A)]
    assert {(each.source, each.evidence["by"]) for each in batch.notes} == {
        (f"absorbed:{THREAD}:{B}", A),
        (f"absorbed:{THREAD}:{C}", A),
    }
    removed = {"type": "queue-operation", "operation": "remove", "commandUuid": B, "reason": "cleared_on_cancel"}
    batch = read(tmp_path, prompt(A), said("m1", text("x")), removed, own=f"{A} {B}")
    assert batch.stalled == (B,)
    assert [each.source for each in batch.notes] == [f"cancelled:{THREAD}:{B}"]


def test_turns_of_others(tmp_path: Path) -> None:
    told = "<task-notification>\n<task-id>x</task-id>"
    batch = read(
        tmp_path,
        prompt(B, "by hand"),
        said("m1", text("theirs")),
        prompt("n1", told, promptSource="system", origin={"kind": "task-notification"}),
        said("m2", text("by itself")),
        prompt("n2", told, promptSource=None),
    )
    assert kinds(batch) == [
        (B, "usage"),
        (B, "output"),
        (B, "completed"),
        ("auto:m2", "usage"),
        ("auto:m2", "output"),
        ("auto:m2", "completed"),
    ]
    assert batch.stalled == ()


def test_ended_turns_need_no_second_witness_and_live_ones_no_end(tmp_path: Path) -> None:
    path = tmp_path / f"{THREAD}.jsonl"
    path.write_bytes(lines(prompt(A), said("m1", text("x")), prompt(B), said("m2", text("y"))))
    own = frozenset({A, B})
    session = disk.read_session(path, own)
    batch = history.read_batch(THREAD, session, own, {A}, {B})
    assert kinds(batch) == [(B, "started"), (B, "usage")]
    assert batch.stalled == ()


def test_subagents_count_in_the_turn_that_spawned_them(tmp_path: Path) -> None:
    side: dict[str, Any] = {"isSidechain": True}
    agents = {
        "agent-1.jsonl": lines(prompt("s", **side) | {"promptId": f"p-{A}"}, said("a1", call("t9"), **side)),
        "agent-2.jsonl": lines(prompt("s", **side) | {"promptId": None}, said("a2", **side), said("m1", **side)),
        "agent-2.meta.json": b'{"toolUseId":"t1"}',
        "agent-3.jsonl": lines(said("a3", **side)),
        "agent-3.meta.json": b'{"toolUseId":"t9"}',
        "agent-4.jsonl": lines(said("a4", **side)),
        "agent-5.jsonl": b"",
        "agent-6.jsonl": lines(said("a6", **side)),
        "agent-6.meta.json": b"{",
    }
    main = [prompt(A), said("m1", call(), stop="tool_use"), answer(), said("m2", text("x"))]
    batch = read(tmp_path, *main, said("copied", **side), agents=agents)
    assert sorted(calls(batch)) == [("a1", 50), ("a2", 50), ("a3", 50), ("m1", 50), ("m2", 50)]
    assert batch.children == ()


def test_unreadable_lines_are_noted_and_nothing_is_lost(tmp_path: Path) -> None:
    batch = read(tmp_path, prompt(A), b'{"type":"assistant","mess', said("m1", text("x")), b"[1]", b'"torn')
    assert payload(batch, "output") == {"text": "x"}
    assert [each.evidence["kind"] for each in batch.notes] == ["not_json", "not_json"]
    path = tmp_path / f"{THREAD}.jsonl"
    path.write_bytes(lines(prompt(A)) + b'{"type":"assistant"')
    assert disk.read_session(path, frozenset()).problems == [], "the last line may still be written"


# --- with our marks -------------------------------------------------------------------------------------------------


class Place:
    """A conversation's folders, and its memory."""

    def __init__(self, root: Path, *own: str) -> None:
        self.folder = root / "claude" / "projects" / "-work"
        self.folder.mkdir(parents=True)
        self.state = root / "state"
        record.private_folder(self.state)
        config = HarnessConfig(cwd=root, title="", state_dir=self.state, own_requests=frozenset(own))
        self.memory = Memory(config, THREAD, {"CLAUDE_CONFIG_DIR": str(root / "claude")})

    def write(self, *entries: dict[str, Any]) -> None:
        (self.folder / f"{THREAD}.jsonl").write_bytes(lines(*entries))


def test_look_up(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert place.memory.look_up(A) is Delivery.UNKNOWN, "no file and no marks"
    place.memory.sending(A)
    assert place.memory.look_up(A) is Delivery.UNKNOWN, "it left, but Claude wrote nothing"
    assert place.memory.look_up(B) is Delivery.ABSENT, "it never left"
    place.write(prompt(A))
    assert place.memory.look_up(A) is Delivery.FOUND
    place.memory.sending(B)
    assert place.memory.look_up(B) is Delivery.UNKNOWN, "Claude writes with some delay"
    removed = {"type": "queue-operation", "operation": "remove"}
    place.write(prompt(A), removed | {"commandUuid": B, "reason": "cleared_on_cancel"})
    assert place.memory.look_up(B) is Delivery.ABSENT
    place.write(prompt(A, mergedSendUuids=[B]))
    assert place.memory.look_up(B) is Delivery.FOUND


def test_ends_that_are_recorded_are_not_read_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(prompt(A), said("m1", text("x")))
    batch = place.memory.batch({A}, (), ())
    assert (A, "completed") in kinds(batch)
    place.memory.recorded(batch)
    place.memory.recorded(batch)
    assert place.memory.batch({A}, (), ()) == Batch()
    assert (place.state / "claude.sent").read_text() == f"ended {A}\n"
    assert (place.state / "claude.sent").stat().st_mode & 0o777 == 0o600


def test_a_request_that_left_without_a_trace_is_given_up(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for request in (A, B, C):
        place.memory.sending(request)
    first = place.memory.batch({A, B}, {B}, ())
    assert first == place.memory.batch({A, B}, {B}, ())
    assert (first.receipts, first.stalled) == ((), (A,))
    assert [each.source for each in first.notes] == [f"idle:{THREAD}:{A}"]
    assert place.memory.batch({A}, (), {A}) == Batch()


def test_a_forgotten_conversation_is_not_begun_again_under_its_name(tmp_path: Path) -> None:
    place = Place(tmp_path, A)
    with pytest.raises(RefusedError, match="history") as caught:
        place.memory.require()
    assert "cleanupPeriodDays" in caught.value.hint
    place.memory.sending(A)
    place.memory.require()  # it may have been cut before Claude wrote anything
    record.mark(place.state, "ended", A)
    with pytest.raises(RefusedError):
        place.memory.require()
    place.write(prompt(A))
    place.memory.require()


def test_a_conversation_that_is_open_elsewhere_is_left_alone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    sessions = tmp_path / "claude" / "sessions"
    sessions.mkdir()
    here = identify()
    assert here is not None
    parent = identify(1)
    assert parent is not None
    entry = {"pid": 1, "sessionId": THREAD, "startedAt": parent.started_at + 500}
    (sessions / "1.json").write_bytes(orjson.dumps(entry))
    with pytest.raises(UnavailableError, match="pid 1"):
        place.memory.refuse_other_writers()
    for harmless in (
        entry | {"sessionId": A},
        entry | {"startedAt": parent.started_at - 60_000},
        entry | {"pid": here.pid},
        entry | {"pid": 2**22 + 5},
        [1],
    ):
        (sessions / "1.json").write_bytes(orjson.dumps(harmless))
        place.memory.refuse_other_writers()
    (sessions / "1.json").write_bytes(b"{")
    place.memory.refuse_other_writers()


def test_progress_is_the_growth_of_the_files(tmp_path: Path) -> None:
    place = Place(tmp_path)
    before = place.memory.progress()
    place.write(prompt(A))
    after = place.memory.progress()
    assert before != after
    assert after == place.memory.progress()
