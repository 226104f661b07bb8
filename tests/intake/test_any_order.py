"""The order in which histories are imported leaves no trace: every table of the ledger is equal."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.intake.scenes import DOUBTFUL, SCENES
from tests.intake.whole import differences, whole
from tests.ledger.sqlite_setup import raw
from tests.postgres_server import PostgresSetup, shared
from turnlog import open_ledger
from turnlog.harness.claude.reader import READER as CLAUDE
from turnlog.harness.codex.reader import READER as CODEX
from turnlog.harness.opencode.reader import READER as OPENCODE
from turnlog.intake.importer import Imported, import_sources
from turnlog.ledger import open_store

READERS = (CLAUDE, CODEX, OPENCODE)


def take(ledger: Path, *roots: Sequence[Path], now: int = 5_000, keep: bool = True) -> list[Imported]:
    """Import some roots after the others."""
    store = open_store(f"sqlite:///{ledger}", now=lambda: now)
    try:
        return [import_sources(store, READERS, roots=each, variables={}, keep=keep) for each in roots]
    finally:
        store.close()


def imported(ledger: Path, *roots: Sequence[Path], keep: bool = True) -> dict[str, list[str]]:
    """Import some roots after the others, and return all that the ledger holds then."""
    take(ledger, *roots, keep=keep)
    with open_ledger(f"sqlite:///{ledger}") as opened:
        assert [each for each in opened.verify() if each.kind != "conflict"] == []
        opened.usage_report("model", timezone="UTC")  # makes the roll-ups
    return whole(ledger)


def ask(ledger: Path, statement: str) -> list[tuple[Any, ...]]:
    with raw(ledger) as connection:
        return list(connection.execute(statement))


@pytest.mark.parametrize("scene", SCENES)
def test_files_one_by_one_in_any_order_make_the_ledger_that_all_at_once_make(tmp_path: Path, scene: str) -> None:
    files = SCENES[scene](tmp_path)
    once = imported(tmp_path / "once.db", files)
    assert once["session_events"]
    assert once["words"]
    for number, order in enumerate(itertools.permutations(files)):
        other = imported(tmp_path / f"{number}.db", *([each] for each in order))
        assert differences(once, other) == "", [each.name for each in order]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    scene=st.sampled_from(sorted(SCENES)),
    order=st.permutations(range(3)),
    cuts=st.sets(st.integers(1, 2)),
    data=st.data(),
)
def test_files_in_any_groups_and_again_make_the_same_ledger(
    tmp_path_factory: pytest.TempPathFactory, scene: str, order: list[int], cuts: set[int], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("groups")
    files = SCENES[scene](folder)
    chosen = [files[number] for number in order if number < len(files)]
    bounds = [0, *sorted(cut for cut in cuts if cut < len(chosen)), len(chosen)]
    groups = [chosen[start:end] for start, end in itertools.pairwise(bounds)]
    again = data.draw(st.lists(st.sampled_from(chosen), max_size=2))
    once = imported(folder / "once.db", files)
    assert differences(once, imported(folder / "other.db", *groups, *([each] for each in again))) == ""


def test_without_an_archive_a_source_is_read_again_from_its_file(tmp_path: Path) -> None:
    parent, child = SCENES["codex_base"](tmp_path)
    once = imported(tmp_path / "once.db", [parent, child], keep=False)
    assert differences(once, imported(tmp_path / "other.db", [child], [parent], keep=False)) == ""


def test_a_start_that_only_another_file_tells_is_a_gap_until_that_is_imported(tmp_path: Path) -> None:
    parent, child = SCENES["codex_base"](tmp_path)
    ledger = tmp_path / "ledger.db"
    told = []
    for file in (child, parent):
        [done] = take(ledger, [file])
        with open_ledger(f"sqlite:///{ledger}") as opened:
            row = opened.usage_report("total", timezone="UTC").totals
            told.append((done.new, row.tokens.input, {gap.kind: gap.count for gap in row.gaps}))
    assert told[0][1:] == (700, {"start_unknown": 1})  # its own response is sure
    assert told[1][1:] == (3550, {"witness_mismatch": 2})
    assert told[1][0] == 4 + 1  # the parent's receipts, and the child's call


def test_a_turn_that_only_the_parents_file_knows_for_a_copy_counts_once_in_any_order(tmp_path: Path) -> None:
    files = DOUBTFUL(tmp_path)
    sums = []
    for number, order in enumerate(itertools.permutations(files)):
        take(tmp_path / f"{number}.db", *([each] for each in order))
        with open_ledger(f"sqlite:///{tmp_path}/{number}.db") as opened:
            rows = opened.usage_report("session", timezone="UTC").rows
            sums.append({row.key: row.tokens.input for row in rows})
    assert sums == [{"codex:p": 9000, "codex:c": 500}] * 2


def test_an_import_is_captured_when_it_is_made_and_says_nothing_of_what_a_file_tells(tmp_path: Path) -> None:
    files = SCENES["claude_resumed"](tmp_path)
    ledger = tmp_path / "ledger.db"
    take(ledger, [files[2]], now=70)
    take(ledger, files, now=80)
    rows = ask(
        ledger, "SELECT session_id, observed_at, payload FROM session_events WHERE kind = 'captured' ORDER BY seq"
    )
    assert [(row[0][-1], row[1]) for row in rows] == [("3", 70), ("1", 80), ("2", 80)]
    for _, _, payload in rows:
        told = orjson.loads(payload)
        assert {name: value for name, value in told.items() if value is not None and name != "artifact_key"} == {
            "provider": "claude"
        }


def test_imported_conversations_are_listed_by_when_they_began(tmp_path: Path) -> None:
    files = SCENES["claude_resumed"](tmp_path)
    ledger = tmp_path / "ledger.db"
    take(ledger, *([each] for each in files), now=2_000_000_000_000)
    began = dict(ask(ledger, "SELECT id, created_at FROM agent_sessions"))
    assert dict(ask(ledger, "SELECT session_id, observed_at FROM captures")) == began
    with open_ledger(f"sqlite:///{ledger}") as opened:
        listed, _ = opened.recent_inputs(since=0)
        assert [each.observed_at for each in listed] == sorted(began.values(), reverse=True)
        assert {each.worktree for each in listed} == {"/home/dev/app", "/home/dev/other", "/elsewhere"}
        told = [each for each in opened.activity(since=0)[0] if each.kind == "provider_history_recorded"]
        assert {each.at for each in told} >= set(began.values())


POSTGRES = (
    "SELECT session_id, provider_thread, provider_turn, kind, receipt_key, observed_at, payload FROM session_events",
    (
        "SELECT session_id, began_at, cwd, root, model, version, title, title_at, parent_id, parent_turn, relation"
        " FROM native_sessions"
    ),
    "SELECT id, title, cwd, repo, model, created_at, interactive FROM agent_sessions",
    "SELECT session_id, observed_at, turns, last_completed_at FROM captures",
    (
        'SELECT e.session_id, e.provider_turn, e.kind, e.receipt_key, s.path, p."offset" FROM receipt_places p'
        " JOIN session_events e ON e.seq = p.seq JOIN sources s ON s.id = p.source_id"
    ),
    (
        'SELECT n.session_id, p.turn, p.role, p.at, s.path, p."offset", p.part, p.key FROM passages p'
        " JOIN native_sessions n ON n.id = p.native JOIN sources s ON s.id = p.source_id"
    ),
    "SELECT call, session_id, at, rivals, weight, owned FROM calls",
    "SELECT path, thread, read_to, lines, wants FROM sources",
)


POSTGRES_SCENES = ["claude_agents", "claude_reused", "claude_compacted", "codex_base", "codex_continued", "opencode"]


@pytest.mark.parametrize("scene", POSTGRES_SCENES)
def test_a_ledger_in_postgresql_is_the_same_in_any_order_too(tmp_path: Path, scene: str) -> None:
    files = SCENES[scene](tmp_path)
    setup = PostgresSetup(shared())
    found = []
    for order in (files, files[::-1]):
        url = setup.url()
        store = open_store(url, now=lambda: 5_000)
        for each in order:
            import_sources(store, READERS, roots=[each], variables={})
        store.close()
        found.append([sorted(map(repr, setup.raw_sql(statement))) for statement in POSTGRES])
        setup.server.wipe(setup.database)
    assert found[0] == found[1]
