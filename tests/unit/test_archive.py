"""The archive gives back what it was given, in pieces that can be read alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnlog.archive import FAST, PIECE, compress, cut, decompress
from turnlog.errors import CorruptError

LENGTHS = st.lists(st.sampled_from([0, 2, 90_000, 300_000, 700_000, 2_300_000]), max_size=8)


@given(st.binary(max_size=5_000))
def test_bytes_come_back(raw: bytes) -> None:
    assert decompress(compress(raw), len(raw)) == raw
    assert decompress(compress(memoryview(raw), level=FAST), len(raw)) == raw


@settings(max_examples=50)
@given(LENGTHS, st.booleans(), st.integers(0, 2**40))
def test_pieces_are_the_block_cut_at_lines(lengths: list[int], ended: bool, start: int) -> None:
    block = b"\n".join(b"x" * length for length in lengths) + (b"\n" if ended else b"")
    pieces = list(cut(block, start))
    assert b"".join(bytes(piece) for _, piece in pieces) == block
    place = start
    for at, piece in pieces:
        raw = bytes(piece)
        assert at == place
        assert 0 < len(raw) <= PIECE
        inside = at > start and block[at - start - 1] != 10  # it goes on with a line that is too long for one piece
        if inside:
            assert b"\n" not in raw[:-1]
        place += len(raw)


def test_a_line_as_long_as_a_piece_is_one_piece_and_a_longer_one_is_several() -> None:
    block = b"a\n" + b"b" * (PIECE - 1) + b"\n" + b"c" * (2 * PIECE + 1) + b"\nd\n"
    assert [(at, len(piece)) for at, piece in cut(block, 10)] == [
        (10, 2),
        (12, PIECE),
        (12 + PIECE, PIECE),
        (12 + 2 * PIECE, PIECE),
        (12 + 3 * PIECE, 2),
        (12 + 3 * PIECE + 2, 2),
    ]


def test_pieces_of_short_lines_are_as_long_as_may_be() -> None:
    block = b"x" * 99_999 + b"\n"
    assert [len(piece) for _, piece in cut(block * 25, 0)] == [1_000_000, 1_000_000, 500_000]


def test_damaged_cut_short_and_mislabelled_pieces_are_told() -> None:
    frame = compress(b"some text " * 1_000)
    for data, size in ((frame[:-3], 10_000), (frame[:20], 10_000), (b"", 10), (b"no frame at all", 15), (frame, 9_999)):
        with pytest.raises(CorruptError, match="archive is damaged"):
            decompress(data, size)
    flipped = bytearray(frame)
    flipped[-1] ^= 1  # the checksum
    with pytest.raises(CorruptError):
        decompress(bytes(flipped), 10_000)


def test_threads_do_not_share_working_memory() -> None:
    def work(seed: int) -> bool:
        raw = bytes([seed]) * 50_000
        return all(decompress(compress(raw), len(raw)) == raw for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))
