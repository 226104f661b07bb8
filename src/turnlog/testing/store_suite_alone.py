"""Suite: an input says the same of itself alone and beside others, however many receipts it has (3.15, 3.16, D5)."""

from __future__ import annotations

from typing import Any

from turnlog import EventKind, Ledger, Session
from turnlog.testing.store_suite_base import StoreSetup, StoreTests, add_execs, codex, gap_kinds

DONE = {"status": "completed"}
SEVERAL = 4


class TestAlone(StoreTests):
    """What is read once for several inputs is what each of them reads."""

    def test_inputs_of_one_thread_say_the_same_alone_and_in_a_list(self, ledger: Ledger) -> None:
        """Codex counts over the whole thread: each turn's totals begin with the last ones of the turn before."""
        keys = several_inputs(ledger)
        listed, _ = ledger.recent_inputs(limit=50)
        assert [each.artifact_key for each in listed] == keys[::-1]
        assert [each.usage.total_input_tokens for each in listed] == [30, 30, 30, 30]
        assert [each.usage.output_tokens for each in listed] == [3, 3, 3, 3]
        assert [each.usage.peak_input_tokens for each in listed] == [10, 10, 10, 10]
        assert [each.usage.gaps for each in listed] == [0] * SEVERAL
        assert listed == [ledger.input_history(key) for key in reversed(keys)]
        assert listed[:1] == ledger.recent_inputs(limit=1)[0]

    def test_a_receipt_that_cannot_be_read_is_no_baseline_alone_or_in_a_list(
        self, suite: StoreSetup, ledger: Ledger
    ) -> None:
        keys = several_inputs(ledger)
        bad = next(row.seq for row in reversed(ledger.input_summary(keys[1])) if row.kind is EventKind.USAGE)
        suite.raw_sql("UPDATE session_events SET payload = '{' WHERE seq = :seq", {"seq": bad})
        listed, _ = ledger.recent_inputs(limit=50)
        # Its last receipt is lost: ten of it are not counted here, and the next turn begins where the one before ended.
        assert [each.usage.total_input_tokens for each in listed] == [30, 40, 20, 30]
        assert [gap_kinds(each.usage) for each in listed] == [[], [], ["unreadable"], []]
        assert listed[:2] == ledger.recent_inputs(limit=2)[0]
        assert [listed[place] for place in (0, 1, 3)] == [ledger.input_history(keys[3 - place]) for place in (0, 1, 3)]

    def test_a_turn_before_that_did_not_end_is_no_baseline_alone_or_in_a_list(
        self, suite: StoreSetup, ledger: Ledger
    ) -> None:
        keys = several_inputs(ledger)
        suite.raw_sql(
            "DELETE FROM session_events WHERE kind = 'completed' AND provider_turn = :turn", {"turn": "turn-1"}
        )
        listed, _ = ledger.recent_inputs(limit=50)
        assert [each.usage.total_input_tokens for each in listed] == [30, 30, 30, 30]
        assert [gap_kinds(each.usage) for each in listed] == [[], ["start_unknown"], [], []]
        assert {each.artifact_key: each for each in listed} == {key: ledger.input_history(key) for key in keys}

    def test_a_turn_before_of_no_input_is_a_baseline(self, suite: StoreSetup, ledger: Ledger) -> None:
        """Its start lost its input; the list shows the turn by itself, and the next turn still counts from its end."""
        keys = several_inputs(ledger)
        suite.raw_sql(
            "UPDATE session_events SET captured_event = NULL WHERE kind = 'started' AND provider_turn = :turn",
            {"turn": "turn-1"},
        )
        listed, _ = ledger.recent_inputs(limit=50)
        usages = {each.artifact_key: each.usage for each in listed}
        assert usages[None].total_input_tokens == 30
        assert keys[1] not in usages
        assert usages[keys[2]].total_input_tokens == 30
        assert ledger.input_history(keys[2]).usage == usages[keys[2]]

    def test_calls_that_files_tell_count_by_themselves_alone_and_in_a_list(self, ledger: Ledger) -> None:
        made = ledger.create_session(id="calls", cwd="/f", provider="claude", artifact_key=key_of(0))
        for place in range(2):
            if place:
                made = ledger.replace_input("calls", captured(made), artifact_key=key_of(1))
            calls = [call(f"call-{place}-{number}", 10 + number) for number in range(3)]
            record(ledger, "calls", f"turn-{place}", *calls, calls[0])
        listed, _ = ledger.recent_inputs(limit=50)
        assert [(each.usage.streams, each.usage.input_tokens, each.usage.gaps) for each in listed] == [(3, 33, 0)] * 2
        assert listed == [ledger.input_history(key_of(1)), ledger.input_history(key_of(0))]

    def test_every_row_of_a_turn_says_who_began_it(self, suite: StoreSetup, ledger: Ledger) -> None:
        """Also usage that came before the start, of a turn without a name, and of another turn of the input."""
        add_execs(suite, "first")
        made = ledger.create_session(id="conversation", cwd="/f", artifact_key=key_of(0))
        ledger.claim_driver("conversation", None, "first", replace_engine=True)
        for name in ("early", "", "late"):
            if name != "late":
                ledger.record("conversation", "thread", name, "usage", codex((5,), (5,)))
            ledger.record_turn_origin("conversation", "thread", name, 1, "first")
            if name == "late":
                ledger.record("conversation", "thread", name, "usage", codex((5,), (5,)))
        rows = ledger.input_summary(key_of(0))
        assert made.captured is not None
        assert [(row.kind, row.turn, row.thread) for row in rows] == [
            ("usage", "early", "thread"),
            ("started", "early", "thread"),
            ("usage", "", "thread"),
            ("started", "", "thread"),
            ("started", "late", "thread"),
            ("usage", "late", "thread"),
        ]
        assert {(row.session_id, row.exec_id, row.provider_generation) for row in rows} == {
            ("conversation", "first", 1)
        }
        by_seq = {row.seq: row for row in ledger.history("conversation")}
        assert [row.payload for row in rows] == [by_seq[row.seq].payload for row in rows]


