"""Damaged lines: what is whole is read, what is not is a located byte range."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.harness.salvage import has_zone, instant, read_line, whole_size

GOOD = b'{"type":"assistant","x":1}'
VALUE = {"type": "assistant", "x": 1}


def problems(raw: bytes) -> list[tuple[str, int, int, bool]]:
    return [(each.kind, each.offset, each.length, each.usage) for each in read_line(raw, 100)[1]]


def test_a_whole_line_is_given_with_its_place() -> None:
    assert read_line(GOOD + b"\r", 100) == ([(100, VALUE)], [])
    assert read_line(b"", 100) == read_line(b" \r", 100) == ([], [])


@pytest.mark.parametrize(
    "torn",
    [
        b'{"type":"assistant","mess',
        b'{"a":12',
        b'{"a":tru',
        b'{"a":',
        b"{",
        b'{"a":1,',
        b'{"a":"x\\',
        b'{"a":"x\\u12',
        b'{"a":[{"c":1},',
        b'{"a":"cut in a \xe2\x82',
    ],
)
def test_an_object_behind_a_torn_one_is_read_and_the_torn_range_lost(torn: bytes) -> None:
    assert read_line(torn + GOOD, 100)[0] == [(100 + len(torn), VALUE)]
    assert problems(torn + GOOD) == [("torn", 100, len(torn), True)]
    assert [place for place, _ in read_line(torn + GOOD + GOOD, 0)[0]] == [len(torn), len(torn) + len(GOOD)]


def test_two_torn_objects_before_a_whole_one() -> None:
    raw = b'{"a":"y{"b":"c' + GOOD
    assert read_line(raw, 100)[0] == [(114, VALUE)]
    assert problems(raw) == [("torn", 100, 7, True), ("torn", 107, 7, True)]


def test_glued_objects_are_all_read() -> None:
    assert read_line(GOOD + b" " + GOOD, 0)[0] == [(0, VALUE), (27, VALUE)]
    assert problems(GOOD + b" " + GOOD) == [("glued", 100, 53, False)]


def test_a_torn_tail_costs_only_itself() -> None:
    assert read_line(GOOD + b'{"type":"as', 100)[0] == [(100, VALUE)]
    assert problems(GOOD + b'{"type":"as') == [("not_json", 126, 11, True)]


def test_a_part_of_a_broken_object_is_not_taken_for_a_record() -> None:
    assert read_line(b'{"a":"x"y","b":{"c":1}}', 0)[0] == []
    assert problems(b'{"a":"x"y","b":{"c":1}}') == [("not_json", 100, 23, True)]


@pytest.mark.parametrize(
    ("raw", "value", "expected"),
    [
        (b'{"a":"\xff\xfe b \xff","n":7}', {"a": "\ufffd\ufffd b \ufffd", "n": 7}, ("invalid_utf8", 106, 6, False)),
        (b'{"a":"\\ud83d","n":7}', {"a": "\ufffd", "n": 7}, ("lone_surrogate", 100, 20, False)),
        (b'{"a":"x\ty"}', {"a": "x y"}, ("control_character", 100, 11, False)),
        (b'{"a":NaN}', {"a": None}, ("not_finite", 100, 9, False)),
        (b"\xef\xbb\xbf" + GOOD, VALUE, ("byte_order_mark", 100, 3, False)),
        (b"\0\0\0" + GOOD, VALUE, ("nul_bytes", 100, 3, True)),
        (GOOD + b"\0\0", VALUE, ("nul_bytes", 126, 2, True)),
    ],
)
def test_damage_inside_a_line_does_not_lose_it(raw: bytes, value: Any, expected: tuple[str, int, int, bool]) -> None:
    assert [each for _, each in read_line(raw, 100)[0]] == [value]
    assert problems(raw) == [expected]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"[1]", ("not_an_object", 100, 3, False)),
        (b"rubbish", ("not_json", 100, 7, True)),
        (b"\0" * 10, ("nul_bytes", 100, 10, True)),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, ("too_deep", 100, 12001, True)),
    ],
)
def test_what_cannot_be_read_is_a_located_problem(raw: bytes, expected: tuple[str, int, int, bool]) -> None:
    assert read_line(raw, 100)[0] == []
    assert problems(raw) == [expected]


@pytest.mark.parametrize("part", [b'{"a":"x', b'{"a":{"b":"c', b'{"a":"\xff', b"[{", b'{"":'])
def test_rubbish_costs_no_more_than_its_length(part: bytes) -> None:
    started = time.process_time()
    read_line(part * (2_000_000 // len(part)), 0)
    assert time.process_time() - started < 10, "quadratic work would take hours"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=3), min_size=1, max_size=4))
def test_glued_objects_come_back_in_order(values: list[dict[str, Any]]) -> None:
    found, troubles = read_line(b"".join(map(orjson.dumps, values)), 0)
    assert [value for _, value in found] == values
    assert [each.kind for each in troubles] == ["glued"] * (len(values) > 1)


@given(st.binary(max_size=60), st.integers(0, 30))
def test_any_bytes_are_data(noise: bytes, at: int) -> None:
    for raw in (noise, GOOD[:at] + noise + GOOD):
        found, troubles = read_line(raw, 100)
        assert all(100 <= place < 100 + len(raw) for place, _ in found)
        assert all(each.offset >= 100 and each.offset + each.length <= 100 + len(raw) for each in troubles)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02T03:04:05.678Z", 1767323045678),
        ("2026-01-02T03:04:05.678123456+02:00", 1767315845678),
        ("2026-01-02T03:04:05.678", 1767323045678),
        ("2026-13-02T03:04:05Z", None),
        ("yesterday, and a bit more", None),
        ("20260102T030405Z", None),
        (1767323045678, None),
        (None, None),
    ],
)
def test_instants(text: object, expected: int | None) -> None:
    assert instant(text) == expected


def test_a_zone_is_named_or_not() -> None:
    assert has_zone("2026-01-02T03:04:05Z")
    assert has_zone("2026-01-02T03:04:05-05:00")
    assert not has_zone("2026-01-02T03:04:05.678")


@pytest.mark.parametrize(
    ("line", "size"),
    [
        (b'{"a":1}', 7),
        (b'{"a":1}\r', 8),
        (b'{"a":', 0),
        (b"12", 0),
        (b"[1]\r", 0),
        (b'{"a":1}\r{"b":2}\r', 16),
        (b'{"a":1}\r{"b":2}', 15),
        (b'{"a":1}\r\r{"b":', 9),
        (b'{"a":1}\r{"b":2}\r[3]\r{"c":4}', 16),
        (b'{"a":"\r"}\r{"b":2}', 0),
    ],
)
def test_a_last_line_without_a_line_feed_is_whole_up_to_its_last_object(line: bytes, size: int) -> None:
    assert whole_size(line) == whole_size(bytearray(line)) == size
