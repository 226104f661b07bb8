"""Reading every history on disk against other programs on the same files, with known totals; ratios of one run.

``make bench`` prints them. Times are no assertions: a busy machine is no defect. Totals are.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
import pytest

from tests.bench.corpus import bench_folder, generate
from tests.bench.corpus_truth import COUNTERS, Truth
from tests.bench.opponents import ROOT, Run, Totals, agentsview, ccusage, fastest, install, run, turnlog
from tests.bench.table import Row, show

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

MEGABYTES: Final = 850
PROBLEMS: Final = 3
COMPARED: Final = ("input", "output", "cache_read", "cache_write")


@pytest.fixture(scope="module")
def truth() -> Truth:
    return generate(bench_folder() / "corpus", megabytes=MEGABYTES)


@pytest.fixture(scope="module")
def fastest_counter(truth: Truth) -> tuple[Run, Totals]:
    install()
    return ccusage(truth)


@pytest.fixture(scope="module")
def home(truth: Truth, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The programs' folders are those of the history; everything of turnlog's own is new."""
    own = tmp_path_factory.mktemp("turnlog")
    return {**truth.variables, "XDG_CACHE_HOME": str(own / "cache"), "TURNLOG_LEDGER": f"sqlite:///{own / 'ledger.db'}"}


@pytest.fixture(scope="module")
def imported(truth: Truth, home: dict[str, str]) -> Run:
    return run(turnlog("import", "--json"), home, codes=(0, PROBLEMS))


def seconds(value: float) -> str:
    return f"{value:.2f} s"


def rated(work: str, ours: Run, name: str, theirs: Run, most: float) -> Row:
    ratio = ours.seconds / theirs.seconds
    peer = f"{name} {seconds(theirs.seconds)}"
    return Row(work, seconds(ours.seconds), peer, f"{ratio:.2f}×", f"≤ {most}×", ratio <= most)


def memory(ours: Run) -> Row:
    return Row("  peak memory", f"{ours.rss / 1e6:.0f} MB", "", "", "≤ 300 MB", ours.rss <= 300e6)


def off(told: Mapping[str, int], truth: Truth, provider: str | None = None) -> str:
    """Tell by how much totals are wrong."""
    known = truth.total(provider=provider)
    wrong = [f"{name} {told[name] - known[name]:+,}" for name in COMPARED if told[name] != known[name]]
    return ", ".join(wrong) or "exact"


def totals_of(out: bytes) -> dict[str, int]:
    report = msgspec.json.decode(out)["totals"]
    return {name: report["tokens"][name] or 0 for name in COUNTERS if name != "calls"} | {"calls": report["calls"]}


def check_exact(truth: Truth, variables: dict[str, str], *words: str) -> None:
    """Compare every provider's, every model's and every day's tokens with what is known."""
    for name in ("claude", "codex", "opencode"):
        report = run(turnlog("usage", "total", "--json", "--provider", name, *words), variables)
        assert totals_of(report.out) == truth.total(provider=name), name
    for by, keys in (("model", {row.model for row in truth.rows}), ("daily", {row.day for row in truth.rows})):
        report = run(turnlog("usage", by, "--json", "--timezone", "UTC", *words), variables)
        rows: list[dict[str, Any]] = msgspec.json.decode(report.out)["rows"]
        told = {row["key"]: {name: row["tokens"][name] or 0 for name in COMPARED} for row in rows if row["streams"]}
        # A row without streams holds gaps of no model alone: it counts nothing.
        assert all(value is None for row in rows if not row["streams"] for value in row["tokens"].values()), by
        column = {"model": "model", "daily": "day"}[by]
        known = {key: truth.total(**{column: key}) for key in keys}
        assert told == {key: {name: sums[name] for name in COMPARED} for key, sums in known.items()}, by


def test_quick_look(truth: Truth, fastest_counter: tuple[Run, Totals]) -> None:
    theirs, their_totals = fastest_counter
    ours = fastest([sys.executable, "-m", "tests.bench.looker"], {**truth.variables, "PYTHONPATH": str(ROOT)})
    told = msgspec.json.decode(ours.out)
    show(
        f"quick look at {truth.bytes / 1e6:,.0f} MB in {truth.files:,} files, unpriced (whole process, fastest of 4)",
        [
            rated("scan_usage", ours, "ccusage", theirs, 1.3),
            memory(ours),
            Row("  ccusage's peak memory", f"{theirs.rss / 1e6:.0f} MB"),
            Row("  totals", off(told, truth), f"ccusage: {off(their_totals, truth)}"),
        ],
    )
    assert {name: told[name] for name in COUNTERS} == truth.total()


def end_imports(ledger: str) -> None:
    """End the import that a first report has begun behind it: it would run beside what is timed next."""
    for process in psutil.process_iter(["cmdline"]):
        if ledger in (process.info["cmdline"] or ()):
            workers = process.children(recursive=True)
            for each in (process, *workers):
                each.kill()
            psutil.wait_procs([process, *workers], timeout=30)