def several_inputs(ledger: Ledger) -> list[str]:
    """Make a conversation with several inputs on one thread of Codex; each adds 30 tokens of input and 3 of output."""
    made = ledger.create_session(id="conversation", cwd="/f", provider="codex", artifact_key=key_of(0))
    for place in range(SEVERAL):
        if place:
            made = ledger.replace_input("conversation", captured(made), artifact_key=key_of(place))
        totals = [30 * place + 10 * number for number in (1, 2, 3)]
        receipts = [codex((total, total // 10, 0, 0), (10, 1, 0, 0)) for total in totals]
        record(ledger, "conversation", f"turn-{place}", *receipts)
    return [key_of(place) for place in range(SEVERAL)]


def record(ledger: Ledger, session: str, turn: str, *usage: Any) -> None:
    """Record one whole turn."""
    rows = [("thread", turn, "started", {}), *(("thread", turn, "usage", each) for each in usage)]
    ledger.record_many(session, [*rows, ("thread", turn, "completed", DONE)])


def call(name: str, fresh: int) -> dict[str, Any]:
    """Return a usage receipt of one call, as a file tells it."""
    counters = {"input_tokens": fresh, "output_tokens": 5, "cache_read_input_tokens": 0}
    usage = {**counters, "cache_creation_input_tokens": 0}
    return {"provider": "claude", "source": "file", "call": name, "model": "m", "usage": usage}


def captured(session: Session) -> int:
    """Return the seq of a conversation's current input."""
    assert session.captured is not None
    return session.captured


def key_of(place: int) -> str:
    """Return the artifact key of an input."""
    return f"{place + 1:032x}"
