"""Suite: what every method says of ids it does not know, and of words it cannot take (contract 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turnlog import Driver, InvalidError, Ledger, MissingError, Session
from turnlog.testing.store_suite_base import INPUT, THREAD, TURN, StoreTests

NOBODY = "nobody"
DRIVER = Driver(exec_id="e", generation=1, provider_generation=1, provider_exec_id="e")

Call = Callable[[Ledger], Any]

NONE: dict[str, Call] = {
    "session": lambda ledger: ledger.session(NOBODY),
    "session_for_artifact": lambda ledger: ledger.session_for_artifact(NOBODY),
    "session_for_thread": lambda ledger: ledger.session_for_thread("codex", NOBODY),
    "session_summary": lambda ledger: ledger.session_summary(NOBODY),
    "exec": lambda ledger: ledger.exec(NOBODY),
    "driver": lambda ledger: ledger.driver(NOBODY),
    "connection": lambda ledger: ledger.connection(NOBODY),
    "process": lambda ledger: ledger.process(NOBODY),
    "thread": lambda ledger: ledger.thread(NOBODY),
    "engine": lambda ledger: ledger.engine(NOBODY),
    "provider_session": lambda ledger: ledger.provider_session(NOBODY),
    "final_answer": lambda ledger: ledger.final_answer(NOBODY),
    "request_state": lambda ledger: ledger.request_state(NOBODY),
}

EMPTY: dict[str, Call] = {
    "session_inputs": lambda ledger: ledger.session_inputs(NOBODY),
    "sessions": lambda ledger: ledger.sessions(task=NOBODY),
    "execs": lambda ledger: ledger.execs(repo=NOBODY),
    "input_summary": lambda ledger: ledger.input_summary(NOBODY),
    "input_events": lambda ledger: ledger.input_events(NOBODY),
    "input_event_times": lambda ledger: ledger.input_event_times(NOBODY),
    "orphaned_history": lambda ledger: ledger.orphaned_history(NOBODY, THREAD, TURN),
    "inputs by caller": lambda ledger: ledger.inputs(caller=NOBODY),
    "inputs by task": lambda ledger: ledger.inputs(task=NOBODY),
    "inputs by wave": lambda ledger: ledger.inputs(wave=NOBODY),
    "inputs by project": lambda ledger: ledger.inputs(project=NOBODY),
    "requests": lambda ledger: ledger.requests(NOBODY),
    "open_turns": lambda ledger: ledger.open_turns(NOBODY),
    "outstanding_intents": lambda ledger: ledger.outstanding_intents(NOBODY),
    "own_request_ids": lambda ledger: ledger.own_request_ids(NOBODY, None),
}


def _driving(ledger: Ledger) -> None:
    with ledger.driving(NOBODY, DRIVER):
        pass


MISSING: dict[str, Call] = {
    "history": lambda ledger: ledger.history(NOBODY),
    "input_history": lambda ledger: ledger.input_history(NOBODY),
    "find_session": lambda ledger: ledger.find_session(NOBODY),
    "resolve_work": lambda ledger: ledger.resolve_work("task", NOBODY),
    "end_exec": lambda ledger: ledger.end_exec(NOBODY, "failed"),
    "create_project": lambda ledger: ledger.create_project(NOBODY, external_id="x"),
    "create_task": lambda ledger: ledger.create_task(NOBODY, external_id="x", identifier="X-1"),
    "replace_input": lambda ledger: ledger.replace_input(NOBODY, 1),
    "publish_input": lambda ledger: ledger.publish_input(NOBODY, 1),
    "bind_session": lambda ledger: ledger.bind_session(NOBODY, 1, "t"),
    "rename_session": lambda ledger: ledger.rename_session(NOBODY, "x"),
    "complete_session": lambda ledger: ledger.complete_session(NOBODY, 1),
    "ready_session": lambda ledger: ledger.ready_session(NOBODY, 1, "x"),
    "reopen_session": lambda ledger: ledger.reopen_session(NOBODY),
    "claim_driver": lambda ledger: ledger.claim_driver(NOBODY, None, ledger.start_exec().id),
    "release_driver": lambda ledger: ledger.release_driver(NOBODY, DRIVER),
    "finish_driver": lambda ledger: ledger.finish_driver(NOBODY, DRIVER, "failed"),
    "driving": _driving,
    "heartbeat": lambda ledger: ledger.heartbeat(NOBODY, DRIVER),
    "record_connection": lambda ledger: ledger.record_connection(NOBODY, DRIVER, "/sock", THREAD),
    "record_process": lambda ledger: ledger.record_process(NOBODY, DRIVER, 1, 1),
    "record_launch": lambda ledger: ledger.record_launch(NOBODY, DRIVER, "reserved"),
    "record": lambda ledger: ledger.record(NOBODY, THREAD, TURN, "started", {}),
    "record_many": lambda ledger: ledger.record_many(NOBODY, [(THREAD, TURN, "usage", {})]),
    "record_turn_origin": lambda ledger: ledger.record_turn_origin(NOBODY, THREAD, TURN, 1, ledger.start_exec().id),
    "intend_turn": lambda ledger: ledger.intend_turn(NOBODY, DRIVER, THREAD, "request", {}),
    "accept_turn": lambda ledger: ledger.accept_turn(NOBODY, DRIVER, "request", TURN),
    "refuse_turn": lambda ledger: ledger.refuse_turn(NOBODY, DRIVER, "request", "x"),
    "retain_for_turn": lambda ledger: ledger.retain_for_turn(NOBODY, THREAD, TURN, "note", {}),
    "request": lambda ledger: ledger.request(NOBODY, "steer"),
    "take_requests": lambda ledger: ledger.take_requests(NOBODY, DRIVER),
    "settle_request": lambda ledger: ledger.settle_request(NOBODY, "uncertain"),
}

INVALID: dict[str, Call] = {
    "lone surrogate in an id": lambda ledger: ledger.record("conversation", THREAD, "\ud800", "started", {}),
    "turn that is no text": lambda ledger: ledger.record("conversation", THREAD, 5, "started", {}),  # type: ignore[arg-type]
    "thread that is none": lambda ledger: ledger.record("conversation", None, TURN, "usage", {}),  # type: ignore[arg-type]
    "surrogate to look up": lambda ledger: ledger.session("\ud800"),
    "huge cursor": lambda ledger: ledger.history("conversation", after=2**64),
    "usage report": lambda ledger: ledger.usage_report("fortnightly"),
    "time zone": lambda ledger: ledger.usage_report("total", timezone="Mars/Olympus"),
    "day": lambda ledger: ledger.usage_report("daily", since="yesterday"),
    "history limit": lambda ledger: ledger.history("conversation", limit=0),
    "recent limit": lambda ledger: ledger.recent_inputs(limit=-1),
    "sessions limit": lambda ledger: ledger.sessions(limit=0),
    "execs limit": lambda ledger: ledger.execs(limit=0),
    "cwd that is no text": lambda ledger: ledger.create_session(cwd=None),  # type: ignore[arg-type]
    "time that is no integer": lambda ledger: ledger.create_session(cwd="/f", created_at=1.5),  # type: ignore[arg-type]
}


class TestErrors(StoreTests):
    """An unknown id is never a crash, and a caller's mistake is the caller's."""

    @pytest.mark.parametrize("name", NONE)
    def test_single_reads_give_none(self, ledger: Ledger, conversation: Session, name: str) -> None:
        """Contract 1."""
        assert NONE[name](ledger) is None

    @pytest.mark.parametrize("name", EMPTY)
    def test_lists_are_empty(self, ledger: Ledger, conversation: Session, name: str) -> None:
        """Contract 1."""
        assert EMPTY[name](ledger) == []

    @pytest.mark.parametrize("name", MISSING)
    def test_writes_and_strict_reads_raise(self, ledger: Ledger, conversation: Session, name: str) -> None:
        """Contract 1, and nothing is written."""
        with pytest.raises(MissingError) as caught:
            MISSING[name](ledger)
        assert caught.value.hint
        assert len(ledger.sessions(all=True)) == 1
        assert len(ledger.history("conversation")) == 1

    @pytest.mark.parametrize("name", INVALID)
    def test_what_cannot_be_meant_is_invalid(self, ledger: Ledger, conversation: Session, name: str) -> None:
        """Contract 1, and nothing is written."""
        with pytest.raises(InvalidError) as caught:
            INVALID[name](ledger)
        assert caught.value.hint
        assert len(ledger.sessions(all=True)) == 1
        assert [event.payload["artifact_key"] for event in ledger.history("conversation")] == [INPUT]
