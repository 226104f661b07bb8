"""OpenCode counters: one final stream per assistant message (4.4, D15).

Receipt: ``{provider:"opencode", message:<assistant message info>, session_version?}``.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from turnlog.model import Event, Gap
from turnlog.usage import gaps
from turnlog.usage.envelope import Count
from turnlog.usage.groups import Group, instant
from turnlog.usage.streams import Counters, Stream, Tally, is_cost

OUTSIDE_SINCE = (1, 14)
"""From this version on, output excludes reasoning (D15; providers 1)."""

HTTP_CLIENT_ERRORS = (400, 499)


class _Cache(msgspec.Struct, frozen=True):
    read: Count | None = None
    write: Count | None = None


class _Tokens(msgspec.Struct, frozen=True):
    input: Count | None = None
    output: Count | None = None
    reasoning: Count | None = None
    total: Count | None = None
    cache: _Cache | None = None


class _Message(msgspec.Struct, frozen=True, rename={"model_id": "modelID", "provider_id": "providerID"}):
    tokens: _Tokens
    id: str | None = None
    model_id: str | None = None
    provider_id: Any = None
    cost: Any = None
    time: Any = None
    error: Any = None
    finish: Any = None


class _Payload(msgspec.Struct, frozen=True):
    message: _Message
    session_version: str | None = None


class Counted(msgspec.Struct, frozen=True):
    """What one message counts: counters, its cost in USD, whether it is the last word, kinds of gaps."""

    counters: Counters
    cost: float | None = None
    final: bool = True
    gaps: tuple[str, ...] = ()


def read_message(message: Any, version: str | None) -> Counted | None:
    """Read the info of one assistant message as ``turn_streams`` reads its receipt; None when a counter is none."""
    try:
        read = msgspec.convert(message, _Message)
    except msgspec.ValidationError:
        return None
    counters = _counters(read.tokens)
    if _without_usage(read) and not any(counters.values()):
        return Counted({}, final=False, gaps=("interrupted",))
    output, decided = _output(read.tokens, version)
    cost = float(read.cost) if is_cost(read.cost) else None
    found = () if decided else ("reasoning_unknown",)
    if cost is None and read.cost is not None:
        found = (*found, "schema")
    return Counted({**counters, "output": output}, cost, gaps=found)


def turn_streams(group: Group) -> tuple[list[Stream], list[Gap]]:
    """Make one final stream per message of a request; returns them and the gaps that belong to none.

    Every snapshot of a message is another receipt of its stream: a decrease is a gap, the maximum stays.
    """
    tallies: dict[str, Tally] = {}
    loose: list[Gap] = []
    for event in group.usage:
        try:
            payload = msgspec.convert(event.payload, _Payload)
        except msgspec.ValidationError:
            loose.append(gaps.schema(event.seq, group.id))
            continue
        if not payload.message.id:
            loose.append(gaps.message_id(event.seq, group.id))
            continue
        tally = tallies.get(payload.message.id)
        if tally is None:
            tally = tallies[payload.message.id] = _open(group, payload.message, event)
        _observe(tally, payload, event.seq)
    return [tally.stream() for tally in tallies.values()], loose


def _open(group: Group, message: _Message, event: Event) -> Tally:
    created = message.time.get("created") if isinstance(message.time, dict) else None
    at = instant({"at": created}) or instant(event.payload)
    tally = Tally(
        Stream(
            id=f"{group.id}:{message.id}",
            provider="opencode",
            model=message.model_id,
            service=message.provider_id if isinstance(message.provider_id, str) else None,
            at=group.at if at is None else at,
            thread=group.thread,
            turn=group.turn,
        )
    )
    if group.started is None:
        tally.start_unknown(event.seq)
    return tally


def _observe(tally: Tally, payload: _Payload, seq: int) -> None:
    message = payload.message
    counters = _counters(message.tokens)
    if _without_usage(message) and not any(counters.values()):
        # OpenCode was told no usage of a call that was aborted or failed: its zeros are placeholders (D1 in spirit).
        tally.once(gaps.interrupted(tally.id, seq))
        tally.observe({}, seq)
        return
    tally.final = True
    output, decided = _output(message.tokens, payload.session_version)
    if not decided:
        tally.once(gaps.reasoning_unknown(tally.id, seq))
    tally.observe({**counters, "output": output}, seq)
    tally.observe_cost(message.cost, seq)


def _counters(tokens: _Tokens) -> Counters:
    cache = tokens.cache or _Cache()
    everything = None
    if tokens.input is not None and cache.read is not None and cache.write is not None:
        everything = tokens.input + cache.read + cache.write
    return {
        "input": tokens.input,
        "output": tokens.output,
        "total_input": everything,
        "peak": everything,
        "reasoning": tokens.reasoning,
        "cache_read": cache.read,
        "cache_write": cache.write,
    }


def _output(tokens: _Tokens, version: str | None) -> tuple[int | None, bool]:
    """Return the output with its reasoning, and whether it could be decided that it has it (D15)."""
    output, reasoning = tokens.output, tokens.reasoning
    if output is None or not reasoning:
        return output, True
    if tokens.total is not None:
        cache = tokens.cache or _Cache()
        rest = tokens.total - (tokens.input or 0) - (cache.read or 0) - (cache.write or 0)
        if rest == output + reasoning:
            return output + reasoning, True
        if rest == output:
            return output, True
    release = re.match(r"v?(\d+)\.(\d+)", version or "")
    if release is None:
        return output, False
    outside = (int(release[1]), int(release[2])) >= OUTSIDE_SINCE
    return output + reasoning if outside else output, True


def _without_usage(message: _Message) -> bool:
    """Tell whether the call ended without its last word: an error, or no finish (an abort while waiting to retry).

    A request that the model's provider refused (HTTP 4xx) was not worked on: there zero is the count.
    """
    error = message.error
    if error is None:
        return not message.finish
    data = error.get("data") if isinstance(error, dict) else None
    status = data.get("statusCode") if isinstance(data, dict) else None
    return not (isinstance(status, int) and HTTP_CLIENT_ERRORS[0] <= status <= HTTP_CLIENT_ERRORS[1])
