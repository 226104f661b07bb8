"""What was pruned, told again by another file: its text and bytes stay away, what is new is kept; on both backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import postgres_server
from tests.intake.plain import READER, call, line
from tests.ledger.sqlite_setup import SqliteSetup
from tests.postgres_server import PostgresSetup
from turnlog import Ledger, archive
from turnlog.clock import now_ms
from turnlog.harness.reading import Reading
from turnlog.intake.held import Held
from turnlog.intake.importer import Imported, import_sources, reparse
from turnlog.intake.pump import Chunk
from turnlog.queries.transcript import transcript
from turnlog.testing.store_suite import StoreSetup

OLD = 1_700_000_000_000


@pytest.fixture(params=["sqlite", "postgres"])
def setup(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSetup:
    found: StoreSetup = SqliteSetup(tmp_path) if request.param == "sqlite" else PostgresSetup(postgres_server.shared())
    found.clock.now = now_ms()
    return found


@pytest.fixture
def ledger(setup: StoreSetup) -> Iterator[Ledger]:
    with setup.open() as ledger:
        yield ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs" / "a.jsonl"


@pytest.fixture
def take(ledger: Ledger, path: Path) -> Callable[[], Imported]:
    return lambda: import_sources(ledger._store, [READER], roots=[path.parent], variables={})


def story(session: str, at: int, *words: str, turn: str = "t1") -> bytes:
    lines = [line(session, turn, "started", at=at)]
    for number, word in enumerate(words):
        lines.append(call(session, turn, f"{session}-{turn}-{number}", at=at + number, text=word))
    lines.append(line(session, turn, "completed", at=at + len(words), payload={"status": "completed"}))
    return b"".join(each + b"\n" for each in lines)


def replace(path: Path, data: bytes) -> None:
    """Put another file in a file's place."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    new.replace(path)


def said(ledger: Ledger, session: str) -> list[str | None]:
    return [entry.text for entry in transcript(ledger._store, f"claude:{session}", lambda _, raw: READER.passages(raw))]


def kept(ledger: Ledger) -> bytes:
    """All archived bytes, of sources that are still read."""
    store = ledger._store.imports
    pieces = [piece for row in store.sources() for piece in store.pieces(row.id)]
    return b"".join(archive.decompress(data, size) for _, size, data in pieces)


def found(ledger: Ledger, word: str) -> int:
    return len(ledger.search(word).hits)


def test_a_replaced_file_does_not_bring_pruned_text_back(
    ledger: Ledger, path: Path, take: Callable[[], Imported], setup: StoreSetup
) -> None:
    old = story("a", OLD, "apples", "pears")
    path.write_bytes(old)
    take()
    before = ledger.usage_report("total")
    assert ledger.prune_transcripts(session="claude:a").passages == 2
    setup.clock.now += 1000
    replace(path, line("a", "t0", "talk", at=OLD - 1, text="cherries") + b"\n" + old)
    done = take()
    assert (done.lines, done.new) == (5, 0)
    assert (said(ledger, "a"), kept(ledger)) == ([], b"")
    assert (found(ledger, "apples"), found(ledger, "cherries")) == (0, 0)
    assert ledger.usage_report("total") == before
    assert take().lines == 0
    assert reparse(ledger._store, [READER]).lines == 0
    assert ledger.verify() == []


def test_what_was_said_after_the_prune_is_kept_from_a_replaced_file(
    ledger: Ledger, path: Path, take: Callable[[], Imported], setup: StoreSetup
) -> None:
    old = story("a", OLD, "apples", "pears")
    path.write_bytes(old)
    take()
    ledger.prune_transcripts(session="claude:a")
    later = setup.clock.now + 1
    setup.clock.now += 1000
    replace(path, b'{"s":"a","t":"t0","k":"started","at":1}\n' + old + story("a", later, "plums", "grapes", turn="t2"))
    take()
    assert said(ledger, "a") == ["plums", "grapes"]
    assert [found(ledger, word) for word in ("apples", "pears", "plums", "grapes")] == [0, 0, 1, 1]
    bytes_ = kept(ledger)
    assert (b"apples" in bytes_, b"pears" in bytes_, b"plums" in bytes_, b"grapes" in bytes_) == (0, 0, 1, 1)
    # And it goes on from there, and goes with the next prune.
    with path.open("ab") as file:
        file.write(story("a", later + 10, "figs", turn="t3"))
    take()
    assert said(ledger, "a") == ["plums", "grapes", "figs"]
    assert ledger.prune_transcripts(session="claude:a").passages == 3
    assert (said(ledger, "a"), kept(ledger)) == ([], b"")


