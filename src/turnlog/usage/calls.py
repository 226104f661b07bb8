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


class _Told(msgspec.Struct, frozen=True):
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
    gaps: list[_Told] = []


def call_streams(group: Group, read: Read) -> tuple[list[Stream], list[Gap]]:
    """Make one final stream per call id of a group's file receipts, in order of first mention. O(receipts).

    A call that is told again (Claude writes a line per content block) keeps the maximum of each counter, without a gap.
    An id that was used again for another request is several calls (see ``turnlog.usage.identity``).
    """
    told: dict[str, list[_Mention]] = {}
    loose: list[Gap] = []
    for event in filter(from_file, group.usage):
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
    tallies = [tally for name, mentions in told.items() for tally in _tallies(group, name, mentions)]
    return [tally.stream() for tally in tallies], loose


class _Mention(msgspec.Struct):
    event: Event
    receipt: CallReceipt
    counters: Counters


def _tallies(group: Group, name: str, mentions: Sequence[_Mention]) -> Iterator[Tally]:
    """Add up the mentions of one id: a tally for each call that had it."""
    if len(mentions) == 1:
        yield _tally(group, f"{group.id}:{name}", mentions)
        return
    for number, places in enumerate(apart([_mark(mention) for mention in mentions])):
        several = [mentions[place] for place in places]
        known = next((each.receipt.request for each in several if each.receipt.request is not None), "")
        yield _tally(group, f"{group.id}:{name}~{known}" if number else f"{group.id}:{name}", several)


def _mark(mention: _Mention) -> tuple[str | None, tuple[Any, ...], tuple[int, int]]:
    told, counters = mention.receipt, mention.counters
    words = (told.model, *map(counters.get, ("input", "cache_read", "cache_write")))
    return told.request, words, (-(counters.get("output") or 0), mention.event.seq)


def _tally(group: Group, name: str, mentions: Sequence[_Mention]) -> Tally:
    tally = _open(group, name, mentions[0])
    for number, each in enumerate(mentions):
        seq = each.event.seq
        if not number and group.started is None:
            tally.start_unknown(seq)
        tally.observe(each.counters, seq, falls=False)
        tally.gaps += [
            Gap(kind=t.kind, stream=tally.id, seq=seq, counter=t.counter, before=t.before, after=t.after)
            for t in each.receipt.gaps
        ]
    return tally


def _open(group: Group, name: str, mention: _Mention) -> Tally:
    at, receipt = instant(mention.event.payload), mention.receipt
    return Tally(
        Stream(
            id=name,
            provider=group.provider,
            model=receipt.model,
            service=receipt.service if isinstance(receipt.service, str) else None,
            tier=receipt.tier if isinstance(receipt.tier, str) else tier_of(receipt.usage),
            at=group.at if at is None else at,
            thread=group.thread,
            turn=group.turn,
            final=True,
        )
    )


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
