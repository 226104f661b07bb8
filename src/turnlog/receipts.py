"""Canonical JSON, receipts and their keys. This module never interprets a payload.

There is one encoder (orjson, sorted keys, no white space) and one decoder (msgspec) in the whole program:
encoders spell numbers differently (``1e+16`` / ``1e16``), and a mix would make one receipt into two.
Two receipts are equal if and only if their canonical texts are (R1.2).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import uuid
from typing import Any, Final

import msgspec
import orjson

from turnlog.errors import InvalidError

MAX_DEPTH: Final = 250
"""Most arrays and objects inside each other. orjson stops at 254; a limit of our own gives one answer everywhere."""

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**64 - 1

_OPTIONS: Final = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_decoder: Final = msgspec.json.Decoder()
_ARTIFACT_KEY: Final = re.compile(r"(?:run_)?(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
_DIGITS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_NUMBER: Final = b"0" * 19  # with all digits made zeros: eight times as fast as a regular expression


class Receipt(msgspec.Struct, frozen=True):
    """Evidence about one provider turn, as a harness or importer hands it to intake.

    ``kind`` is one of ``started usage completed output``; ``payload`` is a JSON value (semantics 2.3.2).
    """

    thread: str
    turn: str
    kind: str
    payload: Any


class Observation(msgspec.Struct, frozen=True):
    """Something seen, attached to a capture (3.4). It never settles anything.

    ``payload`` is the evidence; stored is ``{input_id, source, evidence}``. ``observed_at`` is unix milliseconds.
    """

    artifact_key: str
    source: str
    observed_at: int
    payload: Any
    task_id: str | None = None
    wave_id: str | None = None


def canonical(value: Any) -> str:
    """Return the canonical text of a JSON value.

    Raises InvalidError for NaN, infinities, integers outside −2^63…2^64−1, nesting over 250, lone surrogates,
    keys that are not strings, and anything that is not JSON.
    """
    try:
        text = orjson.dumps(value, option=_OPTIONS)
    except (TypeError, ValueError) as error:  # orjson.JSONEncodeError is a TypeError
        raise InvalidError(
            f"not a JSON value: {error}", hint="use objects, arrays, strings, numbers, true, false, null"
        ) from error
    # orjson writes NaN as null and a UUID as text without a word: what does not come back equal is walked, and so is
    # what may nest too deeply. Decoding is much faster than walking.
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH or _decoder.decode(text) != value:
        _check(value, 0)
    return text.decode()


def decode(text: str | bytes) -> Any:
    """Parse JSON text strictly (duplicate keys: the last wins).

    Raises InvalidError when it is not JSON, nests over 250, has a lone surrogate or an integer out of range.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        value = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidError(f"not JSON: {error}", hint="the text must be one JSON value in UTF-8") from error
    if _LONG_NUMBER in raw.translate(_DIGITS) or (
        len(raw) > 2 * MAX_DEPTH and raw.count(b"[") + raw.count(b"{") > MAX_DEPTH  # what is opened is closed
    ):
        _check(value, 0)
    return value


def decode_foreign(raw: bytes) -> tuple[Any, tuple[str, ...]]:
    """Parse JSON written by another program; lone surrogates become U+FFFD and are named as a problem.

    Returns the value and the names of the problems met. Raises InvalidError when it cannot be read as it is.
    """
    value, problems = decode_repaired(raw)
    if problems not in {(), ("lone_surrogate",)}:
        raise InvalidError(f"JSON that cannot be kept as it is: {', '.join(problems)}", hint="write it as a string")
    return value, problems


def decode_repaired(raw: bytes) -> tuple[Any, tuple[str, ...]]:
    """Parse JSON of which one bad value must not lose the rest, like a whole list of messages (promise 7).

    A lone surrogate becomes U+FFFD (``lone_surrogate``), an integer outside −2^63…2^64−1 its digits as a string
    (``integer_out_of_range``); NaN and infinities (``not_finite``) and what nests too deep (``too_deep``) become null.
    Returns the value and the names of the problems met. Raises InvalidError when nothing can be read.
    """
    with contextlib.suppress(InvalidError):
        return decode(raw), ()
    problems: set[str] = set()

    def constant(_: str) -> None:
        problems.add("not_finite")

    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise InvalidError(f"not JSON: {error}", hint="the text must be one JSON value in UTF-8") from error
    return _repaired(value, 0, problems), tuple(sorted(problems))


def receipt_key(kind: str, text: str) -> str:
    """Return the deduplication key of a native receipt with this canonical text (2.3.1, R1.4)."""
    return hashlib.sha256(text.encode()).hexdigest() if kind == "usage" else ""


def new_artifact_key() -> str:
    """Return a fresh artifact key: a version 4 UUID as 32 hex digits."""
    return uuid.uuid4().hex


def check_artifact_key(key: str) -> str:
    """Return ``key`` if it is an artifact key (a UUID, or ``run_`` and a UUID), spelled as given; else InvalidError."""
    if not _ARTIFACT_KEY.fullmatch(key):
        raise InvalidError(f"not an artifact key: {key[:80]!r}", hint="an artifact key is a UUID of 32 hex digits")
    return key


def _check(value: Any, depth: int) -> None:
    """Refuse what is no JSON value of ours; ``depth`` counts the arrays and objects around it."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidError("NaN and infinities are not JSON", hint="leave an unknown number out")
    elif isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise InvalidError("integer outside -2^63 … 2^64-1", hint="write it as a string")
    elif isinstance(value, dict | list | tuple):
        if depth >= MAX_DEPTH:
            raise InvalidError(f"JSON nested deeper than {MAX_DEPTH}", hint="flatten the value")
        for item in value.values() if isinstance(value, dict) else value:
            _check(item, depth + 1)
    elif not isinstance(value, str | None):
        raise InvalidError(
            f"not a JSON value: {type(value).__name__}", hint="use objects, arrays, strings, numbers, true, false, null"
        )


def _repaired(value: Any, depth: int, problems: set[str]) -> Any:
    if isinstance(value, str):
        whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if whole != value:
            problems.add("lone_surrogate")
        return whole
    if isinstance(value, float) and not math.isfinite(value):  # 1e999
        problems.add("not_finite")
        return None
    if isinstance(value, int) and not isinstance(value, bool) and not INT_MIN <= value <= INT_MAX:
        problems.add("integer_out_of_range")
        return str(value)
    if isinstance(value, dict | list) and depth >= MAX_DEPTH:
        problems.add("too_deep")
        return None
    if isinstance(value, list):
        return [_repaired(item, depth + 1, problems) for item in value]
    if isinstance(value, dict):
        return {_repaired(key, depth, problems): _repaired(item, depth + 1, problems) for key, item in value.items()}
    return value
