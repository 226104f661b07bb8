"""The home of a process: one id for a data folder on one machine."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.ledger.children import child
from turnlog import open_ledger
from turnlog.ledger import homes


def live(folder: Path, machine: str | None) -> homes.Home | None:
    """Be a new process in a folder on a machine."""
    homes._read_or_make.cache_clear()
    return homes._read_or_make(folder, machine)


def test_the_id_stays_and_the_file_is_private(tmp_path: Path) -> None:
    made = live(tmp_path / "data", "m1")
    assert made is not None
    assert made.id.startswith("home_")
    path = tmp_path / "data" / "home.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text()) == {
        "id": made.id,
        "name": made.name,
        "machine": "m1",
        "created_at": made.created_at,
        "was": [],
    }
    assert live(tmp_path / "data", "m1") == made
    assert [each.name for each in path.parent.iterdir()] == ["home.json"]


def test_a_folder_on_another_machine_is_another_home(tmp_path: Path) -> None:
    made = live(tmp_path, "m1")
    clone = live(tmp_path, "m2")
    assert made is not None
    assert clone is not None
    assert clone.id != made.id
    assert (clone.machine, clone.was) == ("m2", (made.id,))
    assert live(tmp_path, "m2") == clone


def test_a_machine_without_an_id_proves_nothing(tmp_path: Path) -> None:
    made = live(tmp_path, "m1")
    assert live(tmp_path, None) == made
    other = live(tmp_path / "other", None)
    assert live(tmp_path / "other", "m2") == other


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 5}'])
def test_a_broken_file_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "home.json").write_text(text)
    made = live(tmp_path, "m1")
    assert made is not None
    assert live(tmp_path, "m1") == made


def test_a_folder_that_cannot_be_made_gives_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    assert live(tmp_path / "file" / "data", "m1") is None
    monkeypatch.setattr(homes, "folder", lambda: tmp_path / "file" / "data")
    homes._read_or_make.cache_clear()
    with open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        assert ledger.start_exec(id="e").home_id is None
        assert ledger.create_session(id="s", cwd="/f").home_id is None


FIRST = """
import sys
from pathlib import Path
from turnlog.ledger import homes
print("ready")
sys.stdin.readline()
print(homes._read_or_make(Path(sys.argv[1]), "m1").id)
"""


def test_of_processes_that_make_it_at_once_all_have_one(tmp_path: Path) -> None:
    with child(FIRST, str(tmp_path)) as one, child(FIRST, str(tmp_path)) as two, child(FIRST, str(tmp_path)) as three:
        started = (one, two, three)
        for each in started:
            assert each.line() == "ready"
        for each in started:
            each.say()
        assert len({each.line() for each in started}) == 1


def test_execs_and_sessions_say_where_they_were_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "folder", lambda: tmp_path / "data")
    homes._read_or_make.cache_clear()
    with open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        home = homes.home_id()
        assert home is not None
        assert ledger.start_exec(id="e").home_id == home
        found = ledger.exec("e")
        assert found is not None
        assert found.home_id == home
        assert ledger.create_session(id="s", cwd="/f").home_id == home
        assert [each.home_id for each in ledger.sessions()] == [home]
        assert [each.home_id for each in ledger.execs()] == [home]
