"""A quick look at Claude Code's transcripts: only lines that hold a usage object are decoded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from turnlog.harness.claude.counting import INPUTS, advisors, usage_of
from turnlog.harness.claude.course import kind_of
from turnlog.harness.claude.decode import PROVIDER, SYNTHETIC, member
from turnlog.harness.claude.sources import AGENT, agent_of, folder_of
from turnlog.harness.quick import Blocks, Call, Look
from turnlog.harness.reading import Find, Source, Trouble
from turnlog.harness.salvage import instant, read_line
from turnlog.usage.claude import read_call
from turnlog.usage.prices import tier_of

MARK: Final = b'"usage":'
_ORDINARY: Final = frozenset({None, "standard", "not_available", ""})
_USER: Final = b',"type":"user","message":{'
_MESSAGE: Final = b'"message":'
_ASSISTANT: Final = b'"type":"assistant"'
_EDGE: Final = 800
"""Bytes at the beginning, or the end, of a line in which its members beside the message are."""

_FIRST: Final = 100
"""Lines at the beginning of a file that are looked at to tell whose it is."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Split(msgspec.Struct, gc=False):
    five: _Count | None = msgspec.field(default=None, name="ephemeral_5m_input_tokens")
    hour: _Count | None = msgspec.field(default=None, name="ephemeral_1h_input_tokens")


class _Details(msgspec.Struct, gc=False):
    thinking: _Count | None = msgspec.field(default=None, name="thinking_tokens")


class _Tools(msgspec.Struct, gc=False):
    searches: _Count = msgspec.field(default=0, name="web_search_requests")


class _Usage(msgspec.Struct, gc=False):
    fresh: _Count | None = msgspec.field(default=None, name="input_tokens")
    output: _Count | None = msgspec.field(default=None, name="output_tokens")
    read: _Count | None = msgspec.field(default=None, name="cache_read_input_tokens")
    write: _Count | None = msgspec.field(default=None, name="cache_creation_input_tokens")
    split: _Split | None = msgspec.field(default=None, name="cache_creation")
    details: _Details | None = msgspec.field(default=None, name="output_tokens_details")
    service_tier: str | None = None
    speed: str | None = None
    inference_geo: str | None = None
    iterations: list[Any] | None = None
    tools: _Tools | None = msgspec.field(default=None, name="server_tool_use")


class _Origin(msgspec.Struct, gc=False):
    session: str | None = msgspec.field(default=None, name="sessionId")


