"""A home that drives in the team's ledger and pushes what it found in files: one conversation, counted once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ledger.moving_scenes import content, new_ledger, own_home, rows_of
from tests.surfaces import histories
from tests.surfaces.scenes import claimed
from turnlog import open_ledger
from turnlog.ledger.pushing import Pushed

__all__ = ["own_home"]

SESSION = "session_driven"
IMPORTED = f"codex:{histories.MAIN}"
TOTAL = {"inputTokens": 1_000, "cachedInputTokens": 200, "outputTokens": 50, "reasoningOutputTokens": 10}


def drive(url: str) -> None:
    """Drive the first of the two turns that the files tell of, for a task."""
    with open_ledger(url) as ledger:
        wave = ledger.create_wave("area", repo="/home/me/app")
        project = ledger.create_project(wave.id, external_id="p")
        task = ledger.create_task(project.id, external_id="i", identifier="PROOF-1", id="task_1")
        session = ledger.create_session(
            id=SESSION, title="Mine", title_source="human", cwd="/home/me/app", provider="codex", task_id=task.id
        )
        driver = claimed(ledger, session.id, histories.MAIN)
        assert driver.exec_id is not None
        ledger.record_turn_origin(session.id, histories.MAIN, "turn-1", driver.provider_generation, driver.exec_id)
        ledger.record(session.id, histories.MAIN, "turn-1", "usage", {"total": TOTAL, "last": TOTAL})
        ledger.record(session.id, histories.MAIN, "turn-1", "completed", {"status": "completed"})
        ledger.finish_driver(session.id, driver, "completed")


def laptop_of(folder: Path) -> str:
    histories.write(folder / "codex")
    url = f"sqlite:///{folder / 'laptop.db'}"
    histories.read(url, folder / "codex")
    return url


def push(source: str, target: str, *, archive: bool = False) -> Pushed:
    with open_ledger(source) as ledger:
        return ledger.push_to(target, archive=archive)


@pytest.fixture(params=["sqlite", "postgres"])
def team(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (tmp_path / "team").mkdir()
    url = new_ledger(request.param, tmp_path / "team")
    drive(url)
    return url


def told(url: str) -> dict[str, Any]:
    """What the ledger says of the conversation and of everything."""
    with open_ledger(url) as ledger:
        assert ledger.verify() == []
        return {
            "usage": [ledger.usage_report(by, timezone="UTC") for by in ("session", "task", "model", "total")],
            "receipts": [(e.turn, e.kind, e.payload, e.task_id) for e in ledger.history(SESSION) if e.turn],
            "sessions": sorted(each.id for each in ledger.sessions(all=True, limit=None)),
            "title": ledger.session(SESSION),
        }


def test_what_was_driven_there_counts_once(team: str, tmp_path: Path) -> None:
    laptop = laptop_of(tmp_path)
    done = push(laptop, team)
    assert (done.conflicts, done.problems, done.sessions) == (0, [], 1), "only the subagent's is a new one"
    with open_ledger(team) as ledger:
        total = ledger.usage_report("total", timezone="UTC").totals
        # Three turns of 1,000 tokens, 200 of them cached: the driven one, the one that only the files know, and the
        # subagent's. The second turn's running total is the first one's: it adds nothing.
        with open_ledger(laptop) as here:
            assert total.tokens == here.usage_report("total", timezone="UTC").totals.tokens
        assert ledger.session(IMPORTED) is None
        starts = {e.turn: (e.task_id, e.exec_id is None) for e in ledger.history(SESSION) if e.kind == "started"}
        assert starts == {"turn-1": ("task_1", False), "turn-2": ("task_1", True)}
        answer = [e.payload for e in ledger.history(SESSION) if e.kind == "output" and e.turn == "turn-2"]
        assert answer == [{"text": "All done."}]


def test_it_is_as_if_the_files_were_read_there(team: str, tmp_path: Path) -> None:
    push(laptop_of(tmp_path), team, archive=True)
    direct = f"sqlite:///{tmp_path / 'direct.db'}"
    drive(direct)
    histories.read(direct, tmp_path / "codex")
    wanted, found = told(direct), told(team)
    for name in ("usage", "receipts", "sessions"):
        assert found[name] == wanted[name]
    with open_ledger(team) as there, open_ledger(direct) as ledger:
        said = [(entry.role, entry.text) for entry in ledger.transcript(SESSION)]
        assert [(entry.role, entry.text) for entry in there.transcript(SESSION)] == said != []
    calls = "SELECT call, session_id, owned FROM calls ORDER BY call"
    assert rows_of(team, calls) == rows_of(direct, calls)


def test_again_changes_nothing_and_what_comes_later_follows(team: str, tmp_path: Path) -> None:
    laptop = laptop_of(tmp_path)
    push(laptop, team, archive=True)
    before = content(team)
    again = push(laptop, team, archive=True)
    assert (again.new, again.known, again.conflicts, again.sessions) == (0, 0, 0, 0)
    assert content(team) == before
    path = next((tmp_path / "codex").rglob(f"*{histories.MAIN}.jsonl"))
    more = histories.Rollout(histories.MAIN)
    more.turn("turn-3", "and now")
    more.answer("turn-3", "Now, too.")
    path.write_text(path.read_text() + "\n".join(more._lines[1:]) + "\n", encoding="utf-8")
    histories.read(laptop, tmp_path / "codex")
    push(laptop, team)
    with open_ledger(team) as ledger:
        assert {e.turn for e in ledger.history(SESSION) if e.kind == "started"} == {"turn-1", "turn-2", "turn-3"}
        assert ledger.session(IMPORTED) is None


def test_an_end_that_the_files_contradict_is_kept_beside(team: str, tmp_path: Path) -> None:
    laptop = laptop_of(tmp_path)
    with open_ledger(team) as ledger:
        ledger.record(SESSION, histories.MAIN, "turn-2", "completed", {"status": "failed"})
    done = push(laptop, team)
    assert (done.conflicts, done.problems[0].kind) == (1, "conflict")
    with open_ledger(team) as ledger:
        ends = [e.payload for e in ledger.history(SESSION) if e.kind == "completed" and e.turn == "turn-2"]
        assert ends == [{"status": "failed"}]
        beside = [e.payload.get("source", "") for e in ledger.history(SESSION) if e.kind == "observed"]
        assert [each for each in beside if each.startswith(f"conflict:completed:{histories.MAIN}:turn-2:")]


def test_a_conversation_that_was_told_before_stays_the_same(tmp_path: Path) -> None:
    laptop, url = laptop_of(tmp_path), f"sqlite:///{tmp_path / 'team.db'}"
    push(laptop, url)
    with open_ledger(url) as ledger:
        driver = claimed(ledger, IMPORTED, histories.MAIN)  # `resume` adopts it
        ledger.record(IMPORTED, histories.MAIN, "turn-9", "completed", {"status": "completed"})
        ledger.finish_driver(IMPORTED, driver, "completed")
    done = push(laptop, url)
    assert (done.new, done.conflicts) == (0, 0)
    with open_ledger(url) as ledger:
        assert len(ledger.sessions(all=True, limit=None)) == 2
