"""OpenCode's message list as receipts: pure, no I/O, no clock (semantics 6.2.3, appendix D; D9, D12, D19).

One user turn is one user message and one assistant message per model call, all with ``parentID`` = the user message;
the group of a request is the assistant messages that name it. A group completes by its *last* message only, in the
provider's own words (H4). Facts and their dates: providers.md §2, checked on 1.18.33.

An abort while OpenCode waits to retry leaves a message with ``time.completed`` but no error and no finish. By itself
that says nothing (a killed server, a lost answer), so it completes nothing. Only when *we* sent the abort, OpenCode
accepted it and the message was open before it, is the turn ``interrupted``; the payload then says so
(``basis: abort_accepted``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from turnlog.receipts import Receipt
from turnlog.redact import sanitise, sanitise_value, strip_terminal

PROVIDER: Final = "opencode"
GENERIC_ERROR: Final = "OpenCode request did not complete"
_OPEN_FINISH: Final = {"", "tool-calls", "unknown"}


class ToolPart(msgspec.Struct, frozen=True):
    """One tool call of a message. ``state`` is ``pending running completed error``; times are unix ms."""

    id: str
    call: str | None
    name: str
    state: str
    title: str | None
    started: int | None
    ended: int | None
    child: str | None
    """The session of a subagent, for the ``task`` tool."""

    @property
    def unfinished(self) -> bool:
        return self.state in {"pending", "running"}


class TextPart(msgspec.Struct, frozen=True):
    """A text or reasoning part. ``ended`` is None while it streams, and for ever in a retry's leftover."""

    id: str
    kind: str
    text: str
    ended: int | None


class Message(msgspec.Struct, frozen=True):
    """What we keep of one message. ``info`` is whole for assistant messages, empty otherwise."""

    id: str
    role: str
    parent: str | None
    created: int
    completed: Any
    """``time.completed`` as given; None while the message is open."""
    info: dict[str, Any]
    texts: tuple[TextPart, ...] = ()
    tools: tuple[ToolPart, ...] = ()

    @property
    def order(self) -> tuple[int, str]:
        """Order in the conversation: ``time.created``, then id [S]."""
        return self.created, self.id

    @property
    def finish(self) -> str:
        value = self.info.get("finish")
        return value if isinstance(value, str) else ""

    @property
    def error(self) -> Any:
        return self.info.get("error")

    @property
    def is_compaction(self) -> bool:
        """Whether this is OpenCode's own summary of a long conversation; the work goes on in a later request.

        A failed summary is where the work ended, so it does not count as one.
        """
        return self.info.get("summary") is True and self.error is None


class Group(msgspec.Struct, frozen=True):
    """The assistant messages of one request, in order, and what they say. ``completion`` is None while it is open."""

    request: str
    messages: tuple[Message, ...]
    completion: dict[str, Any] | None = None
    output: dict[str, Any] | None = None

    @property
    def last(self) -> Message:
        return self.messages[-1]


