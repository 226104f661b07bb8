"""The single door by which what a harness or importer saw enters the ledger.

Everything is idempotent: a batch may be applied any number of times. A snapshot that contradicts a first receipt is
kept as an observation and loses nothing else (D9). One that says the same as a first receipt read from a file is known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from turnlog.errors import ConflictError
from turnlog.harness import Batch, Child, Note
from turnlog.intake.agree import agree
from turnlog.ledger import Store
from turnlog.ledger.sessions import NewSession
from turnlog.model import EventKind, Session
from turnlog.receipts import Receipt, canonical, decode, new_artifact_key


class Taken(msgspec.Struct, frozen=True):
    """How many receipts of a batch were new, known, or contradicted an earlier one."""

    new: int = 0
    known: int = 0
    conflicts: int = 0


def apply_batch(store: Store, session: Session, thread: str, batch: Batch) -> Taken:
    """Record a batch that a harness saw on ``thread`` of ``session``; children get conversations of their own."""
    for child in batch.children:
        _child_session(store, session, child)
    by_session: dict[str, list[Receipt]] = {}
    for receipt in batch.receipts:
        if receipt.thread == thread:
            by_session.setdefault(session.id, []).append(receipt)
        else:
            owner = _session_of_child(store, session, receipt.thread)
            rows = by_session.setdefault(owner, [])
            # A child conversation is the provider's own: its turns begin by no request of ours. That a turn is there
            # is its start; without one its usage would count as a suffix of something unseen.
            rows += [Receipt(receipt.thread, receipt.turn, EventKind.STARTED, {}), receipt]
    taken = Taken()
    for session_id, receipts in by_session.items():
        taken = _add(taken, _record(store, session_id, receipts))
    for note in batch.notes:
        _retain(store, session.id if note.thread == thread else _session_of_child(store, session, note.thread), note)
    return taken


def child_id(session: Session, thread: str) -> str:
    """Return the session id of a provider's own conversation: the id an import of it gives too (architecture §4)."""
    return f"{session.provider}:{thread}"


def _session_of_child(store: Store, session: Session, thread: str) -> str:
    name = child_id(session, thread)
    if store.sessions.get(name) is None:
        _child_session(store, session, Child(thread, "", None, None))
    return name


def _child_session(store: Store, session: Session, child: Child) -> None:
    if store.sessions.get(child_id(session, child.thread)) is not None:
        return
    parent = child_id(session, child.parent_thread)
    caller = store.sessions.get(parent) or session
    turn_capture = store.events.artifact_of_turn(caller.id, child.parent_thread, child.parent_turn)
    store.sessions.create(
        NewSession(
            id=child_id(session, child.thread),
            artifact_key=new_artifact_key(),
            title=child.title or "Subagent",
            title_source="generated",
            kind="conversation",
            interactive=False,
            created_at=store.now(),
            cwd=session.cwd,
            repo=session.repo,
            provider=session.provider,
            model=session.model,
            skill=None,
            task_id=session.task_id,
            wave_id=session.wave_id,
            work_source="inherited" if session.task_id or session.wave_id else None,
            primary_scope=None,
            caller=turn_capture or caller.artifact_key,
            published=True,
            exec_id=None,
            thread=child.thread,
        )
    )


def _record(store: Store, session_id: str, receipts: Sequence[Receipt]) -> Taken:
    try:
        new, known = store.events.record_many(session_id, receipts)
        return Taken(new, known)
    except ConflictError:
        pass  # one of them; find it, and lose none of the others
    new = known = conflicts = 0
    for receipt in receipts:
        try:
            added, seen = store.events.record_many(session_id, [receipt])
        except ConflictError:
            if _seen_in_file(store, session_id, receipt):
                known += 1
                continue
            conflicts += 1
            _retain_conflict(store, session_id, receipt)
        else:
            new, known = new + added, known + seen
    return Taken(new, known, conflicts)


def _seen_in_file(store: Store, session_id: str, receipt: Receipt) -> bool:
    """Tell whether an import recorded the same end or answer of the turn, in the words of its file."""
    first = store.imports.receipt(session_id, receipt.thread, receipt.turn, receipt.kind)
    return first is not None and agree(receipt.kind, receipt.payload, decode(first))


def _retain_conflict(store: Store, session_id: str, receipt: Receipt) -> None:
    digest = hashlib.sha256(canonical(receipt.payload).encode()).hexdigest()
    source = f"conflict:{receipt.kind}:{receipt.thread}:{receipt.turn}:{digest}"
    evidence = {"kind": str(receipt.kind), "thread": receipt.thread, "turn": receipt.turn, "payload": receipt.payload}
    store.events.retain_for_turn(session_id, receipt.thread, receipt.turn, source, evidence)


def _retain(store: Store, session_id: str, note: Note) -> None:
    evidence: Any = note.evidence
    try:
        store.events.retain_for_turn(session_id, note.thread, note.turn, note.source, evidence)
    except ConflictError:
        digest = hashlib.sha256(canonical(evidence).encode()).hexdigest()
        store.events.retain_for_turn(session_id, note.thread, note.turn, f"{note.source}:{digest}", evidence)


def _add(one: Taken, other: Taken) -> Taken:
    return Taken(one.new + other.new, one.known + other.known, one.conflicts + other.conflicts)
