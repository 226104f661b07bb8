"""Suite: the single door for what a harness saw (D9, D19; promises 2 and 7)."""

from __future__ import annotations

import hashlib
from typing import Any

from turnlog import EventKind, Ledger, Session
from turnlog.harness import Batch, Child, Note
from turnlog.receipts import Receipt, canonical
from turnlog.testing.store_suite_base import INPUT, REPLACEMENT, THREAD, TURN, StoreSetup, StoreTests, driven

DONE = {"status": "completed"}


class TestIntake(StoreTests):
    """A batch may be applied any number of times."""

    def test_a_batch_again_changes_nothing(self, ledger: Ledger, conversation: Session) -> None:
        """Promise 2."""
        batch = Batch(
            receipts=(
                receipt("started", {}),
                receipt("usage", {"n": 1}),
                receipt("completed", DONE),
            ),
            notes=(Note("idle:1", THREAD, TURN, {"why": "quiet"}),),
        )
        taken = ledger.take_batch(conversation, THREAD, batch)
        assert (taken.new, taken.known, taken.conflicts) == (3, 0, 0)
        before = ledger.history("conversation")
        taken = ledger.take_batch(conversation, THREAD, batch)
        assert (taken.new, taken.known, taken.conflicts) == (0, 3, 0)
        assert ledger.history("conversation") == before

    def test_a_contradiction_is_kept_beside_the_first(self, ledger: Ledger, conversation: Session) -> None:
        """D9: the first stays, the other becomes an observation, and nothing else is lost."""
        ledger.take_batch(conversation, THREAD, Batch(receipts=(receipt("started", {}), receipt("completed", DONE))))
        changed = {"status": "failed"}
        batch = Batch(receipts=(receipt("completed", changed), receipt("output", {"text": "late"})))
        taken = ledger.take_batch(conversation, THREAD, batch)
        assert (taken.new, taken.known, taken.conflicts) == (1, 0, 1)
        again = ledger.take_batch(conversation, THREAD, batch)
        assert (again.new, again.known, again.conflicts) == (0, 1, 1)
        digest = hashlib.sha256(canonical(changed).encode()).hexdigest()
        source = f"conflict:completed:{THREAD}:{TURN}:{digest}"
        rows = {row.kind: row for row in ledger.input_summary(INPUT)}
        assert rows[EventKind.COMPLETED].payload == DONE
        assert rows[EventKind.OUTPUT].payload == {"text": "late"}
        assert rows[EventKind.OBSERVED].payload["source"] == source
        assert rows[EventKind.OBSERVED].payload["evidence"]["payload"] == changed
        [problem] = ledger.verify()
        assert problem.kind == "conflict"
        assert TURN in problem.detail

    def test_a_contradiction_belongs_to_the_turns_input(self, ledger: Ledger, conversation: Session) -> None:
        """D9: a turn without capture goes to the current one."""
        ledger.record("conversation", THREAD, "seen", "started", {})
        for turn in ("seen", "unseen"):
            ledger.record("conversation", THREAD, turn, "completed", DONE)
        ledger.replace_input("conversation", conversation.captured, artifact_key=REPLACEMENT)
        for turn in ("seen", "unseen"):
            contradiction = receipt("completed", {"status": "failed"}, turn)
            ledger.take_batch(conversation, THREAD, Batch(receipts=(contradiction,)))
        for key, turn in ((INPUT, "seen"), (REPLACEMENT, "unseen")):
            sources = [row.payload["source"] for row in ledger.input_summary(key) if row.kind is EventKind.OBSERVED]
            assert [source.split(":")[3] for source in sources] == [turn]

    def test_two_different_contradictions_are_two_observations(self, ledger: Ledger, conversation: Session) -> None:
        """D9: the key holds the digest."""
        ledger.record("conversation", THREAD, TURN, "output", {"text": "first"})
        for text in ("second", "third", "second"):
            ledger.take_batch(conversation, THREAD, Batch(receipts=(receipt("output", {"text": text}),)))
        assert len([row for row in ledger.history("conversation") if row.kind is EventKind.OBSERVED]) == 2

    def test_notes_become_observations_of_their_turn(self, ledger: Ledger, conversation: Session) -> None:
        """D19."""
        ledger.record("conversation", THREAD, TURN, "started", {})
        ledger.replace_input("conversation", conversation.captured, artifact_key=REPLACEMENT)
        source = f"superseded:{THREAD}:{TURN}"
        ledger.take_batch(conversation, THREAD, Batch(notes=(Note(source, THREAD, TURN, {"by": "next"}),)))
        assert [row.payload["source"] for row in ledger.input_summary(INPUT) if row.kind is EventKind.OBSERVED] == [
            source
        ]

    def test_a_changed_note_loses_nothing(self, ledger: Ledger, conversation: Session) -> None:
        """Promise 7: the second gets a key of its own."""
        for by in ("one", "two", "two"):
            ledger.take_batch(conversation, THREAD, Batch(notes=(Note("idle:1", THREAD, None, {"by": by}),)))
        evidence = [row.payload["evidence"]["by"] for row in ledger.history("conversation")[1:]]
        assert evidence == ["one", "two"]

    def test_a_child_is_a_conversation_of_its_own(self, suite: StoreSetup, ledger: Ledger) -> None:
        """Architecture 4: the id that an import of it gives too; its caller is the input of the asking turn."""
        parent = ledger.create_session(id="conversation", artifact_key=INPUT, cwd="/fixture", provider="opencode")
        driver = driven(suite, ledger)
        ledger.record_connection("conversation", driver, "/sock", THREAD)
        ledger.record("conversation", THREAD, TURN, "started", {})
        ledger.replace_input("conversation", parent.captured, artifact_key=REPLACEMENT)
        batch = Batch(
            children=(Child("sub", THREAD, TURN, "Explore"),),
            receipts=(Receipt("sub", "1", "usage", {"n": 1}), Receipt("sub", "1", "completed", DONE)),
        )
        for _ in range(2):
            ledger.take_batch(parent, THREAD, batch)
        child = ledger.session("opencode:sub")
        assert child is not None
        assert (child.title, child.interactive, child.provider, child.cwd) == ("Explore", False, "opencode", "/fixture")
        assert ledger.thread(child.id) == "sub"
        assert [row.kind for row in ledger.input_summary(child.artifact_key)] == ["started", "usage", "completed"]
        [called] = ledger.inputs(caller=INPUT)
        assert called.session_id == child.id
        assert ledger.orphaned_history("conversation", "sub", "1") == []


def receipt(kind: str, payload: Any, turn: str = TURN) -> Receipt:
    """One receipt of the fixture thread."""
    return Receipt(THREAD, turn, kind, payload)
