"""Reads one source from where it was left: cuts it into blocks of whole lines, archives and decodes them.

This is the part of an import that runs in worker processes, so it touches no ledger. Memory is bounded by one block,
or by one line of at most ``MAX_LINE`` bytes; a longer line is archived in parts and not decoded (``line_too_long``).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

import msgspec
import zstandard

from turnlog import archive
from turnlog.clock import now_ms
from turnlog.errors import CorruptError, UnavailableError
from turnlog.harness.reading import Decoder, Find, Reader, Reading, Source, Trouble
from turnlog.harness.salvage import whole_size
from turnlog.wire.jsonl import MAX_LINE

BLOCK: Final = 4 << 20
"""Bytes read and handed over at a time."""

HEAD: Final = 1024
TAIL: Final = 4096
MERGED: Final = 256 << 10
"""A last archived piece with fewer bytes than this is written again together with what was appended."""

_FEED: Final = 4 << 10
"""Compressed bytes given to zstd at a time: in the worst case they hold thirty thousand times as much."""

IDLE_MS: Final = 10_000
"""A half-written last line of a file that was not touched for so long is a problem; before, it just waits."""


class Seen(msgspec.Struct, frozen=True):
    """What the file system says of a source; ``modified`` is in nanoseconds."""

    device: int
    inode: int
    size: int
    modified: int


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A source to read, from where it was left. ``piece`` is its last archived piece if that is to be merged."""

    number: int
    source: Source
    seen: Seen
    row: int | None = None
    start: int = 0
    state: bytes | None = None
    cursor: bytes | None = None
    piece: tuple[int, int, bytes] | None = None
    archive: bool = True


class Chunk(msgspec.Struct, kw_only=True):
    """What one block gave. ``error`` ends the source: it could not be read (further).

    ``waits``: behind it lies the beginning of a line that is still being written.
    """

    task: int
    start: int
    end: int
    reading: Reading
    pieces: list[tuple[int, int, bytes]] = []
    head: str | None = None
    head_size: int = 0
    tail: str | None = None
    state: bytes | None = None
    cursor: bytes | None = None
    last: bool = False
    waits: bool = False
    error: str | None = None


class _Block(msgspec.Struct):
    """Bytes of whole lines, or (``decoded`` false) a part of a line that is too long."""

    start: int
    data: bytes
    decoded: bool = True
    troubles: list[Trouble] = []
    cursor: bytes | None = None


def see(source: Source) -> Seen:
    """Return what the file system says of a source now; a database's write-ahead log counts. Raises OSError."""
    facts = os.stat(source.path)  # noqa: PTH116 - called for thousands of files
    size, modified = facts.st_size, facts.st_mtime_ns
    if source.kind == "rows" and not stat.S_ISDIR(facts.st_mode):
        try:
            log = os.stat(source.path + "-wal")  # noqa: PTH116
        except OSError:
            pass
        else:
            size, modified = size + log.st_size, max(modified, log.st_mtime_ns)
    return Seen(facts.st_dev, facts.st_ino, size, modified)


def digest(data: bytes) -> str:
    """Return a short digest of bytes."""
    return hashlib.sha256(data).hexdigest()[:32]


def fingerprint(source: Source, head_size: int, end: int) -> tuple[str, str] | None:
    """Return the digests of a source's first ``head_size`` bytes and of its last bytes before ``end``.

    None when it has fewer bytes. Raises OSError.
    """
    if source.kind == "zst":
        head, before, at = b"", b"", 0
        for data in _unpacked(source.path, lambda _: None):
            if at < head_size:
                head = (head + data)[:head_size]
            take = data[: end - at]
            before = (before + take)[-TAIL:]
            at += len(take)
            if at >= end:
                break
        return (digest(head), digest(before)) if at >= end and len(head) == head_size else None
    with open(source.path, "rb") as file:  # noqa: PTH123
        head = file.read(head_size)
        file.seek(max(0, end - TAIL))
        before = file.read(min(end, TAIL))
        if len(head) < head_size or file.tell() < end:
            return None
        return digest(head), digest(before)


def pump(task: Task, reader: Reader, find: Find, *, level: int = archive.SMALL) -> Iterator[Chunk]:
    """Yield what is new in a source, block by block; the last chunk is marked. Raises nothing for a bad source.

    ``level``: how hard bytes are compressed for the archive.
    """
    before = bytearray()
    blocks = _rows(task, reader) if task.source.kind == "rows" else _file(task, before)
    return _chunks(task, reader, find, blocks, before, level=level if task.archive else None)


