"""Lines that note an agent's progress in its parent's file, of which only the repeated message is decoded.

They may repeat a whole history and be megabytes long: what is not needed is passed over without being built.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec


class _Message(msgspec.Struct, gc=False, omit_defaults=True):
    id: Any = None
    model: Any = None
    usage: Any = None


class _Record(msgspec.Struct, gc=False, omit_defaults=True):
    type: Any = None
    uuid: Any = None
    timestamp: Any = None
    request: Any = msgspec.field(default=None, name="requestId")
    message: _Message | None = None


class _Data(msgspec.Struct, gc=False, omit_defaults=True):
    agent: Any = msgspec.field(default=None, name="agentId")
    message: _Record | None = None


class _Line(msgspec.Struct, gc=False, omit_defaults=True):
    type: Any = None
    data: _Data | None = None


_decode: Final = msgspec.json.Decoder(_Line).decode


def embedded(raw: bytes) -> dict[str, Any] | None:
    """Return a progress line with only what counts in it; None when it is none, or must be read another way.

    Linear, at some gigabytes a second.
    """
    try:
        line = _decode(raw)
    except (msgspec.DecodeError, RecursionError):  # damaged, or of a shape that is not known
        return None
    if line.type != "progress":
        return None
    found: dict[str, Any] = msgspec.to_builtins(line)
    return found
