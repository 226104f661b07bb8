"""A provider's own conversation never holds the recent list (D13)."""

from __future__ import annotations

from pathlib import Path

import turnlog


def test_an_unfinished_subagent_is_shown_but_does_not_hold(tmp_path: Path) -> None:
    with turnlog.open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        child = ledger.create_session(
            id="opencode:ses_1", cwd="/fixture", provider="opencode", thread="ses_1", interactive=False, created_at=1
        )
        ledger.record(child.id, "ses_1", "turn", "started", {})
        for number in range(2, 5):
            done = ledger.create_session(cwd="/fixture", created_at=number)
            ledger.record(done.id, "t", "u", "started", {})
            ledger.record(done.id, "t", "u", "completed", {"status": "completed"})
        listed, truncated = ledger.recent_inputs(limit=2)
        assert [each.observed_at for each in listed] == [4, 3]
        assert truncated
        everything, _ = ledger.recent_inputs(limit=10)
        assert [each.observed_at for each in everything] == [4, 3, 2, 1]
        assert everything[-1].providers[0].outcome is None
        assert ledger.verify() == []


def test_an_adopted_conversation_holds_again(tmp_path: Path) -> None:
    with turnlog.open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        own = ledger.create_session(id="codex:thread", cwd="/fixture", provider="codex", thread="thread", created_at=1)
        driver = ledger.claim_driver(own.id, None, ledger.start_exec().id)
        ledger.intend_turn(own.id, driver, "thread", "request", {}, turn="turn")
        ledger.record(own.id, "thread", "turn", "started", {})
        done = ledger.create_session(cwd="/fixture", created_at=9)
        ledger.complete_session(done.id, done.captured)
        listed, _ = ledger.recent_inputs(limit=1)
        assert [each.session_id for each in listed] == [own.id]
        ledger.hand_over(own.id, driver, "claude")
        assert ledger.verify() == []
