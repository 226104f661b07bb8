"""Many sums as one, member by member: several times as fast as adding them one after another. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from turnlog.usage.buckets import Gaps, Sums

_N = TypeVar("_N", int, float)


def added(values: list[_N | None]) -> _N | None:
    """Add up what is known; None where nothing is."""
    if None not in values:
        return sum(values) if values else None  # type: ignore[arg-type]
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def together(several: Sequence[Sums]) -> Sums:
    """Return the sum of sums, which are left as they are: O(sums)."""
    gaps: Gaps = {}
    for each in several:
        for kind, count in each.gaps.items():
            gaps[kind] = gaps.get(kind, 0) + count
    return Sums(
        streams=sum([each.streams for each in several]),
        final=sum([each.final for each in several]),
        unpriced=sum([each.unpriced for each in several]),
        low=sum([each.low for each in several]),
        calls=added([each.calls for each in several]),
        input=added([each.input for each in several]),
        output=added([each.output for each in several]),
        total_input=added([each.total_input for each in several]),
        cache_read=added([each.cache_read for each in several]),
        cache_write=added([each.cache_write for each in several]),
        cache_write_1h=added([each.cache_write_1h for each in several]),
        reasoning=added([each.reasoning for each in several]),
        reported=added([each.reported for each in several]),
        estimated=added([each.estimated for each in several]),
        gaps=gaps,
    )
