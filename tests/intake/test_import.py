"""The importer itself: what is read, how far, and what stays when files change, move, vanish or are damaged."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.intake.plain import READER, call, line
from tests.ledger.sqlite_setup import raw
from turnlog.archive import PIECE, decompress
from turnlog.intake.importer import Imported, import_sources, reparse
from turnlog.ledger import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/ledger.db", now=lambda: 5_000)
    yield store
    store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


@pytest.fixture
def take(store: Store, folder: Path) -> Callable[[], Imported]:
    return lambda: import_sources(store, [READER], roots=[folder], variables={})


def content(store: Store) -> list[tuple[object, ...]]:
    """Everything of the receipts but their order and when they were written."""
    rows = [row for session in store_sessions(store) for row in store.events.history(session, 0, None)]
    return sorted((r.session_id, r.thread or "", r.turn or "", r.kind, r.observed_at, r.payload) for r in rows)


def store_sessions(store: Store) -> list[str]:
    return [row[0] for row in ask(store, "SELECT id FROM agent_sessions")]


def owned(store: Store) -> dict[tuple[str, str], int]:
    return {(row[0], row[1]): row[2] for row in ask(store, "SELECT call, session_id, owned FROM calls")}


def ask(store: Store, statement: str) -> list[tuple[Any, ...]]:
    with raw(Path(store.url.removeprefix("sqlite:///"))) as connection:
        return list(connection.execute(statement))


def archived(store: Store, path: Path) -> bytes:
    row = next(each for each in store.imports.sources() if each.path == str(path))
    return b"".join(decompress(data, size) for _, size, data in store.imports.pieces(row.id))


def test_a_second_import_reads_nothing(store: Store, folder: Path, take: Callable[[], Imported]) -> None:
    (folder / "a.jsonl").write_bytes(line("a", "t1", "started") + b"\n" + call("a", "t1", "m1") + b"\n")
    first = take()
    assert (first.files, first.lines, first.new, first.known, first.sessions) == (1, 2, 2, 0, 1)
    assert first.bytes == (folder / "a.jsonl").stat().st_size
    second = take()
    assert (second.found, second.files, second.lines, second.bytes, second.new) == (1, 0, 0, 0, 0)


def test_appended_lines_alone_are_read(store: Store, folder: Path, take: Callable[[], Imported]) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(call("a", "t1", "m1") + b"\n")
    take()
    added = b"".join(call("a", "t1", f"m{n}") + b"\n" for n in range(2, 102))
    with path.open("ab") as file:
        file.write(added)
    again = take()
    assert (again.lines, again.bytes, again.new) == (100, len(added), 100)
    assert archived(store, path) == path.read_bytes()


def test_a_half_written_last_line_waits(store: Store, folder: Path, take: Callable[[], Imported]) -> None:
    path = folder / "a.jsonl"
    whole, half = call("a", "t1", "m1") + b"\n", call("a", "t1", "m2") + b"\n"
    path.write_bytes(whole + half[:20])
    os.utime(path, ns=(2**62, 2**62))  # in the future: it was just written
    assert (take().new, take().problems) == (1, ())
    path.write_bytes(whole + half)
    os.utime(path, ns=(2**62, 2**62))  # the same time: only the size tells
    done = take()
    assert (done.new, done.bytes) == (1, len(half))


def test_a_line_that_stays_half_written_is_a_problem_until_it_is_whole(
    store: Store, folder: Path, take: Callable[[], Imported]
) -> None:
    path = folder / "a.jsonl"
    whole, half = call("a", "t1", "m1") + b"\n", call("a", "t1", "m2") + b"\n"
    path.write_bytes(whole + half[:20])
    os.utime(path, (1, 1))
    problem = take().problems[0]
    assert (problem.file, problem.offset, problem.kind) == (str(path), len(whole), "unfinished_line")
    path.write_bytes(whole + half)
    assert take().problems == ()
    assert store.imports.problems() == []


def test_a_last_line_without_line_end_counts_if_it_is_whole(
    store: Store, folder: Path, take: Callable[[], Imported]
) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(call("a", "t1", "m1"))
    assert take().new == 1
    with path.open("ab") as file:
        file.write(b"\n" + call("a", "t1", "m2") + b"\n")
    assert (take().new, archived(store, path)) == (1, path.read_bytes())


def test_a_truncated_file_is_read_anew_and_loses_nothing(
    store: Store, folder: Path, take: Callable[[], Imported]
) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(call("a", "t1", "m1") + b"\n" + call("a", "t1", "m2") + b"\n")
    take()
    path.write_bytes(call("a", "t1", "m3") + b"\n")
    again = take()
    assert (again.new, again.known) == (1, 0)
    assert len([row for row in content(store) if row[3] == "usage"]) == 3


def test_a_replaced_file_of_equal_size_is_noticed(store: Store, folder: Path, take: Callable[[], Imported]) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(call("a", "t1", "m1") + b"\n")
    take()
    path.write_bytes(call("a", "t1", "m9") + b"\n")
    os.utime(path, (9, 9))
    assert take().new == 1


def test_a_deleted_source_keeps_its_data_and_says_so(store: Store, folder: Path, take: Callable[[], Imported]) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(call("a", "t1", "m1") + b"\n")
    before = path.read_bytes()
    take()
    path.unlink()
    assert (take().missing, take().missing) == (1, 0)
    assert store.imports.sources()[0].missing_at == 5_000
    assert len([row for row in content(store) if row[3] == "usage"]) == 1
    assert archived(store, path) == before
    path.write_bytes(before)
    assert take().new == 0
    assert store.imports.sources()[0].missing_at is None


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_that_moves_is_the_same_source(
    store: Store, folder: Path, take: Callable[[], Imported], compressed: bool
) -> None:
    path = folder / "a.jsonl"
    data = b"".join(call("a", "t1", f"m{n}") + b"\n" for n in range(300))
    path.write_bytes(data)
    take()
    path.unlink()
    moved = folder / ("a.jsonl.zst" if compressed else "archived-a.jsonl")
    moved.write_bytes(zstandard.compress(data) if compressed else data)
    done = take()
    assert (done.new, done.lines, done.missing) == (0, 0, 0)
    assert [row.path for row in store.imports.sources()] == [str(moved)]
    assert archived(store, moved) == data


def test_a_compressed_file_is_read_and_one_cut_short_gives_what_it_has(
    store: Store, folder: Path, take: Callable[[], Imported]
) -> None:
    data = b"".join(call("a", "t1", f"m{n}", text=random.Random(n).randbytes(40).hex()) + b"\n" for n in range(3000))
    (folder / "whole.jsonl.zst").write_bytes(zstandard.compress(data))
    (folder / "cut.jsonl.zst").write_bytes(zstandard.compress(data.replace(b'"a"', b'"b"'))[:-2000])
    done = take()
    assert [(problem.file, problem.kind) for problem in done.problems if problem.kind == "zst_cut_short"] == [
        (str(folder / "cut.jsonl.zst"), "zst_cut_short")
    ]
    kept = [row for row in content(store) if row[3] == "usage"]
    assert len([row for row in kept if row[0] == "claude:a"]) == 3000
    assert 0 < len([row for row in kept if row[0] == "claude:b"]) < 3000


def test_a_line_that_is_too_long_is_archived_and_located(
    store: Store, folder: Path, take: Callable[[], Imported], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnlog.intake.pump.MAX_LINE", 1 << 20)
    monkeypatch.setattr("turnlog.intake.pump.BLOCK", 1 << 18)
    path = folder / "a.jsonl"
    first, last = call("a", "t1", "m1") + b"\n", call("a", "t1", "m2") + b"\n"
    long = b'{"s":"a","text":"' + b"x" * (3 << 20) + b'"}\n'
    path.write_bytes(first + long + last)
    done = take()
    assert done.new == 2
    assert [(p.offset, p.kind) for p in done.problems] == [(len(first), "line_too_long")]
    assert store.imports.problems()[0][3] == len(long) - 1
    assert archived(store, path) == path.read_bytes()
    row = store.imports.sources()[0]
    assert max(size for _, size, _ in store.imports.pieces(row.id)) <= PIECE


def test_one_bad_file_never_stops_the_rest(store: Store, folder: Path, take: Callable[[], Imported]) -> None:
    (folder / "a.jsonl").mkdir()
    (folder / "b.jsonl").write_bytes(call("b", "t1", "m1") + b"\n\xff\xfe{]\n" + call("b", "t1", "m2") + b"\n")
    (folder / "c.jsonl").write_bytes(b"")
    done = take()
    assert done.new == 2
    assert min((Path(p.file).name, p.kind) for p in done.problems) == ("a.jsonl", "unreadable_source")
    assert any(Path(p.file).name == "b.jsonl" for p in done.problems)


def test_copies_of_a_call_count_once_whatever_comes_first(tmp_path: Path, folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(call("a", "t1", "m1", at=10) + b"\n")
    (folder / "b.jsonl").write_bytes(call("b", "t1", "m1", at=20) + b"\n" + call("b", "t2", "m2", at=30) + b"\n")
    results = []
    for order in (["a", "b"], ["b", "a"]):
        store = open_store(f"sqlite:///{tmp_path}/{order[0]}.db", now=lambda: 5_000)
        inherited = [
            import_sources(store, [READER], roots=[_only(folder, name)], variables={}).inherited for name in order
        ]
        results.append((content(store), owned(store), sum(inherited)))
        store.close()
    assert results[0] == results[1]
    assert results[0][1] == {("m1", "claude:a"): 1, ("m1", "claude:b"): 0, ("m2", "claude:b"): 1}
    assert results[0][2] == 1


def test_of_copies_the_one_that_tells_more_counts_even_if_it_is_later(
    store: Store, folder: Path, take: Callable[[], Imported]
) -> None:
    (folder / "a.jsonl").write_bytes(call("a", "t1", "m1", out=8) + b"\n")
    (folder / "b.jsonl").write_bytes(call("b", "t1", "m1", at=2000, out=800) + b"\n")
    take()
    assert owned(store) == {("m1", "claude:a"): 0, ("m1", "claude:b"): 1}
    with (folder / "a.jsonl").open("ab") as file:
        file.write(call("a", "t1", "m1", out=800) + b"\n")
    take()
    assert owned(store) == {("m1", "claude:a"): 1, ("m1", "claude:b"): 0}


def _only(folder: Path, name: str) -> Path:
    place = folder.parent / f"only-{name}"
    place.mkdir(exist_ok=True)
    (place / f"{name}.jsonl").write_bytes((folder / f"{name}.jsonl").read_bytes())
    return place


def test_a_call_with_rivals_is_a_copy_only_of_its_ancestors(
    store: Store, folder: Path, take: Callable[[], Imported]
) -> None:
    (folder / "c1.jsonl").write_bytes(
        call("c1", "t", "x1", at=10, rivals=["p"]) + b"\n" + call("c1", "t", "x2", at=11, rivals=["p"]) + b"\n"
    )
    (folder / "c2.jsonl").write_bytes(
        call("c2", "t", "x1", at=10, rivals=["p"]) + b"\n" + call("c2", "t", "x2", at=11, rivals=["p"]) + b"\n"
    )
    take()
    (folder / "p.jsonl").write_bytes(call("p", "t", "x1", at=50) + b"\n")
    take()
    assert owned(store) == {
        ("x1", "claude:p"): 1,
        ("x1", "claude:c1"): 0,
        ("x1", "claude:c2"): 0,
        ("x2", "claude:c1"): 1,
        ("x2", "claude:c2"): 1,
    }


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["t1", "t2"]), st.integers(1, 6), st.integers(1, 50)),
        min_size=1,
        max_size=20,
    ),
    cuts=st.lists(st.integers(0, 2000), max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_any_order_and_any_number_of_imports_give_the_same_ledger(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str, int, int]],
    cuts: list[int],
    order: random.Random,
) -> None:
    place = tmp_path_factory.mktemp("order")
    files: dict[str, bytes] = {}
    for session, turn, number, at in rows:
        files[session] = files.get(session, b"") + call(session, turn, f"m{number}", at=at, out=number) + b"\n"
    results = []
    for round_ in range(2):
        store = open_store(f"sqlite:///{place}/{round_}.db", now=lambda: 5_000)
        folder = place / f"logs{round_}"
        folder.mkdir()
        names = list(files)
        order.shuffle(names)
        for name in names:
            # As files grow: in steps, or all at once.
            for cut in sorted(cuts) if round_ else []:
                (folder / f"{name}.jsonl").write_bytes(files[name][:cut])
                import_sources(store, [READER], roots=[folder], variables={})
            (folder / f"{name}.jsonl").write_bytes(files[name])
            import_sources(store, [READER], roots=[folder], variables={})
        results.append((content(store), owned(store)))
        store.close()
    assert results[0] == results[1]


def test_reparse_adds_nothing_when_the_decoder_is_the_same(
    store: Store, folder: Path, take: Callable[[], Imported]
) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(line("a", "t1", "started", text="hello") + b"\n" + call("a", "t1", "m1", text="world") + b"\n")
    take()
    path.unlink()
    before = content(store)
    done = reparse(store, [READER])
    assert (done.new, done.known, done.lines) == (0, 2, 2)
    assert content(store) == before
    assert store.imports.sources()[0].read_to == done.bytes


def test_reading_may_begin_anew_after_the_archive_was_read(
    store: Store, folder: Path, take: Callable[[], Imported]
) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(call("a", "t1", "m1") + b"\n")
    take()
    reparse(store, [READER])
    with path.open("ab") as file:
        file.write(call("a", "t1", "m2") + b"\n")
    done = take()
    assert (done.lines, done.new) == (1, 1)