def test_first_usage_before_any_import(truth: Truth, fastest_counter: tuple[Run, Totals], tmp_path: Path) -> None:
    theirs, their_totals = fastest_counter
    runs = []
    for number in range(4):
        own = tmp_path / str(number)
        variables = {
            **truth.variables,
            "XDG_CACHE_HOME": str(own / "cache"),
            "TURNLOG_LEDGER": f"sqlite:///{own / 'ledger.db'}",
        }
        runs.append(run(turnlog("usage", "total", "--json"), variables, codes=(0, PROBLEMS)))
        end_imports(variables["TURNLOG_LEDGER"])
    ours = min(runs, key=lambda each: each.seconds)
    told = totals_of(ours.out)
    show(
        f"first usage on {truth.bytes / 1e6:,.0f} MB in {truth.files:,} files (fastest of 4)",
        [
            rated("turnlog usage", ours, "ccusage", theirs, 1.3),
            memory(ours),
            Row("  totals", off(told, truth), f"ccusage: {off(their_totals, truth)}"),
        ],
    )
    assert told == truth.total()


def test_full_import_with_archive_and_search(truth: Truth, imported: Run, home: dict[str, str], tmp_path: Path) -> None:
    install()
    theirs, their_totals = agentsview(truth, tmp_path / "viewer")
    done = msgspec.json.decode(imported.out)
    report = run(turnlog("usage", "total", "--json", "--no-import"), home)
    ledger = Path(home["TURNLOG_LEDGER"].removeprefix("sqlite:///"))
    size = sum(path.stat().st_size for path in ledger.parent.glob(f"{ledger.name}*"))
    viewer = sum(path.stat().st_size for path in (tmp_path / "viewer").rglob("*") if path.is_file())
    shutil.rmtree(tmp_path / "viewer")
    bare_home = {**home, "TURNLOG_LEDGER": f"sqlite:///{tmp_path / 'bare.db'}"}
    bare = run(turnlog("import", "--no-archive", "--json"), bare_home, codes=(0, PROBLEMS))
    rate = truth.bytes / 1e6 / imported.seconds
    show(
        f"import of {truth.bytes / 1e6:,.0f} MB in {truth.files:,} files, once",
        [
            rated("archive, receipts and search", imported, "agentsview sync", theirs, 0.3),
            Row("  the goal", f"{rate:.0f} MB/s", "", "", "≤ 0.2×", imported.seconds <= 0.2 * theirs.seconds),
            memory(imported),
            Row("  agentsview's peak memory", f"{theirs.rss / 1e6:.0f} MB"),
            Row("receipts only", seconds(bare.seconds)),
            _share("on disk with search", size, truth, 0.65),
            Row("  agentsview's database", f"{viewer / 1e6:.0f} MB", "", f"{viewer / truth.bytes:.2f}×"),
            _share("on disk, archive and receipts", size - _searched(ledger), truth, 0.35),
            Row("  totals", off(totals_of(report.out), truth), f"agentsview: {off(their_totals, truth)}"),
            Row("  problems", str(len(done["problems"]))),
        ],
    )
    check_exact(truth, home, "--no-import")


def _share(work: str, size: int, truth: Truth, most: float) -> Row:
    ratio = size / truth.bytes
    return Row(work, f"{size / 1e6:.0f} MB", "input", f"{ratio:.2f}×", f"≤ {most}×", ratio <= most)


def _searched(ledger: Path) -> int:
    """Return the bytes of the ledger that only the search needs."""
    import apsw

    connection = apsw.Connection(str(ledger), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        sql = "SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE aggregate = 1 AND name LIKE 'passage%'"
        return int(next(connection.execute(sql))[0])
    finally:
        connection.close()


def test_usage_after_the_import(
    truth: Truth, imported: Run, home: dict[str, str], fastest_counter: tuple[Run, Totals]
) -> None:
    theirs, _ = fastest_counter
    run(turnlog("usage", "total", "--json"), home)  # makes the roll-ups
    rows = []
    for words in (("total",), ("daily", "--breakdown"), ("session",), ("project",)):
        ours = fastest(turnlog("usage", *words, "--json"), home)
        rows.append(rated(f"turnlog usage {' '.join(words)}", ours, "ccusage", theirs, 0.3))
    quiet = fastest(turnlog("usage", "daily", "--json", "--no-import"), home)
    rows.append(Row("usage daily --no-import", seconds(quiet.seconds), "", "", "≤ 0.25 s", quiet.seconds <= 0.25))
    if run(turnlog("usage", "statusline"), home, codes=(0, 2)).code == 0:
        line = fastest(turnlog("usage", "statusline"), home)
        rows.append(Row("usage statusline", seconds(line.seconds), "", "", "≤ 0.06 s", line.seconds <= 0.06))
    show("later usage, everything imported (whole process, fastest of 4)", rows)


def test_import_of_one_appended_line(truth: Truth, imported: Run, home: dict[str, str]) -> None:
    path = max(Path(truth.folder, "claude").rglob("*.jsonl"), key=lambda each: each.stat().st_size)
    before = path.stat().st_size
    last = path.read_bytes().rstrip(b"\n").rpartition(b"\n")[2]
    times = []
    try:
        for number in range(4):
            with path.open("ab") as file:
                file.write(last.replace(b'"uuid":"', f'"uuid":"{number}'.encode(), 1) + b"\n")
            done = run(turnlog("import", "--json"), home, codes=(0, PROBLEMS))
            assert msgspec.json.decode(done.out)["lines"] == 1
            times.append(done.seconds)
    finally:
        with path.open("r+b") as file:
            file.truncate(before)
    best = min(times)
    idle = fastest(turnlog("import", "--json"), home)
    show(
        f"import again ({truth.files:,} files, the changed one has {before / 1e6:.0f} MB; fastest of 4)",
        [
            Row("one appended line", seconds(best), "", "", "≤ 0.3 s", best <= 0.3),
            Row("nothing new", seconds(idle.seconds)),
        ],
    )
