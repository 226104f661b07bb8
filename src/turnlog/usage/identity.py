"""When two mentions of a call's id mean one call, and when a gateway has used the id again. Pure.

A call is its id, in every file. The request's id only breaks ties: where one side has none it is the same call, and
so it is where model and input are equal; two requests with another model or other input are two calls.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Hashable, Sequence
from typing import Any, Final

_MARKED: Final = re.compile(r"(.+)~([0-9a-f]{8})\.([0-9a-f]{8})", re.DOTALL).fullmatch


def marked(call: str, request: str | None, *told: object) -> str:
    """Return a call's identity with marks of its request and of what it was ``told``: ``<call>~<request>.<told>``.

    Both marks have eight hex digits. Without a request the identity is the call alone. Constant time.
    """
    if request is None:
        return call
    return f"{call}~{_mark(request)}.{_mark(repr(told))}"


def unmarked(identity: str) -> tuple[str, str | None, str | None]:
    """Return (call, mark of the request, mark of what was told) of an identity; None where it bears none."""
    found = _MARKED(identity)
    return (identity, None, None) if found is None else (found[1], found[2], found[3])


def apart(sightings: Sequence[tuple[Hashable | None, Hashable, Any]]) -> list[list[int]]:
    """Sort mentions of one id into calls; returns the places of each call's. O(mentions), the same in any order.

    A mention is (request or None, what was told, rank). Equal requests, or equal words, are one call. One without a
    request is the call that has the same words, else the one with the smallest rank.
    """
    requests = {request for request, _, _ in sightings if request is not None}
    if len(requests) < 2:  # noqa: PLR2004 - there is nothing to be told apart
        return [list(range(len(sightings)))]
    above: dict[Hashable, Hashable] = {request: request for request in requests}

    def top(request: Hashable) -> Hashable:
        while above[request] != request:
            above[request] = request = above[above[request]]
        return request

    first: dict[Hashable, Hashable] = {}
    for request, told, _ in sightings:
        if request is not None:
            above[top(request)] = top(first.setdefault(told, request))
    best = min((rank, place) for place, (request, _, rank) in enumerate(sightings) if request is not None)[1]
    main = sightings[best][0]
    groups: dict[Hashable, list[int]] = {}
    for place, (request, told, _) in enumerate(sightings):
        owner = first.get(told, main) if request is None else request
        groups.setdefault(top(owner), []).append(place)
    return list(groups.values())


def _mark(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"
