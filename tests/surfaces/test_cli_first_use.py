"""``turnlog usage`` before anything was imported: counted from the files, and the same afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.corpus import generate
from tests.bench.corpus_truth import Truth
from tests.surfaces.conftest import Turnlog
from turnlog.intake import scan_jobs
from turnlog.surfaces.cli import usage_fresh, usage_show

OF_TURNS = ("start_unknown", "unfinished")
KINDS = ("daily", "weekly", "monthly", "blocks", "session", "model", "project", "task", "total")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    return generate(tmp_path_factory.mktemp("history") / "corpus", megabytes=6, seed=3)


@pytest.fixture
def truth(made: Truth, monkeypatch: pytest.MonkeyPatch) -> Truth:
    for name, value in made.variables.items():
        if name != "HOME":
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(usage_fresh, "AT_ONCE", 0)
    monkeypatch.setattr(scan_jobs, "PARALLEL", 0)
    return made


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ledgers that an import behind was to be started for; none is."""
    started: list[str] = []

    def start(url: str) -> bool:
        started.append(url)
        return True

    monkeypatch.setattr(usage_fresh, "import_behind", start)
    return started


def told(value: Any) -> Any:
    """Return a report without what an import alone can know (gaps of turns), and floats without their last digits."""
    value["rows"] = [row for row in value["rows"] if row["streams"]]
    for row in (*value["rows"], value["totals"]):
        row["gaps"] = [gap for gap in row["gaps"] if gap["kind"] not in OF_TURNS]
        row["cost"] = {name: round(cost, 9) if cost is not None else None for name, cost in row["cost"].items()}
    return value


def test_every_first_report_says_what_the_report_after_the_import_says(
    turnlog_: Turnlog, truth: Truth, behind: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "ledger.db"
    first = {}
    for kind in KINDS:
        ledger.unlink(missing_ok=True)
        found = turnlog_("usage", kind, "--json", "--timezone", "UTC")
        assert (found.code, "was counted from the files" in found.err) == (0, True)
        first[kind] = told(found.json)
        assert ledger.exists()
        assert set(found.json["unseen_gaps"]) > set(OF_TURNS), kind
    assert behind == [f"sqlite:///{ledger}"] * len(KINDS)
    assert first["total"]["totals"]["tokens"]["output"] == truth.total()["output"]
    # The ledger is there now, and still empty: the files are counted beside it.
    again = turnlog_("usage", "--json", "--timezone", "UTC")
    assert "was counted from the files" in again.err
    assert told(again.json) == first["total"]
    assert turnlog_("import", "--json").code == 0
    for kind in KINDS:
        later = turnlog_("usage", kind, "--json", "--timezone", "UTC")
        assert later.err == ""
        assert later.json["unseen_gaps"] == []
        value = told(later.json)
        assert value["totals"] == first[kind]["totals"], kind
        # An agent that only its parent's notes of progress tell of has the parent's folder in a first look alone.
        assert value["rows"] == first[kind]["rows"] or kind == "project", kind


def test_a_first_report_says_which_gaps_it_did_not_look_for(turnlog_: Turnlog, truth: Truth, behind: list[str]) -> None:
    note = (
        "≥ not all gaps were looked for yet (start_unknown, unfinished, interrupted, compaction_unrecorded, "
        "usage_unknown, unreadable): they show after the import"
    )
    first, rows = turnlog_("usage", "model"), turnlog_("usage", "model", "--csv")
    assert note in first.err.splitlines()
    assert note in rows.err.splitlines()
    total = first.lines[-1].split()
    assert all(cell.startswith("≥") for cell in total[1:5]), "nobody knows yet that the sums are whole"
    assert total[-1].startswith("≥"), "nor that there are no gaps"
    turnlog_("import")
    assert "not all gaps" not in turnlog_("usage", "model").err


def test_little_history_is_imported_on_the_spot(
    turnlog_: Turnlog, truth: Truth, behind: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_fresh, "AT_ONCE", 48 << 20)
    found = turnlog_("usage", "--json")
    assert found.json["totals"]["tokens"]["output"] == truth.total()["output"]
    assert (found.err, behind) == ("", [])


def test_a_ledger_that_cannot_be_made_is_said_and_leaves_no_process(
    turnlog_: Turnlog, truth: Truth, behind: list[str], tmp_path: Path
) -> None:
    (tmp_path / "ledger.db").symlink_to(tmp_path / "nowhere" / "ledger.db")
    found = turnlog_("usage", "--json")
    assert found.code != 0
    assert behind == []
    (tmp_path / "file").write_text("no folder")
    found = turnlog_("--ledger", f"sqlite:///{tmp_path}/file/ledger.db", "usage", "--json")
    assert found.code != 0
    assert behind == []


def test_a_first_report_imports_no_price_library_and_no_schema_checker(truth: Truth) -> None:
    code = (
        "import sys; from turnlog.surfaces.cli import usage_fresh; from turnlog.surfaces.cli.app import run;"
        "usage_fresh.AT_ONCE = 0; usage_fresh.import_behind = lambda url: True; run(['usage', '--json']);"
        "sys.exit(len({'genai_prices', 'jsonschema', 'typer', 'rich', 'pydantic', 'httpx'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert b'"estimated_usd"' in done.stdout


def test_the_import_behind_begins_when_the_report_is_out_even_if_nobody_reads_it(
    turnlog_: Turnlog, truth: Truth, behind: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def closed(**_: Any) -> None:
        order.append(f"printed before {len(behind)} imports")
        raise BrokenPipeError

    monkeypatch.setattr(usage_show, "print_object", closed)
    assert turnlog_("usage", "--json").code == 0
    assert (order, len(behind)) == (["printed before 0 imports"], 1)
