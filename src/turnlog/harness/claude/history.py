"""A session's files as receipts, for recovery: what the program itself wrote about turns whose wire we missed (6.6)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from turnlog.harness import Batch, Note
from turnlog.harness.claude.course import verdict
from turnlog.harness.claude.decode import PROVIDER, call_receipt, self_turn
from turnlog.harness.claude.disk import FileTurn, Session
from turnlog.receipts import Receipt


def turn_id(turn: FileTurn) -> str | None:
    """Return the id that a turn has on the wire too; None for a self-made turn without a call."""
    if not turn.by_itself:
        return turn.uuid
    return self_turn(turn.first) if turn.first is not None else None


def read_batch(
    thread: str, session: Session, own: Collection[str], ended: Collection[str], live: Collection[str]
) -> Batch:
    """Return what a session's files say about turns that are not in ``ended`` (their end was seen on the wire).

    Turns in ``live`` are still being worked on: they get no end, and are not given up.
    """
    receipts: list[Receipt] = []
    notes = [_problem(thread, problem) for problem in session.problems]
    settled: list[tuple[str, str]] = []
    stalled: list[str] = []
    for turn in session.turns:
        name = turn_id(turn)
        if name is None or name in ended:
            continue
        if name in own:
            receipts.append(Receipt(thread, name, "started", {}))
        receipts += [call_receipt(thread, name, call.message, call.request, call.at) for call in turn.calls.values()]
        if name in live:
            continue
        output, completion = verdict(turn)
        if completion is not None:
            if output is not None:
                receipts.append(Receipt(thread, name, "output", output))
            receipts.append(Receipt(thread, name, "completed", completion))
        elif name in own:
            stalled.append(name)
            notes.append(_idle(thread, name, turn.last, sorted(turn.open_tools)))
    for request, turn in session.absorbed.items():
        name = turn_id(turn)
        if request in own and name is not None and request not in ended:
            settled.append((request, name))
            notes.append(Note(f"absorbed:{thread}:{request}", thread, request, {"by": name}))
    for request in sorted(session.cancelled.intersection(own) - set(ended)):
        stalled.append(request)
        evidence = {"provider": PROVIDER, "state": "cancelled"}
        notes.append(Note(f"cancelled:{thread}:{request}", thread, request, evidence))
    return Batch(receipts=tuple(receipts), notes=tuple(notes), settled=tuple(settled), stalled=tuple(stalled))


def unwritten(thread: str, session: Session, requests: Collection[str]) -> Batch:
    """Return what is to be said of requests that left for a Claude that is gone, and of which its file tells nothing.

    It writes with some delay: one that was killed may have worked on them all the same.
    """
    known = {turn.uuid for turn in session.turns} | session.absorbed.keys() | session.cancelled
    lost = sorted(set(requests) - known)
    return Batch(notes=tuple(_idle(thread, request, None, []) for request in lost), stalled=tuple(lost))


def _idle(thread: str, turn: str, message: str | None, open_tools: list[str]) -> Note:
    evidence = {"provider": PROVIDER, "message_id": message, "open_tools": open_tools}
    return Note(f"idle:{thread}:{turn}", thread, turn, evidence)


def _problem(thread: str, problem: Any) -> Note:
    evidence = {
        "provider": PROVIDER,
        "kind": problem.kind,
        "offset": problem.offset,
        "size": problem.size,
        "sha256": problem.sha256,
    }
    return Note(f"unreadable:{thread}:{problem.offset}:{problem.sha256[:16]}", thread, None, evidence)
