"""Native bytes as compressed pieces, and back. Pure: whoever calls it reads and writes.

A piece is at most 1 MiB of a source, compressed by itself, so that any line can be read without what is before it.
Pieces begin at a line where there is one; a line that is longer than a piece is kept in several.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

import zstandard

from turnlog.errors import CorruptError

__all__ = ["FAST", "PIECE", "SMALL", "compress", "cut", "decompress"]

PIECE: Final = 1 << 20
"""Most bytes in one piece."""

SMALL: Final = 6
"""The level for when there is time: a twentieth smaller than ``FAST``, in three times the time."""

FAST: Final = 3
"""The level for when whoever compresses is what others wait for."""


class _Contexts(threading.local):
    """zstd's working memory, made once per thread: it costs more than a small piece does."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor()


_contexts: Final = _Contexts()


def compress(raw: bytes | memoryview, level: int = SMALL) -> bytes:
    """Return one zstd frame that holds ``raw`` and a checksum of it. Time and memory are linear in its length."""
    compressor = _contexts.compressors.get(level)
    if compressor is None:
        compressor = zstandard.ZstdCompressor(level=level, write_checksum=True)
        _contexts.compressors[level] = compressor
    return compressor.compress(raw)


def decompress(data: bytes, size: int) -> bytes:
    """Return the ``size`` bytes that a frame holds; never makes more than that.

    Raises CorruptError when the frame is damaged, cut short, or holds another number of bytes.
    """
    try:
        held = zstandard.frame_content_size(data)
        if held != size:
            raise CorruptError(f"the archive is damaged: a piece of {size} bytes says it has {held}")
        return _contexts.decompressor.decompress(data, max_output_size=size)
    except zstandard.ZstdError as error:
        raise CorruptError(f"the archive is damaged: {error}") from error


def cut(data: bytes | memoryview, start: int) -> Iterator[tuple[int, memoryview]]:
    r"""Cut a block of whole lines into pieces; yield (its place, its bytes) in order, nothing twice or left out.

    ``start`` is the place of the block in its source. A piece holds as many whole lines as fit ``PIECE``; a line of
    more bytes is cut by itself. A last line may lack its ``\n``. Linear in the length.
    """
    view = memoryview(data)
    block = data if isinstance(data, bytes) else data.tobytes()
    at, length = 0, len(block)
    while at < length:
        end = length if length - at <= PIECE else block.rfind(b"\n", at, at + PIECE) + 1
        if end <= at:  # the first line is longer than a piece
            end = block.find(b"\n", at + PIECE) + 1 or length
            for part in range(at, end, PIECE):
                yield start + part, view[part : min(part + PIECE, end)]
        else:
            yield start + at, view[at:end]
        at = end
