"""The JSON lines decoder: every line comes out once, as a value or as a located problem."""

from __future__ import annotations

import hashlib
import time
import tracemalloc

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.wire.jsonl import HEAD, JsonlDecoder, JsonLine, JsonlProblem


def _all(data: bytes, *, size: int = 7, max_line: int = 1000) -> list[JsonLine | JsonlProblem]:
    decoder = JsonlDecoder(max_line=max_line)
    out: list[JsonLine | JsonlProblem] = []
    for at in range(0, len(data), size):
        out += decoder.feed(data[at : at + size])
    return out + decoder.end()


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_lines_come_with_their_place(size: int) -> None:
    data = b'{"a":1}\r\n\n[2]\n  \n"x"\n'
    assert _all(data, size=size) == [
        JsonLine({"a": 1}, 1, 0, 7),
        JsonLine([2], 3, 10, 3),
        JsonLine("x", 5, 17, 3),
    ]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_line_that_is_no_json_is_one_problem_and_the_next_line_is_read(size: int) -> None:
    bad = b"panicked at src/main.rs"
    first, problem, last = _all(b'{"a":1}\n' + bad + b'\n{"b":2}\n', size=size)
    assert isinstance(first, JsonLine)
    assert isinstance(problem, JsonlProblem)
    assert last == JsonLine({"b": 2}, 3, 8 + len(bad) + 1, 7)
    assert (problem.kind, problem.line, problem.offset, problem.size) == ("not_json", 2, 8, len(bad))
    assert problem.sha256 == hashlib.sha256(bad).hexdigest()
    assert problem.head == bad.decode()
    assert problem.why


@pytest.mark.parametrize("size", [1, 64, 4096, 1 << 20])
@pytest.mark.parametrize("extra", [1, 2, 5000])
def test_a_line_over_the_bound_is_one_problem_with_the_digest_of_all_of_it(size: int, extra: int) -> None:
    long = b'"' + b"y" * (998 + extra) + b'"'
    assert len(long) == 1000 + extra
    problem, after = _all(long + b'\n{"b":2}\n', size=size)
    assert isinstance(problem, JsonlProblem)
    assert (problem.kind, problem.offset, problem.size) == ("line_too_long", 0, len(long))
    assert problem.sha256 == hashlib.sha256(long).hexdigest()
    assert problem.head == long[:HEAD].decode()
    assert after == JsonLine({"b": 2}, 2, len(long) + 1, 7)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_line_of_exactly_the_bound_is_read(end: bytes) -> None:
    long = b'"' + b"y" * 998 + b'"'
    assert _all(long + end) == [JsonLine("y" * 998, 1, 0, 1000)]


def test_what_has_no_line_end_is_given_only_when_it_is_certainly_whole() -> None:
    assert _all(b'{"a":1}') == [JsonLine({"a": 1}, 1, 0, 7)]
    for cut in (b'{"a":', b"12", b"true"):
        (problem,) = _all(b"[1]\n" + cut)[1:]
        assert isinstance(problem, JsonlProblem)
        assert (problem.kind, problem.line, problem.offset) == ("unfinished", 2, 4)


def test_invalid_utf8_and_lone_surrogates() -> None:
    problem, line = _all(b'"\xff\xfe"\n"\\ud800x"\n')
    assert isinstance(problem, JsonlProblem)
    assert problem.kind == "not_json"
    assert line == JsonLine("\ufffdx", 2, 5, 9, ("lone_surrogate",))


def test_reading_goes_on_from_a_place() -> None:
    decoder = JsonlDecoder(offset=100, line=8)
    assert decoder.feed(b"[]\n") == [JsonLine([], 8, 100, 2)]


_NUMBERS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.one_of(_NUMBERS, st.text(), st.lists(_NUMBERS))), st.integers(1, 50))
def test_any_values_in_any_pieces(values: list[object], size: int) -> None:
    data = b"".join(orjson.dumps(value) + b"\n" for value in values)
    lines = _all(data, size=size, max_line=10_000)
    assert [line.value for line in lines if isinstance(line, JsonLine)] == values
    assert all(data[line.offset :][: line.size].strip() for line in lines)


def test_a_line_of_fifty_megabytes_takes_little_more_than_itself_and_linear_time() -> None:
    size = 50 << 20
    piece = b"y" * 65536
    decoder = JsonlDecoder()
    tracemalloc.start()
    begun = time.monotonic()
    decoder.feed(b'{"text":"')
    for _ in range(size // len(piece)):
        assert decoder.feed(piece) == []
    (line,) = decoder.feed(b'"}\n')
    took = time.monotonic() - begun
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(line, JsonLine)
    assert len(line.value["text"]) == size
    assert peak < 4 * size
    assert took < 10


def test_an_endless_line_takes_no_memory() -> None:
    decoder = JsonlDecoder(max_line=1 << 20)
    tracemalloc.start()
    for _ in range(1000):
        assert decoder.feed(b"y" * 65536) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 << 20
    (problem,) = decoder.feed(b"\n")
    assert isinstance(problem, JsonlProblem)
    assert problem.size == 1000 * 65536
