"""Instants: unix milliseconds and RFC 3339."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.clock import from_rfc3339, now_ms, to_rfc3339
from turnlog.testing.clock import FakeClock


def test_now_is_unix_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= now_ms() <= time.time_ns() // 1_000_000


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_790_814_000_500, "2026-10-01T00:20:00.500Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (-30_610_224_000_000, "1000-01-01T00:00:00.000Z"),
    ],
)
def test_both_ways(instant: int, text: str) -> None:
    assert to_rfc3339(instant) == text
    assert from_rfc3339(text) == instant


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_round_trip(instant: int) -> None:
    assert from_rfc3339(to_rfc3339(instant)) == instant


@pytest.mark.parametrize("instant", [253_402_300_800_000, -62_135_596_800_001, 2**63, -(2**63)])
def test_outside_the_calendar_the_number_is_said(instant: int) -> None:
    assert to_rfc3339(instant) == f"{instant}ms"


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T00:00:01z", 1000),
        ("1970-01-01t00:00:01Z", 1000),
        ("1970-01-01 00:00:01Z", 1000),
        ("1970-01-01T00:00:01.5Z", 1500),
        ("1970-01-01T00:00:01.1239999Z", 1123),
        ("1970-01-01T00:00:01.999999999999999Z", 1999),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("1969-12-31T19:00:01-05:00", 1000),
        ("1970-01-01T05:45:01+05:45", 1000),
        ("1970-01-01T23:59:00+23:59", 0),
        ("1970-01-01T00:00:00-00:00", 0),
    ],
)
def test_zones_and_fractions(text: str, instant: int) -> None:
    """The fraction is kept to the millisecond and cut, not rounded (R6.1)."""
    assert from_rfc3339(text) == instant


@pytest.mark.parametrize(
    "text",
    [
        None,
        5,
        1.5,
        b"1970-01-01T00:00:01Z",
        "",
        "yesterday",
        "1970-01-01",
        "1970-01-01T00:00:01",
        "1970-01-01T00:00Z",
        "1970-01-01T00:00:01.Z",
        "1970-01-01T00:00:01+0100",
        "1970-01-01T00:00:01+24:00",
        "1970-01-01T00:00:01+01:60",
        "1970-01-01T24:00:00Z",
        "1970-01-01T00:00:60Z",
        "1970-02-30T00:00:00Z",
        "1970-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "1970-01-01T00:00:01Z\n",
        " 1970-01-01T00:00:01Z",
        "1970-001T00:00:01Z",
        "1970-W01-1T00:00:01Z",
        "١٩٧٠-01-01T00:00:01Z",
    ],
)
def test_what_is_no_instant(text: object) -> None:
    assert from_rfc3339(text) is None


def test_the_fake_clock_moves_only_when_told() -> None:
    clock = FakeClock(5)
    assert (clock(), clock()) == (5, 5)
    assert clock.advance(10) == clock() == 15
    assert clock.advance(-20) == -5
    assert FakeClock()() == 1000
