"""Conversations that a home knows from files alone and the target from their driver: one conversation there, too.

A machine may drive into the team's ledger and push the histories that the agents left. What its files tell of a
conversation that was driven there goes to that one, as an import of the files there would do; told as another
conversation, everything in it would count twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from turnlog.ledger.imports import Conversation, ImportTx, Observation, Row
from turnlog.ledger.push_sessions import session_facts
from turnlog.ledger.push_state import Joined, Push, text
from turnlog.receipts import canonical, decode

_NATIVE: Final = frozenset({"started", "usage", "completed", "output"})


class Receipt(Protocol):
    """What is told of a receipt."""

    @property
    def thread(self) -> str | None: ...
    @property
    def turn(self) -> str | None: ...
    @property
    def kind(self) -> str: ...
    @property
    def payload(self) -> str: ...
    @property
    def at(self) -> int: ...
    @property
    def artifact(self) -> str | None: ...
    @property
    def told_by(self) -> str: ...


def look(push: Push, names: Iterable[str | None], facts: dict[str, dict[str, Any]] | None = None) -> None:
    """Find out which of these conversations of the source are others in the target, once in a push: O(names)."""
    new = sorted({name for name in names if name is not None and name not in push.looked})
    if not new:
        return
    known = session_facts(push.source, new) if facts is None else facts
    push.looked.update(new)
    asked = [
        {"id": name, "provider": known[name]["provider"], "thread": known[name]["provider_thread"]}
        for name in new
        if name in known and _is_import(known[name])
    ]
    if not asked:
        return
    with push.target.read() as tx:
        found = tx.all("driven_there", rows=text(asked))
    natives = {each["id"]: (each["provider"], each["thread"]) for each in asked}
    for name, there, handed in found:
        push.joined[name] = Joined(there, *natives[name], bool(handed))


def _is_import(facts: dict[str, Any]) -> bool:
    """Tell whether nobody has driven a conversation here: it was found in files."""
    return facts["id"] == f"{facts['provider']}:{facts['provider_thread']}" and not facts["driver_generation"]


def tell(imports: ImportTx, rows: Sequence[tuple[Conversation, Receipt]]) -> list[tuple[int | None, str | None]]:
    """Take receipts as an import does: O(rows).

    Returns of each its number when it is new; else None, and what is there when that says something else.
    """
    native = [row.kind in _NATIVE for _, row in rows]
    stored = iter(
        imports.receipts(
            [
                (there, Row(row.thread or "", row.turn or "", row.kind, row.payload, row.at))
                for (there, row), is_native in zip(rows, native, strict=True)
                if is_native
            ]
        )
    )
    done = [next(stored) if is_native else (None, None) for is_native in native]
    observed = [_observation(there, row) for there, row in rows if row.kind == "observed"]
    imports.observe([each for each in observed if each])  # behind the starts, which say of what input a turn is
    return done


def _observation(there: Conversation, row: Receipt) -> Observation | None:
    payload = decode(row.payload)
    if row.artifact is None or not isinstance(payload, dict) or "evidence" not in payload:
        return None
    # The name of one of a turn is `<what>:<thread>:<turn>`, or `conflict:<kind>:<thread>:<turn>:<digest>`.
    words = row.told_by.removeprefix("conflict:").split(":")
    turn = (words[1], words[2]) if len(words) > 2 else None  # noqa: PLR2004
    return Observation(there, row.told_by, canonical(payload["evidence"]), row.at, turn)
