"""Anthropic Messages, as Claude Code and OpenCode's builtin ``anthropic`` speak it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from turnlog.testing.stub.plan import Answer, Call, Failure, Pause, Say, Think, Tokens, View, has_marker, thirds
from turnlog.testing.stub.wire import Event, block_text, tool_table

NAME = "anthropic"
_FINISH = {"stop": "end_turn", "tool": "tool_use", "length": "max_tokens"}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_SIGNATURE = "c3R1Yg=="


def read(body: dict[str, Any]) -> View:
    """Return what a request says.

    Tool results come as user messages, and so do reminders that the agent adds: neither is what the user said,
    unless it carries a marker.
    """
    user, results = "", 0
    for message in body.get("messages") or []:
        if message.get("role") != "user":
            continue
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        answered = sum(1 for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result")
        text = block_text(content)
        reminder = text.lstrip().startswith("<system-reminder>")
        if has_marker(text) or (text and not answered and not reminder):
            user, results = text, 0
        else:
            results += answered
    return View(user, results, tool_table(body.get("tools")), block_text(body.get("system")))


def events(answer: Answer, request: str, model: str) -> Iterator[Event | Pause]:
    """Yield the stream of an answer."""

    def event(kind: str, **members: Any) -> Event:
        return Event(kind, {"type": kind, **members})

    message = _message(request, model)
    yield event("message_start", message={**message, "usage": _usage(answer.tokens, output=1)})
    yield event("ping")
    for index, part in enumerate(answer.parts):
        yield event("content_block_start", index=index, content_block=_block(part, request, index, filled=False))
        for delta in _deltas(part):
            yield delta if isinstance(delta, Pause) else event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    if answer.broken:
        yield event("error", error={"type": "overloaded_error", "message": "stub in-band error"})
        return
    ending = {"stop_reason": _FINISH[answer.finish], "stop_sequence": None}
    yield event("message_delta", delta=ending, usage=_usage(answer.tokens, output=answer.tokens.output))
    yield event("message_stop")


def whole(answer: Answer, request: str, model: str) -> dict[str, Any]:
    """Return the answer to a request that wants no stream."""
    return {
        **_message(request, model),
        "content": [_block(part, request, index, filled=True) for index, part in enumerate(answer.parts)],
        "stop_reason": _FINISH[answer.finish],
        "usage": _usage(answer.tokens, output=answer.tokens.output),
    }


def error(failure: Failure) -> dict[str, Any]:
    """Return the body of an error answer."""
    kind = _ERRORS.get(failure.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": failure.message}, "request_id": "req_stub"}


def _message(request: str, model: str) -> dict[str, Any]:
    return {
        "id": f"msg_{request}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _block(part: Think | Say | Call, request: str, index: int, *, filled: bool) -> dict[str, Any]:
    if isinstance(part, Think):
        return {"type": "thinking", "thinking": part.text if filled else "", "signature": _SIGNATURE if filled else ""}
    if isinstance(part, Say):
        return {"type": "text", "text": part.text if filled else ""}
    call = {"type": "tool_use", "id": f"toolu_{request}_{index}", "name": part.name}
    return {**call, "input": part.arguments if filled else {}}


def _deltas(part: Think | Say | Call) -> Iterator[dict[str, Any] | Pause]:
    if isinstance(part, Think):
        for piece in thirds(part.text):
            yield {"type": "thinking_delta", "thinking": piece}
        yield {"type": "signature_delta", "signature": _SIGNATURE}
    elif isinstance(part, Say):
        for step in part.pieces:
            yield step if isinstance(step, Pause) else {"type": "text_delta", "text": step}
    else:
        for piece in thirds(orjson.dumps(part.arguments).decode()):
            yield {"type": "input_json_delta", "partial_json": piece}


def _usage(tokens: Tokens, *, output: int) -> dict[str, Any]:
    long_lived = tokens.cache_write // 4
    return {
        "input_tokens": tokens.input,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": tokens.cache_write - long_lived,
            "ephemeral_1h_input_tokens": long_lived,
        },
        "output_tokens": output,
        "service_tier": "standard",
    }
