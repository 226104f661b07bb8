"""OpenAI Chat Completions, as OpenCode's ``@ai-sdk/openai-compatible`` speaks it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from turnlog.testing.stub.plan import Answer, Failure, Pause, Say, Think, Tokens, View, thirds
from turnlog.testing.stub.wire import DONE, Event, block_text, tool_table

NAME = "chat"
_FINISH = {"stop": "stop", "tool": "tool_calls", "length": "length"}


def read(body: dict[str, Any]) -> View:
    """Return what a request says."""
    user, results, system = "", 0, ""
    for message in body.get("messages") or []:
        role, text = message.get("role"), block_text(message.get("content"))
        if role == "user":
            user, results = text, 0
        elif role == "tool":
            results += 1
        elif role in {"system", "developer"}:
            system += text
    return View(user, results, tool_table(body.get("tools")), system)


def events(answer: Answer, request: str, model: str) -> Iterator[Event | Pause]:
    """Yield the stream of an answer."""
    head = {"id": request, "object": "chat.completion.chunk", "created": 0, "model": model}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> Event:
        return Event(None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    calls = 0
    for part in answer.parts:
        if isinstance(part, Think):
            for piece in thirds(part.text):
                yield chunk({"reasoning_content": piece})
        elif isinstance(part, Say):
            for step in part.pieces:
                yield step if isinstance(step, Pause) else chunk({"content": step})
        else:
            opening = {"id": f"call_{request}_{calls}", "type": "function"}
            yield chunk({"tool_calls": [{"index": calls, **opening, "function": {"name": part.name, "arguments": ""}}]})
            for piece in thirds(orjson.dumps(part.arguments).decode()):
                yield chunk({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]})
            calls += 1
    if answer.broken:
        yield Event(None, {"error": {"message": "stub in-band error", "type": "server_error", "code": "server_error"}})
        return
    yield chunk({}, _FINISH[answer.finish])
    yield Event(None, {**head, "choices": [], "usage": _usage(answer.tokens)})
    yield DONE


def whole(answer: Answer, request: str, model: str) -> dict[str, Any]:
    """Return the answer to a request that wants no stream."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    for number, part in enumerate(answer.parts):
        if isinstance(part, Say):
            message["content"] += part.text
        elif isinstance(part, Think):
            message["reasoning_content"] = part.text
        else:
            function = {"name": part.name, "arguments": orjson.dumps(part.arguments).decode()}
            call = {"id": f"call_{request}_{number}", "type": "function", "function": function}
            message.setdefault("tool_calls", []).append(call)
    return {
        "id": request,
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": _FINISH[answer.finish]}],
        "usage": _usage(answer.tokens),
    }


def error(failure: Failure) -> dict[str, Any]:
    """Return the body of an error answer."""
    kind = "server_error" if failure.status >= 500 else "invalid_request_error"  # noqa: PLR2004
    return {"error": {"message": failure.message, "type": kind, "param": None, "code": None}}


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.prompt + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }
