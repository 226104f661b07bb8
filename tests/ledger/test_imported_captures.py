"""The input of an imported conversation: captured when it was imported, listed by when it began."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.intake.plain import READER, call, line
from tests.ledger.moving_scenes import live_in, new_ledger, own_home, rows_of
from tests.migration.test_sqlite_schema import build
from turnlog import open_ledger
from turnlog.intake.importer import import_sources
from turnlog.ledger import open_store
from turnlog.ledger.import_conversations import NewConversation, import_key
from turnlog.ledger.import_facts import Told

__all__ = ["own_home"]

DERIVED = "SELECT artifact_key, observed_at FROM captures ORDER BY seq"
CAPTURED = "SELECT observed_at FROM session_events WHERE kind = 'captured' ORDER BY seq"
KEY = import_key("claude:a")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (tmp_path / "ledger").mkdir()
    return new_ledger(request.param, tmp_path / "ledger")


def write(folder: Path, name: str, *lines: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_bytes(b"".join(each + b"\n" for each in lines))
    return path


def take(url: str, *roots: Path, now: int = 5_000) -> None:
    store = open_store(url, now=lambda: now)
    try:
        for root in roots:
            import_sources(store, [READER], roots=[root], variables={})
    finally:
        store.close()


def imported(url: str, folder: Path) -> None:
    """Import a conversation whose later file comes first."""
    later = write(
        folder / "x", "later", line("a", "t2", "started", at=900, cwd="/later"), call("a", "t2", "m2", at=910)
    )
    earlier = write(
        folder / "y", "earlier", line("a", "t1", "started", at=400, cwd="/src"), call("a", "t1", "m1", at=410)
    )
    take(url, later.parent, now=5_000)
    assert rows_of(url, DERIVED) == [(KEY, 900)]
    take(url, earlier.parent, now=6_000)


def test_a_file_that_tells_of_an_earlier_beginning_moves_the_list_and_not_the_capture(url: str, tmp_path: Path) -> None:
    imported(url, tmp_path)
    assert rows_of(url, DERIVED) == [(KEY, 400)]
    assert rows_of(url, CAPTURED) == [(5_000,)]
    with open_ledger(url) as ledger:
        assert ledger.verify() == []
        [listed], _ = ledger.recent_inputs(since=0)
        assert (listed.observed_at, listed.worktree, listed.model) == (400, "/src", None)


def test_an_imported_input_answers_when_its_conversation_was_adopted(url: str, tmp_path: Path) -> None:
    imported(url, tmp_path)
    with open_ledger(url) as ledger:
        exec_id = ledger.start_exec().id
        session = ledger.session("claude:a")
        assert session is not None
        adopted = ledger.replace_input(session.id, session.captured, cwd="/new", model="m-new", exec_id=exec_id)
        history = ledger.input_history(KEY)
        assert history is not None
        assert (history.observed_at, history.worktree, history.model, history.harness) == (400, "/src", "m", "claude")
        new = ledger.input_history(adopted.artifact_key)
        assert new is not None
        assert (new.worktree, new.model) == ("/new", "m-new")
        assert new.observed_at > 1_700_000_000_000
        assert ledger.verify() == []


def test_what_an_input_was_imported_from_stays_when_another_provider_goes_on(url: str, tmp_path: Path) -> None:
    imported(url, tmp_path)
    with open_ledger(url) as ledger:
        exec_id = ledger.start_exec().id
        driver = ledger.claim_driver("claude:a", None, exec_id)
        ledger.hand_over("claude:a", driver, "codex")
        assert ledger.verify() == []
    assert rows_of(url, DERIVED) == [(KEY, 400)]


def test_what_turnlog_began_itself_is_listed_by_its_capture(url: str) -> None:
    with open_ledger(url) as ledger:
        session = ledger.create_session(id="session_x", cwd="/f", provider="claude")
        rows_of(url, "UPDATE agent_sessions SET created_at = 1")
        assert rows_of(url, DERIVED) == rows_of(url, "SELECT receipt_key, observed_at FROM session_events")
        assert rows_of(url, DERIVED)[0][1] > 1
        assert session.id == "session_x"
        assert ledger.verify() == []


def test_a_ledger_of_before_is_refolded_and_keeps_its_receipts(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    build(path, 10)
    url = f"sqlite:///{path}"
    payload = '{"artifact_key":"k","cwd":"/first","model":"m","provider":"claude"}'
    for name, exec_id in (("claude:a", "NULL"), ("session_b", "'e'")):
        rows_of(
            url,
            "INSERT INTO agent_sessions (id, title, title_source, kind, interactive, created_at, input_published, cwd,"
            f" provider) VALUES ('{name}', 't', 'generated', 'conversation', 1, 100, 0, '/first', 'claude')",
        )
        rows_of(
            url,
            "INSERT INTO session_events (session_id, kind, receipt_key, exec_id, observed_at, payload)"
            f" VALUES ('{name}', 'captured', '{name}', {exec_id}, 300, '{payload}')",
        )
        rows_of(
            url,
            "UPDATE agent_sessions SET current_capture = (SELECT seq FROM session_events WHERE receipt_key = id)"
            f" WHERE id = '{name}'",
        )
    assert rows_of(url, DERIVED) == [("claude:a", 300), ("session_b", 300)]
    with open_ledger(url) as ledger:
        assert [each for each in ledger.verify() if each.kind == "drift"] == []
    assert rows_of(url, DERIVED) == [("claude:a", 100), ("session_b", 300)]
    assert rows_of(url, CAPTURED) == [(300,), (300,)]


def test_two_machines_that_imported_one_conversation_do_not_contradict(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (name, now) in enumerate((("one", 5_000), ("two", 7_000))):
        laptop = f"sqlite:///{tmp_path}/{name}.db"
        live_in(tmp_path / f"home-{name}", monkeypatch)
        lines = [line("a", "t1", "started", at=400, cwd="/src"), call("a", "t1", "m1", at=410)]
        take(laptop, write(tmp_path / name, "a", *lines[number:], *lines[:number]).parent, now=now)
        with open_ledger(laptop) as ledger:
            done = ledger.push_to(url)
        assert [each for each in done.problems if each.kind == "conflict"] == []
    assert rows_of(url, CAPTURED) == [(5_000,)]
    assert rows_of(url, DERIVED) == [(KEY, 400)]


# --- facts that several sources tell


TOLD = (
    Told(at=500, first=500, cwd="/b", version="2", title="second prompt"),
    Told(at=100, first=100, cwd="/a", version="1", title="first prompt", parent="z", relation="continuation"),
    Told(title="made", title_rank=1, title_at=900, parent="p", parent_turn="t2", relation="subagent"),
    Told(title="made before", title_rank=1, title_at=800, parent="p", parent_turn="t1", relation="subagent"),
    Told(root="/repo", parent="a", relation="fork"),
)


@pytest.mark.parametrize("order", list(itertools.permutations(range(len(TOLD))))[::7])
@pytest.mark.parametrize("cut", [0, 2])
def test_facts_of_several_sources_come_to_the_same_in_any_order(
    tmp_path: Path, order: tuple[int, ...], cut: int
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    store = open_store(url, now=lambda: 5_000)
    with store.imports.batch() as tx:
        new = NewConversation(provider="claude", native="a", at=5_000, cwd="", model=None, interactive=True)
        [found] = tx.create([new])
        for part in (order[:cut], order[cut:]):
            tx.learn([(found, TOLD[number]) for number in part], lambda cwd, root: root or cwd)
    store.close()
    told = rows_of(
        url,
        "SELECT began_at, cwd, root, version, title, title_at, parent_id, parent_turn, relation FROM native_sessions",
    )
    assert told == [(100, "/a", "/repo", "1", "made", 900, "p", "t1", "subagent")]
    shown = rows_of(url, "SELECT created_at, title, cwd, repo, interactive FROM agent_sessions")
    assert shown == [(100, "made", "/a", "/repo", 0)]
