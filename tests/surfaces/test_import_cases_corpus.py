"""Real and generated histories through the command line, where they are at hand (``TURNLOG_CORPUS``)."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.crash.test_import_crash import PROGRAM
from tests.ledger.children import child
from tests.ledger.sqlite_setup import raw
from tests.surfaces.conftest import Turnlog
from tests.surfaces.import_history import listing
from turnlog import open_ledger

CORPUS = Path(os.environ.get("TURNLOG_CORPUS", ""))
pytestmark = pytest.mark.skipif("TURNLOG_CORPUS" not in os.environ, reason="TURNLOG_CORPUS names no folder")

Take = Callable[..., Any]


@pytest.fixture
def take(turnlog_: Turnlog) -> Take:
    """Import places of the corpus; returns a report of them."""

    def report(*places: str, kind: str = "session", **more: str) -> Any:
        roots = [str(path) for place in places for path in sorted(CORPUS.glob(place))]
        assert roots
        done = turnlog_("import", *(word for root in roots for word in ("--root", root)), "--json")
        assert done.code in {0, 3}, done.err
        return turnlog_("usage", kind, "--no-import", "--json", "--timezone", "UTC", *more.values()).json

    return report


def own(report: Any) -> list[Any]:
    """The rows of conversations that are no subagents."""
    return [row for row in report["rows"] if "/" not in row["key"]]


def spent(row: Any) -> int:
    total: int = row["tokens"]["total_input"] + row["tokens"]["output"]
    return total


def test_real_claude_sessions_have_1138_requests_and_57_that_only_notes_tell(take: Take, turnlog_: Turnlog) -> None:
    report = take("claude/entireio+cli")
    assert (report["totals"]["calls"], spent(report["totals"])) == (1195, 92_235_891)
    counted = [row for row in own(report) if row["calls"]]
    # One request more than the 1 137 of whole lines stands behind another record on its line.
    assert (sum(row["calls"] for row in counted), sum(map(spent, counted))) == (1138, 89_123_603)
    models = {row["key"] for row in turnlog_("usage", "model", "--no-import", "--json").json["rows"]}
    assert "<synthetic>" not in models


def test_four_slices_of_one_session_are_one_session_of_four_sources(take: Take, turnlog_: Turnlog) -> None:
    folders = CORPUS.glob("claude/entireio+cli/projects/*/2.0.76-*")
    found = [str(each.relative_to(CORPUS)) for each in folders if any(each.glob("198393f2*.jsonl"))]
    report = take(*found)
    assert len(found) == 4
    (row,) = [row for row in own(report) if row["key"].startswith("claude:198393f2")]
    assert row["calls"] > 0
    receipts = [
        receipt["source"]
        for stream in turnlog_("usage", "explain", row["key"], "--json").json["streams"]
        for receipt in stream["receipts"]
    ]
    assert len({Path(each).parent.name for each in receipts}) == 4


def test_workflow_agents_are_four_children_and_their_journal_is_no_request(take: Take, turnlog_: Turnlog) -> None:
    report = take("claude/fayzan123+rungraph")
    children = [each for each in turnlog_("sessions", "--all", "--json").json["sessions"] if "/" in each["id"]]
    assert len(children) == 4
    assert not any(each["interactive"] for each in children)
    assert {row["key"] for row in report["rows"] if "/" in row["key"]} <= {each["id"] for each in children}


def test_session_ids_that_differ_in_every_line_make_no_more_sessions_than_files(take: Take) -> None:
    report = take("claude/fartypie-d+usage-dashboard")
    assert len([row for row in report["rows"] if row["calls"]]) <= 61


@pytest.mark.parametrize(
    "name",
    ["bom", "crlf", "invalid-utf8", "lone-surrogate", "nul-middle", "nul-tail", "truncated-tail", "utf8-cut-in-char"],
)
def test_damaged_copies_have_the_sums_of_the_whole(take: Take, name: str) -> None:
    totals = take(f"derived/claude-{name}.jsonl")["totals"]
    assert (totals["calls"], spent(totals)) == (4, 105_818)


def test_generated_codex_threads_come_to_what_the_model_reported(take: Take) -> None:
    known = orjson.loads((CORPUS / "codex/generated/ORACLE.json").read_bytes())["threads"]
    report = take("codex/generated/0.128.0-appserver", "codex/generated/0.140.0-appserver")
    rows = {row["key"].removeprefix("codex:"): row for row in report["rows"] if row["calls"]}
    expected = {name: each for name, each in known.items() if name in rows}
    assert len(expected) == len(rows) > 10
    for name, each in expected.items():
        told = rows[name]["tokens"]
        assert (rows[name]["calls"], told["total_input"], told["output"]) == (
            each["responses"],
            each["input"],
            each["output"],
        ), name


def test_a_real_codex_session_has_39_requests(take: Take) -> None:
    totals = take("codex/AcidicSoil+codex-session-view")["totals"]
    assert (totals["calls"], spent(totals)) == (39, 1_121_566)
    assert totals["gaps"] == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("MaxGhenis+logpile/replay-multisecond.jsonl", (5000, 3000, 500, 50)),
        ("MaxGhenis+logpile/counter-reset-epochs.jsonl", (1900, 1500, 160, 60)),
        ("MaxGhenis+logpile/fresh-same-second.jsonl", (3000, 2400, 120, 30)),
    ],
)
def test_published_sums_of_others(take: Take, name: str, expected: tuple[int, ...]) -> None:
    told = take(f"codex/{name}")["totals"]["tokens"]
    assert (told["total_input"], told["cache_read"], told["output"], told["reasoning"]) == expected


def test_opencode_forks_and_stores_count_once(take: Take) -> None:
    assert take("opencode/generated/1.18.33")["totals"]["tokens"]["input"] == 398_765


def test_messages_in_folder_and_database_are_a_union(take: Take) -> None:
    assert take("opencode/generated/1.1.65-migrated-1.2.1")["totals"]["calls"] == 20


def test_no_secret_of_a_store_is_shown(take: Take, turnlog_: Turnlog) -> None:
    take("opencode/fayzan123+rungraph")
    for row in turnlog_("sessions", "--all", "--json").json["sessions"]:
        assert "sk-ant-" not in turnlog_("export", row["id"], "--format", "md").out


TABLES = {
    "receipts": "SELECT session_id, provider_thread, provider_turn, kind, receipt_key, payload FROM session_events"
    " WHERE kind IN ('usage', 'output', 'completed', 'started')",
    "calls": "SELECT call, session_id, at, weight, owned FROM calls",
    "sources": "SELECT path, read_to, tail, lines FROM sources WHERE kind <> 'rows'",
    "bytes": "SELECT s.path, sum(a.size) FROM archive a JOIN sources s ON s.id = a.source_id WHERE s.kind <> 'rows'"
    " GROUP BY s.path",
    "passages": 'SELECT coalesce(p.key, s.path || p."offset"), p.part, p.role, p.turn, n.session_id FROM passages p'
    " JOIN sources s ON s.id = p.source_id JOIN native_sessions n ON n.id = p.native WHERE s.kind <> 'rows'",
}


def content(path: Path) -> dict[str, Any]:
    with raw(path) as connection:
        found: dict[str, Any] = {name: sorted(map(repr, connection.execute(sql))) for name, sql in TABLES.items()}
    with open_ledger(f"sqlite:///{path}") as ledger:
        assert {each.kind for each in ledger.verify()} <= {"conflict"}
        report = ledger.usage_report("session", timezone="UTC")
        found["usage"] = [(row.key, row.tokens, row.calls) for row in report.rows]
    return found


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Histories as programs leave them: no copies of the same file under other names."""
    folder = tmp_path_factory.mktemp("real")
    for name in ("claude/entireio+cli", "claude/fayzan123+rungraph", "codex/generated", "opencode/generated"):
        shutil.copytree(CORPUS / name, folder / name, symlinks=True)
    return folder


