"""An import that is killed anywhere, or runs twice at once, leaves the ledger that one whole import makes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench.corpus import generate
from tests.ledger.children import child
from tests.ledger.sqlite_setup import raw
from turnlog import open_ledger

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

SEED = 20_261_130

# Small batches, so that there are many points to die at; a line is written when a batch is on disk.
PROGRAM = """
import os, signal, sys
from pathlib import Path
import turnlog.intake.importer as importer
import turnlog.intake.pump as pump
from turnlog import open_ledger
from turnlog.ledger.imports import ImportTx

url, roots, point, number = sys.argv[1], [Path(each) for each in sys.argv[2].split(":")], sys.argv[3], int(sys.argv[4])
importer.BATCH = 200_000
pump.BLOCK = 60_000
left = number

def dying(name):
    real = getattr(ImportTx, name)
    def verb(self, *args, **kwargs):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, *args, **kwargs)
    setattr(ImportTx, name, verb)

if point != "none":
    dying(point)
print("ready", flush=True)
sys.stdin.readline()
with open_ledger(url) as ledger:
    done = ledger.import_histories(roots=roots, progress=lambda at: print("batch", at.files, flush=True))
print("done", done.new, len(done.problems), flush=True)
"""

POINTS = [
    "add_sources",
    "conversations",
    "advance",
    "create",
    "learn",
    "receipts",
    "observe",
    "places",
    "sightings",
    "pieces",
    "passages",
]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    generate(folder, megabytes=5, seed=3)
    return folder


@pytest.fixture(scope="module")
def roots(history: Path) -> str:
    return ":".join(str(history / name) for name in ("claude", "codex", "data"))


@pytest.fixture(scope="module")
def whole(history: Path, roots: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("whole") / "ledger.db"
    run(path, roots)
    return content(path)


def run(path: Path, roots: str, point: str = "none", number: int = 0) -> list[str]:
    with child(PROGRAM, f"sqlite:///{path}", roots, point, str(number)) as importing:
        assert importing.line() == "ready"
        importing.say()
        out, _ = importing.process.communicate(timeout=120)
        return list(out.splitlines())


TABLES = {
    # A conversation is captured when it is imported.
    "receipts": "SELECT session_id, provider_thread, provider_turn, kind, receipt_key,"
    " CASE WHEN kind = 'captured' THEN NULL ELSE observed_at END, payload FROM session_events",
    "captures": "SELECT session_id, artifact_key, observed_at, turns, open_turns, last_completed_at FROM captures",
    "calls": "SELECT call, session_id, at, rivals, weight, owned FROM calls",
    # Rows of a database may be read again where reading was cut: they are what they were.
    "sources": "SELECT path, read_to, tail, lines FROM sources WHERE kind <> 'rows'",
    "bytes": "SELECT s.path, sum(a.size) FROM archive a JOIN sources s ON s.id = a.source_id WHERE s.kind <> 'rows'"
    " GROUP BY s.path",
    "passages": 'SELECT coalesce(p.key, s.path || p."offset"), p.part, p.role, p.turn, n.session_id FROM passages p'
    " JOIN sources s ON s.id = p.source_id JOIN native_sessions n ON n.id = p.native",
    "words": "SELECT count(*) FROM passage_words WHERE passage_words MATCH 'the'",
    "sessions": "SELECT id, title, cwd, model, created_at FROM agent_sessions",
    "places": 'SELECT e.session_id, e.receipt_key, e.kind, e.provider_turn, s.path, p."offset", p.call'
    " FROM receipt_places p JOIN session_events e ON e.seq = p.seq JOIN sources s ON s.id = p.source_id"
    " WHERE s.kind <> 'rows'",
}


def content(path: Path) -> dict[str, Any]:
    """Everything but row numbers and the times at which things were written."""
    with raw(path) as connection:
        found: dict[str, Any] = {name: sorted(map(repr, connection.execute(text))) for name, text in TABLES.items()}
    with open_ledger(f"sqlite:///{path}") as ledger:
        assert [each for each in ledger.verify() if each.kind != "conflict"] == []
        report = ledger.usage_report("model", timezone="UTC")
        found["usage"] = [(row.key, row.tokens, row.calls, row.gaps) for row in report.rows]
    return found


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name, rows in one.items():
        assert other[name] == rows, name


@pytest.mark.parametrize("point", POINTS)
def test_an_import_killed_at_a_point_goes_on_and_ends_with_the_same_ledger(
    tmp_path: Path, roots: str, whole: dict[str, Any], point: str
) -> None:
    path = tmp_path / "ledger.db"
    chance = random.Random(f"{SEED}{point}")
    killed = 0
    for _ in range(3):
        said = run(path, roots, point, chance.randint(1, 9))
        killed += not (said and said[-1].startswith("done"))
    assert killed
    run(path, roots)
    same(whole, content(path))


def test_two_imports_at_once_make_one_ledger(tmp_path: Path, roots: str, whole: dict[str, Any]) -> None:
    path = tmp_path / "ledger.db"
    url = f"sqlite:///{path}"
    open_ledger(url).close()
    with child(PROGRAM, url, roots, "none", "0") as one, child(PROGRAM, url, roots, "none", "0") as other:
        for each in (one, other):
            assert each.line() == "ready"
        for each in (one, other):
            each.say()
        for each in (one, other):
            assert each.finish()[-1].startswith("done")
    run(path, roots)
    same(whole, content(path))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_histories_imported_one_by_one_in_any_order_make_the_same_ledger(
    tmp_path: Path, roots: str, whole: dict[str, Any], order: tuple[int, ...]
) -> None:
    path = tmp_path / "ledger.db"
    each = roots.split(":")
    for number in order:
        run(path, each[number])
    same(whole, content(path))


def split(folder: Path) -> Iterator[Path]:
    """The files of a history, by their top folders, as roots of their own."""
    for place in sorted(folder.iterdir()):
        if place.is_dir():
            yield place


def test_projects_imported_in_reverse_make_the_same_ledger(
    tmp_path: Path, history: Path, roots: str, whole: dict[str, Any]
) -> None:
    path = tmp_path / "ledger.db"
    for place in reversed(list(split(history / "claude" / "projects"))):
        run(path, str(place))
    run(path, roots)
    same(whole, content(path))
