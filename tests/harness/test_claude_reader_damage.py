"""Damaged session files: what cannot be read is a located problem, and nothing else is lost with it."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.claude_reading import (
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
from turnlog.harness.claude.passages import passages, skippable
from turnlog.harness.claude.reader import READER, ClaudeDecoder
from turnlog.harness.reading import Passage, Source

FIRST, CALL = prompt("p1"), said("m1", text("x"), used=usage(120))
WHOLE = {"claude:m1": (10, 120)}


def test_a_record_glued_to_a_torn_one_is_counted_and_the_torn_range_is_a_gap() -> None:
    stub = b'{"type":"assistant","mess'
    found = read(FIRST, stub + orjson.dumps(CALL), said("m2", text("y")))
    assert found.calls() == {**WHOLE, "claude:m2": (10, 50)}
    assert [(each.kind, each.offset, each.length, each.session, each.usage) for each in found.troubles] == [
        ("torn", len(file_of(FIRST)), len(stub), SESSION, True)
    ]


@pytest.mark.parametrize("stub", [b'{"type":"mode","mo', b'{"type":"progress","data":{"type":"hook_pro'])
def test_a_record_glued_to_a_torn_line_that_is_not_read_is_counted(stub: bytes) -> None:
    found = read(stub + orjson.dumps(FIRST), stub + orjson.dumps(CALL))
    assert found.calls() == WHOLE
    assert found.turns("started") == [(SESSION, "p1")]
    assert found.kinds() == ["torn", "torn"]


def test_a_note_glued_to_a_line_that_is_not_read_is_taken() -> None:
    found = read(FIRST, said("m1", text("x")), orjson.dumps(record("mode")) + orjson.dumps(system("turn_duration")))
    assert found.turns("completed") == [(SESSION, "p1")]
    assert found.kinds() == ["glued"]


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda raw: raw.replace(b'"text":"x"', b'"text":"\xff\xfe"'), "invalid_utf8"),
        (lambda raw: raw.replace(b'"text":"x"', b'"text":"\\ud83d"'), "lone_surrogate"),
        (lambda raw: raw.replace(b'"text":"x"', b'"text":"a\0b"'), "control_character"),
        (lambda raw: b"\0" * 512 + raw, "nul_bytes"),
        (lambda raw: raw + b"\0" * 512, "nul_bytes"),
        (lambda raw: b"\xef\xbb\xbf" + raw, "byte_order_mark"),
        (lambda raw: raw + orjson.dumps(record("mode")), "glued"),
    ],
)
def test_a_damaged_line_still_counts(damage: Any, kind: str) -> None:
    found = read(FIRST, damage(orjson.dumps(CALL)), said("m2", text("y")))
    assert found.calls() == {**WHOLE, "claude:m2": (10, 50)}
    assert found.kinds() == [kind]


@pytest.mark.parametrize("line", [b"rubbish", b'{"type":"user","uuid":"x', b'{"type":"mode","mo'])
def test_an_unreadable_line_is_one_gap(line: bytes) -> None:
    found = read(FIRST, line, CALL)
    assert found.calls() == WHOLE
    assert [(each.kind, each.offset, each.length, each.usage) for each in found.troubles] == [
        ("not_json", len(file_of(FIRST)), len(line), True)
    ]


def test_line_ends_of_another_system_and_empty_lines_are_harmless() -> None:
    lines = [orjson.dumps(each) + b"\r" for each in (FIRST, CALL)]
    found = read(b"", lines[0], b"", b"\r", lines[1])
    assert found.calls() == WHOLE
    assert found.troubles == []


def test_invalid_bytes_in_a_line_that_is_not_read_are_told() -> None:
    noted = orjson.dumps(progress("a1", said("m8", text("y")))).replace(b'"y"', b'"\xff"')
    found = read(FIRST, b'{"type":"file-history-snapshot","snapshot":{"\xff":1}}', noted, CALL)
    assert found.calls() == {**WHOLE, "claude:m8": (10, 50)}
    assert [(each.kind, each.usage) for each in found.troubles] == [("invalid_utf8", False)] * 2


def test_a_tool_input_nested_deeply_is_read_and_one_beyond_reason_is_a_gap() -> None:
    raw = orjson.dumps(said("m1", tool(deep="DEEP"), used=usage(120)))
    deep = raw.replace(b'"DEEP"', b"[" * 500 + b"]" * 500)
    found = read(FIRST, deep)
    assert found.calls() == WHOLE
    assert found.spoken[1].passages[0].text == '{"deep":' + "[" * 500 + "]" * 500 + "}"
    far = read(FIRST, raw.replace(b'"DEEP"', b"[" * 90_000 + b"]" * 90_000), CALL)
    assert far.calls() == WHOLE
    assert [(each.kind, each.usage) for each in far.troubles] == [("too_deep", True)]


@pytest.mark.parametrize(
    ("written", "when", "told", "kind"),
    [
        ("2026-02-03T04:05:06.007", WHEN, WHEN, "time_without_zone"),
        ("2126-02-03T04:05:06.007Z", 4_925_765_106_007, "2126-02-03T04:05:06.007Z", "time_in_future"),
        ("yesterday", None, None, "time_missing"),
        (None, None, None, "time_missing"),
    ],
)
def test_strange_times_are_told_once_and_never_guessed(written: Any, when: Any, told: Any, kind: str) -> None:
    lines = [said(name, text("x"), timestamp=written) for name in ("m1", "m2")]
    found = read(*lines)
    calls = [each for each in found.found if each.kind == "usage"]
    assert [each.at for each in calls] == [when, when]
    assert orjson.loads(calls[0].payload)["at"] == told
    assert [(each.kind, each.usage) for each in found.troubles] == [(kind, False)]


@pytest.mark.parametrize("value", [None, 7, "x", [], {}])
@pytest.mark.parametrize("name", ["message", "sessionId", "uuid", "timestamp", "type", "toolUseResult", "agentId"])
def test_members_of_another_kind_lose_nothing_else(name: str, value: Any) -> None:
    odd = {**said("m7", text("x")), name: value}
    odder = {**result("t1"), name: value}
    embedded = {**progress("a1", said("m8")), "data": value}
    found = read(FIRST, odd, odder, embedded, CALL)
    assert found.calls()["claude:m1"] == (10, 120)


SHAPES = st.sampled_from(["user", "assistant", "system", "progress", "attachment", "summary", "relocated", "mode"])
MEMBERS = st.sampled_from(
    [
        *("message", "content", "usage", "id", "model", "type", "text", "uuid", "parentUuid", "sessionId", "data"),
        *("input_tokens", "output_tokens", "cache_creation", "iterations", "timestamp", "agentId", "isSidechain"),
        *("forkedFrom", "origin", "attachment", "toolUseResult", "tool_use_id", "compactMetadata", "subtype"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**63) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(MEMBERS, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.tuples(SHAPES, st.dictionaries(MEMBERS, VALUES, max_size=8)), max_size=6), st.integers(0, 5))
@settings(max_examples=300, deadline=None)
def test_any_record_is_data(lines: list[tuple[str, dict[str, Any]]], cut: int) -> None:
    entries = [{**members, "type": kind} for kind, members in lines]
    found = read(FIRST, CALL, *entries, cuts=[cut])
    assert found.calls()["claude:m1"] >= (10, 120)
    for each in entries:
        passages(orjson.dumps(each))


# --- size -------------------------------------------------------------------------------------------------------------


def test_one_call_between_two_huge_notes_of_progress() -> None:
    echo = {"type": "agent_progress", "agentId": "a1", "message": {"type": "user", "message": {"content": "y"}}}
    huge = orjson.dumps(record("progress", data={**echo, "normalizedMessages": [{"text": "z" * 12_000_000}]}))
    plain = orjson.dumps(record("progress", data={"type": "bash_progress", "output": "z" * 12_000_000}))
    assert skippable(plain)
    started = time.process_time()
    assert read(FIRST, plain, huge, CALL, plain).calls() == WHOLE
    assert time.process_time() - started < 5, "nothing of them is built"


def test_the_state_stays_small() -> None:
    source = Source("claude", f"/x/{SESSION}.jsonl", "jsonl")
    decoder = ClaudeDecoder(source, None, lambda _: None, latest=WHEN)
    sizes = []
    for number in range(600):
        for each in (
            prompt(f"p{number}", parentUuid=f"a-m{number}"),
            said(f"m{number}", tool(f"t{number}"), parentUuid=f"p{number}"),
            progress(f"a{number}", said(f"e{number}")),
            result(f"t{number}", "y" * 1000),
        ):
            decoder.line(orjson.dumps(each), 0)
        sizes.append(len(decoder.state()))
    assert max(sizes) < 64_000
    assert max(sizes[300:]) < max(sizes[:300]) + 2_000


def test_appended_notes_change_nothing() -> None:
    beat = record("progress", data={"type": "waiting_for_task"})
    found, again = read(FIRST, CALL), read(FIRST, CALL, *[beat] * 100)
    assert again.found == found.found
    assert again.facts == found.facts


# --- text -------------------------------------------------------------------------------------------------------------

SPEECH: list[tuple[dict[str, Any], tuple[Passage, ...]]] = [
    (prompt("p1", "Fix it"), (Passage("user", "Fix it"),)),
    (
        said(
            *("m1", {"type": "thinking", "thinking": "Hm"}, text("I will"), tool("t1", cmd="ls", n=1)),
            {"type": "redacted_thinking", "data": "zz"},
        ),
        (
            Passage("reasoning", "Hm"),
            Passage("assistant", "I will"),
            Passage("tool_input", '{"cmd":"ls","n":1}', "Bash"),
        ),
    ),
    (result("t1", "out"), (Passage("tool_output", "out"),)),
    (
        record(
            "user",
            uuid="r2",
            message={
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "is_error": True,
                        "content": [text("bad"), {"type": "image"}, text("luck")],
                    }
                ]
            },
        ),
        (Passage("tool_output", "bad\nluck", failed=True),),
    ),
    (prompt("c1", "Caveat", isMeta=True), (Passage("note", "Caveat"),)),
    (prompt("c2", "<command-name>/x</command-name>"), (Passage("note", "<command-name>/x</command-name>"),)),
    (prompt("c3", "So far", isCompactSummary=True), (Passage("note", "So far"),)),
    (prompt("c4", "[Request interrupted by user]"), (Passage("note", "[Request interrupted by user]"),)),
    (synthetic("API Error", isApiErrorMessage=True), (Passage("note", "API Error"),)),
    (
        record("attachment", attachment={"type": "queued_command", "prompt": "and this"}, uuid="q"),
        (Passage("user", "and this"),),
    ),
    (progress("a1", said("m8", text("copied"))), ()),
    (record("queue-operation", operation="enqueue", content="Fix it"), ()),
    (record("attachment", attachment={"type": "hook_success", "content": "noise"}), ()),
]


@pytest.mark.parametrize(("line", "expected"), SPEECH)
def test_passages_of_a_line(line: dict[str, Any], expected: tuple[Passage, ...]) -> None:
    assert READER.passages(orjson.dumps(line)) == expected


def test_spoken_has_the_passages_of_its_line_with_their_turn() -> None:
    found = read(*(line for line, _ in SPEECH))
    raw = file_of(*(line for line, _ in SPEECH))
    for each in found.spoken:
        assert each.passages == READER.passages(raw[each.offset :].split(b"\n")[0])
    assert [each.passages for each in found.spoken] == [passages for _, passages in SPEECH if passages]
    assert {(each.session, each.turn, each.at) for each in found.spoken} == {(SESSION, "p1", WHEN)}


def test_glued_records_are_one_line_of_text() -> None:
    raw = orjson.dumps(FIRST) + orjson.dumps({**CALL, "sessionId": OTHER})
    found = read(raw)
    assert [(each.offset, each.session, each.passages) for each in found.spoken] == [(0, SESSION, READER.passages(raw))]
    assert READER.passages(raw) == (Passage("user", "go"), Passage("assistant", "x"))
