"""The final answer of an input (3.13, D7, D8)."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.history import NativeTurn, RecordedEvent, final_answer
from turnlog.model import FinalAnswer, Gap


def turn(name: str, completion: int | None, output: Any = None, status: str = "completed") -> NativeTurn:
    return NativeTurn(
        thread="thread",
        turn=name,
        completion_seq=completion,
        status=status if completion is not None else None,
        output_seq=None if output is None else 1000,
        output=output,
    )


def conversation(*events: dict[str, Any]) -> list[RecordedEvent]:
    return [
        RecordedEvent(
            seq,
            {
                "schema_version": 1,
                "seq": seq,
                "observed_at": "2026-09-29T00:00:00Z",
                "type": "conversation",
                "event": event,
            },
        )
        for seq, event in enumerate(events)
    ]


def delta(text: str, name: str = "turn") -> dict[str, Any]:
    return {"type": "text_delta", "turn_id": name, "content": text}


def message(text: str, phase: str | None = None, name: str = "turn") -> dict[str, Any]:
    item = {"type": "message", "id": "m", "text": text}
    return {"type": "item_completed", "turn_id": name, "item": item if phase is None else {**item, "phase": phase}}


def completed(name: str = "turn", status: str = "completed") -> dict[str, Any]:
    return {"type": "turn_completed", "turn_id": name, "status": status}


def said(answer: FinalAnswer | None) -> tuple[str, bool, str | None]:
    assert answer is not None
    assert answer.gaps == ()
    return answer.text, answer.exact, answer.turn


def test_nobody_said_anything() -> None:
    assert final_answer([], []) is None
    assert final_answer([turn("a", None, {"text": "early"})], []) is None
    assert final_answer([turn("a", 5, {"text": "failed"}, "failed")], []) is None


def test_native_output_is_exact() -> None:
    turns = [turn("b", 9, {"text": "second"}), turn("a", 5, {"text": "first"})]
    assert said(final_answer(turns, [])) == ("second", True, "b")


@pytest.mark.parametrize(
    ("value", "text"),
    [({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'), ("x", '"x"'), (None, "null"), (3, "3")],
)
def test_value_is_canonical_text(value: Any, text: str) -> None:
    answer = final_answer([turn("a", 5, {"value": value, "text": "prose"})], [])
    assert answer == FinalAnswer(text=text, exact=True, turn="a", value=value)


def test_newest_turn_without_output_asks_the_recorder_first() -> None:
    turns = [turn("a", 5, {"text": "old"}), turn("b", 9)]
    events = conversation(message("fresh", name="b"), completed("b"))
    assert said(final_answer(turns, events)) == ("fresh", True, "b")


def test_streamed_text_of_the_newest_turn_is_inexact() -> None:
    turns = [turn("a", 5, {"text": "old"}), turn("b", 9)]
    events = conversation(delta("fre", "b"), delta("sh", "b"), completed("b"))
    assert said(final_answer(turns, events)) == ("fresh", False, "b")


def test_older_turn_is_never_exact() -> None:
    turns = [turn("a", 5, {"text": "old"}), turn("b", 9)]
    assert said(final_answer(turns, [])) == ("old", False, "a")


def test_older_turn_of_the_recorder() -> None:
    events = conversation(message("told", name="a"), completed("a"))
    assert said(final_answer([turn("a", 5), turn("b", 9)], events)) == ("told", False, "a")
    assert said(final_answer([turn("b", 9)], events)) == ("told", False, "a")


def test_native_beats_recorder() -> None:
    events = conversation(message("told"), completed())
    assert said(final_answer([turn("turn", 5, {"text": "native"})], events)) == ("native", True, "turn")


def test_tagged_before_untagged_and_commentary_ignored() -> None:
    events = conversation(message("still working", "commentary"), message("final report", "final_answer"), completed())
    assert said(final_answer([], events)) == ("final report", True, "turn")
    events = conversation(message("tagged", "final_answer"), message("plain"), completed())
    assert said(final_answer([], events)) == ("tagged", True, "turn")
    events = conversation(delta("x"), message("one"), message("two"), message("talk", "commentary"), completed())
    assert said(final_answer([], events)) == ("two", True, "turn")


def test_deltas_only() -> None:
    events = conversation(delta("working\n"), delta("final report"), completed())
    assert said(final_answer([], events)) == ("working\nfinal report", False, "turn")


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_turns_that_did_not_complete_say_nothing(status: str) -> None:
    events = conversation(message("half"), completed(status=status))
    assert final_answer([], events) is None
    later = conversation(message("first", name="a"), completed("a"), message("half"), completed(status=status))
    assert said(final_answer([], later)) == ("first", True, "a")


def test_a_completed_turn_without_words_makes_the_earlier_answer_inexact() -> None:
    events = conversation(message("first", name="a"), completed("a"), completed("b"))
    assert said(final_answer([], events)) == ("first", False, "a")


def test_turn_that_is_still_open() -> None:
    assert final_answer([], conversation(message("unfinished"))) is None


def test_later_recorder_answer_of_a_turn_replaces_its_first() -> None:
    events = conversation(message("one"), completed(), message("two"), completed())
    assert said(final_answer([], events)) == ("two", True, "turn")


def test_other_events_and_items_are_ignored() -> None:
    tool = {"type": "item_completed", "turn_id": "turn", "item": {"type": "command", "command": "ls"}}
    events = conversation({"type": "status_changed"}, tool, message("done"), completed())
    text = {"schema_version": 1, "seq": 9, "observed_at": "2026-09-29T00:00:00Z", "type": "text", "text": "noise"}
    assert said(final_answer([], [*events, RecordedEvent(9, text)])) == ("done", True, "turn")


@pytest.mark.parametrize("output", [{}, {"text": 5}, [], "text", 0])
def test_output_without_value_or_text_is_a_gap(output: Any) -> None:
    answer = final_answer([turn("a", 5, {"text": "old"}), turn("b", 9, output)], [])
    assert answer == FinalAnswer(
        text="old", exact=False, turn="a", gaps=(Gap(kind="schema", stream="native:thread:b", seq=1000),)
    )


@pytest.mark.parametrize(
    "evidence",
    [
        {"unparsed": "partial historical event"},
        None,
        conversation({})[0].evidence,
        conversation({"type": "text_delta", "turn_id": "turn"})[0].evidence,
        conversation({"type": "text_delta", "content": "x"})[0].evidence,
        conversation({"type": "item_completed", "turn_id": "turn"})[0].evidence,
        conversation({"type": "item_completed", "turn_id": "turn", "item": {"type": "message"}})[0].evidence,
        conversation({"type": "turn_completed", "turn_id": "turn"})[0].evidence,
        {**conversation(delta("x"))[0].evidence, "schema_version": 2},
    ],
)
def test_bad_evidence_is_a_gap_and_the_rest_answers(evidence: Any) -> None:
    events = [*conversation(message("done", name="t"), completed("t")), RecordedEvent(77, evidence)]
    answer = final_answer([], events)
    assert answer is not None
    assert (answer.text, answer.exact, answer.gaps) == ("done", True, (Gap(kind="schema", seq=77),))


def test_rows_the_ledger_could_not_read_are_gaps() -> None:
    answer = final_answer([turn("a", 5, {"text": "x"})], [], unreadable=[3])
    assert answer is not None
    assert answer.gaps == (Gap(kind="unreadable", seq=3),)
