"""Recorder and native receipts of one turn: which are the same work, and which witness counts (4.4, D11, D18)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from turnlog.model import Gap
from turnlog.usage import gaps
from turnlog.usage.calls import added, only
from turnlog.usage.groups import Group
from turnlog.usage.recorder import Recorded
from turnlog.usage.streams import SUMS, Stream, with_total_input

_ROUNDING = 1e-9  # two programs that add the same costs differ in the last bits, not here

Values = Mapping[str, int | float | None]


class Match(msgspec.Struct, frozen=True):
    """The recorder streams that may tell of the same turn as a native group; ``sure`` when there is no doubt."""

    streams: tuple[str, ...]
    sure: bool


def match_group(recorded: Recorded, group: Group) -> Match:
    """Correlate a native group with recorder usage (4.4).

    Usage matches when provider and turn are equal and its attempt's thread is this one, or unknown. An unknown thread,
    or more than one stream, leaves a doubt (D18). Usage of an attempt known to run on another thread does not match.
    """
    streams: dict[str, None] = {}
    sure = True
    for stream, attempt in recorded.mentions.get((group.provider, group.turn or ""), ()):
        thread = recorded.threads.get(attempt)
        if thread is None or thread == group.thread:
            streams[stream] = None
            sure = sure and thread is not None
    return Match(tuple(streams), sure and len(streams) == 1)


def prefer_final(recorder: Stream, natives: Sequence[Stream], group: Group) -> Stream:
    """Count a final recorder stream, with native values for the counters it lacks (D11).

    Where it says less than the native receipts did, there is a gap ``witness_mismatch`` (promise 5). Native gaps stay
    where native values count.
    """
    ours, theirs = _values([recorder]), _values(natives)
    filled = {name for name, value in theirs.items() if value is not None and ours[name] is None}
    values = {name: theirs[name] if name in filled else ours[name] for name in ours}
    if "total_input" in filled:
        # The recorder's input and the parts that are known now are all sent, whatever the native receipts add up to.
        parts = sum(values[name] or 0 for name in ("input", "cache_read", "cache_write"))
        values["total_input"] = max(values["total_input"] or 0, parts)
    kept = [gap for gap in _gaps(natives) if filled and (gap.counter is None or gap.counter in filled)]
    gap_list = _once([*recorder.gaps, *kept, *_lowered(recorder.id, theirs, values)])
    source = "merged" if filled else "recorder"
    return _merged(group, [recorder], natives, id=recorder.id, source=source, gaps=gap_list, **values)


def prefer_native(natives: Sequence[Stream], recorder: Stream, group: Group) -> list[Stream]:
    """Count native streams in place of a partial recorder stream (D11), and name what that takes away (promise 5).

    Peak and window are maxima over all witnesses; what the recorder knows of them stays with the newest stream.
    """
    newest = natives[-1]
    lowered = _lowered(group.id, _values([with_total_input(recorder)]), _values(map(with_total_input, natives)))
    newest = msgspec.structs.replace(
        newest,
        peak=_largest([newest.peak, recorder.peak]),
        window=_largest([newest.window, recorder.window]),
        gaps=(*newest.gaps, *lowered),
    )
    return [*natives[:-1], newest]


def larger(natives: Sequence[Stream], recorders: Sequence[Stream], group: Group) -> Stream:
    """Count, per counter, the larger of what native and recorder receipts add up to, as one stream (D18)."""
    theirs, ours = _values(map(with_total_input, natives)), _values(map(with_total_input, recorders))
    values: dict[str, int | float | None] = {}
    from_native = from_recorder = False
    for name in ours:
        native, recorded = theirs[name], ours[name]
        if native is not None and (recorded is None or native > recorded):
            values[name], from_native = native, True
        else:
            values[name] = recorded
            from_recorder = from_recorder or recorded is not None
    kept = [*(_gaps(recorders) if from_recorder else ()), *(_gaps(natives) if from_native else ())]
    source = "merged" if from_native and from_recorder else "native" if from_native else "recorder"
    gap_list = _once([*kept, gaps.ambiguous_recorder(group.id)])
    return _merged(group, recorders, natives, id=group.id, source=source, gaps=gap_list, **values)


def _merged(group: Group, recorders: Sequence[Stream], natives: Sequence[Stream], **members: Any) -> Stream:
    everyone = [*recorders, *natives]
    stream = Stream(
        id=members.pop("id"),
        provider=group.provider,
        at=group.at,
        model=only([each.model for each in everyone]),
        thread=group.thread,
        turn=group.turn,
        attempt_key=only([each.attempt_key for each in recorders]),
        final=(bool(recorders) and all(each.final for each in recorders)) or all(each.final for each in natives),
        peak=_largest([each.peak for each in everyone]),
        window=_largest([each.window for each in everyone]),
        seqs=tuple(sorted({seq for each in everyone for seq in each.seqs})),
    )
    return msgspec.structs.replace(stream, **members)


def _values(streams: Iterable[Stream]) -> dict[str, int | float | None]:
    rows = tuple(streams)
    costs = [each.cost for each in rows if each.cost is not None]
    return {**added(rows), "cost": math.fsum(costs) if costs else None}


def _lowered(stream: str, before: Values, after: Values) -> list[Gap]:
    found = []
    for name in (*SUMS, "cost"):
        was, now = before[name], after[name]
        if was is not None and (now is None or was - now > _ROUNDING):
            found.append(gaps.witness_mismatch(stream, name, was, now))
    return found


def _gaps(streams: Iterable[Stream]) -> list[Gap]:
    return [gap for each in streams for gap in each.gaps]


def _once(found: Sequence[Gap]) -> tuple[Gap, ...]:
    """Keep one ``start_unknown``: what was merged is one stream now (D6)."""
    kept: list[Gap] = []
    for gap in found:
        if gap.kind != "start_unknown" or not any(other.kind == "start_unknown" for other in kept):
            kept.append(gap)
    return tuple(kept)


def _largest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