def reread(task: Task, reader: Reader, find: Find, data: Iterator[bytes]) -> Iterator[Chunk]:
    """Yield what a source's archived bytes give, as ``pump`` does; nothing is archived again."""
    return _chunks(task, reader, find, _lines(data, task, []), bytearray(), level=None)


def _chunks(
    task: Task, reader: Reader, find: Find, blocks: Iterator[_Block], tail: bytearray, *, level: int | None
) -> Iterator[Chunk]:
    end, state, cursor = task.start, task.state, task.cursor
    head, piece = b"", task.piece
    try:
        decoder = reader.decoder(task.source, None if state is None else zstandard.decompress(state), find)
        block = next(blocks, None)
        if block is None:
            nothing, waits = Reading(), _waits(task, end, [])
            yield Chunk(
                task=task.number,
                start=end,
                end=end,
                reading=nothing,
                state=state,
                cursor=cursor,
                last=True,
                waits=waits,
            )
        while block is not None:
            until = block.start + len(block.data)
            if block.start < HEAD:
                head = (head + block.data[:HEAD])[:HEAD]
            tail += block.data[-TAIL:]
            del tail[:-TAIL]
            pieces, piece = ([], None) if level is None else _archived(block, piece, level)
            # A line may have a good part of the memory there is: its bytes go before its text is made, and before the
            # next block is read.
            if block.decoded:
                _decode(decoder, block)
            block.data = b""
            following = next(blocks, None)
            if following is None:
                decoder.end()
            end = until
            reading = decoder.take()
            reading.troubles += block.troubles
            # Some KB for each of thousands of files, of which most are names that repeat.
            state, cursor = archive.compress(decoder.state(), archive.FAST), block.cursor
            made = [
                Chunk(
                    task=task.number,
                    start=block.start,
                    end=end,
                    reading=reading,
                    pieces=pieces,
                    head=digest(head) if task.start == 0 else None,
                    head_size=len(head),
                    tail=digest(bytes(tail)),
                    state=state,
                    cursor=cursor,
                    last=following is None,
                    waits=following is None and _waits(task, end, block.troubles),
                )
            ]
            del reading, pieces
            yield made.pop()  # whoever takes it is the only one to hold it
            block = following
    except (OSError, UnavailableError, CorruptError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        trouble = Trouble("unreadable_source", end, 0, reason or type(error).__name__)
        yield Chunk(
            task=task.number,
            start=end,
            end=end,
            reading=Reading(troubles=[trouble]),
            state=state,
            cursor=cursor,
            last=True,
            error=trouble.detail,
        )


def _waits(task: Task, end: int, troubles: list[Trouble]) -> bool:
    """Tell whether a half-written line lies behind ``end`` that may still be written, so it must be looked at again."""
    known = any(trouble.kind == "unfinished_line" for trouble in troubles)
    return task.source.kind == "jsonl" and end < task.seen.size and not known


def _decode(decoder: Decoder, block: _Block) -> None:
    """Give a block's lines to a decoder; the block loses its bytes."""
    offset, lines = block.start, block.data.split(b"\n")
    block.data = b""
    for raw in lines:
        if raw:
            decoder.line(raw, offset)
        offset += len(raw) + 1


def _archived(
    block: _Block, piece: tuple[int, int, bytes] | None, level: int
) -> tuple[list[tuple[int, int, bytes]], tuple[int, int, bytes] | None]:
    """Compress a block; a short piece before it is made again together with it."""
    if not block.data:
        return [], piece
    start, data = block.start, block.data
    if piece is not None and piece[0] + piece[1] == start and piece[1] < MERGED:
        data = archive.decompress(piece[2], piece[1]) + data
        start = piece[0]
    made = [(at, len(part), archive.compress(part, level)) for at, part in archive.cut(data, start)]
    return made, made[-1]


# --- blocks


def _file(task: Task, before: bytearray) -> Iterator[_Block]:
    """Cut a file into blocks, from where it was left up to the size it had when the task was made.

    ``before`` gets the last bytes that were read earlier.
    """
    troubles: list[Trouble] = []
    if task.source.kind == "zst":
        chunks = _skipping(_unpacked(task.source.path, troubles.append), task.start, before)
        yield from _lines(chunks, task, troubles)
        return
    with open(task.source.path, "rb") as file:  # noqa: PTH123
        if task.start:
            file.seek(max(0, task.start - TAIL))
            before += file.read(min(task.start, TAIL))
        yield from _lines(_read(file, task.seen.size - task.start), task, troubles)


def _read(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0 and (data := file.read(min(BLOCK, size))):
        size -= len(data)
        yield data


def _unpacked(path: str, cut_short: Callable[[Trouble], None]) -> Iterator[bytes]:
    """Yield what a zstd file holds; a damaged or short file gives what can be had and a trouble."""
    at = 0
    packer = zstandard.ZstdDecompressor()
    frame = packer.decompressobj()
    begun = False
    with open(path, "rb") as file:  # noqa: PTH123
        while data := file.read(_FEED):
            while data:
                begun = True
                try:
                    out = frame.decompress(data)
                except zstandard.ZstdError as error:
                    cut_short(Trouble("zst_damaged", at, 0, str(error)))
                    return
                at += len(out)
                if out:
                    yield out
                data = b""
                if frame.eof:
                    data, frame, begun = frame.unused_data, packer.decompressobj(), False
    if begun:
        cut_short(Trouble("zst_cut_short", at, 0, "the compressed file ends in the middle"))


def _skipping(chunks: Iterator[bytes], count: int, before: bytearray) -> Iterator[bytes]:
    """Leave out the first bytes, of which ``before`` gets the last ones, and join the others into blocks."""
    held: list[bytes] = []
    size = 0
    for data in chunks:
        if count:
            before += data[:count][-TAIL:]
            del before[:-TAIL]
        rest = data[count:] if count else data
        count -= len(data) - len(rest)
        held.append(rest)
        size += len(rest)
        if size >= BLOCK:
            yield b"".join(held)
            held, size = [], 0
    if size:
        yield b"".join(held)


def _lines(chunks: Iterator[bytes], task: Task, troubles: list[Trouble]) -> Iterator[_Block]:
    at, carry = task.start, b""
    long_from = int(task.cursor) if task.cursor else None  # inside a line that is too long
    for read in chunks:
        data = carry + read if carry else read
        carry = b""
        if long_from is not None:
            end = data.find(b"\n") + 1
            yield _long(at, data[: end or len(data)], long_from, ended=bool(end))
            at += end or len(data)
            data = data[end:] if end else b""
            long_from = None if end else long_from
        if len(data) > MAX_LINE + 1 and data.find(b"\n", 0, MAX_LINE + 1) < 0 and (end := data.find(b"\n") + 1):
            yield _long(at, data[:end], at, ended=True)
            at, data = at + end, data[end:]
        cut = data.rfind(b"\n") + 1
        whole = data[:cut] if cut < len(data) else data
        carry = data[cut:]
        del data, read  # only one copy of a long line waits for whoever takes it
        if cut:
            block = _Block(at, whole)
            at, whole = at + cut, b""
            yield block
            del block
        if len(carry) > MAX_LINE:
            long_from = at
            yield _long(at, carry, long_from, ended=False)
            at, carry = at + len(carry), b""
    if long_from is not None:  # its end has not come yet
        troubles.append(Trouble("line_too_long", long_from, at - long_from))
        yield _Block(at, b"", troubles=troubles, cursor=str(long_from).encode())
        return
    if carry:
        size = whole_size(carry)
        if size == len(carry):
            yield _Block(at, carry, troubles=troubles)
            return
        if size:
            yield _Block(at, carry[:size])
            at, carry = at + size, carry[size:]
        if now_ms() - task.seen.modified // 10**6 > IDLE_MS:
            troubles.append(Trouble("unfinished_line", at, len(carry)))
    if troubles:
        yield _Block(at, b"", troubles=troubles)


def _long(at: int, data: bytes, begin: int, *, ended: bool) -> _Block:
    found = [Trouble("line_too_long", begin, at + len(data) - 1 - begin)] if ended else []
    return _Block(at, data, decoded=False, troubles=found, cursor=None if ended else str(begin).encode())


def _rows(task: Task, reader: Reader) -> Iterator[_Block]:
    rows = reader.rows(task.source)
    try:
        at, held, size = task.start, [], 0
        cursor = task.cursor
        for line, cursor in rows.lines(task.cursor):
            held.append(line)
            size += len(line) + 1
            del line  # it may be big, and the block has it
            if size >= BLOCK:
                yield _Block(at, _joined(held), cursor=cursor)
                at, size = at + size, 0
        if held:
            yield _Block(at, _joined(held), cursor=cursor)
    finally:
        rows.close()


def _joined(lines: list[bytes]) -> bytes:
    """Return lines with their ends, and leave none."""
    data = b"\n".join([*lines, b""])
    lines.clear()
    return data


def whole_lines(source: Source) -> Iterator[bytes]:
    """Yield the lines of a file from its beginning; what cannot be read ends them."""
    try:
        for block in _file(Task(number=0, source=source, seen=see(source)), bytearray()):
            if block.decoded:
                yield from block.data.split(b"\n")
    except OSError:
        return
