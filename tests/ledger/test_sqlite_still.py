"""A ledger in a folder that may not be written: a read-only mount, a backup of somebody else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ledger.sqlite_setup import SqliteSetup
from turnlog import open_ledger
from turnlog.errors import CorruptError, UnavailableError
from turnlog.ledger.sqlite_still import Still

AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.geteuid() == 0 else ()

READS = """
import sys
from turnlog import open_ledger
from turnlog.errors import TurnlogError
try:
    with open_ledger(sys.argv[1], read_only=True) as ledger:
        print([each.id for each in ledger.sessions()], ledger.verify())
        if len(sys.argv) > 2:
            sys.stdin.readline()
            print(ledger.sessions())
except TurnlogError as error:
    print(type(error).__name__, error.message, error.hint, sep="|")
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder with a ledger, which others may read but not write."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("everything is permitted here")
    folder = tmp_path / "place"
    folder.mkdir()
    with open_ledger(f"sqlite:///{folder / 'a ledger?.db'}") as ledger:
        ledger.create_session(id="s", cwd="/f")
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/") and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)
    (folder / "a ledger?.db").chmod(0o444)
    folder.chmod(0o555)
    yield folder / "a ledger?.db"
    folder.chmod(0o755)


def reading(path: Path, *more: str) -> subprocess.Popen[str]:
    argv = [*AS_NOBODY, sys.executable, "-u", "-c", READS, f"sqlite:///{path}", *more]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_can_be_read_and_nothing_is_left_beside_it(place: Path) -> None:
    out, err = reading(place).communicate(timeout=60)
    assert (out, err) == ("['s'] []\n", "")
    assert [each.name for each in place.parent.iterdir()] == [place.name]


def test_it_can_be_copied_and_nothing_is_left_beside_it(place: Path) -> None:
    target = place.parent.with_name("target")
    target.mkdir()
    target.chmod(0o777)
    urls = (f"sqlite:///{place}", f"sqlite:///{target / 'copy.db'}")
    argv = [*AS_NOBODY, sys.executable, "-m", "turnlog", "ledger", "copy", *urls, "--json"]
    environment = {**os.environ, "HOME": str(target), "XDG_DATA_HOME": str(target), "XDG_CONFIG_HOME": str(target)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["rows"] > 0
    assert [each.name for each in place.parent.iterdir()] == [place.name]
    with open_ledger(urls[1]) as ledger:
        assert [each.id for each in ledger.sessions()] == ["s"]
        assert ledger.verify() == []


def test_a_part_that_is_in_the_log_is_not_passed_over(place: Path) -> None:
    place.parent.chmod(0o755)
    place.chmod(0o644)
    copy = place.with_name("copy.db")
    with open_ledger(f"sqlite:///{place}") as ledger:  # while it is open its log is not taken into the file
        ledger.create_session(id="t", cwd="/f")
        shutil.copy(place, copy)
        shutil.copy(f"{place}-wal", f"{copy}-wal")
    place.parent.chmod(0o555)
    out, _ = reading(copy).communicate(timeout=60)
    kind, message, hint = out.strip().split("|")
    assert kind == "UnavailableError"
    assert message.endswith("a part of it is in its log, and its folder cannot be written")
    assert hint.startswith("`turnlog ledger backup FILE`")


def test_who_reads_while_the_owner_writes_is_told_so(place: Path) -> None:
    process = reading(place, "again")
    assert process.stdout is not None
    assert process.stdout.readline() == "['s'] []\n"
    place.parent.chmod(0o755)
    place.chmod(0o644)
    with open_ledger(f"sqlite:///{place}") as ledger:
        ledger.create_session(id="t", cwd="/f")
    out, _ = process.communicate("\n", timeout=60)
    assert out == f"UnavailableError|{place} was written while it was read|ask again\n"


def test_a_damage_that_is_somebody_writing_is_not_called_one(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"a")
    still = Still(path)

    def damaged() -> None:
        with still.reading():
            raise CorruptError("torn")

    with pytest.raises(CorruptError):
        damaged()
    path.write_bytes(b"ab")
    with pytest.raises(UnavailableError, match="was written while it was read"):
        damaged()


def test_a_file_that_may_not_be_read_at_all_is_said_so(place: Path) -> None:
    place.parent.chmod(0o755)
    place.chmod(0)
    place.parent.chmod(0o555)
    out, _ = reading(place).communicate(timeout=60)
    assert out.startswith(f"UnavailableError|cannot use {place}: ")
    assert out.endswith("|check the file's permissions and its disk\n")


def test_a_folder_that_can_be_written_is_read_as_ever(tmp_path: Path) -> None:
    setup = SqliteSetup(tmp_path)
    with setup.open() as writing, open_ledger(setup.url(), read_only=True) as ledger:
        writing.create_session(id="s", cwd="/f")
        assert [each.id for each in ledger.sessions()] == ["s"]


def test_locks_that_cannot_be_made_are_said_so(tmp_path: Path) -> None:
    setup = SqliteSetup(tmp_path)
    with setup.open() as ledger:
        ledger.create_session(id="s", cwd="/f")
        started = ledger.start_exec().id
        setup.path.with_name(setup.path.name + ".session-locks").write_text("no folder")
        with pytest.raises(UnavailableError, match="cannot lock session s in ") as raised:
            ledger.claim_driver("s", None, started)
        assert "PostgreSQL is for several" in raised.value.hint
