from __future__ import annotations

import orjson
import pytest

from tests.harness.codex_rollouts import T0, Rollout, kinds, read, source, spent, stamp, uuid7
from turnlog.harness.codex.reader import READER
from turnlog.harness.reading import Passage

TURN = uuid7(T0 + 5, 9)


def item(kind: str, **more: object) -> tuple[Passage, ...]:
    return READER.passages(orjson.dumps({"type": "response_item", "payload": {"type": kind, **more}}))


@pytest.mark.parametrize(
    ("kind", "members", "passage"),
    [
        ("message", {"role": "user", "content": [{"text": "go"}]}, Passage("user", "go")),
        ("message", {"role": "assistant", "content": [{"text": "a"}, {"text": "b"}]}, Passage("assistant", "a\nb")),
        ("reasoning", {"summary": [{"text": "hm"}], "content": None}, Passage("reasoning", "hm")),
        ("function_call", {"name": "shell", "arguments": '{"a":1}'}, Passage("tool_input", '{"a":1}', "shell")),
        ("custom_tool_call", {"name": "apply_patch", "input": "*** x"}, Passage("tool_input", "*** x", "apply_patch")),
        ("local_shell_call", {"action": {"command": ["ls", "-l"]}}, Passage("tool_input", "ls -l", "local_shell")),
        ("web_search_call", {"action": {"query": "q"}}, Passage("tool_input", "q", "web_search")),
        ("tool_search_call", {"arguments": {"query": "q"}}, Passage("tool_input", "q", "tool_search")),
        ("function_call_output", {"output": "plain"}, Passage("tool_output", "plain")),
        (
            "function_call_output",
            {"output": '{"output":"no","metadata":{"exit_code":2}}'},
            Passage("tool_output", "no", failed=True),
        ),
        (
            "function_call_output",
            {"output": "Process exited with code 0\nOutput:\nok"},
            Passage("tool_output", "Process exited with code 0\nOutput:\nok"),
        ),
        ("custom_tool_call_output", {"output": [{"text": "x"}]}, Passage("tool_output", "x")),
        (
            "custom_tool_call_output",
            {"output": "Exit code: 1\nbad"},
            Passage("tool_output", "Exit code: 1\nbad", failed=True),
        ),
        ("agent_message", {"content": [{"text": "task"}]}, Passage("note", "task")),
    ],
)
def test_an_item_is_one_passage(kind: str, members: dict[str, object], passage: Passage) -> None:
    assert item(kind, **members) == (passage,)
    assert READER.passages(orjson.dumps({"type": kind, **members})) == (passage,)


@pytest.mark.parametrize(
    "record",
    [
        {"type": "event_msg", "payload": {"type": "user_message", "message": "go"}},
        {"type": "event_msg", "payload": {"type": "agent_message", "message": "done"}},
        {"type": "event_msg", "payload": {"type": "agent_reasoning", "text": "hm"}},
        {"type": "event_msg", "payload": {"type": "item_completed", "item": {"type": "CommandExecution"}}},
        {"type": "event_msg", "payload": {"type": "exec_command_end", "aggregated_output": "x"}},
        {"type": "response_item", "payload": {"type": "message", "role": "developer", "content": [{"text": "x"}]}},
        {"type": "response_item", "payload": {"type": "reasoning", "summary": [], "encrypted_content": "zz"}},
        {"type": "session_meta", "payload": {"base_instructions": {"text": "long"}}},
        {"type": "world_state", "payload": {"state": {}}},
        {"record_type": "state"},
    ],
)
def test_second_copies_and_what_nobody_said_are_no_text(record: dict[str, object]) -> None:
    assert READER.passages(orjson.dumps(record)) == ()


def test_summaries_of_compactions_are_notes() -> None:
    record = {"type": "compacted", "payload": {"message": "so far", "replacement_history": [{"text": "x"}]}}
    assert READER.passages(orjson.dumps(record)) == (Passage("note", "so far"),)
    said = {"type": "message", "role": "assistant", "content": [{"text": "so far"}]}
    record = {"type": "response_item", "payload": said, "metadata": {"compaction_output": True}}
    assert READER.passages(orjson.dumps(record)) == (Passage("note", "so far"),)


