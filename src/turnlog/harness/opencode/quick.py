"""A quick look at OpenCode's conversations: messages without their parts, wherever they are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson

from turnlog.errors import InvalidError
from turnlog.harness.opencode.database import Database
from turnlog.harness.opencode.decode import PROVIDER, member
from turnlog.harness.opencode.reader import call_of
from turnlog.harness.opencode.shapes import created, has_counters, info_of
from turnlog.harness.opencode.shelf import Conversation, DamagedError, Item, Shelf
from turnlog.harness.opencode.storage import Export, Tree
from turnlog.harness.quick import Call, Look
from turnlog.harness.reading import Find, Source, Trouble
from turnlog.receipts import decode_repaired
from turnlog.usage.opencode import read_message

_ANSWER: Final = b'"assistant"'


class Quick:
    """Looks at databases, folders and exports, one after another."""

    def __init__(self, find: Find) -> None:
        """Conversations tell all of themselves: nothing has to be found."""

    def look(self, source: Source) -> Look:
        """Return the calls of one place: O(its messages). Raises UnavailableError."""
        path = Path(source.path)
        shelf: Shelf = Tree(path) if path.is_dir() else Export(path) if path.suffix == ".json" else Database(path)
        look = Look(bytes=path.stat().st_size)
        try:
            for _, name in shelf.names():
                with shelf.reading():
                    _conversation(shelf, name, look)
        finally:
            shelf.close()
        return look


def _conversation(shelf: Shelf, name: str, look: Look) -> None:
    conversation = Conversation(name, None, None, 0)
    try:
        conversation = shelf.conversation(name)
    except DamagedError as error:
        look.troubles.append(Trouble("damaged", 0, 0, error.message, name, usage=False))
    try:
        for item in shelf.messages(name):
            if _ANSWER in item.data or item.kind == "assistant":
                _message(conversation, item, look)
    except DamagedError as error:
        look.troubles.append(Trouble("damaged", 0, 0, error.message, name))
    if name not in look.cwds and conversation.data is not None:
        folder = orjson.loads(conversation.data).get("directory")
        if isinstance(folder, str):
            look.cwds[name] = folder


def _message(conversation: Conversation, item: Item, look: Look) -> None:
    name = conversation.id
    try:
        data: Any = orjson.loads(item.data)
    except orjson.JSONDecodeError:
        try:
            data = decode_repaired(item.data.decode("utf-8", "replace").encode())[0]
        except InvalidError:
            look.troubles.append(Trouble("bad_json", 0, len(item.data), item.id, name))
            return
    if not isinstance(data, dict):
        return
    info = info_of(data, item.id, name, item.kind)
    if info["role"] != "assistant" or (member(info, "time").get("completed") is None and not has_counters(info)):
        return
    made = created(info)
    at = made or conversation.created or 0
    counted = read_message(info, conversation.version)
    if counted is None:
        look.loose.append((name, "schema", at))
        return
    model, service = info.get("modelID"), info.get("providerID")
    told = counted.counters.get
    look.calls.append(
        Call(
            call_of(info) or f"{PROVIDER}:{item.id}",
            name,
            at,
            model if isinstance(model, str) else None,
            None,
            service if isinstance(service, str) else None,
            told("input"),
            told("output"),
            told("total_input"),
            told("cache_read"),
            told("cache_write"),
            told("cache_write_1h"),
            told("reasoning"),
            cost=counted.cost,
            final=counted.final,
            gaps=counted.gaps,
            copied_at=max(at, conversation.created or 0),
        )
    )
