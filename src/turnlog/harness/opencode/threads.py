"""What the messages of one stored conversation say about its turns, gathered while they pass by. Pure.

A turn is a user message; answers name it (``parentID``), and where an old shape does not, they answer the newest user
message before them. What a turn line tells are facts, so that a later reader may conclude otherwise from the archive.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from turnlog.harness.opencode import decode
from turnlog.harness.opencode.decode import Group, Message, member
from turnlog.harness.opencode.shapes import created, parent_of

_TELLING: Final = (
    *("id", "time", "finish", "error", "structured", "structured_output", "tokens"),
    *("modelID", "providerID", "summary"),
)
_UNFINISHED: Final = frozenset({"pending", "running"})
NO_MESSAGE: Final = (-1, "")


class Turn(msgspec.Struct):
    """One request and what answered it so far. ``text`` is the newest text of the last answer."""

    id: str
    first: tuple[int, str]
    began: Any
    last: tuple[int, str] = NO_MESSAGE
    info: dict[str, Any] = {}
    open: bool = False
    text: str | None = None


class Place(msgspec.Struct):
    """Where a message stands: its turn; whether it begins the turn's answer, or the whole conversation."""

    turn: str | None
    first: bool = False
    opens: bool = False


class Thread:
    """The turns of a conversation. Memory: a few words per message, and the last text of each turn."""

    def __init__(self) -> None:
        self.turns: dict[str, Turn] = {}
        self._users: dict[str, Message] = {}
        self._answers: list[Message] = []
        self._current: str | None = None

    def place(self, info: Mapping[str, Any]) -> Place:
        """Take a message, in the order of the conversation, and say where it stands."""
        name, role = str(info["id"]), info["role"]
        order = (created(info) or 0, name)
        if role == "user":
            opens = not self._users
            self._users[name] = Message(name, "user", None, order[0], None, {})
            self._current = name
            return Place(name, opens=opens)
        if role != "assistant":
            return Place(self._current)
        request = parent_of(info) or self._current or name
        summary = {"summary": True} if info.get("summary") is True and info.get("error") is None else {}
        self._answers.append(Message(name, "assistant", request, order[0], None, summary))
        return Place(request, first=self._answer(request, order, info))

    def part(self, request: str, message: tuple[int, str], part: Mapping[str, Any]) -> None:
        """Take a part of an answer, in order."""
        turn = self.turns[request]
        kind = part.get("type")
        if kind == "tool":
            turn.open = turn.open or member(part, "state").get("status") in _UNFINISHED
        elif kind == "text" and message == turn.last:
            text = part.get("text")
            # A stream that was tried again leaves an empty part without an end behind; that is no answer.
            if isinstance(text, str) and (text or member(part, "time").get("end") is not None):
                turn.text = text

    def doubt(self, request: str | None = None) -> None:
        """Note that something of this turn (else the newest) could not be read, so that its end is unknown."""
        turn = self.turns.get(request or (self._answers[-1].parent if self._answers else None) or "")
        if turn is not None:
            turn.open = True

    def told(self) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
        """Yield (turn, the turn that took it over, facts) of every turn there is something to say about."""
        self._answers.sort(key=lambda message: message.order)
        orders = [message.order for message in self._answers]
        for name, turn in self.turns.items():
            last = Message(turn.last[1], "assistant", name, turn.last[0], self._completed(turn), turn.info)
            later = self._answers[bisect.bisect_right(orders, turn.last) :]
            by = decode.superseded_by(Group(name, (last,)), later)
            user = self._users.get(name)
            facts = {"asked": user.created if user else None, "first": turn.began, "last": turn.info}
            yield name, by, {**facts, "open": turn.open, "text": turn.text, "by": by}
        for name, user in self._users.items():
            if name not in self.turns:
                later = self._answers[bisect.bisect_right(orders, user.order) :]
                by = decode.absorbed_by(user, self._users, later)
                if by is not None:
                    yield name, by, {"asked": user.created, "by": by}

    def _answer(self, request: str, order: tuple[int, str], info: Mapping[str, Any]) -> bool:
        turn = self.turns.get(request)
        began = member(info, "time").get("created")
        new = turn is None
        if turn is None:
            turn = self.turns[request] = Turn(request, order, began)
        elif order < turn.first:
            turn.first, turn.began = order, began
        if order > turn.last:
            turn.last, turn.text = order, None
            turn.info = {name: info[name] for name in _TELLING if name in info}
        return new

    def _completed(self, turn: Turn) -> Any:
        return member(turn.info, "time").get("completed")
