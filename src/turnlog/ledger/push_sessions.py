"""Conversations of a push: what is told of one, and how it meets what the target holds of it.

Of each column three values count: what is here, what is there, and what was told last. What only one side has changed
since is taken; what both have changed stays as it is there, and is a conflict. Who drives a conversation, through which
engine, and whether it is the first of its repository, is a matter of its home and never told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from turnlog.ledger.backend import Backend, Tx
from turnlog.ledger.push_state import Push, text

_FACTS: Final = (
    "id", "title", "title_source", "kind", "interactive", "created_at", "completed_at", "ready_summary", "request",
    "input_published", "cwd", "repo", "skill", "provider", "model", "node", "iterations", "task_id", "wave_id",
    "flow_session_id", "work_source", "bound_at", "driver_generation", "provider_generation", "provider_thread",
    "home_id", "pruned_to", "current",
)  # fmt: skip
_PLAIN: Final = (
    "interactive", "completed_at", "ready_summary", "input_published", "cwd", "repo", "skill", "provider", "model",
    "provider_thread",
)  # fmt: skip
"""Columns that each side may change."""
_BINDING: Final = ("task_id", "wave_id", "work_source", "bound_at")
_PAGE: Final = 500

Facts = dict[str, Any]


def session_facts(ledger: Backend, ids: Sequence[str]) -> dict[str, Facts]:
    """Return what a ledger tells of conversations: O(ids)."""
    if not ids:
        return {}
    with ledger.read() as tx:
        return _facts(tx, ids)


def _facts(tx: Tx, ids: Sequence[str]) -> dict[str, Facts]:
    return {row[0]: dict(zip(_FACTS, row, strict=True)) for row in tx.all("session_facts", ids=text(list(ids)))}


def mapped(push: Push, facts: Facts) -> Facts:
    """Return facts in the words of the target: its work, and a home where none was noted.

    A file is the ledger of one home; in a database whose home is not noted it is unknown.
    """
    home = facts["home_id"]
    if home is None and push.wishes.home is not None and push.source.url.startswith("sqlite:"):
        home = push.wishes.home.id
    task, wave = push.work(facts["task_id"]), push.work(facts["wave_id"])
    return {**facts, "task_id": task, "wave_id": wave, "home_id": home}


def state_of(push: Push, facts: Facts, current: str | None = None) -> str:
    """Return what to note of a conversation that was told; ``current`` is the input it has there."""
    told = mapped(push, facts)
    return orjson.dumps({**told, "current": current or told["current"]}, option=orjson.OPT_SORT_KEYS).decode()


def push_sessions(push: Push) -> None:
    """Tell what changed of conversations that the target has: O(conversations)."""
    after = ""
    while True:
        with push.source.read() as tx:
            ids = [row[0] for row in tx.all("session_ids", after=after, limit=_PAGE)]
            facts = _facts(tx, ids)
        if not ids:
            return
        after = ids[-1]
        states = push.told("session", ids)
        fresh = {name: state_of(push, each) for name, each in facts.items()}
        for name in ids:
            if states.get(name) != fresh[name]:
                told = states.get(name)
                _meet(push, mapped(push, facts[name]), None if told is None else orjson.loads(told))
        push.tell("session", {name: state for name, state in fresh.items() if states.get(name) != state})


def _meet(push: Push, ours: Facts, told: Facts | None) -> None:
    with push.target.write() as tx:
        tx.one("session", id=ours["id"])  # locks it
        found = _facts(tx, [ours["id"]]).get(ours["id"])
        if found is None:
            return  # none of its receipts could be told
        values, conflicts = merge(ours, found, told)
        known = {row[0] for row in tx.all("push_captures", keys=text([ours["current"] or ""]))}
        mine = _inputs(push, ours["id"])
        if found["current"] is not None and found["current"] not in mine:
            values["current"] = found["current"]
            if ours["current"] not in (None, told and told["current"]):
                conflicts.append("its input")
        elif ours["current"] not in known:
            values["current"] = found["current"]
        if any(values[name] != found[name] for name in values):
            tx.run("push_session", **{name: values[name] for name in values if name in _WRITTEN})
    for name in conflicts:
        push.problem("conflict", f"session {ours['id']}", f"{name} differs there, and stays so")


_WRITTEN: Final = (
    "id", "title", "title_source", "created_at", "driver_generation", "provider_generation", "home_id", "current",
    *_PLAIN, *_BINDING,
)  # fmt: skip


def _inputs(push: Push, session: str) -> set[str]:
    with push.source.read() as tx:
        return {row[0] for row in tx.all("capture_keys_of_session", session=session)}


def merge(ours: Facts, theirs: Facts, told: Facts | None) -> tuple[Facts, list[str]]:
    """Return what a conversation becomes, and the columns that both sides have changed. Pure."""
    values = dict(theirs)
    conflicts: list[str] = []
    for name in _PLAIN:
        values[name], clash = _one(ours[name], theirs[name], told, name)
        conflicts += [name] * clash
    _title(values, conflicts, ours, theirs, told)
    if theirs["task_id"] is None and (theirs["wave_id"] in (None, ours["wave_id"])) and ours["task_id"] is not None:
        values.update({name: ours[name] for name in _BINDING})
    elif theirs["wave_id"] is None and theirs["task_id"] is None:
        values.update({name: ours[name] for name in _BINDING if ours[name] is not None})
    elif ours["task_id"] not in (None, theirs["task_id"]) or ours["wave_id"] not in (None, theirs["wave_id"]):
        conflicts.append("its task")
    values["created_at"] = min(ours["created_at"], theirs["created_at"])
    for name in ("driver_generation", "provider_generation"):
        values[name] = max(ours[name], theirs[name])
    homes = [each for each in (ours["home_id"], theirs["home_id"]) if each is not None]
    # Of two homes that read one conversation from their disks, it does not matter which came first.
    values["home_id"] = min(homes) if homes and told is None else theirs["home_id"] or ours["home_id"]
    values["current"] = ours["current"] or theirs["current"]
    return values, conflicts


def _one(ours: Any, theirs: Any, told: Facts | None, name: str) -> tuple[Any, bool]:
    if ours == theirs:
        return theirs, False
    if told is not None:
        if ours == told[name]:
            return theirs, False
        if theirs == told[name]:
            return ours, False
    if theirs in (None, ""):
        return ours, False
    if ours in (None, "") and told is None:
        return theirs, False
    if name in {"interactive", "input_published"}:
        return max(ours, theirs), False
    return theirs, True


def _title(values: Facts, conflicts: list[str], ours: Facts, theirs: Facts, told: Facts | None) -> None:
    """A title that a person gave stands above one that was made."""
    mine, there = ((each["title"], each["title_source"]) for each in (ours, theirs))
    before = None if told is None else (told["title"], told["title_source"])
    if mine in (there, before):
        return
    if there == before or (mine[1] == "human" and there[1] != "human"):
        values["title"], values["title_source"] = mine
    elif there[1] != "human" or mine[1] == "human":
        conflicts.append("its title")
