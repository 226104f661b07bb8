"""5-hour windows, periods of time zones, and sums by quarter of an hour."""

from __future__ import annotations

from datetime import UTC, date
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.errors import InvalidError
from turnlog.queries.zones import begin_of, bound, daily, day_of, monthly, resolve_zone, weekly
from turnlog.usage.blocks import HOUR_MS, WINDOW_MS, blocks
from turnlog.usage.buckets import QUARTER_MS, Kind, Loose, Rolled, Sums, buckets, settled

DAY = 1_770_076_800_000
"""2026-02-03T00:00:00Z, a Tuesday"""


def stream(
    at: int, *, out: int | None = 1, model: str = "x", counted: bool = True, cost: float | None = None
) -> Rolled:
    return Rolled(
        kind=Kind("claude", None, model),
        capture=1,
        seq=1,
        at=at,
        source="native",
        final=True,
        counted=counted,
        calls=1,
        input=None,
        output=out,
        total_input=None,
        cache_read=None,
        cache_write=None,
        cache_write_1h=None,
        reasoning=None,
        peak=None,
        window=None,
        tier=None,
        reported=cost,
    )


# --- windows


def test_a_window_begins_with_the_hour_of_its_first_call() -> None:
    [block] = blocks([(DAY + 59 * 60_000, DAY + 59 * 60_000)])
    assert (block.start, block.end) == (DAY, DAY + WINDOW_MS)


def test_a_call_at_the_end_of_a_window_opens_the_next() -> None:
    assert [block.start for block in blocks([(DAY, DAY), (DAY + WINDOW_MS, DAY + WINDOW_MS)])] == [DAY, DAY + WINDOW_MS]
    assert len(blocks([(DAY, DAY), (DAY + WINDOW_MS - 1, DAY + WINDOW_MS - 1)])) == 1


def test_after_silence_a_window_begins_with_a_later_hour() -> None:
    late = DAY + 7 * HOUR_MS + 5
    assert [block.start for block in blocks([(late, late), (DAY, DAY)])] == [DAY, DAY + 7 * HOUR_MS]


@given(st.lists(st.integers(0, 10**12)))
def test_every_call_lies_in_exactly_one_window(times: list[int]) -> None:
    found = blocks((at, at) for at in times)
    for at in times:
        assert len([block for block in found if block.start <= at < block.end and block.first <= at <= block.last]) == 1
    assert found == sorted(found, key=lambda block: block.start)


# --- periods


@pytest.mark.parametrize("name", ["UTC", "Asia/Kathmandu", "America/St_Johns", "Australia/Lord_Howe", "Africa/Cairo"])
@given(at=st.integers(0, 4_000_000_000_000))
def test_an_instant_lies_in_its_periods_which_begin_with_a_quarter(name: str, at: int) -> None:
    zone = ZoneInfo(name)
    for period in (daily, weekly, monthly):
        found = period(at, zone)
        assert found.begin <= at < found.end
        assert at < DAY or found.begin % QUARTER_MS == 0
        assert period(found.begin, zone) == found
        assert period(found.end, zone).begin == found.end


def test_keys_of_periods() -> None:
    assert daily(DAY, UTC).key == "2026-02-03"
    assert weekly(DAY, UTC).key == "2026-02-02"
    assert monthly(DAY, UTC).key == "2026-02"
    assert day_of(DAY - 1, UTC) == date(2026, 2, 2)
    assert begin_of(date(2026, 2, 3), UTC) == DAY


def test_a_bound_is_a_day_or_an_instant() -> None:
    assert bound("2026-02-03", UTC, end=False) == DAY
    assert bound("2026-02-03", UTC, end=True) == DAY + 24 * HOUR_MS
    assert bound("2026-02-03T01:00:00+01:00", UTC, end=True) == DAY
    assert bound(7, UTC, end=True) == 7
    for word in ("yesterday", "2026-02-30", "9999-12-31"):
        with pytest.raises(InvalidError, match="not a day"):
            bound(word, UTC, end=True)
    with pytest.raises(InvalidError, match="no time zone"):
        resolve_zone("Mars/Olympus")


# --- sums by quarter


def test_streams_are_summed_by_quarter_and_kind() -> None:
    found = buckets(
        [
            stream(DAY, cost=0.1),
            stream(DAY + QUARTER_MS - 1, out=None),
            stream(DAY + QUARTER_MS),
            stream(DAY, model="y"),
        ],
        [Loose(Kind("claude"), DAY + 5, {"schema": 2})],
    )
    assert [(each.start * QUARTER_MS, each.kind.model, each.sums.streams, each.sums.output) for each in found] == [
        (DAY, "x", 2, 1),
        (DAY + QUARTER_MS, "x", 1, 1),
        (DAY, "y", 1, 1),
        (DAY, None, 0, None),
    ]
    assert (found[0].first, found[0].last) == (DAY, DAY + QUARTER_MS - 1)
    assert (found[0].sums.reported, found[0].sums.unpriced) == (0.1, 1)
    assert found[3].sums.gaps == {"schema": 2}


def test_what_another_stream_tells_of_is_not_summed() -> None:
    assert buckets([stream(DAY, counted=False)], []) == []


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9)), max_size=12), st.randoms())
def test_the_order_of_streams_does_not_matter(told: list[tuple[int, int | None]], chance: object) -> None:
    rows = [stream(DAY + quarter * QUARTER_MS, out=out) for quarter, out in told]
    mixed = list(rows)
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    one, other = ({each.start: each for each in buckets(side, [])} for side in (rows, mixed))
    assert one == other
    whole = Sums()
    for each in one.values():
        whole.add(each.sums)
    known = [out for _, out in told if out is not None]
    assert (whole.streams, whole.output) == (len(told), sum(known) if known else None)


def test_an_instant_outside_the_calendar_falls_back() -> None:
    assert (settled(-1, 7), settled(2**60, 7), settled(5, 7), settled(-1, -1)) == (7, 7, 5, 0)
