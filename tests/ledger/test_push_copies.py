"""Copies of one ledger, as on cloned machines, that are pushed into the same one: each goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ledger.moving_scenes import content, furnish, live_in, new_ledger, own_home, rows_of, talk
from tests.surfaces.histories import Rollout
from turnlog import open_ledger
from turnlog.ledger import homes
from turnlog.ledger.pushing import Pushed

__all__ = ["own_home"]

FIRST = "019c1000-0000-7000-8000-0000000000a1"
SECOND = "019c1000-0000-7000-8000-0000000000a2"


def push(source: str, target: str, *, archive: bool = False) -> Pushed:
    with open_ledger(source) as ledger:
        return ledger.push_to(target, archive=archive)


@pytest.fixture(params=["sqlite", "postgres"])
def team(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (tmp_path / "team").mkdir()
    return new_ledger(request.param, tmp_path / "team")


@pytest.fixture
def laptop(tmp_path: Path) -> str:
    return furnish(tmp_path)


def copy_of(url: str, place: Path) -> str:
    """Copy a ledger as a clone of its machine does."""
    with open_ledger(url) as ledger:
        ledger.backup(place)
    return f"sqlite:///{place}"


def read_broken(url: str, root: Path, thread: str) -> Path:
    """Import a history with a line that cannot be read; return its file."""
    rollout = Rollout(thread)
    rollout.turn("turn-1", "what is this?")
    rollout.answer("turn-1", "a log")
    file = rollout.save(root)
    with file.open("a", encoding="utf-8") as more:
        more.write('{"timestamp": broken\n')
    with open_ledger(url) as ledger:
        done = ledger.import_histories(provider="codex", roots=[root])
    assert [each.kind for each in done.problems]
    return file


@pytest.mark.parametrize("same_home", [False, True], ids=["a home of its own", "the same machine id"])
def test_clones_that_push_in_turn_tell_only_what_is_new(
    tmp_path: Path, laptop: str, team: str, monkeypatch: pytest.MonkeyPatch, same_home: bool
) -> None:
    push(laptop, team)
    clone = copy_of(laptop, tmp_path / "clone.db")
    for number in range(3):
        for url, name in ((laptop, "laptop"), (clone, "clone")):
            live_in(tmp_path / ("home" if same_home else f"home-{name}"), monkeypatch)
            with open_ledger(url) as ledger:
                talk(ledger, ledger.create_session(id=f"{name}-{number}", cwd="/f").id, "1")
            done = push(url, team)
            assert (done.conflicts, done.problems, done.sessions) == (0, [], 1)
            if number:
                assert done.known == 0
    held = {row[0] for row in content(team)["sessions"]}
    assert {f"{name}-{number}" for name in ("laptop", "clone") for number in range(3)} < held


def test_sources_that_clones_read_under_one_number_keep_their_problems(
    tmp_path: Path, laptop: str, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(laptop, team)
    clone = copy_of(laptop, tmp_path / "clone.db")
    mine = read_broken(laptop, tmp_path / "mine", FIRST)
    theirs = read_broken(clone, tmp_path / "theirs", SECOND)
    numbers = [rows_of(url, "SELECT max(id) FROM sources") for url in (laptop, clone)]
    assert numbers[0] == numbers[1]
    for _ in range(2):
        push(laptop, team, archive=True)
        live_in(tmp_path / "another", monkeypatch)
        push(clone, team, archive=True)
        live_in(tmp_path / "home", monkeypatch)
    told = {row[0] for row in content(team)["problems"]}
    assert {str(mine), str(theirs)} <= told
    with open_ledger(team) as there:
        assert there.verify() == []
        for thread in (FIRST, SECOND):
            assert [entry.text for entry in there.transcript(f"codex:{thread}") if entry.role == "assistant"]
    by = dict(rows_of(team, "SELECT path, count(*) FROM sources GROUP BY path"))
    assert set(by.values()) == {1}


def append(file: Path, turn: str, *, torn: bool) -> None:
    """Go on with a history, as the program does that writes it."""
    more = Rollout(FIRST)
    more.turn(turn, f"prompt of {turn}")
    more.answer(turn, f"answer of {turn}")
    lines = more.save(file.parents[5] / f"drafts-{turn}").read_text(encoding="utf-8").splitlines()[1:]
    with file.open("a", encoding="utf-8") as end:
        end.write("".join(f"{line}\n" for line in [*lines, *(['{"timestamp": broken'] if torn else [])]))


@pytest.mark.parametrize("archive", [False, True])
def test_a_file_that_clones_read_on_differently_is_two_files(
    tmp_path: Path, laptop: str, team: str, monkeypatch: pytest.MonkeyPatch, archive: bool
) -> None:
    file = read_broken(laptop, tmp_path / "codex", FIRST)
    push(laptop, team, archive=archive)
    clone = copy_of(laptop, tmp_path / "clone.db")
    whole = file.read_bytes()
    for url, home, turn in ((laptop, "home", "turn-mine"), (clone, "another", "turn-theirs")):
        live_in(tmp_path / home, monkeypatch)
        file.write_bytes(whole)  # each machine has its own under the same path
        append(file, turn, torn=url == laptop)
        with open_ledger(url) as ledger:
            ledger.import_histories(provider="codex", roots=[tmp_path / "codex"])
        push(url, team, archive=archive)
    live_in(tmp_path / "home", monkeypatch)
    push(laptop, team, archive=archive)
    told = [row for row in content(team)["problems"] if row[0] == str(file)]
    assert len(told) == len({(row[1], row[2]) for row in told}) + 1 == 3  # the first line is torn in both
    turns = {row[2] for row in content(team)["receipts"] if row[0] == f"codex:{FIRST}"}
    assert {"turn-1", "turn-mine", "turn-theirs"} <= turns
    with open_ledger(team) as there:
        assert there.verify() == []
        if archive:
            said = [entry.text for entry in there.transcript(f"codex:{FIRST}")]
            assert {"answer of turn-mine", "answer of turn-theirs"} <= set(said)


def test_a_machine_that_moved_goes_on_with_its_sources(
    tmp_path: Path, laptop: str, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = read_broken(laptop, tmp_path / "codex", FIRST)
    push(laptop, team)
    for number in range(2):
        live_in(tmp_path / f"another-{number}", monkeypatch)
        append(file, f"turn-{number}", torn=False)
        with open_ledger(laptop) as ledger:
            ledger.import_histories(provider="codex", roots=[tmp_path / "codex"])
        push(laptop, team)
        assert rows_of(team, f"SELECT count(*) FROM sources WHERE path = '{file}'") == [(1,)]
    assert [row[0] for row in content(team)["problems"] if row[0] == str(file)] == [str(file)]


def test_a_home_that_is_new_every_time_goes_on_where_the_last_one_was(
    tmp_path: Path, laptop: str, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        live_in(tmp_path / f"home-{number}", monkeypatch)
        done = push(laptop, team)
        assert (done.known, bool(done.new)) == (0, number == 0)


def test_a_push_that_is_cut_before_its_first_page_after_a_restore_skips_nothing(
    tmp_path: Path, laptop: str, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from turnlog.ledger import pushing

    copy = copy_of(laptop, tmp_path / "copy.db")
    push(laptop, team)
    with open_ledger(copy) as ledger:  # the file is put back as it was, and goes another way
        talk(ledger, ledger.create_session(id="another-way", cwd="/f").id, "1")

    def cut(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as cutting:
        cutting.setattr(pushing, "push_homes", cut)
        with pytest.raises(KeyboardInterrupt):
            push(copy, team)
    push(copy, team)
    assert "another-way" in {row[0] for row in content(team)["sessions"]}
    assert homes.home_id() is not None
