"""Many sums as one."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.usage.adding import added, together
from turnlog.usage.buckets import Sums

COUNT = st.none() | st.integers(0, 10**9)
SUMS = st.builds(
    Sums,
    streams=st.integers(0, 5),
    final=st.integers(0, 5),
    unpriced=st.integers(0, 5),
    low=st.integers(0, 5),
    calls=COUNT,
    input=COUNT,
    output=COUNT,
    total_input=COUNT,
    cache_read=COUNT,
    cache_write=COUNT,
    cache_write_1h=COUNT,
    reasoning=COUNT,
    # Quarters add up exactly in any order.
    reported=st.none() | st.integers(0, 4000).map(lambda n: n / 4),
    estimated=st.none() | st.integers(0, 4000).map(lambda n: n / 4),
    gaps=st.dictionaries(st.sampled_from(["unreadable", "order"]), st.integers(1, 3)),
)


@given(st.lists(SUMS, max_size=6), st.randoms(use_true_random=False))
def test_it_is_what_adding_one_after_another_gives_in_any_order(several: list[Sums], rng: object) -> None:
    before = copy.deepcopy(several)
    expected = Sums()
    for each in several:
        expected.add(each)
    mixed = list(several)
    rng.shuffle(mixed)  # type: ignore[attr-defined]
    assert together(several) == expected == together(mixed)
    assert several == before


@pytest.mark.parametrize(
    ("values", "sum_"), [([], None), ([None], None), ([None, 0], 0), ([1, None, 2], 3), ([1, 2], 3)]
)
def test_what_nobody_knows_is_unknown_and_no_zero(values: list[int | None], sum_: int | None) -> None:
    assert added(values) == sum_
