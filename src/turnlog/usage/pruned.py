"""What stands for receipts that were removed: the streams they were reduced to, kept as an observation ``prune``.

Each stream is kept by itself, so that every sum over it (by day of any zone, by model, by task, with other prices) is
what it was. Its receipts are gone all the same, which is a gap ``pruned`` of the stream.
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


class Estimate(msgspec.Struct, frozen=True):
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


class Lost(msgspec.Struct, frozen=True):
    """Gaps of removed receipts that belong to no stream, with the time (unix ms) and the work they were counted for."""

    at: int
    task: str | None
    wave: str | None
    gaps: tuple[Gap, ...]


class Tombstone(msgspec.Struct, frozen=True):
    """One observation ``prune``."""

    seq: int
    dropped: tuple[Dropped, ...]
    lost: tuple[Lost, ...]
    wire: tuple[Wire, ...]

    @property
    def loose(self) -> list[Gap]:
        """Its gaps that belong to no stream."""
        return [gap for each in self.lost for gap in each.gaps]


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
    """``rest``: the id goes on behind that of its turn. ``call`` True: it is what comes there. ``usd`` is estimated."""

    group: int
    turn: int | None
    rest: bool
    id: str
    at: int
    final: bool
    calls: int | None
    call: str | bool | None
    counters: tuple[Count | None, ...]
    cost: float | None = None
    usd: float | None = None
    low: bool = False
    prices: int | None = None
    gaps: tuple[_Gap, ...] = ()


class _Lost(msgspec.Struct, frozen=True, array_like=True):
    at: int
    task: str | None
    wave: str | None
    gaps: tuple[_Gap, ...]


class _Evidence(msgspec.Struct, frozen=True):
    version: Literal[1]
    groups: tuple[_Group, ...]
    turns: tuple[tuple[str | None, str | None], ...]
    prices: tuple[tuple[str, str], ...]
    streams: tuple[_Row, ...]
    lost: tuple[_Lost, ...] = ()
    wire: tuple[Wire, ...] = ()


def is_tombstone(source: str) -> bool:
    """Tell whether an observation of this source stands for receipts that were removed."""
    return source == SOURCE or source.startswith(f"{SOURCE}:")


def evidence(dropped: Sequence[Dropped], lost: Sequence[Lost], wire: Iterable[Wire]) -> dict[str, Any]:
    """Return the evidence of an observation ``prune``; ``totals`` in it are for people. O(streams)."""
    groups: dict[_Group, int] = {}
    turns: dict[tuple[str | None, str | None], int] = {}
    prices: dict[tuple[str, str], int] = {}
    rows = []
    for each in dropped:
        stream, made = each.stream, each.estimate
        group = _Group(stream.provider, stream.service, stream.model, stream.tier, stream.source, each.task, each.wave)
        turn = None
        if (stream.thread, stream.turn) != (None, None):
            turn = turns.setdefault((stream.thread, stream.turn), len(turns))
        prefix = turn_id(stream)
        rest = turn is not None and stream.id.startswith(prefix)
        name = stream.id.removeprefix(prefix) if rest else stream.id
        used = None
        if made is not None and made.source is not None and made.version is not None:
            used = prices.setdefault((made.source, made.version), len(prices))
        rows.append(
            _Row(
                group=groups.setdefault(group, len(groups)),
                turn=turn,
                rest=rest,
                id=name,
                at=stream.at,
                final=stream.final,
                calls=each.calls,
                call=True if each.call is not None and name == f":{each.call}" else each.call,
                counters=tuple(getattr(stream, name) for name in _COUNTERS),
                cost=stream.cost,
                usd=None if made is None else made.usd,
                low=made is not None and made.low,
                prices=used,
                gaps=tuple(map(_kept, stream.gaps)),
            )
        )
    told = msgspec.structs.asdict(total((each.stream for each in dropped), (gap for each in lost for gap in each.gaps)))
    del told["gap_list"]
    estimates = [each.estimate.usd for each in dropped if each.estimate is not None]
    value = _Evidence(
        version=1,
        groups=tuple(groups),
        turns=tuple(turns),
        prices=tuple(prices),
        streams=tuple(rows),
        lost=tuple(_Lost(each.at, each.task, each.wave, tuple(map(_kept, each.gaps))) for each in lost),
        wire=tuple(wire),
    )
    totals = {**told, "estimated_usd": sum(estimates) if estimates else None, "estimates": len(estimates)}
    return {**msgspec.to_builtins(value), "totals": totals}


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
            gaps=(gaps.pruned(name, seq), *(_told(gap, seq, name) for gap in row.gaps)),
            **counters,
        )
        call = row.id.removeprefix(":") if row.call is True else row.call or None
        source, version = value.prices[row.prices] if row.prices is not None else (None, None)
        made = None if row.usd is None else Estimate(row.usd, row.low, source, version)
        dropped.append(Dropped(stream, call, row.calls, group.task, group.wave, made))
    lost = tuple(
        Lost(each.at, each.task, each.wave, tuple(_told(gap, seq, gap.stream) for gap in each.gaps))
        for each in value.lost
    )
    return Tombstone(seq, tuple(dropped), lost, value.wire)


def _kept(gap: Gap) -> _Gap:
    return _Gap(gap.kind, gap.counter, gap.before, gap.after, gap.stream)


def _told(gap: _Gap, seq: int, stream: str | None) -> Gap:
    return Gap(kind=gap.kind, stream=stream, seq=seq, counter=gap.counter, before=gap.before, after=gap.after)
