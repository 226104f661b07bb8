"""Server-sent events, incrementally and without I/O: feed bytes, get events and located problems.

Follows the WHATWG event-stream rules: lines end in LF, CR or CRLF (also split over two reads), ``data`` lines of one
event are joined by LF, a comment starts with a colon, a byte order mark is skipped once, and an event without a
closing blank line is never delivered. Bad input is data (promise 7): a line or event over the limit is dropped and
reported with its place, and the stream goes on.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

__all__ = ["SseDecoder", "SseEvent", "SseProblem"]

_LINE_END: Final = re.compile(rb"[\r\n]")
_BOM: Final = b"\xef\xbb\xbf"
_LF: Final = 0x0A
_CR: Final = 0x0D


class SseEvent(msgspec.Struct, frozen=True):
    """One event. ``event`` is ``message`` when the server named none; ``id`` is the last id seen."""

    data: str
    event: str = "message"
    id: str | None = None


class SseProblem(msgspec.Struct, frozen=True):
    """Bytes that could not be used. ``kind``: ``line_too_long``, ``event_too_long`` or ``bad_utf8``.

    ``offset`` counts bytes from the start of the stream.
    """

    kind: str
    offset: int


class SseDecoder:
    """Decodes one stream. ``max_line`` and ``max_event`` bound memory, in bytes."""

    def __init__(self, *, max_line: int = 16 << 20, max_event: int = 32 << 20) -> None:
        self._max_line = max_line
        self._max_event = max_event
        self._buffer = bytearray()
        self._offset = 0  # of the first buffered byte
        self._scanned = 0  # buffered bytes known to hold no line end
        self._skip_lf = False
        self._skipping_line = False
        self._at_start = True
        self._forget_event()
        self._id: str | None = None

    def feed(self, data: bytes) -> list[SseEvent | SseProblem]:
        """Take the next bytes and return what became complete, in stream order."""
        out: list[SseEvent | SseProblem] = []
        self._buffer += data
        if self._at_start:
            if len(self._buffer) < len(_BOM) and _BOM.startswith(self._buffer):
                return out
            if self._buffer.startswith(_BOM):
                self._drop(len(_BOM))
            self._at_start = False
        while True:
            if self._skip_lf and self._buffer:
                if self._buffer[0] == _LF:
                    self._drop(1)
                self._skip_lf = False
            end = _LINE_END.search(self._buffer, self._scanned)
            if end is None:
                break
            at = end.start()
            self._skip_lf = self._buffer[at] == _CR
            line, offset = bytes(self._buffer[:at]), self._offset
            self._drop(at + 1)
            if self._skipping_line:
                self._skipping_line = False
            elif len(line) > self._max_line:
                self._refuse_line(offset, out)
            else:
                self._line(line, offset, out)
        self._scanned = len(self._buffer)
        if self._scanned > self._max_line:
            if not self._skipping_line:
                self._refuse_line(self._offset, out)
                self._skipping_line = True
            self._drop(self._scanned)
        return out

    def _drop(self, count: int) -> None:
        del self._buffer[:count]
        self._offset += count
        self._scanned = 0

    def _forget_event(self) -> None:
        self._data: list[str] = []
        self._size = 0
        self._event = ""
        self._broken = False

    def _refuse_line(self, offset: int, out: list[SseEvent | SseProblem]) -> None:
        out.append(SseProblem("line_too_long", offset))
        self._broken = True

    def _line(self, line: bytes, offset: int, out: list[SseEvent | SseProblem]) -> None:
        if not line:
            if self._data and not self._broken:
                out.append(SseEvent("\n".join(self._data), self._event or "message", self._id))
            self._forget_event()
            return
        if line.startswith(b":") or self._broken:
            return
        try:
            text = line.decode()
        except UnicodeDecodeError:
            out.append(SseProblem("bad_utf8", offset))
            text = line.decode(errors="replace")
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._size += len(line)
            if self._size > self._max_event:
                out.append(SseProblem("event_too_long", offset))
                self._broken = True
                self._data = []
                return
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
