"""Doctor: the histories on disk, how long they stay, whether they were copied, who is writing them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.conftest import Outcome
from turnlog import open_ledger
from turnlog.harness.reading import Decoder, Find, Passage, Rows, Source, SourceKind
from turnlog.ledger import open_store
from turnlog.ledger.imports import Advance, NewSource
from turnlog.surfaces.cli.context import Cli, Globals
from turnlog.surfaces.cli.doctor import examine
from turnlog.surfaces.cli.doctor_sources import Place, Retention, Trouble, histories, running

DAY_MS = 86_400_000


class Folder:
    """A reader of files in one folder: only what doctor asks of a reader."""

    version = 1

    def __init__(self, provider: str, *places: Path, kind: SourceKind = "jsonl") -> None:
        self.provider = provider
        self.places = list(places)
        self.kind = kind
        self.bad: list[tuple[str, str]] = []

    def discover(self, variables: Mapping[str, str], roots: Sequence[Path]) -> Iterator[Source]:
        for place in self.places:
            for path in sorted(place.rglob("*")):
                if not path.is_dir() and not path.name.endswith("-wal"):
                    yield Source(self.provider, str(path), self.kind)

    def unlisted(self) -> list[tuple[str, str]]:
        return self.bad

    def usual(self, variables: Mapping[str, str]) -> list[Path]:
        return self.places

    def decoder(self, source: Source, state: bytes | None, find: Find) -> Decoder:
        raise NotImplementedError

    def rows(self, source: Source) -> Rows:
        raise NotImplementedError

    def passages(self, raw: bytes) -> tuple[Passage, ...]:
        raise NotImplementedError


def write(path: Path, size: int, modified_ms: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
    return path


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture
def claude(tmp_path: Path) -> Folder:
    return Folder("claude", tmp_path / "c" / "projects")


Copied = Callable[[Path], None]


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    """Make the ledger hold a file as far as it goes now."""

    def store_it(path: Path) -> None:
        store = open_store(f"sqlite:///{tmp_path}/ledger.db")
        size = path.stat().st_size
        with store.imports.batch() as tx:
            source = tx.add_source(NewSource("claude", str(path), "jsonl", None, archived=True))
            assert source is not None
            facts: dict[str, Any] = dict.fromkeys(Advance.__struct_fields__)
            facts |= {"start": 0, "end": size, "path": str(path), "kind": "jsonl", "size": size}
            step = Advance(**{**facts, "head_size": 0, "lines": 1, "decoder": 1})
            assert tx.advance([(source, step)]) == [True]
        store.close()

    return store_it


def known(tmp_path: Path) -> dict[str, Any]:
    store = open_store(f"sqlite:///{tmp_path}/ledger.db")
    rows = {row.path: row for row in store.imports.sources()}
    store.close()
    return rows


def test_a_month_is_the_default_and_the_oldest_file_goes_first(claude: Folder) -> None:
    now = now_ms()
    oldest = now - 29 * DAY_MS
    write(claude.places[0] / "p" / "a.jsonl", 10, oldest)
    write(claude.places[0] / "p" / "b.jsonl", 20, now - 22 * DAY_MS)
    write(claude.places[0] / "p" / "c.jsonl", 30, now - 24 * DAY_MS)
    found = histories(claude, {}, {}, now)
    assert (found.files, found.bytes, found.newest_at) == (3, 60, now - 22 * DAY_MS)
    assert found.retention == Retention(days=30, setting=None, next_at=oldest + 30 * DAY_MS, soon=2, soon_uncopied=2)
    place = Place(path=str(claude.places[0]), exists=True, files=3, bytes=60, newest_at=now - 22 * DAY_MS)
    assert found.places == (place,)


def test_settings_say_how_long_and_the_local_ones_win(claude: Folder) -> None:
    now = now_ms()
    write(claude.places[0] / "a.jsonl", 10, now)
    folder = claude.places[0].parent
    (folder / "settings.json").write_text(json.dumps({"cleanupPeriodDays": 90}))
    kept = histories(claude, {}, {}, now).retention
    assert kept is not None
    assert (kept.days, kept.setting, kept.soon) == (90, str(folder / "settings.json"), 0)
    (folder / "settings.local.json").write_text(json.dumps({"cleanupPeriodDays": 3}))
    kept = histories(claude, {}, {}, now).retention
    assert kept is not None
    assert (kept.days, kept.setting, kept.soon) == (3, str(folder / "settings.local.json"), 1)


@pytest.mark.parametrize("text", ["{", "[]", '{"cleanupPeriodDays": "30"}', '{"cleanupPeriodDays": -1}', "\x00"])
def test_settings_that_are_wrong_are_a_problem_and_the_default_holds(claude: Folder, text: str) -> None:
    now = now_ms()
    write(claude.places[0] / "a.jsonl", 10, now)
    (claude.places[0].parent / "settings.json").write_text(text)
    found = histories(claude, {}, {}, now)
    assert found.retention is not None
    assert found.retention.days == 30
    assert [each.path for each in found.problems] == [str(claude.places[0].parent / "settings.json")]


def test_files_that_were_copied_in_full_are_told_from_those_that_grew(
    claude: Folder, copied: Copied, tmp_path: Path
) -> None:
    now = now_ms()
    paths = [write(claude.places[0] / f"{name}.jsonl", 10, now - 29 * DAY_MS) for name in "abc"]
    for path in paths[:2]:
        copied(path)
    write(paths[1], 11, now - 29 * DAY_MS)
    found = histories(claude, {}, known(tmp_path), now)
    assert found.imported == 1
    assert found.retention is not None
    assert (found.retention.soon, found.retention.soon_uncopied) == (3, 2)
    paths[0].unlink()
    after = histories(claude, {}, known(tmp_path), now)
    assert (after.files, after.gone) == (2, 1)


def test_a_database_counts_with_what_lies_beside_it(tmp_path: Path) -> None:
    now = now_ms()
    reader = Folder("opencode", tmp_path / "o", kind="rows")
    write(tmp_path / "o" / "opencode.db", 100, now - DAY_MS)
    write(tmp_path / "o" / "opencode.db-wal", 7, now)
    found = histories(reader, {}, {}, now)
    assert (found.files, found.bytes, found.newest_at, found.retention) == (1, 107, now, None)


def test_a_folder_of_objects_counts_with_all_its_files(tmp_path: Path) -> None:
    now = now_ms()
    write(tmp_path / "s" / "storage" / "message" / "m.json", 5, now)
    write(tmp_path / "s" / "storage" / "session" / "s.json", 6, now - DAY_MS)

    class Tree(Folder):
        def discover(self, variables: Mapping[str, str], roots: Sequence[Path]) -> Iterator[Source]:
            yield Source("opencode", str(self.places[0] / "storage"), "rows")

    found = histories(Tree("opencode", tmp_path / "s"), {}, {}, now)
    assert (found.files, found.bytes) == (1, 11)


def test_what_cannot_be_read_is_named_and_the_rest_counted(claude: Folder) -> None:
    now = now_ms()
    write(claude.places[0] / "a.jsonl", 10, now)
    (claude.places[0] / "b.jsonl").symlink_to(claude.places[0] / "nowhere")
    claude.bad.append((str(claude.places[0] / "locked"), "Permission denied"))
    found = histories(claude, {}, {}, now)
    assert found.files == 1
    assert found.problems == (
        Trouble(str(claude.places[0] / "b.jsonl"), "No such file or directory"),
        Trouble(str(claude.places[0] / "locked"), "Permission denied"),
    )


def test_a_place_behind_a_link_counts(tmp_path: Path) -> None:
    now = now_ms()
    write(tmp_path / "real" / "a.jsonl", 10, now)
    (tmp_path / "link").symlink_to(tmp_path / "real")

    class Resolving(Folder):
        def discover(self, variables: Mapping[str, str], roots: Sequence[Path]) -> Iterator[Source]:
            yield Source("codex", str(tmp_path / "real" / "a.jsonl"), "jsonl")

    found = histories(Resolving("codex", tmp_path / "link"), {}, {}, now)
    assert [(place.files, place.bytes) for place in found.places] == [(1, 10)]


def test_programs_that_run_are_found_by_their_name(tmp_path: Path) -> None:
    program = tmp_path / "codex"
    program.write_text("#!/bin/sh\necho up\nread line\n")
    program.chmod(0o755)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        found = {each.pid: each for each in running(["claude", "codex"])}
        assert (found[process.pid].provider, found[process.pid].cwd) == ("codex", str(tmp_path))
        assert process.pid not in {each.pid for each in running(["claude"])}
        process.communicate(b"\n")


# --- the page


@pytest.fixture
def doctor(capfd: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    monkeypatch.setenv("PATH", str(home))

    def invoke(*readers: Folder, as_json: bool = False) -> Outcome:
        capfd.readouterr()
        code = examine(Cli(Globals(json=as_json)), readers)
        return Outcome(code, *capfd.readouterr())

    return invoke


def test_the_page_warns_of_deletion_and_says_what_to_do(
    doctor: Callable[..., Outcome], claude: Folder, copied: Copied
) -> None:
    path = write(claude.places[0] / "a.jsonl", 1_234, now_ms() - 29 * DAY_MS)
    shown = doctor(claude)
    assert shown.code == 0
    assert "✓ history    of claude: 1 source, 1,234 bytes, last changed " in shown.out
    assert f"             {claude.places[0]}: 1 source, 1,234 bytes" in shown.lines
    assert "             imported: 0 of 1" in shown.lines
    assert "             kept for 30 days after the last change (its default)" in shown.lines
    assert "! deletion   next deletion " in shown.out
    assert "1 file within 7 days, 1 of them not copied" in shown.out
    assert "             hint: `turnlog import` copies them" in shown.lines
    copied(path)
    after = doctor(claude)
    assert "1 file within 7 days, all copied" in after.out
    assert "! deletion" not in after.out


def test_passwords_of_ledgers_in_recorded_command_lines_are_counted(
    doctor: Callable[..., Outcome], claude: Folder, home: Path
) -> None:
    with open_ledger() as ledger:
        for word in (
            "postgresql://me@h/db",
            "say postgres://me:pw@h/db",
            "--ledger=postgresql://h/db?user=me&password=",
        ):
            ledger.start_exec(command=["turnlog", "--ledger", word, "run", "x"], cwd="/w")
    clean = doctor(claude)
    assert (clean.code, "! passwords" in clean.out) == (0, False)
    with open_ledger() as ledger:
        for word in ("postgres://me:pw@h/db", "--ledger=postgresql://h/db?user=me&password=pw"):
            ledger.start_exec(command=["turnlog", "--ledger", word, "run", "x"], cwd="/w")
    shown = doctor(claude)
    assert shown.code == 0
    assert "! passwords  of a ledger are in 2 recorded command lines" in shown.lines
    assert "             hint: change them; what was recorded stays, in copies and backups, too" in shown.lines
    assert doctor(claude, as_json=True).json["ledger"]["passwords"] == 2


def test_problems_make_the_exit_3_and_stand_in_json(doctor: Callable[..., Outcome], claude: Folder) -> None:
    claude.bad.append(("/locked", "Permission denied"))
    shown = doctor(claude)
    assert shown.code == 3
    assert "· history    of claude: nothing found" in shown.lines
    assert "✗ unreadable /locked: Permission denied" in shown.lines
    value = doctor(claude, as_json=True)
    assert value.code == 3
    (source,) = value.json["sources"]
    assert source["problems"] == [{"path": "/locked", "reason": "Permission denied"}]
    assert source["places"] == [
        {"path": str(claude.places[0]), "exists": False, "files": 0, "bytes": 0, "newest_at": None}
    ]
    assert source["retention"] is None


def test_names_of_files_cannot_drive_the_terminal(doctor: Callable[..., Outcome], claude: Folder) -> None:
    claude.bad.append(("/a\x1b[2Jb", "bad\x07"))
    assert "\x1b" not in doctor(claude).out


def test_doctor_works_in_a_folder_that_was_deleted(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = "import os, sys, turnlog.surfaces.cli.app as app; os.rmdir(os.getcwd()); sys.exit(app.run(sys.argv[1:]))"
    argv = [sys.executable, "-c", program, "doctor", "--json"]
    done = subprocess.run(argv, cwd=gone, capture_output=True, check=False, timeout=60)
    assert (done.returncode in {0, 3}, done.stderr) == (True, b"")
    assert [agent["name"] for agent in json.loads(done.stdout)["agents"]] == ["opencode", "codex", "claude"]
