"""The event-stream decoder: same events however the bytes are cut, and bad input is a located problem."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.wire.sse import SseDecoder, SseEvent, SseProblem


def decode(*chunks: bytes, **limits: int) -> list[SseEvent | SseProblem]:
    decoder = SseDecoder(**limits)
    return [item for chunk in chunks for item in decoder.feed(chunk)]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_line_ends(end: bytes) -> None:
    text = end.join([b"event: a", b"data: 1", b"", b"data:2", b"data: 3", b"id: x", b"", b"data: no", b""])
    assert decode(text) == [
        SseEvent("1", "a"),
        SseEvent("2\n3", "message", "x"),
    ]


def test_crlf_cut_between_reads_is_one_line_end() -> None:
    assert decode(b"data: a\r", b"\n\r", b"\ndata: b\r\n\r\n") == [SseEvent("a"), SseEvent("b")]


def test_comments_fields_and_spaces() -> None:
    stream = b":ping\nretry: 5\nunknown: x\ndata\ndata:  two\n\nevent: only\n\ndata: z\n\n"
    assert decode(stream) == [SseEvent("\n two"), SseEvent("z")]


def test_byte_order_mark_is_skipped_once_even_when_cut() -> None:
    assert decode(b"\xef", b"\xbb", b"\xbfdata: a\n\n") == [SseEvent("a")]
    assert decode(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n") == []


def test_an_id_stays_until_the_next_and_may_not_hold_nul() -> None:
    assert decode(b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n") == [SseEvent("a", id="1"), SseEvent("b", id="1")]


def test_an_event_without_its_blank_line_is_never_delivered() -> None:
    assert decode(b"data: half\n") == []


def test_a_long_line_is_a_located_problem_and_costs_only_its_event() -> None:
    stream = b"data: ok\n\ndata: " + b"x" * 100 + b"\n\ndata: after\n\n"
    expected = [SseEvent("ok"), SseProblem("line_too_long", 10), SseEvent("after")]
    assert decode(stream, max_line=50) == expected
    assert decode(*(stream[n : n + 7] for n in range(0, len(stream), 7)), max_line=50) == expected


def test_an_event_of_many_lines_is_bounded_too() -> None:
    stream = b"data: 12345\n" * 10 + b"\ndata: after\n\n"
    found = decode(stream, max_event=40)
    assert [type(item) for item in found] == [SseProblem, SseEvent]
    assert found[1] == SseEvent("after")


def test_bytes_that_are_not_utf8_are_replaced_and_reported() -> None:
    assert decode(b"data: a\n\ndata: \xff\n\n") == [SseEvent("a"), SseProblem("bad_utf8", 9), SseEvent("\ufffd")]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_any_cut_of_any_bytes_gives_the_same(data: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(data)]
    chunks = [data[start:end] for start, end in itertools.pairwise(places)]
    assert decode(*chunks) == decode(data)


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))))
def test_what_is_encoded_is_decoded(texts: list[str]) -> None:
    stream = "".join(f"data: {text}\n\n" for text in texts).encode()
    assert decode(stream) == [SseEvent(text) for text in texts]
