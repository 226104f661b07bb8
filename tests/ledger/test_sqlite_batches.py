"""Rows that go into one statement: every row once, in order, and none that are large beside others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnlog.ledger.backend import Row
from turnlog.ledger.sqlite_batches import several, together

LARGE = 300 << 10


def receipt(number: int, size: int) -> Row:
    return ("s", "t", "u", "usage", str(number), number, "x" * size, None, None, None, None, None)


@given(st.lists(st.sampled_from([0, 10, 5_000, 100 << 10, LARGE]), max_size=300))
def test_every_receipt_goes_once_in_order_and_a_large_one_alone(sizes: list[int]) -> None:
    rows = [receipt(number, size) for number, size in enumerate(sizes)]
    groups = [list(group) for group in together(rows)]
    assert [row for group in groups for row in group] == rows
    assert {len(group) for group in groups} <= {64, 8, 1}
    assert all(len(group) == 1 or sum(len(row[6]) for row in group) <= 256 << 10 for group in groups)


def test_small_receipts_go_many_at_once() -> None:
    assert [len(group) for group in together([receipt(number, 400) for number in range(138)])] == [64, 64, 8, 1, 1]


def test_a_statement_for_several_rows_repeats_the_values_alone() -> None:
    one = "INSERT INTO t (a, b)\nVALUES (?, ?)\nON CONFLICT DO NOTHING RETURNING a"
    assert several(one, 1) == one
    assert several(one, 3) == "INSERT INTO t (a, b)\nVALUES (?, ?), (?, ?), (?, ?)\nON CONFLICT DO NOTHING RETURNING a"