def member(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an object inside an object; empty when it is missing or something else."""
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def read_message(thread: str, value: Any) -> Message | None:
    """Decode one element of the message list; None when it is not a message of this thread."""
    if not isinstance(value, dict) or not isinstance(info := value.get("info"), dict):
        return None
    identifier, role = info.get("id"), info.get("role")
    if info.get("sessionID") != thread or not isinstance(identifier, str) or not isinstance(role, str):
        return None
    time = member(info, "time")
    parent = info.get("parentID")
    texts: list[TextPart] = []
    tools: list[ToolPart] = []
    assistant = role == "assistant"
    parts = value.get("parts") if assistant else None
    for part in parts if isinstance(parts, list) else ():
        if not isinstance(part, dict):
            continue
        kind = part.get("type")
        if kind in {"text", "reasoning"}:
            texts.append(_text_part(part))
        elif kind == "tool":
            tools.append(_tool_part(part))
    return Message(
        id=identifier,
        role=role,
        parent=parent if assistant and isinstance(parent, str) else None,
        created=_instant(time, "created") or 0,
        completed=time.get("completed"),
        info=info if assistant else {},
        texts=tuple(texts),
        tools=tuple(tools),
    )


def group_messages(messages: Iterable[Message]) -> dict[str, tuple[Message, ...]]:
    """Group assistant messages by the request they answer; messages of a group in their order [S]."""
    groups: dict[str, list[Message]] = {}
    for message in messages:
        if message.role == "assistant" and message.parent is not None:
            groups.setdefault(message.parent, []).append(message)
    return {request: tuple(sorted(members, key=lambda message: message.order)) for request, members in groups.items()}


def read_group(request: str, messages: Sequence[Message], aborted: Collection[str] = ()) -> Group:
    """Decide what a group says. ``aborted``: ids of messages that were open when an abort of ours was accepted."""
    last = messages[-1]
    by_abort = last.id in aborted and last.error is None and not last.finish
    status = _status(messages, by_abort=by_abort)
    if status is None:
        return Group(request, tuple(messages))
    completion: dict[str, Any] = {
        "status": status,
        "error": sanitise_value(last.error),
        "started_at": member(messages[0].info, "time").get("created"),
        "completed_at": last.completed,
        "message_id": last.id,
        "provider": PROVIDER,
    }
    if by_abort:
        completion["basis"] = "abort_accepted"
    return Group(request, tuple(messages), completion, _output(last))


def _status(messages: Sequence[Message], *, by_abort: bool) -> str | None:
    last = messages[-1]
    if last.completed is None or any(tool.unfinished for message in messages for tool in message.tools):
        return None
    if last.error is not None:
        name = last.error.get("name") if isinstance(last.error, dict) else None
        return "interrupted" if name == "MessageAbortedError" else "failed"
    if last.finish in _OPEN_FINISH:
        return "interrupted" if by_abort else None
    return "completed"


def _output(last: Message) -> dict[str, Any] | None:
    for name in ("structured", "structured_output"):  # the field's name differs between versions
        value = last.info.get(name)
        if value is not None:
            return {"value": value}
    texts = [part for part in last.texts if part.kind == "text"]
    # A retried stream leaves an empty part without an end behind; that is not an answer.
    while texts and not texts[-1].text and texts[-1].ended is None:
        texts.pop()
    return {"text": texts[-1].text} if texts else None


def usage_receipt(thread: str, request: str, message: Message, session_version: str | None) -> Receipt | None:
    """Return the usage receipt of a message; None while it runs. The whole info, so a changed one is a new receipt."""
    if message.completed is None:
        return None
    info = message.info
    if info.get("error") is not None:
        info = {**info, "error": sanitise_value(info["error"])}
    payload = {"provider": PROVIDER, "session_version": session_version, "message": info}
    return Receipt(thread, request, "usage", payload)


def answer_receipts(thread: str, group: Group) -> tuple[Receipt | None, Receipt | None]:
    """Return the output and the completed receipt of a group, as far as it has them."""
    if group.completion is None:
        return None, None
    output = Receipt(thread, group.request, "output", group.output) if group.output is not None else None
    return output, Receipt(thread, group.request, "completed", group.completion)


def error_text(error: Any, *, interrupted: bool = False) -> str:
    """Return the provider's own words about an error, one line, safe to store and show (6.2.3, 6.2.5)."""
    if isinstance(error, dict):
        data = error.get("data")
        for holder in (data, error):
            if isinstance(holder, dict) and isinstance(holder.get("message"), str):
                return strip_terminal(sanitise(" ".join(holder["message"].split())))
    return "Aborted" if interrupted else GENERIC_ERROR


def superseded_by(group: Group, later: Sequence[Message]) -> str | None:
    """Return the request that took over a group (D19).

    The group ends in finished tool calls, and the next model call after it belongs to another request. ``later``
    holds assistant messages in order.
    """
    last = group.last
    if group.completion is not None or last.completed is None or last.finish != "tool-calls" or last.error is not None:
        return None
    return _taken_over(last.order, group.request, later)


def absorbed_by(user: Message, requests: Mapping[str, Message], later: Sequence[Message]) -> str | None:
    """Return the request whose answer covers a queued one that got no answer of its own (D19).

    ``requests`` maps user message ids to them: only an answer to a *later* request can cover this one.
    """
    for message in later:
        if message.order <= user.order or message.parent is None or message.is_compaction:
            continue
        parent = requests.get(message.parent)
        if parent is not None and parent.order > user.order:
            return parent.id
    return None


def _taken_over(after: tuple[int, str], request: str, later: Sequence[Message]) -> str | None:
    for message in later:
        takes_over = message.order > after and message.parent not in {None, request} and not message.is_compaction
        if takes_over:
            return message.parent
    return None


def _text_part(part: dict[str, Any]) -> TextPart:
    time = member(part, "time")
    text = part.get("text")
    return TextPart(
        str(part.get("id")), str(part["type"]), text if isinstance(text, str) else "", _instant(time, "end")
    )


def _tool_part(part: dict[str, Any]) -> ToolPart:
    state = member(part, "state")
    time = member(state, "time")
    metadata = member(state, "metadata")
    name, child, call = part.get("tool"), metadata.get("sessionId"), part.get("callID")
    return ToolPart(
        id=str(part.get("id")),
        call=call if isinstance(call, str) else None,
        name=name if isinstance(name, str) else "unknown",
        state=str(state.get("status")),
        title=_tool_title(state),
        started=_instant(time, "start"),
        ended=_instant(time, "end"),
        child=child if name == "task" and isinstance(child, str) else None,
    )


def _tool_title(state: dict[str, Any]) -> str | None:
    """Return one line that tells what the call does: OpenCode's own title, else the telling part of its input."""
    given = member(state, "input")
    for candidate in (given.get("command"), state.get("title"), given.get("filePath"), given.get("description")):
        if isinstance(candidate, str) and candidate.strip():
            return strip_terminal(" ".join(candidate.split()))[:200]
    return None


def _instant(time: Mapping[str, Any], name: str) -> int | None:
    """Return an instant as integer unix ms; other types are unknown, never zero."""
    value = time.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value)
