"""Suite: the final answer of an input (semantics 3.13, D7, D8)."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog import FinalAnswer, Ledger, Session
from turnlog.testing.store_suite_base import INPUT, REPLACEMENT, THREAD, TURN, StoreSetup, StoreTests, lines, retain

DONE = {"status": "completed"}


class TestAnswers(StoreTests):
    """An answer names the turn that gave it."""

    def test_the_newest_native_output_is_exact(self, ledger: Ledger, conversation: Session) -> None:
        """R13.1: newest by completion, not by start."""
        native(ledger, "2", {"text": "two"}, complete=False)
        native(ledger, "1", {"text": "one"})
        ledger.record("conversation", THREAD, "2", "completed", DONE)
        assert ledger.final_answer(INPUT) == FinalAnswer(text="two", exact=True, turn="2")

    @pytest.mark.parametrize(
        ("payload", "text", "value"),
        [
            ({"text": "prose"}, "prose", None),
            ({"value": {"b": 1, "a": [True]}}, '{"a":[true],"b":1}', {"a": [True], "b": 1}),
            ({"value": "word", "text": "ignored"}, '"word"', "word"),
            ({"value": None}, "null", None),
        ],
    )
    def test_output_payloads(
        self, ledger: Ledger, conversation: Session, payload: dict[str, Any], text: str, value: Any
    ) -> None:
        """R13.2: a value is its JSON text."""
        native(ledger, TURN, payload)
        assert ledger.final_answer(INPUT) == FinalAnswer(text=text, exact=True, turn=TURN, value=value)

    @pytest.mark.parametrize("payload", [{}, {"text": 1}, {"text": None}, []])
    def test_an_output_of_another_shape_is_a_gap(self, ledger: Ledger, conversation: Session, payload: Any) -> None:
        """D8."""
        native(ledger, "old", {"text": "old"})
        seq = native(ledger, TURN, payload)
        found = ledger.final_answer(INPUT)
        assert found is not None
        assert (found.text, found.exact, found.turn) == ("old", False, "old")
        assert [(gap.kind, gap.seq) for gap in found.gaps] == [("schema", seq)]

    @pytest.mark.parametrize("status", ["failed", "interrupted"])
    def test_only_completed_turns_answer(self, ledger: Ledger, conversation: Session, status: str) -> None:
        """R13.1."""
        native(ledger, TURN, {"text": "partial"}, status=status)
        assert ledger.final_answer(INPUT) is None

    def test_turns_of_another_input_or_of_nobody_do_not_answer(self, ledger: Ledger, conversation: Session) -> None:
        """R13.1: the start has this capture."""
        native(ledger, TURN, {"text": "old input"})
        ledger.replace_input("conversation", conversation.captured, artifact_key=REPLACEMENT)
        ledger.record("conversation", THREAD, "orphan", "output", {"text": "orphan"})
        ledger.record("conversation", THREAD, "orphan", "completed", DONE)
        assert ledger.final_answer(REPLACEMENT) is None
        assert ledger.final_answer("nothing") is None
        found = ledger.final_answer(INPUT)
        assert found is not None
        assert found.text == "old input"

    def test_the_recorder_answers_for_the_newest_turn_before_an_older_native_one(
        self, ledger: Ledger, conversation: Session
    ) -> None:
        """D7."""
        native(ledger, "old", {"text": "old"})
        ledger.record("conversation", THREAD, TURN, "started", {})
        ledger.record("conversation", THREAD, TURN, "completed", DONE)
        found = ledger.final_answer(INPUT)
        assert found == FinalAnswer(text="old", exact=False, turn="old")
        lines(ledger, message("recorded", "final_answer"), completed())
        assert ledger.final_answer(INPUT) == FinalAnswer(text="recorded", exact=True, turn=TURN)

    @pytest.mark.parametrize(
        ("events", "text", "exact"),
        [
            (["commentary:still working", "final_answer:final report"], "final report", True),
            (["delta:working\n", "delta:final report"], "working\nfinal report", False),
            (["delta:streamed", "plain:whole"], "whole", True),
            (["plain:first", "plain:second"], "second", True),
            (["final_answer:tagged", "plain:later"], "tagged", True),
        ],
    )
    def test_what_the_recorder_heard(
        self,
        ledger: Ledger,
        conversation: Session,
        events: list[str],
        text: str,
        exact: bool,
    ) -> None:
        """R13.3, R13.4: tagged, else untagged, else streamed and inexact."""
        lines(ledger, *(heard(event) for event in events), completed())
        assert ledger.final_answer(INPUT) == FinalAnswer(text=text, exact=exact, turn=TURN)

    def test_a_turn_that_failed_or_said_nothing_keeps_the_earlier_answer(
        self, ledger: Ledger, conversation: Session
    ) -> None:
        """R13.4: it is not exact any more, and names its turn (D7)."""
        lines(
            ledger,
            message("answer", None, "1"),
            completed("1"),
            message("broken", None, "2"),
            completed("2", "failed"),
        )
        assert ledger.final_answer(INPUT) == FinalAnswer(text="answer", exact=True, turn="1")
        lines(ledger, completed("3"), first=4)
        assert ledger.final_answer(INPUT) == FinalAnswer(text="answer", exact=False, turn="1")

    def test_events_are_read_in_their_own_order(self, ledger: Ledger, conversation: Session) -> None:
        """R4.4."""
        events = [message("first"), message("second"), completed()]
        for number in (2, 0, 1):
            lines(ledger, events[number], first=number)
        found = ledger.final_answer(INPUT)
        assert found is not None
        assert found.text == "second"

    def test_bad_rows_are_gaps(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """D8: nothing else is lost with them."""
        lines(ledger, message("answer"), completed())
        bad = [
            retain(ledger, "events.jsonl:2", {"schema_version": 1, "type": "usage"}),
            retain(ledger, "events.jsonl:3", {}),
            native(ledger, TURN, {"text": "native"}),
        ]
        for seq in bad[1:]:
            suite.raw_sql("UPDATE session_events SET payload = '{' WHERE seq = :seq", {"seq": seq})
        found = ledger.final_answer(INPUT)
        assert found is not None
        assert (found.text, found.turn) == ("answer", TURN)
        assert {(gap.kind, gap.seq) for gap in found.gaps} == {
            ("schema", bad[0]),
            ("unreadable", bad[1]),
            ("unreadable", bad[2]),
        }


def native(ledger: Ledger, turn: str, payload: Any, *, status: str = "completed", complete: bool = True) -> int:
    """Record one turn with an output; return the output's seq."""
    ledger.record("conversation", THREAD, turn, "started", {})
    seq = ledger.record("conversation", THREAD, turn, "output", payload)
    if complete:
        ledger.record("conversation", THREAD, turn, "completed", {"status": status})
    return seq


def said(event: dict[str, Any]) -> dict[str, Any]:
    """Wrap a conversation event as a recorder line."""
    return {"type": "conversation", "event": event}


def message(text: str, phase: str | None = None, turn: str = TURN) -> dict[str, Any]:
    """A whole message."""
    item = {"type": "message", "text": text} | ({} if phase is None else {"phase": phase})
    return said({"type": "item_completed", "turn_id": turn, "item": item})


def completed(turn: str = TURN, status: str = "completed") -> dict[str, Any]:
    """The end of a turn as the recorder saw it."""
    return said({"type": "turn_completed", "turn_id": turn, "status": status})


def heard(word: str) -> dict[str, Any]:
    """Read ``phase:text`` as a message, ``delta:text`` as a streamed part."""
    phase, _, text = word.partition(":")
    if phase == "delta":
        return said({"type": "text_delta", "turn_id": TURN, "content": text})
    return message(text, None if phase == "plain" else phase)