def test_a_copy_of_a_pruned_file_tells_nothing(
    ledger: Ledger, path: Path, take: Callable[[], Imported], setup: StoreSetup
) -> None:
    path.write_bytes(story("a", OLD, "apples"))
    take()
    ledger.prune_transcripts(session="claude:a")
    setup.clock.now += 1000
    path.with_name("copy.jsonl").write_bytes(path.read_bytes())
    assert take().lines == 3
    assert (said(ledger, "a"), kept(ledger)) == ([], b"")


def test_lines_of_others_in_a_replaced_file_are_kept(
    ledger: Ledger, path: Path, take: Callable[[], Imported], setup: StoreSetup
) -> None:
    """Long lines that lie in several pieces, beside a conversation that was not pruned."""
    wide = "apples " * 400_000
    path.write_bytes(story("a", OLD, wide))
    take()
    ledger.prune_transcripts(session="claude:a")
    setup.clock.now += 1000
    others = wide.replace("apples", "cherry")
    replace(path, story("b", OLD, others) + story("a", OLD, wide, "pears") + story("b", OLD + 9, "plums", turn="t2"))
    take()
    assert said(ledger, "a") == []
    assert said(ledger, "b") == [others, "plums"]
    bytes_ = kept(ledger)
    assert (b"apples" in bytes_, b"pears" in bytes_, bytes_.count(b"cherry")) == (False, False, 400_000)


def test_a_file_that_was_there_goes_on_with_lines_older_than_the_prune(
    ledger: Ledger, path: Path, take: Callable[[], Imported]
) -> None:
    path.write_bytes(story("a", OLD, "apples"))
    take()
    ledger.prune_transcripts(session="claude:a")
    with path.open("ab") as file:
        file.write(story("a", OLD + 100, "plums", turn="t2"))
    take()
    assert said(ledger, "a") == ["plums"]


def test_a_removed_conversation_in_a_replaced_file_keeps_only_what_is_new(
    ledger: Ledger, path: Path, take: Callable[[], Imported], setup: StoreSetup
) -> None:
    old = story("a", OLD, "apples")
    path.write_bytes(old)
    take()
    ledger.prune_session("claude:a")
    later = setup.clock.now + 1
    setup.clock.now += 1000
    replace(path, b"\n" + old + story("a", later, "plums", turn="t2"))
    take()
    assert said(ledger, "a") == ["plums"]
    assert (b"apples" in kept(ledger), b"plums" in kept(ledger)) == (False, True)
    assert reparse(ledger._store, [READER]).lines == 0


def test_a_conversation_without_text_that_was_removed_is_not_read_anew_from_what_is_left(
    ledger: Ledger, path: Path, setup: StoreSetup
) -> None:
    """Its files were imported without their text, so that none was pruned; a replaced file is archived in part."""
    old = story("a", OLD, "apples")
    path.write_bytes(old)
    import_sources(ledger._store, [READER], roots=[path.parent], variables={}, keep=False)
    ledger.prune_session("claude:a")
    replace(path, b"\n" + old + story("a", OLD + 100, "plums", turn="t2"))
    import_sources(ledger._store, [READER], roots=[path.parent], variables={})
    assert said(ledger, "a") == ["plums"]
    assert reparse(ledger._store, [READER]).lines == 0
    assert said(ledger, "a") == ["plums"]


# --- which bytes


LINES = st.lists(st.tuples(st.sampled_from("-kh"), st.integers(1, 12)), min_size=1, max_size=30)
"""Lines by what they say: nothing, something that is kept, something that is held; and their length."""


@given(lines=LINES, blocks=st.sets(st.integers(1, 29)), cuts=st.sets(st.integers(1, 400)))
def test_exactly_the_lines_that_are_held_are_cut_out(
    lines: list[tuple[str, int]], blocks: set[int], cuts: set[int]
) -> None:
    held = Held()
    got: dict[int, bytes] = {}
    start = 0
    bounds = [0, *sorted(each for each in blocks if each < len(lines)), len(lines)]
    for first, last in pairwise(bounds):
        data = b"".join(kind.encode() * length + b"\n" for kind, length in lines[first:last])
        marks, at = [], start
        for kind, length in lines[first:last]:
            if kind != "-":
                marks.append((at, kind == "h"))
            at += length + 1
        edges = [0, *sorted(each for each in cuts if each < len(data)), len(data)]
        pieces = [(start + a, b - a, archive.compress(data[a:b])) for a, b in pairwise(edges) if a < b]
        chunk = Chunk(
            task=1, start=start, end=start + len(data), reading=Reading(), pieces=pieces, last=last == len(lines)
        )
        for begin, size, packed in held.pieces(chunk, marks):
            got[begin] = archive.decompress(packed, size)
        start += len(data)
    left = b"".join(got[begin] for begin in sorted(got))
    assert b"h" not in left
    assert left.count(b"k") == sum(length for kind, length in lines if kind == "k")
    if not any(kind == "h" for kind, _ in lines):
        assert len(left) == start
