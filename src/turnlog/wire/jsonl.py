"""JSON lines, incrementally and without I/O: feed bytes, get values and located problems.

Bad input is data (promise 7): a line that is too long, or that is no JSON, is reported with its place, its digest and
its beginning; the lines around it are not touched. Memory is bounded by one line. Empty lines are skipped.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from turnlog.errors import InvalidError
from turnlog.receipts import decode_foreign

__all__ = ["HEAD", "MAX_LINE", "JsonLine", "JsonlDecoder", "JsonlProblem"]

MAX_LINE: Final = 64 << 20
"""Longest line in bytes, without its line end."""

HEAD: Final = 1000
"""Bytes of an unusable line that a problem keeps."""


class JsonLine(msgspec.Struct, frozen=True):
    """One value. ``offset`` counts bytes from the start of the stream to the line, ``size`` is the line's length.

    ``repairs`` names what had to be changed to read it (``lone_surrogate``).
    """

    value: Any
    line: int
    offset: int
    size: int
    repairs: tuple[str, ...] = ()


class JsonlProblem(msgspec.Struct, frozen=True):
    """A line that could not be used. ``kind``: ``line_too_long``, ``not_json`` or ``unfinished`` (no line end came).

    ``line`` counts from 1, ``offset`` and ``size`` are bytes; ``sha256`` is the digest of the whole line; ``head`` its
    first bytes as text; ``why`` the decoder's words.
    """

    kind: str
    line: int
    offset: int
    size: int
    sha256: str
    head: str
    why: str = ""


class JsonlDecoder:
    """Decodes one stream. ``max_line`` bounds memory, in bytes; ``offset`` and ``line`` go on from an earlier read."""

    def __init__(self, *, max_line: int = MAX_LINE, offset: int = 0, line: int = 1) -> None:
        self._max_line = max_line
        self._start = offset
        self._line = line
        self._buffer = bytearray()
        self._dropped: _Dropped | None = None

    def feed(self, data: bytes) -> list[JsonLine | JsonlProblem]:
        """Take the next bytes and return what became complete, in stream order."""
        out: list[JsonLine | JsonlProblem] = []
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            self._add(data[at:end])
            self._end_line(out, newline=True)
            at = end + 1
        self._add(data[at:] if at else data)
        return out

    def end(self) -> list[JsonLine | JsonlProblem]:
        """Return what the stream left without a line end.

        An object or array that parses is whole all the same; a number or a word may have been cut.
        """
        out: list[JsonLine | JsonlProblem] = []
        if self._buffer or self._dropped is not None:
            self._end_line(out, newline=False)
        return out

    def _add(self, piece: bytes) -> None:
        if self._dropped is not None:
            self._dropped.add(piece)
        elif len(self._buffer) + len(piece) <= self._max_line + 1:  # one more: it may be a CR
            self._buffer += piece
        else:
            self._dropped = _Dropped()
            self._dropped.add(bytes(self._buffer))
            self._buffer = bytearray()  # gives the memory back
            self._dropped.add(piece)

    def _end_line(self, out: list[JsonLine | JsonlProblem], *, newline: bool) -> None:
        line, offset = self._line, self._start
        if (dropped := self._dropped) is not None:
            self._dropped = None
            size, digest, head = dropped.size, dropped.digest.hexdigest(), dropped.head
            out.append(JsonlProblem("line_too_long", line, offset, size, digest, _text(head)))
        else:
            raw = bytes(self._buffer)
            self._buffer.clear()
            size = len(raw)
            content = raw.removesuffix(b"\r")
            if len(content) > self._max_line:
                out.append(_problem("line_too_long", line, offset, content))
            elif content.strip():
                out.append(_read(content, line, offset, newline=newline))
        self._start = offset + size + newline
        self._line = line + 1


class _Dropped:
    """A line that is too long, of which only a digest is kept."""

    def __init__(self) -> None:
        self.head = b""
        self.size = 0
        self.digest = hashlib.sha256()

    def add(self, piece: bytes) -> None:
        if len(self.head) < HEAD:
            self.head += piece[: HEAD - len(self.head)]
        self.size += len(piece)
        self.digest.update(piece)


def _read(content: bytes, line: int, offset: int, *, newline: bool) -> JsonLine | JsonlProblem:
    try:
        value, repairs = decode_foreign(content)
    except InvalidError as error:
        return _problem("not_json" if newline else "unfinished", line, offset, content, error.message)
    if not newline and not isinstance(value, dict | list):
        return _problem("unfinished", line, offset, content)
    return JsonLine(value, line, offset, len(content), repairs)


def _problem(kind: str, line: int, offset: int, content: bytes, why: str = "") -> JsonlProblem:
    digest = hashlib.sha256(content).hexdigest()
    return JsonlProblem(kind, line, offset, len(content), digest, _text(content[:HEAD]), why)


def _text(head: bytes) -> str:
    return head.decode(errors="replace")
