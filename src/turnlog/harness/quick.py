"""What a quick look at a program's files gives: model calls only, for totals before anything was imported.

A quick look finds the few lines that tell of usage by their marks, and decodes nothing else. What it counts is what the
whole decoding of the same bytes counts; what it cannot see is damage in lines that bear no mark.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import FileIO
from typing import Final, Protocol

import msgspec
import zstandard

from turnlog.clock import now_ms
from turnlog.harness.reading import Source, Trouble
from turnlog.harness.salvage import whole_size
from turnlog.wire.jsonl import MAX_LINE

CHUNK: Final = 1 << 18
"""Bytes read at a time: what the processor's cache holds is searched several times as fast as memory."""

_FEED: Final = 1 << 16
_IDLE_MS: Final = 10_000
"""A half-written last line of a file that was not touched for so long is a problem; before, it just waits."""


class Call(msgspec.Struct, array_like=True, gc=False):
    """One model call as one source tells of it: counters in the one meaning (tokens; None = not told).

    ``call`` is the identity that the call has in every source, ``session`` the provider's id of the conversation,
    ``at`` unix ms. ``tier`` holds the words that change a price, ``service`` is whose model it was; ``cost`` is what
    the provider reported, in USD. ``final`` is false where the provider's last word is missing; ``gaps`` are kinds.
    ``rivals`` are conversations: if one of them has the same call, this one is a copy. ``copied_at`` is when the call
    came into the conversation, where that is not when it was made. ``request`` tells calls apart whose id was used
    again.
    """

    call: str
    session: str
    at: int
    model: str | None = None
    tier: str | None = None
    service: str | None = None
    input: int | None = None
    output: int | None = None
    total_input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    reasoning: int | None = None
    cost: float | None = None
    final: bool = True
    gaps: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    copied_at: int | None = None
    request: str | None = None


class Look(msgspec.Struct, array_like=True):
    """What one source gave. ``cwds``: the working directory of each conversation. ``bytes`` were looked through.

    ``loose`` are gaps that belong to no call: (conversation, kind, unix ms).
    """

    calls: list[Call] = []
    cwds: dict[str, str] = {}
    troubles: list[Trouble] = []
    loose: list[tuple[str, str, int]] = []
    bytes: int = 0
    latest: int = 0

    def moment(self, at: int | None) -> int:
        """Return an instant; where it is not known the last one before it, else when the source was written."""
        if at is not None:
            self.latest = at
        return self.latest


class QuickLook(Protocol):
    """Looks at one provider's sources, one after another."""

    def look(self, source: Source) -> Look:
        """Return the calls of a source. Raises OSError and UnavailableError where it cannot be read."""
        ...


class Blocks:
    """Reads files in blocks of whole lines. One buffer for all files: memory is bounded by one block, or by one line.

    Lines of more than ``MAX_LINE`` bytes are left out and become troubles.
    """

    def __init__(self) -> None:
        self._buffer = bytearray(CHUNK)
        # One for all: its own buffers are big, and new memory is slow.
        self._packer = zstandard.ZstdDecompressor()

    def of(self, source: Source, look: Look) -> Iterator[tuple[bytearray, int, int, int]]:
        """Yield (buffer, begin, end, place): whole lines, and where the buffer's first byte is in the file.

        The buffer is valid until the next block is asked for. A last line without a line end is given if it is whole.
        Raises OSError.
        """
        if len(self._buffer) > CHUNK:
            self._buffer = bytearray(CHUNK)  # the last source had a long line
        with open(source.path, "rb", buffering=0) as plain:  # noqa: PTH123 - called for thousands of files
            look.latest = written = int(os.fstat(plain.fileno()).st_mtime * 1000)
            file = _Unpacked(plain, look, self._packer) if source.kind == "zst" else plain
            held, place = 0, 0
            while True:
                buffer = self._buffer
                with memoryview(buffer) as view, view[held:] as free:
                    got = file.readinto(free) or 0
                look.bytes += got
                end = held + got
                if got == 0:
                    size = whole_size(buffer[:held]) if held else 0
                    if size:
                        yield buffer, 0, size, place
                    if size < held and now_ms() - written > _IDLE_MS:
                        look.troubles.append(Trouble("unfinished_line", place + size, held - size))
                    return
                stop = buffer.rfind(b"\n", held, end) + 1
                if stop:
                    yield buffer, 0, stop, place
                    held = end - stop
                    buffer[:held] = buffer[stop:end]
                    place += stop
                elif end < len(buffer):
                    held = end
                elif end < MAX_LINE:
                    self._buffer = buffer + bytes(len(buffer))
                    held = end
                else:
                    held, place = self._skip(file, look, place, end)

    def _skip(self, file: FileIO | _Unpacked, look: Look, begin: int, size: int) -> tuple[int, int]:
        """Leave out the rest of a line; returns the bytes held of the next one, and where that begins."""
        at, buffer = begin + size, self._buffer
        while got := file.readinto(memoryview(buffer)) or 0:
            look.bytes += got
            found = buffer.find(b"\n", 0, got) + 1
            if found:
                look.troubles.append(Trouble("line_too_long", begin, at + found - 1 - begin))
                buffer[: got - found] = buffer[found:got]
                return got - found, at + found
            at += got
        look.troubles.append(Trouble("line_too_long", begin, at - begin))
        return 0, at


class _Unpacked:
    """What a zstd file holds; a damaged or short file gives what can be had and a trouble."""

    def __init__(self, file: FileIO, look: Look, packer: zstandard.ZstdDecompressor) -> None:
        self._file, self._look = file, look
        self._packer = packer
        self._frame = self._new()
        self._begun = False
        self._packed = b""
        self._plain = memoryview(b"")
        self._at = 0

    def readinto(self, free: memoryview) -> int:
        while not self._plain and self._more():
            pass
        part, self._plain = self._plain[: len(free)], self._plain[len(free) :]
        free[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _more(self) -> bool:
        """Unpack the next bytes; tells whether there were any."""
        data = self._packed or self._file.read(_FEED)
        if not data:
            if self._begun:
                self._trouble("zst_cut_short", "the compressed file ends in the middle")
            return False
        self._begun, self._packed = True, b""
        try:
            self._plain = memoryview(self._frame.decompress(data))
        except zstandard.ZstdError as error:
            self._trouble("zst_damaged", str(error))
            self._file.seek(0, 2)
            return False
        if self._frame.eof:
            self._packed, self._frame, self._begun = self._frame.unused_data, self._new(), False
        return True

    def _new(self) -> zstandard.ZstdDecompressionObj:
        return self._packer.decompressobj(write_size=CHUNK)

    def _trouble(self, kind: str, detail: str) -> None:
        self._begun = False
        self._look.troubles.append(Trouble(kind, self._at, 0, detail))
