"""Per-call receipts read from the providers' own files, and their comparison with the wire (D1, architecture 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from turnlog.model import Event, Gap
from turnlog.usage import gaps
from turnlog.usage.groups import Group, from_file, instant
from turnlog.usage.identity import apart
from turnlog.usage.prices import tier_of
from turnlog.usage.streams import SUMS, Counters, Stream, Tally

Read = Callable[[Any], Counters]
"""What turns a provider's ``usage`` object into our counters; raises msgspec.ValidationError when it cannot."""


class _Noted(msgspec.Struct, frozen=True):
    kind: str
    counter: str | None = None
    before: int | float | None = None
    after: int | float | None = None


class CallReceipt(msgspec.Struct, frozen=True):
    """A receipt of one call: ``{provider, source:"file", call, model, usage, request?, service?, tier?, gaps?}``.

    ``request`` tells calls apart whose id was used again. ``gaps`` are what its reader found in counters that run on in
    the file: the members of Gap but its place.
    """

    usage: dict[str, Any]
    call: str | None = None
    request: str | None = None
    model: str | None = None
    service: Any = None
    tier: Any = None
    gaps: list[_Noted] = []


def call_streams(group: Group, read: Read) -> tuple[list[Stream], list[Gap]]:
    """Make one final stream per call id of a group's file receipts, in order of first mention. O(receipts).

    A call that is told again (Claude writes a line per content block) keeps the maximum of each counter, without a gap.
    An id that was used again for another request is several calls (see ``turnlog.usage.identity``).
    """
    told: dict[str, list[_Mention]] = {}
    loose: list[Gap] = []
    for event in group.usage:
        if not from_file(event):
            continue
        try:
            receipt = msgspec.convert(event.payload, CallReceipt)
            counters = read(receipt.usage)
        except msgspec.ValidationError:
            loose.append(gaps.schema(event.seq, group.id))
            continue
        if not receipt.call:
            loose.append(gaps.message_id(event.seq, group.id))
            continue
        told.setdefault(receipt.call, []).append(_Mention(event, receipt, counters))
    if not told:
        return [], loose
    turn = _Turn(group.id, group.provider, group.at, group.thread, group.turn, group.started is not None)
    found = [stream for name, mentions in told.items() for stream in _streams(turn, f"{turn.id}:{name}", mentions)]
    return found, loose


class _Mention(msgspec.Struct):
    event: Event
    receipt: CallReceipt
    counters: Counters


class _Turn(msgspec.Struct, frozen=True):
    id: str
    provider: str
    at: int
    thread: str | None
    turn: str | None
    started: bool


def _streams(turn: _Turn, name: str, mentions: Sequence[_Mention]) -> Iterator[Stream]:
    """Add up the mentions of one id: a stream for each call that had it."""
    if len(mentions) == 1:
        yield _opened(turn, name, mentions[0])
        return
    for number, places in enumerate(apart([_mark(mention) for mention in mentions])):
        several = [mentions[place] for place in places]
        known = next((each.receipt.request for each in several if each.receipt.request is not None), "")
        tally = Tally(_opened(turn, f"{name}~{known}" if number else name, several[0]))
        for each in several[1:]:
            tally.observe(each.counters, each.event.seq, falls=False)
            tally.gaps += _told(each, tally.id)
        yield tally.stream()


def _mark(mention: _Mention) -> tuple[str | None, tuple[Any, ...], tuple[int, int]]:
    told, counters = mention.receipt, mention.counters
    words = (told.model, *map(counters.get, ("input", "cache_read", "cache_write")))
    return told.request, words, (-(counters.get("output") or 0), mention.event.seq)


def _opened(turn: _Turn, name: str, mention: _Mention) -> Stream:
    """Return what the first mention of a call tells."""
    event, receipt = mention.event, mention.receipt
    at = instant(event.payload)
    counters: dict[str, Any] = dict(mention.counters)
    started = () if turn.started else (gaps.start_unknown(name, event.seq),)
    return Stream(
        id=name,
        provider=turn.provider,
        model=receipt.model,
        service=receipt.service if isinstance(receipt.service, str) else None,
        tier=receipt.tier if isinstance(receipt.tier, str) else tier_of(receipt.usage),
        at=turn.at if at is None else at,
        thread=turn.thread,
        turn=turn.turn,
        final=True,
        seqs=(event.seq,),
        gaps=(*started, *_told(mention, name)),
        **counters,
    )


def _told(mention: _Mention, stream: str) -> list[Gap]:
    seq = mention.event.seq
    return [
        Gap(kind=t.kind, stream=stream, seq=seq, counter=t.counter, before=t.before, after=t.after)
        for t in mention.receipt.gaps
    ]


def added(streams: Sequence[Stream]) -> dict[str, int | None]:
    """Add up each counter of several streams; None where no stream has it."""
    values = {name: [value for each in streams if (value := each.counter(name)) is not None] for name in SUMS}
    return {name: sum(known) if known else None for name, known in values.items()}


def differences(group: Group, wire: Sequence[Stream], files: Sequence[Stream], *, lowered_only: bool) -> list[Gap]:
    """Compare two witnesses of one turn: a gap per counter that both know and that differs (before = wire).

    ``lowered_only`` keeps those where the file says less: a wire that misses its start says too little by nature.
    """
    before, after = added(wire), added(files)
    found = []
    for name in SUMS:
        told, read = before[name], after[name]
        if told is not None and read is not None and (told > read or (told != read and not lowered_only)):
            found.append(gaps.witness_mismatch(group.id, name, told, read))
    return found


def only(values: Sequence[str | None]) -> str | None:
    """Return the one value that all known values agree on, else None."""
    known = {value for value in values if value is not None}
    return known.pop() if len(known) == 1 else None
