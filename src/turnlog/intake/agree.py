"""Two witnesses of one turn: whether what its file says of its end or answer is what the wire said, in other words."""

from __future__ import annotations

from typing import Any

from turnlog.errors import InvalidError
from turnlog.model import EventKind
from turnlog.receipts import decode


def agree(kind: str, one: Any, other: Any) -> bool:
    """Tell whether two payloads of a turn's ``completed`` or ``output`` say the same: one status, one answer.

    An answer that was asked for as a value is text in a file.
    """
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    if kind == EventKind.COMPLETED:
        return bool(one.get("status") == other.get("status"))
    if "text" in one and "text" in other:
        return bool(one["text"] == other["text"])
    return bool(_value(one) == _value(other))


def _value(output: dict[str, Any]) -> Any:
    if "value" in output:
        return output["value"]
    text = output.get("text")
    try:
        return decode(text) if isinstance(text, str) else None
    except InvalidError:
        return text
