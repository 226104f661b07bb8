"""JSON-RPC messages: every JSON value is some message, and what we write reads back."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.wire.jsonrpc import (
    Failure,
    Message,
    Notification,
    Request,
    Response,
    Strange,
    encode_failure,
    encode_notification,
    encode_request,
    encode_response,
    read,
)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"id": 1, "method": "a/b", "params": {"x": 1}}, Request(1, "a/b", {"x": 1})),
        ({"id": "r", "method": "a"}, Request("r", "a", {})),
        ({"method": "a", "params": {"x": 1}, "emittedAtMs": 5}, Notification("a", {"x": 1})),
        ({"method": "a", "params": [1]}, Notification("a", {})),
        ({"jsonrpc": "2.0", "id": None, "method": "a"}, Notification("a", {})),
        ({"id": 0, "result": None}, Response(0, None)),
        ({"id": 0, "result": {}, "error": None}, Response(0, {})),
        ({"id": 3, "error": {"code": -32600, "message": "no"}}, Failure(3, -32600, "no")),
        ({"id": 3, "error": {"data": [1]}}, Failure(3, 0, "no message", [1])),
        ({"id": None, "error": {"code": 1, "message": "parse"}}, Failure(None, 1, "parse")),
        ({"error": {"code": 1, "message": "parse"}}, Failure(None, 1, "parse")),
    ],
)
def test_shapes(value: Any, message: Message) -> None:
    assert read(value) == message


@pytest.mark.parametrize(
    "value", [None, 1, "a", [], {}, {"id": 1}, {"id": True, "method": "a"}, {"id": [1], "result": 1}, {"result": 1}]
)
def test_what_is_no_message_is_kept_as_it_is(value: Any) -> None:
    assert read(value) == Strange(value)


def test_what_we_write_is_one_line_that_reads_back() -> None:
    params = {"text": "two\nlines ü"}
    lines = {
        encode_request(1, "m", params): Request(1, "m", params),
        encode_notification("m"): Notification("m", {}),
        encode_notification("m", params): Notification("m", params),
        encode_response("x", params): Response("x", params),
        encode_failure(2, -32601, "no"): Failure(2, -32601, "no"),
    }
    for line, message in lines.items():
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert b"jsonrpc" not in line
        assert read(orjson.loads(line)) == message


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["id", "method", "params", "result", "error"]), inner)
    ),
    max_leaves=8,
)


@given(_JSON)
def test_no_value_is_an_error(value: Any) -> None:
    read(value)
