"""Who owns a call that several conversations tell of, and which ids a gateway has used again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import orjson

from turnlog.ledger.backend import Tx
from turnlog.usage.identity import apart, unmarked


class Settled(msgspec.Struct):
    """``copied`` sightings turned out to be copies. ``reused``: (id, session, its first instant, unix ms)."""

    copied: int
    reused: list[tuple[str, str, int]]


class _Sighting(msgspec.Struct):
    """A row of ``calls``. Of those that tell of one call the one of the smallest ``rank`` is best."""

    call: str
    session: str
    request: str | None
    told: str | None
    rank: tuple[int, int, str, str]
    rivals: str | None
    owned: bool


class CallsTx:
    """The verbs inside a batch."""

    _tx: Tx

    def settle(self, rows: Sequence[tuple[str, str, int, str | None, int]]) -> Settled:
        """Store (call, session, at, rivals as JSON, weight) and settle who owns the calls: O(sightings of these ids).

        Copies are rows that do not count: of the sightings of one call without rivals the heaviest counts, then the
        earliest, then the smallest session id; one with rivals counts if none of them has the call. An id that was used
        again is several calls (see ``turnlog.usage.identity``).
        """
        self._tx.many("insert_sightings", rows)
        by_id: dict[str, list[_Sighting]] = {}
        ids = orjson.dumps(sorted({unmarked(row[0])[0] for row in rows})).decode()
        for call, session, at, rivals, weight, owned in self._tx.all("sightings", calls=ids):
            name, request, told = unmarked(call)
            seen = _Sighting(call, session, request, told, (-weight, at, session, request or ""), rivals, bool(owned))
            by_id.setdefault(name, []).append(seen)
        changed: list[dict[str, Any]] = []
        reused: list[tuple[str, str, int]] = []
        for name, mentions in by_id.items():
            calls = apart([(each.request, each.told, each.rank) for each in mentions])
            if len(calls) > 1:
                reused += _first(name, mentions)
            for places in calls:
                for seen, counts in _owners([mentions[place] for place in places]):
                    if counts != seen.owned:
                        changed.append({"call": seen.call, "session": seen.session, "owned": int(counts)})
        if changed:
            self._tx.each("own_call", changed)
        return Settled(sum(not each["owned"] for each in changed), reused)


def _owners(seen: Sequence[_Sighting]) -> Iterator[tuple[_Sighting, bool]]:
    """Yield the sightings of one call, and whether each counts. What one request told in one session goes together."""
    best: dict[str, _Sighting] = {}
    free = {each.session for each in seen if each.rivals is None}
    for each in seen:
        held = best.get(each.session)
        best[each.session] = each if held is None else min(held, each, key=_rank)
    owner = min((best[session] for session in free), key=_rank, default=None)
    for each in seen:
        first = best[each.session]
        if each.request != first.request:
            counts = False
        elif each.session in free:
            counts = owner is first
        else:
            counts = best.keys().isdisjoint(orjson.loads(each.rivals or "[]"))
        yield each, counts


def _first(name: str, mentions: Sequence[_Sighting]) -> list[tuple[str, str, int]]:
    first: dict[str, int] = {}
    for each in mentions:
        first[each.session] = min(each.rank[1], first.get(each.session, each.rank[1]))
    return [(name, session, at) for session, at in first.items()]


def _rank(seen: _Sighting) -> tuple[int, int, str, str]:
    return seen.rank
