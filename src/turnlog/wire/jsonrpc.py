"""JSON-RPC messages without I/O: decoded values in, typed messages out; and the bytes of what we say.

Codex leaves the ``"jsonrpc"`` member out (providers.md §3), so it is neither demanded nor written. What fits no shape
is ``Strange``, never an exception: a newer program may say more than we know.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import orjson

__all__ = [
    "METHOD_NOT_FOUND",
    "Failure",
    "Message",
    "Notification",
    "Request",
    "RequestId",
    "Response",
    "Strange",
    "encode_failure",
    "encode_notification",
    "encode_request",
    "encode_response",
    "read",
]

METHOD_NOT_FOUND: Final = -32601

RequestId = int | str


class Request(msgspec.Struct, frozen=True):
    """The other side asks, and waits for an answer under this id."""

    id: RequestId
    method: str
    params: dict[str, Any]


class Notification(msgspec.Struct, frozen=True):
    """The other side tells."""

    method: str
    params: dict[str, Any]


class Response(msgspec.Struct, frozen=True):
    """A request of ours succeeded."""

    id: RequestId
    result: Any


class Failure(msgspec.Struct, frozen=True):
    """A request of ours was refused. ``id`` is None when the other side could not tell which."""

    id: RequestId | None
    code: int
    message: str
    data: Any = None


class Strange(msgspec.Struct, frozen=True):
    """A JSON value that is no message."""

    value: Any


Message = Request | Notification | Response | Failure | Strange


def read(value: Any) -> Message:
    """Return the message of a decoded line. Parameters that are no object count as none."""
    if not isinstance(value, dict):
        return Strange(value)
    identifier, method = value.get("id"), value.get("method")
    if identifier is not None and (not isinstance(identifier, int | str) or isinstance(identifier, bool)):
        return Strange(value)
    if isinstance(method, str):
        params = value.get("params")
        params = params if isinstance(params, dict) else {}
        return Notification(method, params) if identifier is None else Request(identifier, method, params)
    if isinstance(value.get("error"), dict):
        return _failure(identifier, value["error"])
    if identifier is not None and "result" in value:
        return Response(identifier, value["result"])
    return Strange(value)


def _failure(identifier: RequestId | None, error: dict[str, Any]) -> Failure:
    code, message = error.get("code"), error.get("message")
    return Failure(
        identifier,
        code if isinstance(code, int) else 0,
        message if isinstance(message, str) else "no message",
        error.get("data"),
    )


def encode_request(identifier: RequestId, method: str, params: Any) -> bytes:
    """Return the line of a request."""
    return orjson.dumps({"id": identifier, "method": method, "params": params}) + b"\n"


def encode_notification(method: str, params: Any = None) -> bytes:
    """Return the line of a notification; without parameters the member is left out."""
    message = {"method": method} if params is None else {"method": method, "params": params}
    return orjson.dumps(message) + b"\n"


def encode_response(identifier: RequestId, result: Any) -> bytes:
    """Return the line that answers a request of the other side."""
    return orjson.dumps({"id": identifier, "result": result}) + b"\n"


def encode_failure(identifier: RequestId, code: int, message: str) -> bytes:
    """Return the line that refuses a request of the other side."""
    return orjson.dumps({"id": identifier, "error": {"code": code, "message": message}}) + b"\n"
