"""Ledgers that hold a little of everything, and what of a ledger must be the same after it was moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import postgres_server
from tests.surfaces import histories, scenes
from turnlog import Ledger, open_ledger
from turnlog.ledger import homes
from turnlog.ledger.copy_tables import TABLES
from turnlog.ledger.copying import pages

BEGIN = 1_770_000_000_000


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test writes into the user's folders."""
    live_in(tmp_path / "home", monkeypatch)
    yield
    homes._read_or_make.cache_clear()


def live_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be at another home from now on."""
    monkeypatch.setattr(homes, "folder", lambda: folder)
    homes._read_or_make.cache_clear()


def furnish(folder: Path) -> str:
    """Make a ledger with driven and imported conversations, work, requests, an archive; return its URL."""
    url = scenes.build(folder / "ledger.db").url
    histories.write(folder / "codex")
    histories.read(url, folder / "codex")
    with open_ledger(url) as ledger:
        area = ledger.create_wave("area", repo="/home/me/project", id="wave-1")
        below = ledger.create_wave("below", repo="/home/me/project", parent_id=area.id, id="wave-0")
        project = ledger.create_project(below.id, external_id="lin-1", slug="login", id="project-1")
        task = ledger.create_task(project.id, external_id="issue-1", identifier="PROOF-1", title="Fix it", id="task-1")
        ledger.add_task_pr(task.id, external_id="https://example.test/pr/1", identifier="PR-1")
        session = ledger.create_session(id="session_work", cwd="/home/me/project", provider="codex", task_id=task.id)
        driver = scenes.claimed(ledger, session.id, "thread-w")
        assert driver.exec_id is not None
        ledger.intend_turn(session.id, driver, None, "request-1", {"text": "begin"})
        ledger.accept_turn(session.id, driver, "request-1", "turn-w")
        ledger.record_turn_origin(session.id, "thread-w", "turn-w", driver.provider_generation, driver.exec_id)
        ledger.record(session.id, "thread-w", "turn-w", "completed", {"status": "completed"})
        ledger.settle_request(ledger.request(session.id, "steer", "left"), "uncertain")
        ledger.request(session.id, "interrupt")
        new = ledger.replace_input(session.id, session.captured)
        ledger.publish_input(session.id, new.captured)
        ledger.intend_turn(session.id, driver, "thread-w", "request-2", {"text": "more"})
    return url


def new_ledger(kind: str, folder: Path) -> str:
    """Return the URL of a ledger that nobody has made yet."""
    if kind == "sqlite":
        return f"sqlite:///{folder / f'{kind}.db'}"
    server = postgres_server.shared()
    return server.url(server.new_database())


def tables(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row that a copy must have."""
    with open_ledger(url) as ledger, ledger._store._backend.read() as tx:
        return {table.read: [row for page in pages(tx, table) for row in page] for table in TABLES}


def answers(url: str) -> dict[str, Any]:
    """Return what people ask a ledger."""
    with open_ledger(url) as ledger:
        sessions = ledger.sessions(all=True, limit=None)
        keys = [key for session in sessions for key in ledger.session_inputs(session.id)]
        return {
            "usage": [ledger.usage_report(by, timezone="UTC") for by in ("daily", "session", "model", "task", "total")],
            "inputs": ledger.inputs(),
            "recent": ledger.recent_inputs(),
            "histories": [ledger.history(session.id) for session in sessions],
            "sessions": sessions,
            "answers": [ledger.final_answer(key) for key in keys],
            "records": [ledger.input_history(key) for key in keys],
            "search": [(hit.session, hit.turn, hit.snippet) for hit in ledger.search("login zone OR done").hits],
            "said": [(entry.role, entry.text) for session in sessions for entry in ledger.transcript(session.id)],
            "work": [(session.id, ledger.session_work(session.id)) for session in sessions],
        }


_RECEIPTS = """
SELECT e.session_id, coalesce(e.provider_thread, ''), coalesce(e.provider_turn, ''), e.kind, e.receipt_key,
  e.provider_generation, e.exec_id, e.task_id, e.wave_id, e.observed_at, e.payload, e.driver_generation, c.receipt_key,
  s.path, p."offset", p.call
FROM session_events e LEFT JOIN session_events c ON c.seq = e.captured_event
LEFT JOIN receipt_places p ON p.seq = e.seq LEFT JOIN sources s ON s.id = p.source_id
"""
_CONTENT = {
    "receipts": _RECEIPTS,
    "execs": "SELECT id, trace_id, parent_exec_id, command, started_at, completed_at, outcome, home_id FROM execs",
    "work": "SELECT 'wave', id, name, retired_at FROM waves UNION ALL SELECT 'project', id, external_project_id,"
    " retired_at FROM projects UNION ALL SELECT 'task', id, issue_identifier, started_at FROM tasks"
    " UNION ALL SELECT 'pr', external_pr_id, task_id, created_at FROM task_prs",
    "sessions": "SELECT s.id, s.title, s.title_source, s.created_at, s.completed_at, s.cwd, s.repo, s.provider,"
    " s.model, s.task_id, s.wave_id, s.input_published, s.provider_thread, s.home_id, c.receipt_key"
    " FROM agent_sessions s LEFT JOIN session_events c ON c.seq = s.current_capture",
    "requests": "SELECT id, session_id, kind, text, state, created_at FROM requests WHERE settled_at IS NOT NULL",
    "calls": "SELECT call, session_id, at, rivals, weight, owned FROM calls",
    "natives": "SELECT session_id, provider, native_id, began_at, cwd, title, parent_id, relation FROM native_sessions",
    "aliases": "SELECT provider, alias, session_id FROM session_aliases",
    "told": "SELECT x.session_id, s.path FROM session_sources x JOIN sources s ON s.id = x.source_id",
    "problems": 'SELECT s.path, p."offset", p.kind FROM source_problems p JOIN sources s ON s.id = p.source_id',
}


def content(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return what a ledger holds, named without any number of its own, in an order of its own."""
    found = {name: rows_of(url, statement) for name, statement in _CONTENT.items()}
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def rows_of(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run one statement beside the ledger, and commit it."""
    if url.startswith("sqlite:"):
        from tests.ledger.sqlite_setup import raw

        with raw(Path(url.removeprefix("sqlite:///"))) as connection:
            return [tuple(row) for row in connection.execute(statement)]
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


def talk(ledger: Ledger, session: str, turn: str, *, thread: str = "t", n: int = 1) -> None:
    """Record one whole turn."""
    ledger.record(session, thread, turn, "started", {})
    ledger.record(session, thread, turn, "usage", {"provider": "opencode", "message": {"id": turn, "n": n}})
    ledger.record(session, thread, turn, "output", {"text": f"{turn} {n}"})
    ledger.record(session, thread, turn, "completed", {"status": "completed"})