class _Message(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None


class _Record(msgspec.Struct, gc=False):
    """An assistant record, or one that a progress line embeds."""

    type: str | None = None
    message: _Message | None = None
    request: str | None = msgspec.field(default=None, name="requestId")
    uuid: str | None = None
    timestamp: str | None = None


class _Data(msgspec.Struct, gc=False):
    type: str | None = None
    message: _Record | None = None
    agent: str | None = msgspec.field(default=None, name="agentId")


class _Line(_Record, gc=False):
    session: str | None = msgspec.field(default=None, name="sessionId")
    agent: str | None = msgspec.field(default=None, name="agentId")
    cwd: str | None = None
    side: bool | None = msgspec.field(default=None, name="isSidechain")
    origin: _Origin | None = msgspec.field(default=None, name="forkedFrom")
    data: _Data | None = None


class _Odd(Exception):  # noqa: N818 - no error: a line that the quick way is not made for
    pass


_decode: Final = msgspec.json.Decoder(_Line).decode


class Quick:
    """Looks at transcripts, one after another."""

    def __init__(self, find: Find) -> None:
        self._blocks = Blocks()

    def look(self, source: Source) -> Look:
        """Return the calls of one transcript. Raises OSError.

        One pass over its bytes; what bears no mark is not decoded, so damage there is not seen.
        """
        found = _Transcript(source)
        for buffer, begin, end, place in self._blocks.of(source, found.look):
            if place == 0:
                found.head(buffer, begin, end)
            start, find, rfind = begin, buffer.find, buffer.rfind
            with memoryview(buffer) as view:
                while start < end:
                    stop = find(b"\n", start, end)
                    if stop < 0:
                        stop = end
                    # A user's record says so at its beginning: two thirds of all bytes, which need no search, unless
                    # the line was torn and another one glued to it. An answer says at its end that it is one, and what
                    # was used: so it is looked at from there.
                    if (
                        rfind(_ASSISTANT, max(start, stop - _EDGE), stop) >= 0
                        or not start <= (user := find(_USER, start, start + _EDGE)) < stop
                        or find(_MESSAGE, start, user) >= 0
                    ) and rfind(MARK, start, stop) >= 0:
                        with view[start:stop] as line:
                            try:
                                found.line(_decode(line))
                            except (msgspec.DecodeError, UnicodeDecodeError, _Odd):
                                found.odd(bytes(line), place + start)
                    start = stop + 1
        return found.end()


class _Transcript:
    def __init__(self, source: Source) -> None:
        self.look = Look()
        self._name = os.path.basename(source.path).removesuffix(".jsonl")  # noqa: PTH119 - thousands of files
        plain = source.thread == self._name and not self._name.startswith(AGENT)
        self._agent = None if plain else agent_of(source.path)
        self._folder = None if plain else folder_of(source.path)
        self._own: str | None = None
        self._since = 0
        self._written = 0
        self._latest: dict[str, int] = {}
        self._calls: dict[str, Call] = {}
        self._usages: dict[str, Mapping[str, Any]] = {}

    def end(self) -> Look:
        self.look.calls = list(self._calls.values())
        for call in self.look.calls:
            if call.at < self._since:  # it is older than the file: copied from another session
                call.copied_at = self._since
        for name, usage in self._usages.items():
            main = self._calls[name]
            for other, model, more in advisors(main.call.removeprefix(f"{PROVIDER}:"), usage)[0]:
                self.look.calls.append(_call(other, main.session, main.at, model, more, main.request))
        return self.look

    def head(self, buffer: bytearray, begin: int, end: int) -> None:
        """Find whose file this is: the first record of a conversation tells it."""
        self._written = self.look.latest
        for _ in range(_FIRST):
            stop = buffer.find(b"\n", begin, end)
            if stop < 0 or self._own is not None:
                return
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                line = _decode(buffer[begin:stop])
                if line.type in {"user", "assistant"}:
                    own = self._begin(line.session, line.agent, anchored=_anchored(line.uuid, line.message))
                    self._moment(own, instant(line.timestamp))
                else:
                    self._since = max(self._since, instant(line.timestamp) or 0)
            begin = stop + 1

    def _begin(self, session: str | None, agent: str | None, *, anchored: bool) -> str:
        """Find the file's own conversation."""
        if self._agent is None:
            own = session or self._name
        else:
            agent = agent or self._agent
            parent = session if anchored and session not in {agent, f"{AGENT}{agent}"} else None
            parent = parent or self._folder
            own = f"{parent}/{agent}" if parent is not None else f"{AGENT}{agent}"
        self._own = own
        return own

    def _session(self, session: str | None, agent: str | None, *, side: bool, anchored: bool) -> str:
        """Return the conversation of an assistant record."""
        own = self._own or self._begin(session, agent, anchored=anchored)
        if self._agent is not None:
            return own
        if session is None or not anchored:
            session = own
        elif session == self._name:
            self._own = session
        return f"{session.partition('/')[0]}/{agent}" if side and agent else session

    def _moment(self, session: str, at: int | None) -> int:
        """Return an instant; where it is not known the last one before it in its conversation, else the file's."""
        if at is None:
            return self._latest.get(session, self._written)
        self._latest[session] = at
        return at

    def _child(self, agent: str) -> str:
        """Return the conversation of an agent of this file's."""
        return f"{(self._own or self._name).partition('/')[0]}/{agent}"

    def line(self, line: _Line) -> None:
        """Take a line of the ordinary kind; raises _Odd for any other, before anything was taken of it."""
        if line.type is None:
            raise _Odd
        if line.type == "assistant":
            record: _Record = line
            anchored = _anchored(line.uuid, line.message)
            session = self._session(line.session, line.agent, side=bool(line.side), anchored=anchored)
        elif line.type == "progress" and line.data is not None and line.data.message is not None:
            record = line.data.message
            if record.type != "assistant" or not line.data.agent:
                return
            session = self._child(line.data.agent)
        else:
            return
        message = record.message
        if message is None or message.model == SYNTHETIC or message.usage is None:
            return
        name = message.id or record.uuid
        if name is None or message.usage.iterations is not None:
            raise _Odd
        if line.cwd is not None and session not in self.look.cwds:
            self.look.cwds[session] = line.cwd
        rivals = () if line.origin is None else _rivals(line.origin.session, session)
        self._told(name, session, record, message, message.usage, rivals)

    def _told(
        self,
        name: str,
        session: str,
        record: _Record,
        message: _Message,
        usage: _Usage,
        rivals: tuple[str, ...],
    ) -> None:
        held, identity, request = self._calls.get(name), f"{PROVIDER}:{name}", record.request or None
        if held is not None and _other(held, request, message.model, usage.fresh, usage.read, usage.write):
            name = f"{name}~{request}"
            held = self._calls.get(name)
        fresh, read, write = usage.fresh, usage.read, usage.write
        if held is not None and (fresh, read, write) == (held.input, held.cache_read, held.cache_write):
            if (usage.output or 0) >= (held.output or 0):
                held.output = usage.output
                if usage.details is not None:
                    held.reasoning = usage.details.thinking
                if usage.tools is not None and usage.tools.searches:
                    held.tier = _tier(usage)
            held.request = held.request or request
            return
        at = held.at if held is not None else self._moment(session, instant(record.timestamp))
        call = Call(
            identity,
            session,
            at,
            message.model,
            _tier(usage),
            None,
            fresh,
            usage.output,
            None if fresh is None or read is None or write is None else fresh + read + write,
            read,
            write,
            None if usage.split is None else usage.split.hour,
            None if usage.details is None else usage.details.thinking,
            rivals=rivals,
            request=request,
        )
        self._calls[name] = call if held is None else _joined(held, call)

    def odd(self, raw: bytes, offset: int) -> None:
        """Take a line the thorough way: what is whole on it counts, what is not becomes a trouble."""
        objects, troubles = read_line(raw, offset)
        self.look.troubles += [msgspec.structs.replace(each, session=self._own) for each in troubles]
        for place, value in objects:
            kind = kind_of(value)
            if kind == "assistant":
                anchored = isinstance(value.get("uuid"), str) or isinstance(member(value, "message").get("id"), str)
                named, agent = _text(value, "sessionId"), _text(value, "agentId")
                session = self._session(named, agent, side=bool(value.get("isSidechain")), anchored=anchored)
                self._counted(value, value, session, raw, place)
            elif kind == "progress":
                data = member(value, "data")
                told, agent = member(data, "message"), _text(data, "agentId")
                if told.get("type") == "assistant" and agent is not None:
                    self._counted(told, value, self._child(agent), raw, place)

    def _counted(
        self, record: Mapping[str, Any], line: Mapping[str, Any], session: str, raw: bytes, offset: int
    ) -> None:
        counted = usage_of(record, raw)
        if counted is None or counted.usage is None:
            return
        for problem in counted.problems:
            self.look.troubles.append(Trouble("bad_counter", offset, len(raw), problem, session))
        usage, name = counted.usage, counted.call
        held = self._calls.get(name)
        if held is not None and _other(held, counted.request, counted.model, *map(usage.get, INPUTS)):
            name = f"{name}~{counted.request}"
            held = self._calls.get(name)
        written = counted.at or line.get("timestamp")
        at = instant(written if isinstance(written, str) else None)
        when = held.at if held is not None else self._moment(session, at)
        call = _call(counted.call, session, when, counted.model, usage, counted.request)
        origin = line.get("forkedFrom")
        if isinstance(origin, dict):
            call.rivals = _rivals(_text(origin, "sessionId"), session)
        self._calls[name] = call if held is None else _joined(held, call)
        if self._calls[name] is not call:
            return
        self._usages.pop(name, None)
        if "iterations" in usage:
            self._usages[name] = usage


def _tier(usage: _Usage) -> str | None:
    searches = 0 if usage.tools is None else usage.tools.searches
    if (
        not searches
        and usage.service_tier in _ORDINARY
        and usage.speed in _ORDINARY
        and usage.inference_geo in _ORDINARY
    ):
        return None
    told = {"service_tier": usage.service_tier, "speed": usage.speed, "inference_geo": usage.inference_geo}
    return tier_of({**told, "server_tool_use": {"web_search_requests": searches}})


def _call(name: str, session: str, at: int, model: str | None, usage: Mapping[str, Any], request: str | None) -> Call:
    counters = read_call(usage)
    found = Call(f"{PROVIDER}:{name}", session, at, model, tier_of(usage), request=request)
    for counter, value in counters.items():
        if counter != "peak":
            setattr(found, counter, value)
    return found


def _joined(held: Call, told: Call) -> Call:
    """Return what two lines of one call tell together (see ``counting.joined``)."""
    model, request = held.model or told.model, held.request or told.request
    most, other = (told, held) if (told.output or 0) >= (held.output or 0) else (held, told)
    for name in ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning"):
        value, more = getattr(most, name), getattr(other, name)
        if more is not None and (value is None or value < more):
            setattr(most, name, more)
    parts = (most.input, most.cache_read, most.cache_write)
    known = [each for each in parts if each is not None]
    most.total_input = sum(known) if len(known) == len(parts) else None
    most.model, most.request = model, request
    return most


def _rivals(origin: str | None, session: str) -> tuple[str, ...]:
    return () if origin in {None, session} else (str(origin),)


def _other(held: Call, request: str | None, model: str | None, *parts: Any) -> bool:
    """Tell whether a line with a known id is another call: gateways use ids again."""
    if not held.request or not request or held.request == request:
        return False
    return model != held.model or parts != (held.input, held.cache_read, held.cache_write)


def _anchored(uuid: str | None, message: _Message | None) -> bool:
    """Tell whether a record names itself or its message; others cannot be told from rewritten ones."""
    return uuid is not None or (message is not None and message.id is not None)


def _text(holder: Mapping[str, Any], name: str) -> str | None:
    value = holder.get(name)
    return value if isinstance(value, str) and value else None
