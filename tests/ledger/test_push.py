"""A ledger pushed into one that others push into: each thing once, nothing overwritten, no order that matters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ledger.moving_scenes import (
    content,
    furnish,
    live_in,
    new_ledger,
    own_home,
    rows_of,
    talk,
)
from tests.surfaces import histories
from turnlog import ConflictError, Observation, open_ledger, process
from turnlog.ledger import homes
from turnlog.ledger.pushing import Pushed
from turnlog.receipts import canonical

__all__ = ["own_home"]

BACKENDS = ["sqlite", "postgres"]


def push(source: str, target: str, *, archive: bool = False) -> Pushed:
    with open_ledger(source) as ledger:
        return ledger.push_to(target, archive=archive)


@pytest.fixture(params=BACKENDS)
def team(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (tmp_path / "team").mkdir()
    return new_ledger(request.param, tmp_path / "team")


@pytest.fixture
def laptop(tmp_path: Path) -> str:
    return furnish(tmp_path)


def empty(tmp_path: Path, name: str) -> str:
    url = f"sqlite:///{tmp_path / name}.db"
    open_ledger(url).close()
    return url


def test_everything_arrives_once(laptop: str, team: str) -> None:
    done = push(laptop, team)
    assert (done.known, done.conflicts, done.problems, done.left) == (0, 0, [], 0)
    here, there = content(laptop), content(team)
    home = homes.home_id()
    assert {row[-1] for row in here["execs"]} == {home}
    assert done.new == len(here["receipts"])
    assert there == here
    again = push(laptop, team)
    assert (again.new, again.known, again.conflicts, again.sessions, again.execs) == (0, 0, 0, 0, 0)
    assert content(team) == here
    with open_ledger(team) as ledger:
        assert ledger.verify() == []


def test_usage_adds_up_without_the_files(laptop: str, team: str) -> None:
    push(laptop, team)
    with open_ledger(laptop) as here, open_ledger(team) as there:
        for by in ("daily", "session", "model", "task", "total"):
            assert there.usage_report(by, timezone="UTC") == here.usage_report(by, timezone="UTC")
        assert there.search("login").hits == ()
        assert there.text_kept() == "none"
    assert rows_of(team, "SELECT count(*) FROM archive")[0][0] == 0


def test_the_archive_goes_when_asked_for(laptop: str, team: str) -> None:
    push(laptop, team)
    done = push(laptop, team, archive=True)
    assert done.pieces
    assert done.passages
    with open_ledger(laptop) as here, open_ledger(team) as there:
        session = next(each.id for each in here.sessions(all=True) if each.id.startswith("codex:"))
        said = [(entry.role, entry.text) for entry in here.transcript(session)]
        assert [(entry.role, entry.text) for entry in there.transcript(session)] == said != []
        wanted = [(hit.session, hit.turn, hit.snippet) for hit in here.search("login OR zone").hits]
        assert sorted((hit.session, hit.turn, hit.snippet) for hit in there.search("login OR zone").hits) == sorted(
            wanted
        )
        assert there.text_kept() == "all"
    again = push(laptop, team, archive=True)
    assert (again.pieces, again.passages) == (0, 0)


def test_sources_of_another_ledger_are_not_read_there(laptop: str, team: str) -> None:
    """Its files may not be on this machine, or be others under the same path."""
    push(laptop, team)
    with open_ledger(team) as ledger:
        assert ledger._store.imports.sources() == []


def test_the_driver_stays_at_home(laptop: str, team: str) -> None:
    push(laptop, team)
    with open_ledger(laptop) as here, open_ledger(team) as there:
        mine, told = here.driver("session_work"), there.driver("session_work")
        assert mine is not None
        assert mine.exec_id is not None
        assert told is not None
        assert (told.exec_id, told.provider_exec_id) == (None, None)
        assert (told.generation, told.provider_generation) == (mine.generation, mine.provider_generation)
        assert there.connection("session_work") is None or there.process("session_work") is None


def test_an_open_request_is_for_the_driver_here_alone(laptop: str, team: str) -> None:
    push(laptop, team)
    with open_ledger(laptop) as here, open_ledger(team) as there:
        (waiting,) = [each for each in here.requests("session_work") if each.state == "queued"]
        assert [each.text for each in there.requests("session_work")] == ["left"]
        here.settle_request(waiting.id, "refused", "too late")
        here.push_to(team)
        assert [each.state for each in there.requests("session_work")] == ["uncertain", "refused"]


def test_what_is_filled_later_follows(laptop: str, team: str) -> None:
    with open_ledger(laptop) as here:
        here.record("session_work", "thread-w", "foreign", "started", {})
    push(laptop, team)
    with open_ledger(laptop) as here:
        driver = here.driver("session_work")
        assert driver is not None
        assert driver.exec_id is not None
        here.accept_turn("session_work", driver, "request-2", "late")
        here.record_turn_origin("session_work", "thread-w", "foreign", 1, driver.exec_id)
        here.end_exec(driver.exec_id, "interrupted", exit_code=130)
        here.rename_session("session_work", "By hand")
        session = here.session("session_work")
        assert session is not None
        here.complete_session(session.id, session.captured)
    done = push(laptop, team)
    assert (done.new, done.conflicts) == (0, 0)
    assert content(team) == content(laptop)
    with open_ledger(laptop) as here:
        here.reopen_session("session_work")
    push(laptop, team)
    assert content(team) == content(laptop)
    with open_ledger(team) as ledger:
        assert ledger.verify() == []


def test_a_new_input_becomes_the_current_one(laptop: str, team: str) -> None:
    push(laptop, team)
    with open_ledger(laptop) as here:
        session = here.session("session_work")
        assert session is not None
        new = here.replace_input(session.id, session.captured, model="other")
        here.publish_input(session.id, new.captured)
    push(laptop, team)
    with open_ledger(team) as there:
        session = there.session("session_work")
        assert session is not None
        assert (session.artifact_key, session.model) == (new.artifact_key, "other")
    assert content(team) == content(laptop)


# --- conflicts


def test_a_snapshot_that_differs_stays_and_is_kept_beside(laptop: str, team: str) -> None:
    with open_ledger(team) as there:
        there.create_session(
            id="session_work", artifact_key="0" * 32, cwd="/there", title="There", title_source="human"
        )
        there.record("session_work", "thread-w", "turn-w", "completed", {"status": "failed"})
    done = push(laptop, team)
    assert [(each.kind, "completed" in each.detail) for each in done.problems if "row" in each.where] == [
        ("conflict", True)
    ]
    with open_ledger(team) as there:
        rows = there.history("session_work")
        assert [row.payload for row in rows if row.kind == "completed" and row.turn == "turn-w"] == [
            {"status": "failed"}
        ]
        (kept,) = [row for row in rows if row.kind == "observed" and "conflict:completed" in row.payload["source"]]
        assert kept.payload["evidence"]["payload"] == {"status": "completed"}
        session = there.session("session_work")
        assert session is not None
        assert (session.title, session.artifact_key) == ("There", "0" * 32)
    assert push(laptop, team).new == 0


def test_an_end_that_a_file_tells_in_other_words_is_known(laptop: str, team: str) -> None:
    with open_ledger(laptop) as here:
        session = next(each.id for each in here.sessions(all=True) if each.id.startswith("codex:"))
        turn = next(row for row in here.history(session) if row.kind == "completed")
        thread = turn.thread
    with open_ledger(team) as there:
        there.create_session(id=session, cwd="/home/me/app", provider="codex")
        assert thread is not None
        assert turn.turn is not None
        there.record(session, thread, turn.turn, "completed", {"status": "completed", "told": "by wire"})
    done = push(laptop, team)
    assert [each for each in done.problems if "completed" in each.detail] == []


def test_an_observation_that_differs_is_kept_beside(tmp_path: Path, team: str) -> None:
    laptop = empty(tmp_path, "laptop")
    for url, said in ((team, "there"), (laptop, "here")):
        with open_ledger(url) as ledger:
            ledger.create_session(id="s", artifact_key="1" * 32, cwd="/f", created_at=1)
            ledger.retain("s", Observation("1" * 32, "terminal.json", 1, {"said": said}))
    done = push(laptop, team)
    assert done.conflicts == 1
    with open_ledger(team) as there:
        found = {row.payload["source"]: row.payload["evidence"] for row in there.history("s") if row.kind == "observed"}
    assert found.pop("terminal.json") == {"said": "there"}
    assert list(found.values()) == [{"said": "here"}]


def test_another_end_of_a_process_is_reported(tmp_path: Path, team: str) -> None:
    laptop = empty(tmp_path, "laptop")
    for url, outcome in ((team, "failed"), (laptop, "succeeded")):
        with open_ledger(url) as ledger:
            ledger.start_exec(id="e", trace_id="t")
            ledger.end_exec("e", outcome)
    done = push(laptop, team)
    assert [each.where for each in done.problems] == ["exec e"]
    assert rows_of(team, "SELECT outcome FROM execs") == [("failed",)]


def test_a_title_that_both_changed_stays_there(laptop: str, team: str) -> None:
    push(laptop, team)
    for url, title in ((laptop, "here"), (team, "there")):
        with open_ledger(url) as ledger:
            ledger.rename_session("session_work", title)
    done = push(laptop, team)
    assert [each.detail.partition(" differs")[0] for each in done.problems] == ["its title"]
    with open_ledger(team) as there:
        session = there.session("session_work")
        assert session is not None
        assert session.title == "there"
    assert push(laptop, team).problems == []


def test_what_only_they_changed_stays(laptop: str, team: str) -> None:
    push(laptop, team)
    with open_ledger(team) as there:
        there.rename_session("session_work", "there")
    with open_ledger(laptop) as here:
        talk(here, "session_work", "more", thread="thread-w")
    assert push(laptop, team).conflicts == 0
    with open_ledger(team) as there:
        session = there.session("session_work")
        assert session is not None
        assert session.title == "there"


def test_a_ledger_is_not_pushed_into_itself(laptop: str) -> None:
    with pytest.raises(ConflictError, match="same ledger"):
        push(laptop, laptop)


def test_text_that_postgresql_cannot_hold_loses_nothing_else(laptop: str, tmp_path: Path) -> None:
    team = new_ledger("postgres", tmp_path)
    rows_of(
        laptop,
        "INSERT INTO session_events (session_id, kind, receipt_key, observed_at, payload)"
        " VALUES ('session_work', 'observed', 'a' || char(0), 1, '{}')",
    )
    done = push(laptop, team)
    assert [each.kind for each in done.problems] == ["unstorable"]
    assert done.new == len(content(laptop)["receipts"]) - 1


# --- work


def test_the_same_work_under_two_ids_is_one(tmp_path: Path, team: str) -> None:
    laptop = empty(tmp_path, "laptop")
    for url, tag in ((team, "there"), (laptop, "here")):
        with open_ledger(url) as ledger:
            wave = ledger.create_wave("area", repo="/r", id=f"wave-{tag}")
            project = ledger.create_project(wave.id, external_id="lin-1", id=f"project-{tag}")
            ledger.create_task(project.id, external_id="issue-1", identifier="P-1", id=f"task-{tag}")
            ledger.create_session(id=f"s-{tag}", cwd="/f", task_id=f"task-{tag}")
            talk(ledger, f"s-{tag}", "1")
    for _ in range(2):
        assert push(laptop, team).problems == []
    assert {row[1] for row in content(team)["work"]} == {"wave-there", "project-there", "task-there"}
    with open_ledger(team) as there:
        session = there.session("s-here")
        assert session is not None
        assert (session.task_id, session.wave_id) == ("task-there", "wave-there")
        assert {row.task_id for row in there.history("s-here") if row.kind == "started"} == {"task-there"}
        assert there.verify() == []
    with open_ledger(team) as there:
        there.retire_work("wave", "wave-there")
    with open_ledger(laptop) as here:
        talk(here, "s-here", "2")
    assert push(laptop, team).problems == []
    with open_ledger(team) as there:
        assert {row.task_id for row in there.history("s-here") if row.kind == "started"} == {"task-there"}


def test_retired_work_is_retired_there(laptop: str, team: str) -> None:
    push(laptop, team)
    with open_ledger(laptop) as here:
        here.retire_work("wave", "wave-1")
    push(laptop, team)
    assert content(team)["work"] == content(laptop)["work"]


def test_where_a_task_is_worked_on_stays_at_home(laptop: str, team: str, tmp_path: Path) -> None:
    with open_ledger(laptop) as here:
        here.set_task_worktree("task-1", tmp_path)
    push(laptop, team)
    with open_ledger(team) as there:
        task = there.task("task-1")
        assert task is not None
        assert task.worktree is None


# --- homes and clocks


def test_two_homes_are_told_apart(tmp_path: Path, team: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for name in ("one", "two"):
        live_in(tmp_path / name, monkeypatch)
        url = empty(tmp_path, name)
        with open_ledger(url) as ledger:
            ledger.start_exec(id=f"e-{name}")
            talk(ledger, ledger.create_session(id=f"s-{name}", cwd="/f").id, "1")
        found.add(push(url, team).home)
    assert len(found) == 2
    with open_ledger(team) as there:
        one, two = there.session("s-one"), there.session("s-two")
        assert one is not None
        assert two is not None
        assert {one.home_id, two.home_id} == found
        assert {each.home_id for each in there.execs()} == found
    assert {row[0] for row in rows_of(team, "SELECT id FROM homes")} == found


def test_a_cloned_machine_is_another_home_and_says_so(
    tmp_path: Path, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop = empty(tmp_path, "laptop")
    first = push(laptop, team)
    assert (first.notes, first.home) == ([], homes.home_id())
    monkeypatch.setattr(process, "machine_of", lambda boot: "another")
    second = push(laptop, team)
    assert second.home != first.home
    assert first.home is not None
    assert [first.home in note for note in second.notes] == [True]
    assert push(laptop, team).notes == []


def test_rows_from_before_there_were_homes_are_of_the_home_of_their_file(laptop: str, team: str) -> None:
    rows_of(laptop, "UPDATE execs SET home_id = NULL")
    rows_of(laptop, "UPDATE agent_sessions SET home_id = NULL")
    push(laptop, team)
    assert {row[-1] for row in content(team)["execs"]} == {homes.home_id()}


def test_a_clock_that_is_off_is_told_of_and_times_stay(tmp_path: Path) -> None:
    team, laptop = new_ledger("postgres", tmp_path), empty(tmp_path, "laptop")
    with open_ledger(laptop, now=lambda: 5_000) as here:
        talk(here, here.create_session(id="s", cwd="/f").id, "1")
        done = here.push_to(team)
    assert len(done.notes) == 1
    assert "behind the server's" in done.notes[0]
    with open_ledger(team) as there:
        assert {row.observed_at for row in there.history("s")} == {5_000}
    with open_ledger(laptop) as here:
        assert here.push_to(team).notes == []


# --- restored ledgers


@pytest.mark.parametrize("which", ["target", "source"])
def test_after_a_restore_everything_is_told_again(tmp_path: Path, laptop: str, which: str) -> None:
    (tmp_path / "team").mkdir()
    team = new_ledger("sqlite", tmp_path / "team")
    push(laptop, team)
    restored = Path((team if which == "target" else laptop).removeprefix("sqlite:///"))
    backup = tmp_path / "backup.db"
    with open_ledger(f"sqlite:///{restored}") as ledger:
        ledger.backup(backup)
    with open_ledger(laptop) as here:
        here.rename_session("session_work", "Later")
        talk(here, "session_work", "later", thread="thread-w")
    push(laptop, team)
    backup.rename(restored)
    with open_ledger(laptop) as here:
        talk(here, "session_work", "latest", thread="thread-w")
    done = push(laptop, team)
    assert done.known
    if which == "target":
        assert content(team) == content(laptop)
    else:
        held = set(map(canonical_row, content(team)["receipts"]))
        assert set(map(canonical_row, content(laptop)["receipts"])) <= held


def canonical_row(row: tuple[Any, ...]) -> str:
    return canonical(list(row))


def test_a_role_that_only_appends_may_be_pushed_to(laptop: str) -> None:
    from tests import postgres_server
    from turnlog.ledger import postgres_schema

    server = postgres_server.shared()
    name = server.new_database()
    open_ledger(server.url(name)).close()
    if not server.sql("SELECT 1 FROM pg_roles WHERE rolname = 'turnlog_writer'", database="postgres"):
        server.sql("CREATE ROLE turnlog_writer LOGIN", database="postgres")
    grants = Path(postgres_schema.__file__).with_name("sql") / "postgres" / "roles" / "writer.sql"
    server.sql(grants.read_text(encoding="utf-8"), database=name)
    assert push(laptop, server.url(name, "turnlog_writer"), archive=True).problems == []
    with open_ledger(laptop) as here:
        here.rename_session("session_work", "Later")
        here.retire_work("task", "task-1")
        here.import_histories(provider="codex", roots=[Path(laptop.removeprefix("sqlite:///")).parent / "codex"])
    assert push(laptop, server.url(name, "turnlog_writer")).problems == []
    assert content(server.url(name)) == content(laptop)


def test_a_copy_can_be_pushed_to(laptop: str, team: str) -> None:
    """Everything is known there but what came since."""
    with open_ledger(laptop) as here:
        here.copy_to(team)
        talk(here, "session_work", "more", thread="thread-w")
        receipts = sum(1 for _ in content(laptop)["receipts"])
        done = here.push_to(team)
        assert (done.new, done.known, done.conflicts) == (4, receipts - 4, 0)


def test_a_postgresql_ledger_can_be_pushed(laptop: str, tmp_path: Path) -> None:
    server, team = new_ledger("postgres", tmp_path), empty(tmp_path, "team")
    with open_ledger(laptop) as ledger:
        ledger.copy_to(server)
    assert push(server, team).problems == []
    assert content(team) == content(laptop)
    with open_ledger(server) as ledger:
        talk(ledger, "session_work", "more", thread="thread-w")
    done = push(server, team)
    assert (done.new, done.known) == (4, 0)
    assert content(team) == content(server)


# --- pruned conversations


def imported(url: str) -> str:
    """Return a conversation with usage that was imported."""
    with open_ledger(url) as ledger:
        return next(each.id for each in ledger.sessions(all=True) if each.id == f"codex:{histories.MAIN}")


def total(url: str) -> Any:
    with open_ledger(url) as ledger:
        found = ledger.usage_report("total", timezone="UTC").totals
        return found.tokens, found.calls


def test_what_was_pruned_before_it_was_told_counts_once(laptop: str, team: str) -> None:
    wanted = total(laptop)
    with open_ledger(laptop) as here:
        here.prune_session(imported(laptop))
    assert push(laptop, team).problems == []
    assert total(team) == total(laptop) == wanted
    assert content(team) == content(laptop)


def test_what_was_pruned_after_it_was_told_counts_once(laptop: str, team: str) -> None:
    push(laptop, team)
    wanted = total(laptop)
    with open_ledger(laptop) as here:
        here.prune_session(imported(laptop))
    assert {each.kind for each in push(laptop, team).problems} == {"pruned"}
    assert total(team) == wanted


def test_what_was_pruned_there_does_not_come_back(laptop: str, team: str) -> None:
    push(laptop, team)
    wanted = total(laptop)
    session = imported(laptop)
    with open_ledger(team) as there:
        there.prune_session(session)
        left = len(there.history(session))
    rows_of(laptop, "DELETE FROM pushed")  # everything is told again
    push(laptop, team)
    assert total(team) == wanted
    with open_ledger(team) as there:
        assert len(there.history(session)) == left
