"""What OpenCode's stored conversations say: turns, usage, endings, copies, text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.opencode_stored import (
    Db,
    answered,
    asked,
    counted,
    counters,
    decoded,
    everything,
    kinds,
    lines,
    notes,
    payloads,
    read,
    said,
    tool,
)
from turnlog.harness.opencode import decode
from turnlog.harness.opencode.reader import READER, call_of
from turnlog.harness.reading import Facts, Passage, Reading
from turnlog.receipts import canonical


@pytest.fixture
def db(tmp_path: Path) -> Db:
    return Db(tmp_path / "opencode.db")


def facts(reading: Reading, session: str) -> list[Facts]:
    return [each for each in reading.facts if each.session == session]


def test_a_turn_is_its_user_message_with_the_receipts_a_live_reading_gives(db: Db) -> None:
    db.session("s1")
    db.message("s1", "m1", asked(1000))
    db.part("s1", "m1", "p1", {"type": "text", "text": "list files"})
    db.message("s1", "m2", answered("m1", 1010, finish="tool-calls", tokens=counters(7, 3)))
    db.part("s1", "m2", "p2", tool(output="a"))
    db.message("s1", "m3", answered("m1", 1100, completed=1200))
    db.part("s1", "m3", "p3", said("done"))
    reading = read(db.path)
    assert kinds(reading, "m1") == ["completed", "output", "started", "usage", "usage"]
    info = {**answered("m1", 1100, completed=1200), "id": "m3", "sessionID": "s1"}
    live = decode.read_message("s1", {"info": info, "parts": [{"id": "p3", **said("done")}]})
    assert live is not None
    first = decode.read_message("s1", {"info": {**answered("m1", 1010), "id": "m2", "sessionID": "s1"}})
    assert first is not None
    group = decode.read_group("m1", [first, live])
    wire = [decode.usage_receipt("s1", "m1", live, "1.18.33"), *decode.answer_receipts("s1", group)]
    stored = {(each.turn, each.kind, each.payload) for each in reading.found}
    assert {(each.turn, each.kind, canonical(each.payload)) for each in wire if each is not None} <= stored
    assert payloads(reading, "completed") == [
        {
            "status": "completed",
            "error": None,
            "started_at": 1010,
            "completed_at": 1200,
            "message_id": "m3",
            "provider": "opencode",
        }
    ]
    assert payloads(reading, "started") == [{}]
    assert not notes(reading)
    usage = counted(reading)["s1"]
    assert (usage.input_tokens, usage.output_tokens, usage.streams, usage.final_streams, usage.gaps) == (
        107,
        23,
        2,
        2,
        0,
    )


def test_counters_of_a_message_count_once_though_its_parts_and_its_conversation_repeat_them(db: Db) -> None:
    db.session("s1")
    db.turn("s1", 1, 1000, tokens=counters(1000, 10))
    step = {"type": "step-finish", "tokens": counters(1000, 10), "cost": 0.01}
    db.part("s1", "msg_s1_1b", "prt_zz", step)
    usage = counted(read(db.path))["s1"]
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (1000, 10, 0.01)


def test_a_fork_copies_messages_under_new_ids_and_counts_only_its_own_turn(db: Db) -> None:
    # Later conversations have the smaller ids.
    db.session("ses_9", 1000)
    db.turn("ses_9", 1, 1000, tokens=counters(10, 50))
    db.turn("ses_9", 2, 2000, tokens=counters(10, 50))
    db.session("ses_1", 9000, title="t (fork #1)")
    db.turn("ses_1", 1, 1000, tokens=counters(10, 50))
    db.turn("ses_1", 2, 2000, tokens=counters(10, 50))
    db.turn("ses_1", 3, 9100, tokens=counters(10, 50))
    reading = read(db.path)
    usage = counted(reading)
    assert (usage["ses_9"].input_tokens, usage["ses_9"].output_tokens) == (20, 100)
    assert (usage["ses_1"].input_tokens, usage["ses_1"].output_tokens) == (10, 50)
    assert everything(reading)["input_tokens"] == 30
    assert facts(reading, "ses_1")[0].relation == "fork"
    assert facts(reading, "ses_1")[0].title == "t (fork #1)"


def test_a_fork_whose_original_is_gone_keeps_what_it_copied(db: Db) -> None:
    db.session("ses_1", 9000, title="t (fork #1)")
    db.turn("ses_1", 1, 1000, tokens=counters(10, 50))
    assert everything(read(db.path))["input_tokens"] == 10


def test_equal_calls_in_one_conversation_are_two_calls(db: Db) -> None:
    db.session("s1")
    db.message("s1", "m1", asked(1000))
    db.message("s1", "m2", answered("m1", 1010))
    db.message("s1", "m3", answered("m1", 1010))
    assert everything(read(db.path)) == {
        "input_tokens": 200,
        "output_tokens": 40,
        "reasoning_tokens": 0,
        "cache_read_tokens": 0,
        "streams": 2,
    }


def test_aborts_without_counters_in_the_same_millisecond_are_one_only_if_all_else_is_equal() -> None:
    nothing = counters(0, 0)
    abort = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
    one = answered("m1", 5, tokens=nothing, error=abort, path={"cwd": "/a", "root": "/a"})
    other = answered("m9", 5, tokens=nothing, error=abort, path={"cwd": "/b", "root": "/b"})
    copy = {**one, "id": "x", "sessionID": "y", "parentID": "z"}
    assert call_of(one) == call_of(copy)
    assert call_of(one) != call_of(other)
    assert call_of({"modelID": "m", "tokens": counters()}) is None


@pytest.mark.parametrize(
    ("version", "tokens", "output", "gap"),
    [
        ("1.2.1", counters(10, 30, 20), 30, 0),
        ("1.18.33", counters(10, 30, 20), 50, 0),
        ("1.18.33", counters(10, 30, 20, total=40), 30, 0),
        ("1.2.1", counters(10, 30, 20, total=60), 50, 0),
        (None, counters(10, 30, 20), 30, 1),
    ],
)
def test_reasoning_is_inside_or_outside_of_output_by_its_total_then_by_its_version(
    db: Db, version: str | None, tokens: dict[str, Any], output: int, gap: int
) -> None:
    db.session("s1", version=version)
    db.turn("s1", 1, 1000, tokens=tokens)
    usage = counted(read(db.path))["s1"]
    assert (usage.output_tokens, usage.gaps) == (output, gap)


def test_an_answer_of_a_killed_program_has_unknown_usage_and_outcome_not_zero(db: Db) -> None:
    db.session("s1")
    db.message("s1", "m1", asked(1000))
    db.message("s1", "m2", answered("m1", 1010, completed=None, tokens=counters(0, 0)))
    db.part("s1", "m2", "p2", tool("running"))
    reading = read(db.path)
    assert kinds(reading, "m1") == ["started"]
    assert notes(reading) == ["unknown:s1:m1"]
    usage = counted(reading)["s1"]
    assert usage.input_tokens is None
    assert [gap.kind for gap in usage.gap_list] == ["unfinished"]


def test_what_a_killed_answer_was_already_reported_counts_as_a_lower_bound(db: Db) -> None:
    db.session("s1")
    db.message("s1", "m1", asked(1000))
    db.message("s1", "m2", answered("m1", 1010, completed=None, tokens=counters(300, 9)))
    usage = counted(read(db.path))["s1"]
    assert (usage.input_tokens, [gap.kind for gap in usage.gap_list]) == (300, ["unfinished"])


def test_a_completed_answer_with_a_tool_that_never_ended_has_no_outcome(db: Db) -> None:
    db.session("s1")
    db.message("s1", "m1", asked(1000))
    db.message("s1", "m2", answered("m1", 1010))
    db.part("s1", "m2", "p2", tool("running"))
    reading = read(db.path)
    assert kinds(reading, "m1") == ["started", "usage"]
    assert notes(reading) == ["unknown:s1:m1"]


@pytest.mark.parametrize(
    ("name", "status"),
    [("MessageAbortedError", "interrupted"), ("APIError", "failed"), ("ContextOverflowError", "failed")],
)
def test_an_error_says_how_the_turn_ended_and_an_abort_has_no_counters(db: Db, name: str, status: str) -> None:
    db.session("s1")
    db.message("s1", "m1", asked(1000))
    error = {"name": name, "data": {"message": "no, Bearer abcdef123456"}}
    db.message("s1", "m2", answered("m1", 1010, error=error, tokens=counters(0, 0)))
    db.part("s1", "m2", "p2", said("half"))
    reading = read(db.path)
    completed = payloads(reading, "completed")[0]
    assert completed["status"] == status
    assert "abcdef123456" not in "".join(found.payload for found in reading.found)
    assert payloads(reading, "output") == [{"text": "half"}]
    assert [gap.kind for gap in counted(reading)["s1"].gap_list] == ["interrupted"]


def test_an_empty_turn_is_noted_as_empty_and_is_not_completed(db: Db) -> None:
    db.session("s1")
    db.message("s1", "m1", asked(1000))
    db.message("s1", "m2", answered("m1", 1010, finish="unknown", tokens=counters(0, 0)))
    reading = read(db.path)
    assert notes(reading) == ["empty:s1:m1", "unknown:s1:m1"]
    assert kinds(reading, "m1") == ["started", "usage"]


def test_a_prompt_that_nothing_answered_never_began(db: Db) -> None:
    db.session("s1")
    db.message("s1", "m1", asked(1000))
    db.part("s1", "m1", "p1", {"type": "text", "text": "hello?"})
    reading = read(db.path)
    assert (reading.found, reading.noted) == ([], [])
    assert reading.spoken[0].passages == (Passage("user", "hello?"),)


def test_a_steered_turn_is_superseded_and_a_queued_one_absorbed(db: Db) -> None:
    db.session("s1")
    db.message("s1", "m1", asked(1000))
    db.message("s1", "m2", answered("m1", 1010, finish="tool-calls"))
    db.message("s1", "m3", asked(1020))
    db.message("s1", "m4", asked(1030))
    db.message("s1", "m5", answered("m4", 1100))
    reading = read(db.path)
    assert notes(reading) == ["absorbed:s1:m3", "superseded:s1:m1"]
    assert {note.evidence for note in reading.noted} == {'{"by":"m4"}'}
    assert kinds(reading, "m1") == ["started", "usage"]


def test_a_compaction_is_a_billed_call_and_no_prompt(db: Db) -> None:
    db.session("s1")
    db.message("s1", "m1", asked(1000))
    db.part("s1", "m1", "p1", {"type": "compaction", "auto": True})
    db.message("s1", "m2", answered("m1", 1010, summary=True, tokens=counters(189_736, 4)))
    db.part("s1", "m2", "p2", said("so far …"))
    reading = read(db.path)
    assert counted(reading)["s1"].input_tokens == 189_736
    assert [spoken.passages[0].role for spoken in reading.spoken] == ["assistant"]


def test_a_subagent_is_its_own_conversation_under_the_turn_that_spawned_it(db: Db) -> None:
    db.session("s1", 1000)
    db.message("s1", "m1", asked(1000))
    db.message("s1", "m2", answered("m1", 1010, finish="tool-calls", tokens=counters(10, 1)))
    db.part("s1", "m2", "p2", tool(name="task", metadata={"sessionId": "s2"}))
    db.message("s1", "m3", answered("m1", 1090))
    db.session("s2", 1020, parent="s1", title="sub (@general subagent)")
    db.turn("s2", 1, 1021, tokens=counters(500, 5))
    reading = read(db.path)
    told = facts(reading, "s2")
    assert ("s1", "m1", "subagent") in {(each.parent, each.parent_turn, each.relation) for each in told}
    assert {name: usage.input_tokens for name, usage in counted(reading).items()} == {"s1": 110, "s2": 500}


def test_facts_of_a_conversation(db: Db) -> None:
    db.session("s1", 1234, title="Fix it", model='{"id":"model-a","providerID":"mock"}')
    assert read(db.path).facts == [
        Facts(
            session="s1",
            at=1234,
            cwd="/r/app",
            root="/r/app",
            model="mock/model-a",
            version="1.18.33",
            title="Fix it",
            title_rank=1,
            title_at=1234,
        )
    ]


def test_a_placeholder_title_gives_way_to_the_first_prompt(db: Db) -> None:
    db.session("s1", title="New session - 2026-11-30T12:07:43.288Z")
    db.turn("s1", 1, 1000)
    db.turn("s1", 2, 2000)
    told = [(each.title, each.title_rank) for each in facts(read(db.path), "s1") if each.title]
    assert told == [("ask 1", 0)]


def test_the_cost_is_the_one_that_was_stored(db: Db) -> None:
    db.session("s1")
    db.turn("s1", 1, 1000, cost=0.00153)
    db.turn("s1", 2, 2000, cost=0)
    usage = counted(read(db.path))["s1"]
    assert usage.cost_usd == 0.00153
    assert [payload["message"]["cost"] for payload in payloads(read(db.path), "usage")] == [0.00153, 0]


def test_a_message_removed_by_a_revert_was_paid_and_its_event_still_tells(db: Db) -> None:
    db.session("s1")
    db.turn("s1", 1, 1000, tokens=counters(10, 1))
    db.connection.execute(
        "CREATE TABLE event (id text PRIMARY KEY, aggregate_id text, seq integer, type text, data text)"
    )
    for number, info in enumerate(
        (
            {"id": "msg_s1_1b", "sessionID": "s1", **answered("msg_s1_1a", 1010, tokens=counters(10, 1))},
            {"id": "m8", "sessionID": "s1", **asked(2000)},
            {"id": "m9", "sessionID": "s1", **answered("m8", 2010, completed=None, tokens=counters(0, 0))},
            {"id": "m9", "sessionID": "s1", **answered("m8", 2010, tokens=counters(70, 7))},
        )
    ):
        row = (f"e{number}", "s1", number, "message.updated.1", orjson.dumps({"info": info}).decode())
        db.connection.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?)", row)
    usage = counted(read(db.path))["s1"]
    assert (usage.input_tokens, usage.streams) == (80, 2)


def test_the_newer_table_counts_where_the_older_one_has_nothing(db: Db) -> None:
    db.connection.execute(
        "CREATE TABLE session_message (id text PRIMARY KEY, session_id text, type text, seq integer,"
        " time_created integer, time_updated integer, data text)"
    )
    for session in ("s1", "s2"):
        db.session(session)
        for number, (kind, data) in enumerate(
            (
                ("user", {"text": "why?", "time": {"created": 1000}}),
                ("agent-switched", {"agent": "plan"}),
                (
                    "assistant",
                    {
                        "model": {"providerID": "p", "id": "model-a"},
                        "cost": 0.5,
                        "finish": "stop",
                        "tokens": counters(40, 4),
                        "time": {"created": 1001, "completed": 1009},
                        "content": [{"type": "text", "text": "because"}, {"type": "tool", "name": "grep", "state": {}}],
                    },
                ),
            )
        ):
            row = (f"{session}v{number}", session, kind, number, 1000, 1000, orjson.dumps(data).decode())
            db.connection.execute("INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    db.turn("s2", 1, 1000, tokens=counters(40, 4))
    reading = read(db.path)
    assert {name: usage.input_tokens for name, usage in counted(reading).items()} == {"s1": 40, "s2": 40}
    assert [each.turn for each in reading.found if each.session == "s1" and each.kind == "usage"] == ["s1v0"]
    spoken = [passage for each in reading.spoken if each.session == "s1" for passage in each.passages]
    assert spoken == [Passage("user", "why?"), Passage("assistant", "because")]


def test_text_of_every_kind_of_part(db: Db) -> None:
    db.session("s1")
    db.message("s1", "m1", asked(1000))
    db.part("s1", "m1", "p1", {"type": "text", "text": "look"})
    db.part("s1", "m1", "p2", {"type": "text", "text": "<file>", "synthetic": True})
    db.part("s1", "m1", "p3", {"type": "file", "filename": "a.py", "url": "data:x"})
    db.message("s1", "m2", answered("m1", 1010))
    db.part("s1", "m2", "p4", {"type": "reasoning", "text": "hm"})
    db.part("s1", "m2", "p5", tool(output="a.txt\n"))
    db.part("s1", "m2", "p6", tool("error", error="denied"))
    db.part("s1", "m2", "p7", {"type": "step-finish", "tokens": {}})
    db.part("s1", "m2", "p8", said("yes"))
    found = [line for line, _ in lines(db.path)]
    given = '{"command":"ls"}'
    expected = [
        ((Passage("user", "look"),)),
        ((Passage("note", "<file>"),)),
        ((Passage("note", "a.py"),)),
        ((Passage("reasoning", "hm"),)),
        ((Passage("tool_input", given, "bash"), Passage("tool_output", "a.txt\n", "bash"))),
        ((Passage("tool_input", given, "bash"), Passage("tool_output", "denied", "bash", failed=True))),
        ((Passage("assistant", "yes"),)),
    ]
    reading = decoded(found)
    assert [each.passages for each in reading.spoken] == expected
    assert {each.turn for each in reading.spoken} == {"m1"}
    assert [passages for line in found if (passages := READER.passages(line))] == expected


@pytest.mark.parametrize(
    ("data", "kind", "kept"),
    [
        (b'{"role":"assistant","tok', "bad_json", False),
        (b"\x00\x00\x00", "bad_json", False),
        (b"[1,2]", "bad_json", False),
        (b"", "bad_json", False),
        (
            (
                b'{"role":"assistant","parentID":"m1","note":"\xff\xfe","tokens":{"input":5},"finish":"stop",'
                b'"time":{"created":1,"completed":2}}'
            ),
            "invalid_utf8",
            True,
        ),
        (
            (
                b'{"role":"assistant","parentID":"m1","note":"\\ud800","tokens":{"input":5},"finish":"stop",'
                b'"time":{"created":1,"completed":2}}'
            ),
            "lone_surrogate",
            True,
        ),
        (
            (
                b'{"role":"assistant","parentID":"m1","note":99999999999999999999999,"tokens":{"input":5},"finish":"stop",'
                b'"time":{"created":1,"completed":2}}'
            ),
            "integer_out_of_range",
            True,
        ),
    ],
)
def test_a_damaged_row_is_one_located_problem_and_loses_nothing_else(
    db: Db, data: bytes, kind: str, kept: bool
) -> None:
    db.session("s1")
    db.turn("s1", 1, 1000, tokens=counters(100, 1))
    db.message("s1", "mx", data)
    reading = read(db.path)
    assert [(each.kind, each.session, each.usage) for each in reading.troubles] == [(kind, "s1", True)]
    assert reading.troubles[0].length > 0
    assert everything(reading)["input_tokens"] == (105 if kept else 100)


def test_json_spread_over_lines_is_one_line(db: Db) -> None:
    db.session("s1")
    db.message("s1", "m1", orjson.dumps(asked(1), option=orjson.OPT_INDENT_2).replace(b"\n", b"\r\n"))
    assert all(b"\n" not in line and b"\r" not in line for line, _ in lines(db.path))
    assert not read(db.path).troubles


def test_a_line_that_is_none_of_ours_is_a_problem() -> None:
    reading = decoded([b"", b"\xff", b"7", b'{"table":"message"}', b'{"table":"part","session_id":"s","data":7}'])
    assert [each.kind for each in reading.troubles] == ["unreadable"] * 4
    assert READER.passages(b"\xff") == ()


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    db = Db(tmp_path_factory.mktemp("oc") / "opencode.db")
    db.session("s1", 1000)
    for number in range(3):
        db.turn("s1", number, 1000 + number * 100, tokens=counters(10 + number, 1))
    db.message("s1", "mz", answered("msg_s1_2a", 1300, completed=None))
    db.session("s2", 5000, title="t (fork #1)")
    db.turn("s2", 0, 1000, tokens=counters(10, 1))
    db.close()
    return [line for line, _ in lines(db.path)]


@settings(max_examples=40, deadline=None)
@given(seed=st.randoms(use_true_random=False), again=st.lists(st.integers(0, 30), max_size=10))
def test_neither_order_nor_repetition_of_lines_changes_what_counts(
    straight: list[bytes], seed: Any, again: list[int]
) -> None:
    mixed = [*straight, *(straight[number % len(straight)] for number in again)]
    seed.shuffle(mixed)
    one, other = decoded(straight), decoded(mixed)
    assert {(each.turn, each.kind, each.payload, each.call) for each in one.found} == {
        (each.turn, each.kind, each.payload, each.call) for each in other.found
    }
    assert everything(one) == everything(other)
    assert notes(one) == notes(other)
