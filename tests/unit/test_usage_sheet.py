"""A sheet of sums: many added at once are the same as one after another, in any order, and are left as they were."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from turnlog.usage.buckets import Sums
from turnlog.usage.report import Sheet

COUNTS = st.none() | st.integers(0, 2**40)
MONEY = st.none() | st.integers(0, 1000).map(float)  # whole numbers: their sums do not depend on the order
SUMS = st.builds(
    Sums,
    streams=st.integers(0, 3),
    final=st.integers(0, 3),
    unpriced=st.integers(0, 3),
    low=st.integers(0, 3),
    calls=COUNTS,
    input=COUNTS,
    output=COUNTS,
    total_input=COUNTS,
    cache_read=COUNTS,
    cache_write=COUNTS,
    cache_write_1h=COUNTS,
    reasoning=COUNTS,
    reported=MONEY,
    estimated=MONEY,
    gaps=st.dictionaries(st.sampled_from(["reset", "order"]), st.integers(1, 3)),
)
ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.sampled_from(["m", "n"]), SUMS), max_size=12)


@given(ROWS, ROWS, st.booleans())
def test_many_at_once_are_the_same_as_one_after_another(
    first: list[tuple[str, str | None, Sums]], more: list[tuple[str, str | None, Sums]], breakdown: bool
) -> None:
    before = copy.deepcopy([*first, *more])
    one = Sheet(breakdown=breakdown)
    for key, model, sums in [*first, *more]:
        one.add(key, model, sums)
    many = Sheet(breakdown=breakdown)
    many.add_all(first)
    many.add_all(reversed(more))
    assert many.totals() == one.totals()
    assert sorted(many.keys()) == sorted(one.keys())
    for key in sorted(one.keys()):
        assert many.row(key) == one.row(key)
    many.add_gaps("a", {"order": 1}, model="m")
    assert [*first, *more] == before
