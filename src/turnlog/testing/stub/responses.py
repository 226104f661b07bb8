"""OpenAI Responses, as Codex and OpenCode's builtin ``openai`` speak it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from turnlog.testing.stub.plan import Answer, Call, Failure, Pause, Say, Think, Tokens, View, thirds
from turnlog.testing.stub.wire import Event, block_text, tool_table

NAME = "responses"


def read(body: dict[str, Any]) -> View:
    """Return what a request says."""
    system = str(body.get("instructions") or "")
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
    user, results = "", 0
    for item in items:
        kind, role = item.get("type", "message"), item.get("role")
        if kind == "message" and role == "user":
            user, results = block_text(item.get("content")), 0
        elif kind == "message" and role in {"system", "developer"}:
            system += block_text(item.get("content"))
        elif kind.endswith("_call_output"):
            results += 1
    return View(user, results, tool_table(body.get("tools")), system)


class _Stream:
    """Numbers the events of one response and collects its items."""

    def __init__(self, request: str, model: str) -> None:
        self._sequence = 0
        self.request = request
        self.response: dict[str, Any] = {
            "id": f"resp_{request}",
            "object": "response",
            "created_at": 0,
            "status": "in_progress",
            "model": model,
            "output": [],
            "usage": None,
            "error": None,
            "incomplete_details": None,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "store": False,
        }

    def event(self, kind: str, **members: Any) -> Event:
        event = Event(kind, {"type": kind, "sequence_number": self._sequence, **members})
        self._sequence += 1
        return event

    def state(self, kind: str) -> Event:
        return self.event(kind, response=dict(self.response))

    def open(self, item: dict[str, Any]) -> Event:
        return self.event("response.output_item.added", output_index=len(self.response["output"]), item=dict(item))

    def close(self, item: dict[str, Any]) -> Event:
        index = len(self.response["output"])
        self.response["output"].append(item)
        return self.event("response.output_item.done", output_index=index, item=item)

    def about(self, item: dict[str, Any], kind: str, **members: Any) -> Event:
        return self.event(kind, item_id=item["id"], output_index=len(self.response["output"]), **members)


def events(answer: Answer, request: str, model: str) -> Iterator[Event | Pause]:
    """Yield the stream of an answer."""
    stream = _Stream(request, model)
    yield stream.state("response.created")
    yield stream.state("response.in_progress")
    for number, part in enumerate(answer.parts):
        if isinstance(part, Think):
            yield from _think(stream, f"rs_{request}_{number}", part)
        elif isinstance(part, Say):
            yield from _say(stream, f"msg_{request}_{number}", part)
        else:
            yield from _call(stream, number, part)
    if answer.broken:
        fault = {"code": "server_error", "message": "stub in-band error"}
        stream.response |= {"status": "failed", "error": fault}
        yield stream.state("response.failed")
        return
    stream.response["usage"] = _usage(answer.tokens)
    if answer.finish == "length":
        stream.response |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        yield stream.state("response.incomplete")
    else:
        stream.response["status"] = "completed"
        yield stream.state("response.completed")


def whole(answer: Answer, request: str, model: str) -> dict[str, Any]:
    """Return the answer to a request that wants no stream: the response as it stands at the stream's end."""
    response: dict[str, Any] = {}
    for event in events(answer, request, model):
        if isinstance(event, Event) and "response" in event.data:
            response = event.data["response"]
    return response


def error(failure: Failure) -> dict[str, Any]:
    """Return the body of an error answer."""
    limited = failure.status == 429  # noqa: PLR2004
    kind = "server_error" if failure.status >= 500 else "invalid_request_error"  # noqa: PLR2004
    code = "rate_limit_exceeded" if limited else None
    return {"error": {"message": failure.message, "type": kind, "param": None, "code": code}}


def _think(stream: _Stream, identifier: str, part: Think) -> Iterator[Event]:
    item: dict[str, Any] = {"id": identifier, "type": "reasoning", "summary": []}
    yield stream.open(item)
    empty = {"type": "summary_text", "text": ""}
    yield stream.about(item, "response.reasoning_summary_part.added", summary_index=0, part=empty)
    for piece in thirds(part.text):
        yield stream.about(item, "response.reasoning_summary_text.delta", summary_index=0, delta=piece)
    yield stream.about(item, "response.reasoning_summary_text.done", summary_index=0, text=part.text)
    summary = {"type": "summary_text", "text": part.text}
    yield stream.about(item, "response.reasoning_summary_part.done", summary_index=0, part=summary)
    yield stream.close({**item, "summary": [summary], "encrypted_content": "c3R1Yg=="})


def _say(stream: _Stream, identifier: str, part: Say) -> Iterator[Event | Pause]:
    item = {"id": identifier, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    yield stream.open(item)
    empty = {"type": "output_text", "text": "", "annotations": []}
    yield stream.about(item, "response.content_part.added", content_index=0, part=empty)
    for step in part.pieces:
        if isinstance(step, Pause):
            yield step
        else:
            yield stream.about(item, "response.output_text.delta", content_index=0, delta=step)
    yield stream.about(item, "response.output_text.done", content_index=0, text=part.text)
    content = {"type": "output_text", "text": part.text, "annotations": []}
    yield stream.about(item, "response.content_part.done", content_index=0, part=content)
    yield stream.close({**item, "status": "completed", "content": [content]})


def _call(stream: _Stream, number: int, part: Call) -> Iterator[Event]:
    arguments = orjson.dumps(part.arguments).decode()
    item: dict[str, Any] = {
        "id": f"fc_{stream.request}_{number}",
        "type": "function_call",
        "status": "in_progress",
        "call_id": f"call_{stream.request}_{number}",
        "name": part.name,
        "arguments": "",
    }
    if part.namespace is not None:
        item["namespace"] = part.namespace
    yield stream.open(item)
    for piece in thirds(arguments):
        yield stream.about(item, "response.function_call_arguments.delta", delta=piece)
    yield stream.about(item, "response.function_call_arguments.done", arguments=arguments)
    yield stream.close({**item, "status": "completed", "arguments": arguments})


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "input_tokens": tokens.prompt,
        "input_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.prompt + tokens.output,
    }
