"""The shapes that OpenCode gave its messages over time, as the one that its server speaks today. Pure.

* A message with ``role``: ``info`` as the server gives it. The database keeps ``id`` and ``sessionID`` in columns.
* A message with ``type`` and its text inside (``text``, ``content``): the newer runtime's table, and some folders.
* A message with ``metadata`` and ``parts`` inside: the first releases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from turnlog.harness.opencode.decode import member

_BULKY: Final = frozenset({"content", "text", "files", "agents", "type", "model", "parts", "metadata", "snapshot"})
_COUNTERS: Final = ("input", "output", "reasoning", "total")


def info_of(data: Mapping[str, Any], identifier: str, session: str, kind: str | None = None) -> dict[str, Any]:
    """Return a message's info with ``id``, ``sessionID`` and ``role``, whatever shape it was kept in.

    ``identifier`` and ``session`` say what the object itself leaves out; ``kind`` is the ``type`` of a row that keeps
    it in a column. A message that nobody said (a switch of the model) has the role that its type names.
    """
    if isinstance(data.get("role"), str):
        if "time" not in data and isinstance(data.get("metadata"), dict):
            return _first(data, identifier, session)
        return {"id": identifier, "sessionID": session, **data}
    role = data.get("type", kind)
    info = {name: value for name, value in data.items() if name not in _BULKY}
    model = member(data, "model")
    named = model.get("modelID", model.get("id"))
    if named is not None:
        info["modelID"] = named
        info["providerID"] = model.get("providerID")
    return {"id": identifier, "sessionID": session, **info, "role": role if isinstance(role, str) else "unknown"}


def _first(data: Mapping[str, Any], identifier: str, session: str) -> dict[str, Any]:
    metadata = member(data, "metadata")
    assistant = member(metadata, "assistant")
    info: dict[str, Any] = {"id": data.get("id", identifier), "sessionID": metadata.get("sessionID", session)}
    info["role"] = data["role"]
    info["time"] = member(metadata, "time")
    if metadata.get("error") is not None:
        info["error"] = metadata["error"]
    return {**info, **{name: value for name, value in assistant.items() if name != "system"}}


def instant(value: Any) -> int | None:
    """Return a time as integer unix ms; what is no time is unknown, never zero."""
    if type(value) is int:  # by far the most
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value)


def created(info: Mapping[str, Any]) -> int | None:
    """Return when a message or session began, unix ms."""
    return instant(member(info, "time").get("created"))


def parent_of(info: Mapping[str, Any]) -> str | None:
    """Return the user message that an assistant message answers, if it says so."""
    parent = info.get("parentID")
    return parent if isinstance(parent, str) and parent else None


def has_counters(info: Mapping[str, Any]) -> bool:
    """Tell whether any token counter of a message is other than zero: then the model's provider did report them."""
    tokens = member(info, "tokens")
    cache = member(tokens, "cache")
    return any(tokens.get(name) for name in _COUNTERS) or bool(cache.get("read") or cache.get("write"))
