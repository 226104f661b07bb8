"""Conversations as JSON lines that can be read again without the place they came from.

Every line says what it needs from its neighbours, so a decoder needs no memory and their order does not matter:

    {"table":"session","id":…,"worktree":…,"data":<the conversation's own object>}
    {"table":"message","id":…,"session_id":…,"version":…,"began":…,"turn":…,"first":…,"opens":…,"data":<info>}
    {"table":"part","id":…,"session_id":…,"message_id":…,"turn":…,"role":…,"at":…,"opens":…,"child":…,"data":<part>}
    {"table":"turn","id":…,"session_id":…,"began":…,"data":{"asked","first","last","open","text","by"}}
    {"table":"damage","id":…,"session_id":…,"parts":…,"detail":…}

``data`` is as it lay there; where it is no JSON, its text is ``broken``. A conversation's line comes before its
messages, these before their parts, and what is said of whole turns at its end.

The cursor holds the marks that everything before was read to (``from``), those of the reading that is under way
(``to``) and how far that came (``at``). A reading that was cut off goes on there and gives at most one message twice;
what changed meanwhile comes with the next one.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import orjson

from turnlog.errors import InvalidError
from turnlog.harness.opencode.decode import member
from turnlog.harness.opencode.shapes import created, info_of, instant
from turnlog.harness.opencode.shelf import Conversation, DamagedError, Dirty, Item, Marks, Shelf
from turnlog.harness.opencode.threads import Place, Thread
from turnlog.receipts import decode_repaired

OPEN_KEPT: Final = 500
"""How many answers without an end are looked at again: those of killed programs never get one."""

Line = tuple[bytes, bytes]
Position = list[Any]


class ShelfRows:
    """Rows of a shelf (see ``Rows``).

    A first reading is O(everything). A later one is O(what changed, and the messages of the conversations it changed
    in). Memory: one message with its parts at a time, and what ``Thread`` keeps of one conversation.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def close(self) -> None:
        self._shelf.close()

    def lines(self, cursor: bytes | None) -> Iterator[Line]:
        reading = _Reading(self._shelf, orjson.loads(cursor) if cursor else {})
        waiting: list[Line] = []  # at most one, and nothing else holds it: a line may be long
        if reading.resumed and next(reading.run(), None) is None:
            # What it was to go on with is gone: what changed since comes now.
            reading = _Reading(self._shelf, orjson.loads(reading.finished()))
        for line, behind in reading.run():
            if waiting:
                yield waiting.pop()
            waiting.append((line, behind))
            del line
        if waiting:
            yield waiting.pop()[0], reading.finished()


