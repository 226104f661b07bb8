"""What the pages say exists: commands, options, targets, links, rules, columns, codes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import unquote

import apsw
import pytest

import turnlog
from tests import postgres_server
from tests.docs.pages import DOCS, ROOT, Page, command_lines, make_targets, page, pages
from tests.surfaces.scenes import build
from turnlog import errors
from turnlog.model import EventKind
from turnlog.surfaces.cli import app
from turnlog.surfaces.cli.gaps import MEANING

PAGES = pages()
NAMES = [each.name for each in PAGES]
GLOBAL = {"--json", "--no-color", "--ledger"}
SOURCES = sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".sql"})


def command_of(words: list[str]) -> tuple[str, list[str]] | None:
    """The command that a line names and its other words; None when it names none on purpose (``turnlog COMMAND``)."""
    rest = list(words)
    while rest and rest[0] in GLOBAL | {"--version", "--help"}:
        takes_value = rest.pop(0) == "--ledger"
        if takes_value:
            rest.pop(0)
    if not rest or not re.match(r"[a-z]", rest[0]):
        return None
    for length in (3, 2, 1):
        name = " ".join(rest[:length])
        if name in app.COMMANDS:
            return name, rest[length:]
    raise AssertionError(f"no such command: turnlog {' '.join(words)}")


@pytest.mark.parametrize("shown", PAGES, ids=NAMES)
def test_every_command_line_exists(shown: Page, capfd: pytest.CaptureFixture[str]) -> None:
    for words in command_lines(shown):
        found = command_of(words)
        if found is None:
            continue
        name, rest = found
        assert app.run(["help", *name.split()]) == 0
        text = capfd.readouterr().out
        for word in rest:
            option = word.partition("=")[0]
            if option.startswith("--") and option not in GLOBAL | {"--help"}:
                assert re.search(rf"{option}\b", text), f"turnlog {name} has no {option}"


def test_every_command_is_told_of() -> None:
    readme, contract = page("README.md"), page("docs/json-output.md")
    told = {group_of(found[0]) for words in command_lines(readme) if (found := command_of(words))}
    groups = {group_of(name) for name in app.COMMANDS}
    assert told == groups
    headings = " ".join(re.findall(r"^## (.+)$", contract.text, re.MULTILINE))
    assert [name for name in groups if not re.search(rf"\b{name}\b", headings)] == []
    for name in app.COMMANDS:
        if name != group_of(name):
            assert f"`{name.rpartition(' ')[2]}`" in contract.section(group_of(name)), name


def group_of(name: str) -> str:
    """The noun that commands of three words share; the pages treat these together."""
    return " ".join(name.split()[:2])


@pytest.mark.parametrize("shown", PAGES, ids=NAMES)
def test_every_make_target_exists(shown: Page) -> None:
    declared = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert declared is not None
    assert set(make_targets(shown)) <= set(declared[1].split())


@pytest.mark.parametrize("shown", PAGES, ids=NAMES)
def test_links_lead_somewhere(shown: Page) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", shown.prose):
        if "://" in target:
            continue
        file, _, anchor = unquote(target).partition("#")
        path = (shown.path.parent / file).resolve() if file else shown.path
        assert path.exists(), f"{shown.name}: {target}"
        if anchor:
            assert anchor in Page(path, path.read_text(encoding="utf-8")).anchors, f"{shown.name}: {target}"


def test_every_page_is_linked_from_another() -> None:
    linked = {
        (shown.path.parent / target.partition("#")[0]).resolve()
        for shown in PAGES
        for target in re.findall(r"\]\(([^)\s]+)\)", shown.prose)
    }
    assert [path.name for path in DOCS.glob("*.md") if path not in linked] == []
    assert DOCS / "decisions" in linked


# --- rules


def defined_rules(text: str) -> set[str]:
    found = set(re.findall(r"^- \*\*([RH]\d+(?:\.\d+)?)\*\*", text, re.MULTILINE))
    found |= set(re.findall(r"^\| (D\d+) \|", text, re.MULTILINE))
    promises = text.partition("## Promises")[2].partition("\n## ")[0]
    return found | {f"promise {number}" for number in re.findall(r"^(\d)\. ", promises, re.MULTILINE)}


def test_every_rule_that_the_code_cites_is_defined() -> None:
    defined = defined_rules(page("docs/rules.md").text)
    assert len([name for name in defined if name.startswith("R")]) > 100, "the page was parsed"
    cited: dict[str, str] = {}
    for path in SOURCES:
        for name in re.findall(r"\b(R\d+\.\d+|H[1-9]|D[1-9]\d?|promise \d)\b", path.read_text(encoding="utf-8")):
            cited.setdefault(name, path.relative_to(ROOT).as_posix())
    assert {name: where for name, where in cited.items() if name not in defined} == {}


def test_every_section_that_the_code_cites_is_there() -> None:
    text = page("docs/rules.md").text
    present = set(re.findall(r"(?<![\d.R])(\d\.\d+(?:\.\d)?)(?![\d.]*\d)", text))
    missing = {}
    for path in SOURCES:
        for found in re.findall(r"semantics ((?:\d[\d.]*(?:, | to | and )?)+)", path.read_text(encoding="utf-8")):
            for number in re.findall(r"\d+\.\d+(?:\.\d+)?", found):
                if number not in present:
                    missing[number] = path.name
        for letter in re.findall(r"appendix ([A-Z])\b", path.read_text(encoding="utf-8"), re.IGNORECASE):
            if f"**{letter.upper()}**" not in text:
                missing[letter] = path.name
    assert missing == {}


# --- the ledger's format


def objects(path: Path, kind: str) -> list[str]:
    with turnlog.open_ledger(f"sqlite:///{path}"):
        pass
    found = query(path, "SELECT name FROM sqlite_schema WHERE type = ? AND name NOT LIKE 'sqlite_%'", kind)
    assert found
    return found


def query(path: Path, statement: str, *values: str) -> list[str]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [str(row[0]) for row in connection.execute(statement, values)]
    finally:
        connection.close()


def described_tables() -> dict[str, set[str]]:
    """Table → words of its part of the page: below a heading of its name, or in a table headed by it."""
    text = page("docs/ledger-format.md").text
    parts = re.split(r"^(?:### (\w+)|\| (\w+) \| meaning \|)\n", text, flags=re.MULTILINE)
    found: dict[str, set[str]] = {}
    table = ""
    for heading, inner, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        name = str(heading or inner)
        table = table if name == "column" else name
        found.setdefault(table, set()).update(re.findall(r"[a-z_0-9]+", str(body)))
    return found


def test_every_table_and_column_is_described(tmp_path: Path) -> None:
    described, path = described_tables(), tmp_path / "ledger.db"
    with turnlog.open_ledger(f"sqlite:///{path}"):
        pass
    # Not the tables that FTS5 keeps for itself.
    tables = "SELECT name FROM pragma_table_list WHERE type IN ('table', 'virtual') AND name NOT LIKE 'sqlite_%'"
    for table in query(path, tables):
        columns = query(path, "SELECT name FROM pragma_table_xinfo(?)", table)
        assert [column for column in columns if column not in described.get(table, set())] == [], table


def test_every_table_and_column_of_postgresql_is_described() -> None:
    server, described = postgres_server.shared(), described_tables()
    # Words are one value there, and the index of FTS5 is not.
    found = server.sql(
        "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
        " WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped"
        " AND c.relname <> 'passage_words'",
        database=server.shared_ledger(),
    )
    assert ("watchers", "until") in found
    further = set(re.findall(r"`(\w+)`", page("docs/ledger-format.md").section("On PostgreSQL")))
    missing = {(table, column) for table, column in found if column not in described.get(table, set())}
    assert {table for table, _ in missing} <= further
    assert {column for _, column in missing} <= further


def test_every_view_is_named(tmp_path: Path) -> None:
    text = page("docs/ledger-format.md").text
    assert [view for view in objects(tmp_path / "ledger.db", "view") if f"`{view}`" not in text] == []


def test_every_kind_of_receipt_is_described() -> None:
    section = page("docs/ledger-format.md").section("Receipts")
    assert [kind for kind in EventKind if f"| `{kind}` |" not in section] == []


# --- words of the contract


def test_every_error_code_and_exit_code_is_told() -> None:
    contract = page("docs/json-output.md")
    codes = set(re.findall(r"[a-z_]+", contract.section("Errors")))
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.TurnlogError)]
    assert {kind.code for kind in kinds} - codes == set()
    table = {int(code) for code in re.findall(r"^\| (\d+) \|", contract.section("Exit codes"), re.MULTILINE)}
    assert {kind.exit_code for kind in kinds} <= table


def test_every_kind_of_gap_is_explained() -> None:
    told = set(re.findall(r"`(\w+)`", page("docs/json-output.md").section("usage")))
    assert set(MEANING) - told == set()


def test_the_demo_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from turnlog.testing import demo

    monkeypatch.setenv("TURNLOG_OPENCODE_BIN", "/nowhere/opencode")
    monkeypatch.setattr(sys, "argv", ["demo"])
    assert demo.main() == 1
    said = capsys.readouterr()
    assert said.err.splitlines()[0].startswith("demo: TURNLOG_OPENCODE_BIN=/nowhere/opencode")
    assert said.err.splitlines()[1].startswith("hint: ")


# --- repair


def statements(number: int) -> list[str]:
    block = page("docs/ledger-format.md").blocks("sql")[number]
    lines = [line for line in block.splitlines() if not line.startswith("--")]
    return [statement.strip() for statement in "\n".join(lines).split(";") if statement.strip()]


def test_the_repairs_work(tmp_path: Path) -> None:
    scene = build(tmp_path / "ledger.db")
    with turnlog.open_ledger(scene.url) as ledger:
        before = ledger.recent_inputs()
    connection = apsw.Connection(str(tmp_path / "ledger.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        for statement in statements(0):
            list(connection.execute(statement))
        connection.execute("UPDATE turns SET status = 'nonsense', released = 1")
        connection.execute("DELETE FROM intents")
        with turnlog.open_ledger(scene.url) as ledger:
            assert {problem.kind for problem in ledger.verify()} == {"drift"}
        for statement in statements(1):
            connection.execute(statement)
    finally:
        connection.close()
    with turnlog.open_ledger(scene.url) as ledger:
        assert ledger.verify() == []
        assert ledger.recent_inputs() == before


def test_roll_ups_are_made_again_when_their_cursor_is_forgotten(tmp_path: Path) -> None:
    scene = build(tmp_path / "ledger.db")
    with turnlog.open_ledger(scene.url) as ledger:
        before = ledger.usage_report("session")
    connection = apsw.Connection(str(tmp_path / "ledger.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute("UPDATE streams SET output = 1; UPDATE usage_buckets SET output = 1")
        with turnlog.open_ledger(scene.url) as ledger:
            assert {problem.kind for problem in ledger.verify()} == {"drift"}
        for statement in statements(2):
            connection.execute(statement)
    finally:
        connection.close()
    with turnlog.open_ledger(scene.url) as ledger:
        assert ledger.usage_report("session") == before
        assert ledger.verify() == []
