"""What stands for receipts that were removed: the streams they were reduced to, kept as an observation ``prune``.

Each stream is kept by itself, so that every sum over it (by day of any zone, by model, by task, with other prices) is
what it was. The receipts are gone all the same: each such observation is a gap ``pruned``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from turnlog.model import Event, Gap
from turnlog.usage import gaps
from turnlog.usage.evidence import observations
from turnlog.usage.streams import Stream, Tally, total

SOURCE: Final = "prune"
"""Source of the first such observation of an input; later ones are ``prune:2``, ``prune:3`` …"""

_COUNTERS: Final = (
    "input", "output", "total_input", "peak", "window", "reasoning", "cache_read", "cache_write", "cache_write_1h",
)  # fmt: skip

Count = Annotated[int, msgspec.Meta(ge=0)]
Wire = tuple[str | None, int, int | None]
"""A turn of which a program told the usage with that of its subagents: (turn, began, ended), unix ms."""


class Estimate(msgspec.Struct, frozen=True, array_like=True):
    """What a stream was estimated to cost, in USD, by which prices; ``low``: a lower bound."""

    usd: float
    low: bool
    source: str | None = None
    version: str | None = None


class Dropped(msgspec.Struct, frozen=True):
    """A stream whose receipts are gone, with what only those told: work, model calls, the identity of its call."""

    stream: Stream
    call: str | None = None
    calls: int | None = None
    task: str | None = None
    wave: str | None = None
    estimate: Estimate | None = None


class Tombstone(msgspec.Struct, frozen=True):
    """One observation ``prune``: ``at`` (unix ms) is when what it stands for began. ``loose`` belong to no stream."""

    seq: int
    at: int
    dropped: tuple[Dropped, ...]
    loose: tuple[Gap, ...]
    wire: tuple[Wire, ...]


class _Group(msgspec.Struct, frozen=True, array_like=True):
    provider: str
    service: str | None
    model: str | None
    tier: str | None
    source: Literal["native", "recorder", "merged"]
    task: str | None
    wave: str | None


class _Gap(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    counter: str | None = None
    before: int | float | None = None
    after: int | float | None = None
    stream: str | None = None


class _Row(msgspec.Struct, frozen=True, array_like=True):
    group: int
    turn: int | None
    rest: bool
    id: str
    at: int
    final: bool
    calls: int | None
    call: str | None
    counters: tuple[Count | None, ...]
    cost: float | None = None
    estimate: Estimate | None = None
    gaps: tuple[_Gap, ...] = ()


class _Evidence(msgspec.Struct, frozen=True):
    version: Literal[1]
    at: int
    groups: tuple[_Group, ...]
    turns: tuple[tuple[str | None, str | None], ...]
    streams: tuple[_Row, ...]
    gaps: tuple[_Gap, ...]
    wire: tuple[Wire, ...] = ()


def is_tombstone(source: str) -> bool:
    """Tell whether an observation of this source stands for receipts that were removed."""
    return source == SOURCE or source.startswith(f"{SOURCE}:")


def evidence(dropped: Sequence[Dropped], loose: Iterable[Gap], wire: Iterable[Wire], *, at: int) -> dict[str, Any]:
    """Return the evidence of an observation ``prune``; ``totals`` in it are for people. O(streams)."""
    groups: dict[_Group, int] = {}
    turns: dict[tuple[str | None, str | None], int] = {}
    rows = []
    for each in dropped:
        stream = each.stream
        group = _Group(stream.provider, stream.service, stream.model, stream.tier, stream.source, each.task, each.wave)
        turn = None
        if (stream.thread, stream.turn) != (None, None):
            turn = turns.setdefault((stream.thread, stream.turn), len(turns))
        prefix = turn_id(stream)
        rest = turn is not None and stream.id.startswith(prefix)
        rows.append(
            _Row(
                groups.setdefault(group, len(groups)),
                turn,
                rest,
                stream.id.removeprefix(prefix) if rest else stream.id,
                stream.at,
                stream.final,
                each.calls,
                each.call,
                tuple(getattr(stream, name) for name in _COUNTERS),
                stream.cost,
                each.estimate,
                tuple(map(_kept, stream.gaps)),
            )
        )
    lost = tuple(loose)
    sums = total((each.stream for each in dropped), lost)
    told = msgspec.structs.asdict(sums)
    del told["gap_list"]
    estimates = [each.estimate.usd for each in dropped if each.estimate is not None]
    value = _Evidence(1, at, tuple(groups), tuple(turns), tuple(rows), tuple(map(_kept, lost)), tuple(wire))
    return {
        **msgspec.to_builtins(value),
        "totals": {**told, "estimated_usd": sum(estimates) if estimates else None, "estimates": len(estimates)},
    }


def tombstones(rows: Iterable[Event]) -> tuple[list[Tombstone], list[Gap]]:
    """Return what observations ``prune`` stand for, and a gap for each of another shape than this version knows."""
    found: list[Tombstone] = []
    bad: list[Gap] = []
    for seq, source, told in observations(rows):
        if source is None or not is_tombstone(source):
            continue
        try:
            value = msgspec.convert(told, _Evidence)
            found.append(_tombstone(seq, value))
        except (msgspec.ValidationError, IndexError):
            bad.append(gaps.schema(seq))
    return found, bad


def merge(live: Iterable[Stream], stones: Iterable[Tombstone], copied: Collection[str]) -> list[Stream]:
    """Return the streams of receipts together with those that were kept of removed ones, so that nothing counts twice.

    Where receipts came again, the larger of each counter counts; calls of a turn that is kept as a whole do not.
    ``copied`` are calls that another conversation owns.
    """
    kept = {each.stream.id: each.stream for stone in stones for each in stone.dropped if each.call not in copied}
    found = {}
    for stream in live:
        held = kept.get(stream.id)
        if held is not None:
            kept[stream.id] = _larger(held, stream)
        elif turn_id(stream) not in kept:
            found[stream.id] = stream
    return [*found.values(), *kept.values()]


def turn_id(stream: Stream) -> str:
    """Return the id that a stream of the whole turn has."""
    return f"native:{stream.thread or ''}:{stream.turn or ''}"


def _larger(kept: Stream, told: Stream) -> Stream:
    tally = Tally(kept)
    tally.observe({name: getattr(told, name) for name in _COUNTERS}, kept.seqs[0], falls=False)
    tally.final = kept.final or told.final
    costs = [each.cost for each in (kept, told) if each.cost is not None]
    tally.cost = max(costs, default=None)
    tally.seqs += told.seqs
    return tally.stream()


def _tombstone(seq: int, value: _Evidence) -> Tombstone:
    dropped = []
    for row in value.streams:
        group = value.groups[row.group]
        thread, turn = value.turns[row.turn] if row.turn is not None else (None, None)
        name = f"native:{thread or ''}:{turn or ''}{row.id}" if row.rest else row.id
        counters: dict[str, Any] = dict(zip(_COUNTERS, row.counters, strict=False))
        stream = Stream(
            id=name,
            provider=group.provider,
            service=group.service,
            model=group.model,
            tier=group.tier,
            source=group.source,
            thread=thread,
            turn=turn,
            at=row.at,
            final=row.final,
            cost=row.cost,
            seqs=(seq,),
            gaps=tuple(_told(gap, seq, name) for gap in row.gaps),
            **counters,
        )
        dropped.append(Dropped(stream, row.call, row.calls, group.task, group.wave, row.estimate))
    return Tombstone(
        seq,
        value.at,
        tuple(dropped),
        (gaps.pruned(seq), *(_told(gap, seq, gap.stream) for gap in value.gaps)),
        value.wire,
    )


def _kept(gap: Gap) -> _Gap:
    return _Gap(gap.kind, gap.counter, gap.before, gap.after, gap.stream)


def _told(gap: _Gap, seq: int, stream: str | None) -> Gap:
    return Gap(kind=gap.kind, stream=stream, seq=seq, counter=gap.counter, before=gap.before, after=gap.after)