class _Reading:
    def __init__(self, shelf: Shelf, cursor: dict[str, Any]) -> None:
        self._shelf = shelf
        self._from: Marks | None = cursor.get("from")
        self._at: Position | None = cursor.get("at")
        self.resumed = "to" in cursor
        with shelf.reading():
            dirty = None
            if self._from is not None:
                with contextlib.suppress(DamagedError):  # what changed cannot be told: all of it is read
                    dirty = shelf.changes(self._from)
            self._to: Marks = cursor.get("to") or shelf.marks()
        if dirty is None:
            self._from = None
        self._dirty = dirty
        self._recent = set(self._from.get("recent", ())) if self._from else set()
        self._given: list[str] = []
        self._changed: set[str] = set()
        self._open: dict[str, Position] = {}
        if self._from:
            self._open = {message: [message, *rest] for message, *rest in self._from.get("open", ())}
        self._head = orjson.dumps({"from": self._from, "to": self._to})[:-1] + b',"at":'

    def run(self) -> Iterator[Line]:
        """Yield every line with the cursor behind it."""
        behind = self._cursor(self._at)
        for key in self._names():
            after: Position | None = None
            if self._at is not None:
                if list(key) < self._at[:2]:
                    continue
                after = self._at[2] if list(key) == self._at[:2] else None
            try:
                with self._shelf.reading():
                    for line, position in self._conversation(key[1], after):
                        if position is not None:
                            behind = self._cursor([*key, position])
                        yield line, behind
                        del line  # here and below: only whoever takes it holds it, for it may be long
            except DamagedError as error:
                yield _line("damage", key[1], session_id=key[1], detail=error.message), behind

    def finished(self) -> bytes:
        """Return the cursor behind the last line: the next reading begins with what changed since this one began."""
        kept = list(self._open.values())[-OPEN_KEPT:]
        return orjson.dumps({"from": {**self._to, "recent": self._given, "open": kept}})

    def _names(self) -> list[tuple[int, str]]:
        if self._dirty is None:
            with self._shelf.reading():
                return self._shelf.names()
        with self._shelf.reading():
            return sorted((self._known(name)[0].created or 0, name) for name in self._dirty)

    def _cursor(self, position: Position | None) -> bytes:
        return self._head + orjson.dumps(position) + b"}"

    def _conversation(self, name: str, after: Position | None) -> Iterator[tuple[bytes, Position | None]]:
        """Yield (line, position behind it if it moved); a position is of the message *before*."""
        conversation, damage = self._known(name)
        if damage is not None:
            yield _line("damage", name, session_id=name, parts=True, detail=damage), None
        dirty = None if self._dirty is None else self._dirty[name]
        data = conversation.data if after is None and (dirty is None or dirty.itself) else None
        if data is not None and self._news("session", name, data, conversation.stamp):
            yield _object("session", name, _read(data), worktree=conversation.worktree), None
        if dirty is not None and not dirty.messages and not dirty.parts:
            return
        thread = Thread()
        turns = None if dirty is None else self._dirty_turns(name, dirty)
        self._changed = set()
        behind: Position | None = None
        try:
            for item in self._messages(name):
                key: Position = [item.gone, item.created or 0, item.id]
                silent = after is not None and key <= after
                for line in self._message(thread, conversation, item, _Wanted(dirty, turns, silent)):
                    yield line, behind
                    del line
                    behind = None
                behind = key if not silent else None
        except DamagedError as error:
            thread.doubt()
            yield _line("damage", name, session_id=name, detail=error.message), None
        for request, by, facts in thread.told():
            if turns is None or request in self._changed or by in self._changed:
                yield _line("turn", request, session_id=name, began=conversation.created, data=facts), behind
                behind = None

    def _known(self, name: str) -> tuple[Conversation, str | None]:
        """Return a conversation, and what damage left of it nothing but its messages."""
        try:
            return self._shelf.conversation(name), None
        except DamagedError as error:
            return Conversation(name, None, None, 0), error.message

    def _messages(self, name: str) -> Iterator[Item]:
        mark = (self._from or {}).get("rows", {}).get("event")
        return self._shelf.messages(name, mark[0] if mark else None)

    def _message(self, thread: Thread, conversation: Conversation, item: Item, wanted: _Wanted) -> Iterator[bytes]:
        name = conversation.id
        read = _read(item.data)
        news = wanted.message(item) and self._news("message", item.id, item.data, item.stamp)
        given = news and not wanted.silent
        if read.value is None:
            if given:
                yield _object("message", item.id, read, session_id=name)
            return
        info = info_of(read.value, item.id, name, item.kind)
        place = thread.place(info)
        if news and place.turn is not None:
            self._changed.add(place.turn)
        if given:
            yield _object(
                "message",
                item.id,
                read,
                session_id=name,
                version=conversation.version,
                began=conversation.created,
                turn=place.turn,
                first=place.first,
                opens=place.opens,
                **({"type": item.kind} if item.kind is not None else {}),
                **({"gone": True} if item.gone else {}),
            )
        if item.gone or (wanted.turns is not None and place.turn not in wanted.turns):
            return
        try:
            yield from self._parts(thread, name, item, info, place, wanted)
        except DamagedError as error:
            thread.doubt(place.turn)
            yield _line("damage", item.id, session_id=name, parts=True, detail=error.message)
        self._note_open(name, item.id, info)

    def _parts(
        self, thread: Thread, name: str, item: Item, info: dict[str, Any], place: Place, wanted: _Wanted
    ) -> Iterator[bytes]:
        role, at = info["role"], created(info)
        order = (at or 0, str(info["id"]))
        answers = role == "assistant" and place.turn is not None
        common = {"session_id": name, "message_id": item.id, "turn": place.turn, "role": role}
        if place.opens:
            common["opens"] = True
        for part in self._shelf.parts(name, item.id):
            read = _read(part.data)
            if answers and read.value is not None:
                thread.part(place.turn or "", order, read.value)
            if not wanted.part(item, part) or not self._news("part", part.id, part.data, part.stamp):
                continue
            if place.turn is not None:
                self._changed.add(place.turn)
            if not wanted.silent:
                line = _object("part", part.id, read, at=part.created or at, **common, **self._child(read.value))
                del part, read
                yield line
                del line

    def _child(self, part: dict[str, Any] | None) -> dict[str, str]:
        """Return the conversation of a subagent that a part names, if it is there."""
        if part is None or part.get("tool") != "task":
            return {}
        child = member(member(part, "state"), "metadata").get("sessionId")
        if not isinstance(child, str) or self._shelf.conversation(child).data is None:
            return {}
        return {"child": child}

    def _dirty_turns(self, name: str, dirty: Dirty) -> set[str]:
        """Return the turns whose messages or parts changed."""
        thread = Thread()
        changed = dirty.messages | dirty.parts.keys()
        found = set()
        for item in self._messages(name):
            value = _read(item.data).value
            if value is not None:
                place = thread.place(info_of(value, item.id, name, item.kind))
                if place.turn is not None and (item.gone or item.id in changed):
                    found.add(place.turn)
        return found

    def _note_open(self, name: str, message: str, info: dict[str, Any]) -> None:
        if info["role"] == "assistant" and instant(member(info, "time").get("completed")) is None:
            self._open[message] = [message, name, self._shelf.look(message)]
        else:
            self._open.pop(message, None)

    def _news(self, table: str, name: str, data: bytes, stamp: int) -> bool:
        """Tell whether an object was not given yet, as far as its time leaves a doubt."""
        young = stamp >= self._to["after"]
        if not young and not self._recent:
            return True  # the common case, and the only one in a first reading of old conversations
        digest = hashlib.blake2b(b"\0".join((table.encode(), name.encode(), data)), digest_size=8).hexdigest()
        if young:
            self._given.append(digest)
        return digest not in self._recent