def files(folder: Path) -> list[Path]:
    return [*sorted(folder.rglob("*.jsonl*")), folder / "opencode"]


def imported(path: Path, *roots: Path) -> Path:
    with open_ledger(f"sqlite:///{path}") as ledger:
        ledger.import_histories(roots=roots)
    return path


@pytest.fixture(scope="module")
def whole(real: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = imported(tmp_path_factory.mktemp("whole") / "ledger.db", real)
    before = listing(real)
    first = content(path)
    assert content(imported(path, real)) == first
    assert listing(real) == before
    return first


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_halves_in_both_orders_make_the_same_ledger(
    tmp_path: Path, real: Path, whole: dict[str, Any], seed: int
) -> None:
    every = files(real)
    random.Random(seed).shuffle(every)
    halves = every[: len(every) // 2], every[len(every) // 2 :]
    for number, order in enumerate((halves, halves[::-1])):
        path = tmp_path / f"{number}.db"
        for half in order:
            imported(path, *half)
        for name, rows in content(path).items():
            assert rows == whole[name], name


def test_two_imports_at_once_make_the_same_ledger(tmp_path: Path, real: Path, whole: dict[str, Any]) -> None:
    path = tmp_path / "ledger.db"
    url = f"sqlite:///{path}"
    open_ledger(url).close()
    with child(PROGRAM, url, str(real), "none", "0") as one, child(PROGRAM, url, str(real), "none", "0") as other:
        for each in (one, other):
            assert each.line() == "ready"
        for each in (one, other):
            each.say()
        for each in (one, other):
            assert each.finish()[-1].startswith("done")
    for name, rows in content(imported(path, real)).items():
        assert rows == whole[name], name
