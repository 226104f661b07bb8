"""One line of a log as JSON objects, whatever happened to it (promise 7).

Lines are torn by crashes and glued by the next write, filled with NUL bytes, cut inside a character. What is whole on a
line is given, what is not becomes a located problem: a byte range of the file, never a guess about what it said.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from turnlog.errors import InvalidError
from turnlog.harness.reading import Trouble
from turnlog.receipts import decode_repaired

_BOM: Final = b"\xef\xbb\xbf"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BLANK: Final = re.compile(r"[ \t\r\n\0]*")
_ESCAPED: Final = re.compile("[\udc80-\udcff]")
"""Bytes that are no UTF-8, as ``surrogateescape`` spells them."""

_CONTROL: Final = bytes.maketrans(bytes(range(32)), b" " * 32)
_TEARS: Final = 64
"""Most torn objects on one line that are looked behind: bounds the work on a line of rubbish."""

_Whole = list[tuple[int, int]]
"""Where values begin and end."""

_Lost = list[tuple[str, int, int]]
"""(kind, begin, end) of what is no value."""

_scan: Final = json.JSONDecoder(strict=False).raw_decode


def read_line(raw: bytes, offset: int) -> tuple[list[tuple[int, dict[str, Any]]], list[Trouble]]:
    """Return the objects of one line with their places in the file, and what could not be used.

    ``raw`` is the line without its line feed, ``offset`` (bytes) where it begins. A whole line costs one decoding and
    is linear in its length; so is a damaged one, but for at most 64 tears. Raises nothing.

    A byte-order mark is skipped; several objects on a line are all given; of a torn object followed by whole ones the
    whole ones are given. An object is never looked for inside another one. Bytes that are no UTF-8 and lone surrogates
    become U+FFFD, control characters in strings a space: these problems have ``usage=False``, for the object was read.
    So has ``glued``: several whole objects stand on the line.
    """
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _salvage(raw, offset)
    if isinstance(value, dict):
        return [(offset, value)], []
    return [], [Trouble("not_an_object", offset, len(raw), usage=False)]


def whole_size(line: bytes | bytearray) -> int:
    """Return up to where (bytes) a last line without a line feed is all there; 0 = it may still be written. O(line).

    An object that parses cannot have been cut. In a file whose lines end in carriage returns alone all of them are one
    line without an end: there it is the last of them up to which all are objects.
    """
    if _is_object(line):
        return len(line)
    size = 0
    while (end := line.find(b"\r", size)) >= 0:
        part = line[size:end]
        if part and not _is_object(part):
            return size
        size = end + 1
    return len(line) if size and _is_object(line[size:]) else size


def _is_object(raw: bytes | bytearray) -> bool:
    try:
        return isinstance(orjson.loads(raw), dict)
    except orjson.JSONDecodeError:
        return False


def instant(text: object) -> int | None:
    """Return an RFC 3339 instant in unix milliseconds; None for anything else. Without a zone it is read as UTC."""
    if not isinstance(text, str) or len(text) < len("2026-01-02T03:04:05") or text[10] not in "Tt ":
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    since = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def has_zone(text: str) -> bool:
    """Tell whether an RFC 3339 instant names its zone."""
    return text[-1:] in {"Z", "z"} or "+" in text[19:] or "-" in text[19:]


def _salvage(raw: bytes, offset: int) -> tuple[list[tuple[int, dict[str, Any]]], list[Trouble]]:
    found: list[tuple[int, dict[str, Any]]] = []
    troubles: list[Trouble] = []
    start = 0
    if raw.startswith(_BOM):
        start = len(_BOM)
        troubles.append(Trouble("byte_order_mark", offset, start, usage=False))
    # One character for each byte: places in the text are places in the file, and any byte may occur in a string.
    text = raw.decode("latin-1")
    try:
        whole, lost = _split(text, start, [None] * _TEARS)
    except RecursionError:
        return [], [*troubles, Trouble("too_deep", offset, len(raw))]
    troubles += [Trouble(kind, offset + begin, end - begin) for kind, begin, end in lost]
    for begin, end in whole:
        value, problems = _value(raw[begin:end], offset + begin)
        troubles += problems
        if isinstance(value, dict):
            found.append((offset + begin, value))
        elif not problems:
            troubles.append(Trouble("not_an_object", offset + begin, end - begin, usage=False))
    if len(found) > 1 and not troubles:
        troubles.append(Trouble("glued", offset, len(raw), usage=False))
    return found, sorted(troubles, key=lambda trouble: (trouble.offset, trouble.kind))


def _split(text: str, at: int, tears: list[None]) -> tuple[_Whole, _Lost]:
    """Return the ranges of whole values, and what is none. ``tears``: how many more may be looked behind, as items."""
    whole: _Whole = []
    lost: _Lost = []
    while True:
        begin = _skip(text, at, lost)
        if begin == len(text):
            return whole, lost
        try:
            _, at = _scan(text, begin)
        except json.JSONDecodeError as error:
            restart, more, holes = _behind(text, begin, error.pos, tears)
            kind = "not_json" if restart == len(text) else "torn"
            return whole + more, [*lost, (kind, begin, restart), *holes]
        whole.append((begin, at))


def _skip(text: str, at: int, lost: _Lost) -> int:
    """Return where the next value begins. NUL bytes are blocks that were never written: what they held is lost."""
    match = _BLANK.match(text, at)
    end = at if match is None else match.end()
    first = text.find("\0", at, end)
    if first >= 0:
        lost.append(("nul_bytes", first, text.rfind("\0", first, end) + 1))
    return end


def _behind(text: str, begin: int, broken: int, tears: list[None]) -> tuple[int, _Whole, _Lost]:
    """Return where whole objects go on behind a torn one that stops making sense at ``broken``; else the line's end.

    The next object's first quote ends a string that was cut, so its brace is the last one before that place; what was
    cut elsewhere stops at the brace or before it. Objects are believed if only objects follow them to the line's end:
    behind a part of the torn object stands the rest of that.
    """
    before, after = text.rfind('{"', begin + 1, broken + 1), text.find('{"', max(broken - 1, begin + 1))
    if after > 0 and text[begin:after].rstrip().endswith(":"):
        after = -1  # a member of the torn object
    for restart in dict.fromkeys((before, after)):
        if restart < 0 or not tears:
            continue
        tears.pop()
        whole, lost = _split(text, restart, tears)
        if whole and all(text[place] in "{\0" for _, place, _ in lost):
            return restart, whole, lost
    return len(text), [], []


def _value(raw: bytes, offset: int) -> tuple[Any, list[Trouble]]:
    """Decode one whole value; what had to be replaced is named."""
    try:
        return orjson.loads(raw), []
    except orjson.JSONDecodeError:
        pass
    troubles = []
    text = raw.decode(errors="surrogateescape")
    bad = [match.start() for match in _ESCAPED.finditer(text)]
    if bad:
        first = len(text[: bad[0]].encode())
        length = len(raw) - first - len(text[bad[-1] + 1 :].encode(errors="surrogateescape"))
        troubles.append(Trouble("invalid_utf8", offset + first, length, usage=False))
        text = _ESCAPED.sub("\N{REPLACEMENT CHARACTER}", text)
    clean = text.encode().translate(_CONTROL)
    try:
        value, problems = decode_repaired(clean)
    except InvalidError:
        return None, [*troubles, Trouble("not_json", offset, len(raw))]
    troubles += [Trouble(kind, offset, len(raw), usage=False) for kind in problems]
    if not troubles:
        troubles.append(Trouble("control_character", offset, len(raw), usage=False))
    return value, troubles