class _Wanted(NamedTuple):
    """What of a conversation may be news: all, or what is dirty. ``silent``: it was given before the stop."""

    dirty: Dirty | None
    turns: set[str] | None
    silent: bool

    def message(self, item: Item) -> bool:
        return self.dirty is None or item.gone or item.id in self.dirty.messages

    def part(self, message: Item, part: Item) -> bool:
        return self.dirty is None or part.id in self.dirty.parts.get(message.id, ())


class _Read(NamedTuple):
    """An object as read: ``data`` is safe in a line; ``value`` None if it is no JSON object."""

    value: dict[str, Any] | None
    data: bytes
    damaged: bool = False


def _read(data: bytes) -> _Read:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return _repaired(data)
    # A line end can only stand between members: inside a string it would be no JSON.
    return _Read(value if isinstance(value, dict) else None, data.replace(b"\n", b" ").replace(b"\r", b" "))


def _repaired(data: bytes) -> _Read:
    text = data.decode("utf-8", "replace").encode()
    try:
        value = decode_repaired(text)[0]
    except InvalidError:
        value = None
    line = text.replace(b"\n", b" ").replace(b"\r", b" ")
    return _Read(value if isinstance(value, dict) else None, line, damaged=text != data)


def _object(table: str, name: str, read: _Read, **members: Any) -> bytes:
    """Return a line that holds an object as it is, or its text if it is none."""
    head = _line(table, name, **members)[:-1]
    if read.value is None:
        return head + b',"broken":' + orjson.dumps(read.data.decode("utf-8", "replace")) + b"}"
    return b"".join((head, b',"damaged":"invalid_utf8","data":' if read.damaged else b',"data":', read.data, b"}"))


def _line(table: str, name: str, **members: Any) -> bytes:
    return orjson.dumps({"table": table, "id": name, **members})
