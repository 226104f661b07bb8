"""What there is to read: where nothing is new the marks of the files say so, else all the ledger knows is asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.intake.plain import READER, call, line
from turnlog.intake.importer import import_sources
from turnlog.intake.plan import Plan, make_plan
from turnlog.ledger import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/ledger.db", now=lambda: 5_000)
    yield store
    store.close()


@pytest.fixture
def folder(store: Store, tmp_path: Path) -> Path:
    """Three files that were imported."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in ("a", "b", "c"):
        written = line(name, "t1", "started") + b"\n" + call(name, "t1", f"m{name}") + b"\n"
        (folder / f"{name}.jsonl").write_bytes(written)
    import_sources(store, [READER], roots=[folder], variables={})
    return folder


def plan(store: Store, *roots: Path) -> Plan:
    return make_plan(store, [READER], {}, roots, archive=True)


def test_where_nothing_changed_what_the_decoders_know_is_not_read(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(type(store.imports), "sources")
    found = plan(store, folder)
    assert (found.idle, found.files, found.bytes) == (True, 3, 0)


@pytest.mark.parametrize("changed", ["size", "modified", "inode"])
def test_a_file_that_changed_is_looked_at_alone(store: Store, folder: Path, changed: str) -> None:
    path = folder / "b.jsonl"
    before = path.stat()
    if changed == "size":
        with path.open("ab") as file:
            file.write(call("b", "t1", "m2") + b"\n")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif changed == "modified":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    else:
        copy = folder / "copy"
        copy.write_bytes(path.read_bytes())
        os.utime(copy, ns=(before.st_atime_ns, before.st_mtime_ns))
        copy.replace(path)
    found = plan(store, folder)
    assert [task.source.path for task in found.tasks] == ([str(path)] if changed == "size" else [])
    assert [row.path for row, _ in found.touched] == ([] if changed == "size" else [str(path)])
    assert (found.missing, found.replaced, found.failed) == ([], [], [])


def test_a_file_that_is_gone_is_noticed_once(store: Store, folder: Path) -> None:
    (folder / "c.jsonl").unlink()
    assert [row.path for row in plan(store, folder).missing] == [str(folder / "c.jsonl")]
    import_sources(store, [READER], roots=[folder], variables={})
    assert plan(store, folder).idle


def test_a_file_that_is_back_is_noticed(store: Store, folder: Path, tmp_path: Path) -> None:
    path, aside = folder / "c.jsonl", tmp_path / "aside"
    path.rename(aside)
    import_sources(store, [READER], roots=[folder], variables={})
    aside.rename(path)
    assert not plan(store, folder).idle
    import_sources(store, [READER], roots=[folder], variables={})
    assert store.imports.marks().keys() == {str(folder / f"{name}.jsonl") for name in "abc"}


def test_files_of_other_places_are_not_asked_for(store: Store, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "d.jsonl").write_bytes(line("d", "t1", "started") + b"\n")
    import_sources(store, [READER], roots=[other], variables={})
    (other / "d.jsonl").unlink()
    assert plan(store, folder).idle
    assert [row.path for row in plan(store, other).missing] == [str(other / "d.jsonl")]
