"""Canonical JSON, receipt keys, artifact keys."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import hashlib
import math
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnlog.errors import InvalidError
from turnlog.receipts import (
    INT_MAX,
    INT_MIN,
    MAX_DEPTH,
    Observation,
    Receipt,
    canonical,
    check_artifact_key,
    decode,
    decode_foreign,
    decode_repaired,
    new_artifact_key,
    receipt_key,
)


def nested(depth: int, inner: Any = None) -> Any:
    value: Any = [] if inner is None else [inner]
    for _ in range(depth - 1):
        value = [value]
    return value


# --- encoding


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (0, "0"),
        (-0, "0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (1e16, "1e+16"),
        (0.1, "0.1"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (INT_MAX, "18446744073709551615"),
        (INT_MIN, "-9223372036854775808"),
        ("", '""'),
        ("é🙂\u2028", '"é🙂\u2028"'),
        ('"\\/\b\f\n\r\t\x00\x1f\x7f', '"\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7f"'),
        ([], "[]"),
        ({}, "{}"),
        ((1, (2,)), "[1,[2]]"),
        ({"b": 1, "a": {"d": None, "c": []}}, '{"a":{"c":[],"d":null},"b":1}'),
        ({"é": 1, "z": 2, "Z": 3, "": 4}, '{"":4,"Z":3,"z":2,"é":1}'),
    ],
)
def test_canonical_text(value: Any, text: str) -> None:
    assert canonical(value) == text


def test_key_order_does_not_matter() -> None:
    assert canonical({"a": 1, "b": 2}) == canonical({"b": 2, "a": 1})


def test_integers_and_floats_differ() -> None:
    assert canonical(1) != canonical(1.0)
    assert canonical({"n": 10**16}) != canonical({"n": 1e16})


class Colour(enum.Enum):
    RED = 1


class Word(enum.StrEnum):
    HELLO = "hello"


@dataclasses.dataclass
class Point:
    x: int = 1


class Struct(msgspec.Struct):
    x: int = 1


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        INT_MAX + 1,
        INT_MIN - 1,
        10**400,
        "\ud800",
        "a\udfffb",
        b"bytes",
        bytearray(b"x"),
        {1, 2},
        1j,
        object(),
        decimal.Decimal(1),
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        dt.date(2026, 1, 1),
        dt.time(1),
        uuid.UUID(int=1),
        Point(),
        Struct(),
        Colour.RED,
        Text("subclass"),
        iter([1]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_json_is_refused(value: Any) -> None:
    for wrapped in (value, [value], {"key": value}, [{"key": [1, value]}], [None, value]):
        with pytest.raises(InvalidError) as caught:
            canonical(wrapped)
        assert caught.value.hint


@pytest.mark.parametrize("key", [1, None, True, 1.5, ("a",), b"a", "\ud800", uuid.UUID(int=1), Colour.RED])
def test_keys_are_strings(key: Any) -> None:
    with pytest.raises(InvalidError):
        canonical({key: 1})


def test_a_string_enum_is_its_string() -> None:
    assert canonical(Word.HELLO) == '"hello"'


def test_depth_is_limited_at_one_place() -> None:
    assert canonical(nested(MAX_DEPTH)) == "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert canonical(nested(MAX_DEPTH, 1)) == "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH
    assert decode(canonical(nested(MAX_DEPTH, 1))) == nested(MAX_DEPTH, 1)
    for depth in (MAX_DEPTH + 1, 254, 255, 10_000):
        with pytest.raises(InvalidError):
            canonical(nested(depth))
        with pytest.raises(InvalidError):
            decode("[" * depth + "]" * depth)
        with pytest.raises(InvalidError):
            decode('{"a":' * depth + "1" + "}" * depth)


def test_brackets_in_strings_are_not_depth() -> None:
    text = "[{" * 1000
    assert decode(canonical({"text": text})) == {"text": text}


def test_many_siblings_are_not_depth() -> None:
    value = [[None]] * 1000
    assert decode(canonical(value)) == value


def test_circles_are_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(InvalidError):
        canonical(circle)


def test_ten_megabytes_of_text() -> None:
    text = "ü\n\x00" * 3_500_000
    written = canonical({"text": text})
    assert len(written.encode()) > 10_000_000
    assert decode(written) == {"text": text}


# --- decoding


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "[1,]",
        "{'a':1}",
        "01",
        "+1",
        "1.",
        ".5",
        "NaN",
        "Infinity",
        "-Infinity",
        "nul",
        '"\x01"',
        '"\\x"',
        '"unclosed',
        "1 2",
        "1e400",
        "-1e400",
        "18446744073709551616",
        "-9223372036854775809",
        '{"deep":[18446744073709551616]}',
        '"\\ud800"',
        '"\\udc00\\ud800"',
        "\ufeff1",
    ],
)
def test_what_is_not_json_is_not_decoded(text: str) -> None:
    with pytest.raises(InvalidError):
        decode(text)
    with pytest.raises(InvalidError):
        decode(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("raw", [b"\xff", b'"\xff"', b'"\xed\xa0\x80"', b'{"\xff":1}'])
def test_what_is_not_utf8_is_not_decoded(raw: bytes) -> None:
    with pytest.raises(InvalidError):
        decode(raw)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":1,"a":2}', {"a": 2}),
        ('"\\ud83d\\ude42"', "🙂"),
        ('"\\u0000"', "\x00"),
        (" [1 , 2]\n", [1, 2]),
        ("18446744073709551615", INT_MAX),
        ("-9223372036854775808", INT_MIN),
        ("123456789012345678901234567890.5", 1.2345678901234568e29),
        ("-0", 0),
        ("-0.0", -0.0),
        ("1E5", 100000.0),
        ("1e-400", 0.0),
    ],
)
def test_decode(text: str, value: Any) -> None:
    found = decode(text)
    assert (found, type(found)) == (value, type(value))
    assert decode(text.encode()) == value


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(INT_MIN, INT_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(json_values)
@example({"a": [1e16, -0.0, 5e-324, 1.7976931348623157e308, 2**53 + 1]})
def test_canonical_is_a_fixed_point(value: Any) -> None:
    text = canonical(value)
    again = decode(text)
    assert canonical(again) == text
    assert again == value


@given(json_values, json_values)
def test_equal_texts_are_equal_values(one: Any, other: Any) -> None:
    if canonical(one) == canonical(other):
        assert one == other


# --- foreign lines


def test_foreign_lines_without_surrogates_are_strict() -> None:
    assert decode_foreign(b'{"a":1}') == ({"a": 1}, ())
    with pytest.raises(InvalidError):
        decode_foreign(b"{")


def test_proper_pairs_are_no_problem() -> None:
    assert decode_foreign(b'"\\ud83d\\ude42"') == ("🙂", ())


def test_a_lone_surrogate_is_replaced_and_named() -> None:
    raw = b'{"\\ud800":["a\\udfffb","\\ud83d\\ude42",{"n":1.5}]}'
    assert decode_foreign(raw) == ({"\ufffd": ["a\ufffdb", "🙂", {"n": 1.5}]}, ("lone_surrogate",))


@pytest.mark.parametrize(
    "raw",
    [b'"\\ud800', b'["\\ud800",NaN]', b'["\\ud800",1e400]', b'["\\ud800",18446744073709551616]', b'"\\ud800\xff"'],
)
def test_a_foreign_line_is_still_checked(raw: bytes) -> None:
    with pytest.raises(InvalidError):
        decode_foreign(raw)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 100_000])
def test_a_foreign_line_may_not_nest_too_deeply(depth: int) -> None:
    with pytest.raises(InvalidError):
        decode_foreign(b"[" * depth + b'"\\ud800"' + b"]" * depth)


def test_a_foreign_value_can_be_stored() -> None:
    value, _ = decode_foreign(b'["\\ud800", 1]')
    assert canonical(value) == '["\ufffd",1]'


# --- keys


def test_receipt_keys() -> None:
    text = canonical({"n": 1})
    assert receipt_key("usage", text) == hashlib.sha256(text.encode()).hexdigest()
    for kind in ("started", "completed", "output"):
        assert receipt_key(kind, text) == ""


def test_new_artifact_keys() -> None:
    keys = {new_artifact_key() for _ in range(100)}
    assert len(keys) == 100
    for key in keys:
        assert check_artifact_key(key) == key
        assert (len(key), uuid.UUID(key).version) == (32, 4)


@pytest.mark.parametrize(
    "key",
    ["0" * 32, "run_" + "0" * 32, "ABCDEF" + "0" * 26, str(uuid.UUID(int=5)), "run_" + str(uuid.UUID(int=5))],
)
def test_artifact_keys_keep_their_spelling(key: str) -> None:
    assert check_artifact_key(key) == key


@pytest.mark.parametrize(
    "key",
    [
        "",
        "run_",
        "x",
        "0" * 31,
        "0" * 33,
        "run_run_" + "0" * 32,
        "RUN_" + "0" * 32,
        "{" + "0" * 32 + "}",
        "urn:uuid:" + "0" * 32,
        "0-" * 16 + "0" * 16,
        "0" * 32 + "\n",
        "٠" * 32,
    ],
)
def test_what_is_no_artifact_key(key: str) -> None:
    with pytest.raises(InvalidError):
        check_artifact_key(key)


def test_values_are_frozen() -> None:
    receipt = Receipt("thread", "turn", "usage", {})
    observation = Observation("key", "source", 1, {})
    for value, name in ((receipt, "turn"), (observation, "source")):
        with pytest.raises(AttributeError):
            setattr(value, name, "x")
    assert receipt == Receipt("thread", "turn", "usage", {})
    assert (observation.task_id, observation.wave_id) == (None, None)


@pytest.mark.parametrize(
    ("raw", "value", "problems"),
    [
        (b"[1, 18446744073709551616]", [1, "18446744073709551616"], ("integer_out_of_range",)),
        (b"[NaN, 1e999, 2]", [None, None, 2], ("not_finite",)),
        (b'{"a": "\\ud800", "b": -Infinity}', {"a": "\ufffd", "b": None}, ("lone_surrogate", "not_finite")),
    ],
)
def test_one_bad_value_loses_nothing_else(raw: bytes, value: object, problems: tuple[str, ...]) -> None:
    assert decode_repaired(raw) == (value, problems)
    assert decode(canonical(value)) == value


def test_what_nests_too_deep_is_cut_there() -> None:
    value, problems = decode_repaired(b"[7," + b"[" * 400 + b"]" * 400 + b"]")
    assert problems == ("too_deep",)
    assert value[0] == 7
    canonical(value)
