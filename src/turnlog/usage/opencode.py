"""OpenCode counters: one final stream per assistant message (4.4, D15).

Receipt: ``{provider:"opencode", message:<assistant message info>, session_version?}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from turnlog.model import Event, Gap
from turnlog.usage import gaps
from turnlog.usage.envelope import Count
from turnlog.usage.groups import Group, instant
from turnlog.usage.streams import Counters, Stream, Tally, is_cost

OUTSIDE_SINCE = (1, 14)
"""From this version on, output excludes reasoning (D15; providers 1)."""

HTTP_CLIENT_ERRORS = (400, 499)

_GAPS: Final[dict[str, Callable[[str, int], Gap]]] = {
    "interrupted": gaps.interrupted,
    "reasoning_unknown": gaps.reasoning_unknown,
    "schema": lambda stream, seq: gaps.schema(seq, stream, "cost"),
}


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
    return _counted(read, version)


def _counted(message: _Message, version: str | None) -> Counted:
    counters = _counters(message.tokens)
    if _without_usage(message) and not any(counters.values()):
        return Counted({}, final=False, gaps=("interrupted",))
    output, decided = _output(message.tokens, version)
    cost = float(message.cost) if is_cost(message.cost) else None
    found = () if decided else ("reasoning_unknown",)
    if cost is None and message.cost is not None:
        found = (*found, "schema")
    counters["output"] = output
    return Counted(counters, cost, gaps=found)


def turn_streams(group: Group) -> tuple[list[Stream], list[Gap]]:
    """Make one final stream per message of a request; returns them and the gaps that belong to none.

    Every snapshot of a message is another receipt of its stream: a decrease is a gap, the maximum stays.
    """
    told: dict[str, list[tuple[_Payload, Event]]] = {}
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
        told.setdefault(payload.message.id, []).append((payload, event))
    if not told:
        return [], loose
    turn = Stream(id=group.id, provider="opencode", at=group.at, thread=group.thread, turn=group.turn)
    return [_stream(group, turn, f"{turn.id}:{name}", several) for name, several in told.items()], loose


def _stream(group: Group, turn: Stream, name: str, several: Sequence[tuple[_Payload, Event]]) -> Stream:
    """Make the stream of one message from its snapshots; ``turn`` is what it has from its turn."""
    payload, event = several[0]
    message = payload.message
    created = message.time.get("created") if isinstance(message.time, dict) else None
    at = instant({"at": created}) or instant(event.payload)
    once = _counted(message, payload.session_version) if len(several) == 1 else Counted({}, final=False)
    found = [_GAPS[kind](name, event.seq) for kind in once.gaps]
    if group.started is None:
        found.insert(0, gaps.start_unknown(name, event.seq))
    counters: dict[str, Any] = dict(once.counters)
    stream = Stream(
        id=name,
        provider="opencode",
        model=message.model_id,
        service=message.provider_id if isinstance(message.provider_id, str) else None,
        at=turn.at if at is None else at,
        thread=turn.thread,
        turn=turn.turn,
        final=once.final,
        cost=once.cost,
        seqs=(event.seq,),
        gaps=tuple(found),
        **counters,
    )
    if len(several) == 1:
        return stream
    tally = Tally(stream)
    for each, row in several:
        _observe(tally, each, row.seq)
    return tally.stream()


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


def _counters(tokens: _Tokens) -> dict[str, int | None]:
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
