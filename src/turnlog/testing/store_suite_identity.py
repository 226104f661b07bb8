"""Suite: the provider's own id of a conversation (semantics 3.7, D8)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from turnlog import Ledger, ProviderSession, Session
from turnlog.testing.store_suite_base import INPUT, StoreSetup, StoreTests, envelope, retain, session_observed

SECOND = [
    (2, session_observed("second-thread", "second")),
    (1, {"type": "provider_account_selected", "attempt_key": "second", "account_id": "recorded"}),
    (0, session_observed("first-thread", "first")),
]
FRESH = {"schema_version": 1, "provider_session_id": "fresh-thread", "account_id": None}
LEGACY = {"schema_version": 1, "provider_session_id": "legacy-thread", "account_id": "legacy"}


class TestIdentity(StoreTests):
    """Evidence is folded in its own order, and the answer says where it comes from."""

    def test_the_seed_sequence(self, ledger: Ledger, conversation: Session) -> None:
        """3.7: original event order, then a fresh publication."""
        assert ledger.provider_session(INPUT) is None
        for number, event in SECOND[:2]:
            line(ledger, number, event)
        assert answer(ledger) == ("second-thread", "recorded", "events")
        line(ledger, *SECOND[2])
        assert answer(ledger) == ("second-thread", "recorded", "events")
        line(ledger, 3, session_observed("unknown-account", "unknown"))
        assert answer(ledger) == ("unknown-account", None, "events")
        retain(ledger, "provider-session:fresh", FRESH)
        retain(ledger, "provider-session.json", LEGACY)
        assert answer(ledger) == ("fresh-thread", None, "publication")

    @pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
    def test_order_of_arrival_does_not_matter(
        self, ledger: Ledger, conversation: Session, order: tuple[int, ...]
    ) -> None:
        """R7.4, appendix E 1."""
        for each in order:
            line(ledger, *SECOND[each])
        assert answer(ledger) == ("second-thread", "recorded", "events")

    def test_an_account_is_known_from_its_event_on(self, ledger: Ledger, conversation: Session) -> None:
        """R7.4: accounts up to that ordinal; null is a value; never another attempt's."""
        line(ledger, 0, {"type": "provider_attempt_started", "attempt_key": "a", "provider": "x", "account_id": "one"})
        line(ledger, 1, session_observed("thread-a", "a"))
        assert answer(ledger) == ("thread-a", "one", "events")
        line(ledger, 2, {"type": "provider_account_selected", "attempt_key": "a", "account_id": None})
        assert answer(ledger) == ("thread-a", "one", "events")
        line(ledger, 3, session_observed("thread-a", "a"))
        assert answer(ledger) == ("thread-a", None, "events")
        line(ledger, 4, {"type": "provider_account_selected", "attempt_key": "b", "account_id": "two"})
        line(ledger, 5, session_observed("thread-c", "c"))
        assert answer(ledger) == ("thread-c", None, "events")

    def test_three_attempts_and_no_fresh_row(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """3.7, further: after deleting the fresh rows the fold still names the last attempt's."""
        for number, (attempt, account) in enumerate((("1", "primary"), ("2", "fallback"), ("3", None))):
            chosen = {"type": "provider_account_selected", "attempt_key": attempt, "account_id": account}
            line(ledger, 2 * number, chosen)
            line(ledger, 2 * number + 1, session_observed("ambient-session" if attempt == "3" else attempt, attempt))
            fresh = {"schema_version": 1, "provider_session_id": f"fresh-{attempt}", "account_id": account}
            retain(ledger, f"provider-session:{attempt}", fresh)
        assert answer(ledger) == ("fresh-3", None, "publication")
        suite.raw_sql("DELETE FROM session_events WHERE receipt_key LIKE '%:provider-session:%'")
        assert answer(ledger) == ("ambient-session", None, "events")

    def test_ranks(self, ledger: Ledger, conversation: Session) -> None:
        """R7.6: fresh, then events, then legacy."""
        retain(ledger, "provider-session.json", LEGACY)
        assert answer(ledger) == ("legacy-thread", "legacy", "legacy")
        line(ledger, 0, session_observed("events-thread"))
        assert answer(ledger) == ("events-thread", None, "events")
        retain(ledger, "provider-session:fresh", FRESH)
        assert answer(ledger) == ("fresh-thread", None, "publication")
        newer = {**FRESH, "provider_session_id": "newer"}
        retain(ledger, "provider-session:newer", newer)
        assert answer(ledger) == ("newer", None, "publication")

    @pytest.mark.parametrize(
        "broken",
        [
            {"schema_version": 2, "provider_session_id": "x"},
            {"schema_version": 1},
            {**FRESH, "provider_session_id": ""},
            [],
        ],
    )
    def test_a_bad_publication_is_a_gap(self, ledger: Ledger, conversation: Session, broken: Any) -> None:
        """D8: the answer comes from the rest."""
        line(ledger, 0, session_observed("events-thread"))
        seq = retain(ledger, "provider-session:broken", broken)
        found = ledger.provider_session(INPUT)
        assert found is not None
        assert found.provider_session_id == "events-thread"
        assert [(gap.kind, gap.seq) for gap in found.gaps] == [("schema", seq)]

    def test_a_bad_event_is_a_gap(self, suite: StoreSetup, ledger: Ledger, conversation: Session) -> None:
        """D8: undecodable, of another schema, with a bad ordinal, or not JSON at all."""
        line(ledger, 0, session_observed("thread"))
        bad = [
            retain(ledger, "events.jsonl:1", {"type": "usage"}),
            retain(ledger, "events.jsonl:x", envelope(2, **session_observed("bad-ordinal"))),
            retain(ledger, "events.jsonl:3", {**envelope(3, **session_observed("other")), "schema_version": 2}),
        ]
        unreadable = retain(ledger, "events.jsonl:4", {})
        suite.raw_sql("UPDATE session_events SET payload = '{' WHERE seq = :seq", {"seq": unreadable})
        found = ledger.provider_session(INPUT)
        assert found is not None
        assert found.provider_session_id == "thread"
        assert {gap.seq for gap in found.gaps} == {*bad, unreadable}
        assert [gap.kind for gap in found.gaps if gap.seq == unreadable] == ["unreadable"]

    def test_an_unknown_input_has_none(self, ledger: Ledger, conversation: Session) -> None:
        """R7.1."""
        assert ledger.provider_session("nothing") is None

    def test_identity_reads_no_transcript(self, ledger: Ledger, conversation: Session) -> None:
        """R7.1: text of the conversation is no part of it, so it cannot spoil it."""
        line(ledger, 0, session_observed("thread"))
        line(ledger, 1, {"type": "conversation"})
        assert ledger.provider_session(INPUT) == ProviderSession(
            provider_session_id="thread", account_id=None, source="events"
        )


def line(ledger: Ledger, number: int, event: dict[str, Any]) -> None:
    """Retain one recorder event."""
    retain(ledger, f"events.jsonl:{number}", envelope(number, **event))


def answer(ledger: Ledger) -> tuple[str, str | None, str]:
    """Return the gapless answer."""
    found = ledger.provider_session(INPUT)
    assert found is not None
    assert found.gaps == ()
    return found.provider_session_id, found.account_id, found.source