def test_what_was_spoken_is_what_the_line_says_with_turn_time_and_place() -> None:
    rollout = Rollout().started(TURN).prompt("go").said("done")
    reading = read(rollout)
    data, heard = rollout.bytes, []
    for said in reading.spoken:
        line = data[said.offset : data.index(b"\n", said.offset)]
        assert READER.passages(line) == said.passages
        heard.append((said.turn, said.at, [each.text for each in said.passages]))
    assert heard == [(TURN, T0 + 20, ["go"]), (TURN, T0 + 40, ["done"])]


# --- damage


def counted(line: bytes | None = None) -> Rollout:
    rollout = Rollout().started(TURN).context(turn_id=TURN).count(1000, 1000)
    if line is not None:
        rollout.raw(line)
    return rollout.count(2500, 1500)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"timestamp":"2026-09-21T14:13:20.000Z","type":"event_msg","payload":{"type":"agent_mess', "not_json"),
        (b"\0\0\0\0", "nul_bytes"),
        (b"not json", "not_json"),
        (b"[1,2]", "not_an_object"),
        (b'{"type":"response_item","payload":{"type":"message","role":"assistant","content":"\xff"}}', "invalid_utf8"),
    ],
)
def test_a_damaged_line_is_a_problem_in_its_place_and_nothing_else_is_lost(line: bytes, kind: str) -> None:
    rollout = counted(line)
    reading = read(rollout)
    assert [each[0] for each in spent(reading)] == [1000, 1500]
    assert kinds(reading) == [kind]
    assert reading.troubles[0].session == rollout.thread
    place = rollout.bytes.index(line)
    assert place <= reading.troubles[0].offset < place + len(line)


@pytest.mark.parametrize("kind", ["agent_message", "token_count", "world_state"])
def test_a_record_behind_a_torn_one_is_found(kind: str) -> None:
    torn = b'{"timestamp":"%b","type":"event_msg","payload":{"type":"%b","mess' % (stamp(T0).encode(), kind.encode())
    if kind == "world_state":
        torn = b'{"timestamp":"%b","type":"world_state","payload":{"state":{"a":{}}' % stamp(T0).encode()
    rollout = counted()
    rollout.lines[-1] = torn + rollout.lines[-1]
    reading = read(rollout)
    assert [each[0] for each in spent(reading)] == [1000, 1500]
    assert len(reading.troubles) == 1
    assert reading.troubles[0].usage


def test_two_records_on_one_line_are_two() -> None:
    rollout = counted()
    rollout.lines[-2:] = [rollout.lines[-2] + rollout.lines[-1]]
    assert [each[0] for each in spent(read(rollout))] == [1000, 1500]


def test_numbered_records_that_are_there_twice_count_once() -> None:
    rollout = Rollout(ordinal=0).started(TURN).prompt("go").count(1000, 1000).count(2500, 1500).ended(TURN)
    once = read(rollout)
    rollout.lines += rollout.lines[-4:]
    twice = read(rollout)
    assert (twice.found, twice.spoken, twice.troubles) == (once.found, once.spoken, [])


def test_a_number_given_to_two_records_is_told_and_both_are_read() -> None:
    rollout = Rollout(ordinal=0).started(TURN).record("r1", 10, turn_id=TURN)
    rollout.ordinal = 2
    rollout.record("r2", 20, turn_id=TURN)
    reading = read(rollout)
    assert ([each[0] for each in spent(reading)], kinds(reading)) == ([10, 20], ["duplicate_ordinal"])


def test_an_empty_file_tells_nothing() -> None:
    decoder = READER.decoder(source(), None, lambda _: None)
    decoder.line(b"", 0)
    decoder.line(b"\r", 1)
    decoder.end()
    reading = decoder.take()
    assert (reading.found, reading.facts, reading.troubles) == ([], [], [])
