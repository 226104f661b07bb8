from __future__ import annotations

import os
from pathlib import Path

import pytest
import zstandard

from tests.harness.codex_rollouts import CHILD, PARENT, T0, Rollout, uuid7
from turnlog.errors import UnavailableError
from turnlog.harness.codex.reader import READER
from turnlog.harness.reading import Source


def write(path: Path, data: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data or Rollout().bytes)
    return path


def name(thread: str = CHILD, when: str = "2026-09-21T14-13-20") -> str:
    return f"rollout-{when}-{thread}.jsonl"


def found(home: Path, *roots: Path) -> list[Source]:
    return sorted(READER.discover({"CODEX_HOME": str(home)}, roots), key=lambda each: each.path)


def test_sessions_by_day_and_archived_ones_are_found(tmp_path: Path) -> None:
    live = write(tmp_path / "sessions/2026/09/21" / name())
    old = write(tmp_path / "archived_sessions" / name(PARENT))
    write(tmp_path / "history.jsonl")
    write(tmp_path / "sessions/2026/09/21/notes.jsonl")
    assert [(each.path, each.kind, each.thread) for each in found(tmp_path)] == [
        (str(old), "jsonl", PARENT),
        (str(live), "jsonl", CHILD),
    ]


def test_without_a_variable_the_home_folders_are_looked_at(tmp_path: Path) -> None:
    path = write(tmp_path / ".codex/sessions/2026/09/21" / name())
    assert [each.path for each in READER.discover({"HOME": str(tmp_path)}, [])] == [str(path)]
    assert READER.usual({"HOME": str(tmp_path)}) == [
        tmp_path / ".codex/sessions",
        tmp_path / ".codex/archived_sessions",
    ]


def test_compressed_rollouts_are_found_and_a_plain_one_beside_them_wins(tmp_path: Path) -> None:
    folder = tmp_path / "sessions/2026/09/21"
    packed = write(folder / (name() + ".zst"), zstandard.compress(Rollout().bytes))
    assert [(each.path, each.kind, each.thread) for each in found(tmp_path)] == [(str(packed), "zst", CHILD)]
    plain = write(folder / name())
    assert [(each.path, each.kind) for each in found(tmp_path)] == [(str(plain), "jsonl")]


def test_a_continuation_is_not_its_threads_own_file_and_belongs_to_it(tmp_path: Path) -> None:
    write(tmp_path / "sessions" / name(f"{CHILD}_{uuid7(T0 + 9)}"))
    [source] = found(tmp_path)
    assert source.thread is None
    decoder = READER.decoder(source, None, lambda _: None)
    for line in Rollout(headed=False).started("t").ended("t").lines:
        decoder.line(line, 0)
    assert {each.session for each in decoder.take().found} == {CHILD}


def test_parents_are_ranked_before_their_children(tmp_path: Path) -> None:
    write(tmp_path / "sessions" / name(CHILD))
    write(tmp_path / "archived_sessions" / name(PARENT))
    write(tmp_path / "sessions" / name("old-one", "2025-01-01T00-00-00"))
    ranked = sorted(found(tmp_path), key=lambda each: each.rank)
    assert [each.thread for each in ranked] == ["old-one", PARENT, CHILD]


def test_below_a_given_folder_a_first_line_is_enough(tmp_path: Path) -> None:
    ours = write(tmp_path / "backup/a.jsonl")
    packed = write(tmp_path / "backup/b.jsonl.zst", zstandard.compress(Rollout().bytes))
    bare = write(tmp_path / "backup/c.jsonl", b'{"id":"x","timestamp":"2025-08-01T10:00:00Z","instructions":null}\n')
    for place, data in enumerate(
        (b"", b"{}", b'{"type":"user","message":{}}', b"\xff", b'{"type":"event_msg"}', b"[]")
    ):
        (tmp_path / f"backup/other{place}.jsonl").write_bytes(data + b"\n")
    write(tmp_path / "backup/other.jsonl.zst", b"no zstd")
    sources = found(tmp_path, tmp_path / "backup")
    assert [(each.path, each.thread) for each in sources] == [(str(each), None) for each in (ours, packed, bare)]
    assert [each.path for each in found(tmp_path, ours)] == [str(ours)]


def test_links_are_followed_once_and_circles_end(tmp_path: Path) -> None:
    real = tmp_path / "disk/2026"
    write(real / name())
    home = tmp_path / "home"
    (home / "sessions").mkdir(parents=True)
    (home / "sessions/2026").symlink_to(real)
    (home / "sessions/again").symlink_to(home / "sessions")
    (home / "sessions/itself").symlink_to(home / "sessions/itself")
    (home / "sessions/gone").symlink_to(tmp_path / "nowhere")
    assert [each.path for each in found(home)] == [str(home / "sessions/2026" / name())]
    assert READER.unlisted() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list any folder")
def test_a_folder_that_may_not_be_listed_is_named(tmp_path: Path) -> None:
    write(tmp_path / "sessions" / name())
    closed = tmp_path / "sessions/closed"
    closed.mkdir(mode=0)
    assert len(found(tmp_path)) == 1
    assert READER.unlisted() == [(str(closed), "Permission denied")]
    closed.chmod(0o700)


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_bytes(b"")
    assert found(tmp_path) == []


def test_an_absent_home_has_no_sources(tmp_path: Path) -> None:
    assert found(tmp_path / "nothing") == []
    assert READER.unlisted() == []


def test_rollouts_are_no_databases() -> None:
    with pytest.raises(UnavailableError):
        READER.rows(Source("codex", "/x", "jsonl"))
