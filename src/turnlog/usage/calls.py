"""Per-call receipts read from the providers' own files, and their comparison with the wire (D1, architecture 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from turnlog.model import Gap
from turnlog.usage import gaps
from turnlog.usage.groups import Group, from_file, instant
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
    """A receipt of one call: ``{provider, source:"file", call, model, usage, service?, tier?, gaps?}``.

    ``gaps`` are what its reader found in counters that run on in the file: the members of Gap but its place.
    """

    usage: dict[str, Any]
    call: str | None = None
    model: str | None = None
    service: Any = None
    tier: Any = None
    gaps: list[_Told] = []


def call_streams(group: Group, read: Read) -> tuple[list[Stream], list[Gap]]:
    """Make one final stream per call id of a group's file receipts, in order of first mention.

    A call that is told again (Claude writes a line per content block) keeps the maximum of each counter, without a gap.
    """
    tallies: dict[str, Tally] = {}
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
        tally = tallies.get(receipt.call)
        if tally is None:
            tally = tallies[receipt.call] = _open(group, receipt, event.payload)
            if group.started is None:
                tally.start_unknown(event.seq)
        tally.observe(counters, event.seq, falls=False)
        tally.gaps += [
            Gap(kind=t.kind, stream=tally.id, seq=event.seq, counter=t.counter, before=t.before, after=t.after)
            for t in receipt.gaps
        ]
    return [tally.stream() for tally in tallies.values()], loose


def _open(group: Group, receipt: CallReceipt, payload: Any) -> Tally:
    at = instant(payload)
    return Tally(
        Stream(
            id=f"{group.id}:{receipt.call}",
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
