"""Several rows in one statement: each statement with triggers keeps copies of the pages that it changes.

A statement that could fail half-way writes every page that it changes to a journal of its own first. One statement for
one receipt did that a million times in a big import; rows that go together change a page once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from turnlog.ledger.backend import Row

_SIZES: Final = (64, 8, 1)
"""How many receipts a statement may have. Few sizes, because one takes milliseconds to compile and is kept then."""
_LARGE: Final = 256 << 10
"""Characters of payload in one statement of several receipts, which it copies before it inserts the first."""
_PAYLOAD: Final = 6
"""Where a receipt's row has its payload."""


def together(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Yield receipts in their order, as many together as one statement takes: O(rows)."""
    at = 0
    while at < len(rows):
        room, most = _LARGE, 0
        for row in rows[at : at + _SIZES[0]]:
            room -= len(row[_PAYLOAD])
            if room < 0:
                break
            most += 1
        count = next((size for size in _SIZES if size <= most), 1)  # a large one goes alone
        yield rows[at : at + count]
        at += count


@cache
def several(statement: str, count: int) -> str:
    """Return a statement that inserts one row of values as one that inserts ``count`` of them."""
    begin = statement.index("VALUES ") + len("VALUES ")
    end = statement.index(")", begin) + 1
    return statement[:begin] + ", ".join([statement[begin:end]] * count) + statement[end:]
