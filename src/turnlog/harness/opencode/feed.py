"""The event stream as a queue of wake-ups (semantics 6.2.3): what to look at, never what is true."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import httpx
import msgspec

from turnlog.clock import now_ms
from turnlog.errors import InvalidError, TurnlogError
from turnlog.harness._http import HttpClient, HttpStatusError
from turnlog.harness.opencode.decode import member
from turnlog.harness.opencode.events import Delta
from turnlog.receipts import decode_foreign
from turnlog.redact import sanitise
from turnlog.wire.sse import SseDecoder, SseProblem

SILENCE: Final = 35.0
"""Seconds without a byte after which the stream counts as broken; OpenCode sends a heartbeat each 10 s."""


class Wake(msgspec.Struct, frozen=True):
    """Something changed in a session. ``message`` names it when known; ``why`` is the event's type."""

    why: str
    session: str | None
    message: str | None = None
    parent_session: str | None = None
    status: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class PartKind(msgspec.Struct, frozen=True):
    """A part began; its deltas are of this kind (``text``, ``reasoning`` …)."""

    part: str
    kind: str


class Settled(msgspec.Struct, frozen=True):
    """A permission was answered, by whomever."""

    ask: str
    session: str | None
    reply: str | None


class Connected(msgspec.Struct, frozen=True):
    """The stream is open; everything before must be read again."""


class Lost(msgspec.Struct, frozen=True):
    """The stream ended. ``error_class`` is one of 6.2.4; instants are unix ms, None when it never opened."""

    error_class: str
    message: str | None
    started_at: int | None
    ended_at: int
    last_event: str | None


Signal = Wake | Delta | PartKind | Settled | Connected | Lost


async def follow(
    http: HttpClient, params: dict[str, str], queue: asyncio.Queue[Signal | None], settled: asyncio.Event
) -> None:
    """Read one event stream to its end, whatever end that is, and say so as the last signal.

    ``settled`` is unset while the connection is made.
    """
    started: int | None = None
    last: str | None = None

    def lost(error_class: str, message: str | None = None) -> Lost:
        return Lost(error_class, sanitise(message) if message else None, started, now_ms(), last)

    settled.clear()
    try:
        async with http.stream("/event", params, silence=SILENCE) as chunks:
            started = now_ms()
            settled.set()
            queue.put_nowait(Connected())
            decoder = SseDecoder()
            async for chunk in chunks:
                for event in decoder.feed(chunk):
                    if isinstance(event, SseProblem):
                        queue.put_nowait(Wake(event.kind, None))  # unreadable: look at everything that is open
                        continue
                    for signal, kind in _signals(event.data):
                        last = kind
                        if signal is not None:
                            queue.put_nowait(signal)
        queue.put_nowait(lost("stream_eof"))
    except httpx.HTTPError as error:
        queue.put_nowait(lost("read_error", str(error) or type(error).__name__))
    except HttpStatusError as error:
        queue.put_nowait(lost("response_error_status", str(error)))
    except TurnlogError as error:
        queue.put_nowait(lost("connection_failed", str(error)))
    finally:
        settled.set()


def _signals(data: str) -> list[tuple[Signal | None, str | None]]:
    """Return the signals of one event with its type."""
    with contextlib.suppress(InvalidError):
        event, _ = decode_foreign(data.encode("utf-8", "surrogatepass"))
        if isinstance(event, dict) and isinstance(event.get("type"), str):
            properties = event.get("properties")
            return _read(event["type"], properties if isinstance(properties, dict) else {})
    return [(Wake("unreadable", None), None)]


def _read(kind: str, properties: dict[str, Any]) -> list[tuple[Signal | None, str | None]]:
    session = _text(properties, "sessionID")
    info = member(properties, "info")
    signals: list[Signal] = []
    if kind == "message.part.delta":
        message, name, text = (_text(properties, key) for key in ("messageID", "partID", "delta"))
        if message and name and text and properties.get("field") == "text":
            signals.append(Delta(session, message, name, text))
    elif kind == "message.part.updated":
        signals += _part(kind, session, properties)
    elif kind in {"message.updated", "message.removed"}:
        session = session or _text(info, "sessionID")
        # What a person said is read together with what answers it: reading for it alone would only slow the server.
        if kind == "message.removed" or _text(info, "role") != "user":
            signals.append(Wake(kind, session, _text(info, "id") or _text(properties, "messageID")))
    elif kind.startswith("permission."):
        # Two shapes: 1.18 {id, sessionID, …} / {requestID, reply}; older {permissionID, response}.
        ask = _text(properties, "requestID") or _text(properties, "permissionID")
        if kind == "permission.replied" and ask:
            signals.append(Settled(ask, session, _text(properties, "reply") or _text(properties, "response")))
        signals.append(Wake(kind, session))
    elif kind in {"session.created", "session.updated"}:
        signals.append(Wake(kind, _text(info, "id") or session, parent_session=_text(info, "parentID")))
    elif kind in {"session.status", "session.idle", "session.error"}:
        status = properties.get("status")
        if kind == "session.idle":
            status = {"type": "idle"}
        status = status if isinstance(status, dict) else None
        signals.append(Wake(kind, session, status=status, error=member(properties, "error") or None))
    return [(signal, kind) for signal in signals] or [(None, kind)]


def _part(kind: str, session: str | None, properties: dict[str, Any]) -> list[Signal]:
    part = member(properties, "part")
    session = session or _text(part, "sessionID")
    name, message, word = _text(part, "id"), _text(part, "messageID"), _text(part, "type")
    if name is None or word not in {"text", "reasoning"}:
        return [] if word == "step-start" else [Wake(kind, session, message)]
    signals: list[Signal] = [PartKind(name, word)]
    if message and (text := _text(properties, "delta")):  # how old versions stream
        signals.append(Delta(session, message, name, text))
    if member(part, "time").get("end") is not None:
        signals.append(Wake(kind, session, message))
    return signals


def _text(holder: dict[str, Any], name: str) -> str | None:
    value = holder.get(name)
    return value if isinstance(value, str) else None
