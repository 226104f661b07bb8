"""Instants and identifiers of a made-up history."""

from __future__ import annotations

import functools
import random
from datetime import UTC, datetime

DAY_MS = 86_400_000
FIRST_DAY = 1_784_505_600_000
"""2026-07-20T00:00Z, unix ms."""
DAYS = 125


@functools.lru_cache(maxsize=4)
def _day(number: int) -> str:
    return datetime.fromtimestamp(number * 86_400, UTC).strftime("%Y-%m-%d")


def day_of(at: int) -> str:
    """Return the UTC day of an instant in unix ms."""
    return _day(at // DAY_MS)


def stamp(at: int) -> str:
    """Return RFC 3339 with milliseconds."""
    rest = at % DAY_MS
    seconds, ms = divmod(rest, 1000)
    return f"{day_of(at)}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{ms:03d}Z"


def uuid4(rng: random.Random) -> str:
    text = f"{rng.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


def uuid7(rng: random.Random, at: int) -> str:
    text = f"{at:012x}{rng.getrandbits(80):020x}"
    return f"{text[:8]}-{text[8:12]}-7{text[13:16]}-b{text[17:20]}-{text[20:]}"
