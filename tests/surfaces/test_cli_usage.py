"""``turnlog usage``: its reports, their three spellings, and what stands behind a sum."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import apsw
import pytest

from tests.ledger.sqlite_setup import SqliteSetup
from tests.ledger.usage_scenes import DAY, HOUR, call, conversation, place, problem, sighting, source, turn
from tests.surfaces.conftest import Turnlog, shell
from turnlog.surfaces.cli import usage_quick
from turnlog.surfaces.cli.context import Cli, Globals
from turnlog.surfaces.cli.usage_show import Asked

AT = "2026-02-03"


@pytest.fixture
def setup(tmp_path: Path) -> SqliteSetup:
    """Two imported conversations of one repository; a call of the second is a copy, a line of it is unreadable."""
    made = SqliteSetup(tmp_path)
    with made.open() as ledger:
        one, fork = conversation(ledger, "one"), conversation(ledger, "fork")
        turn(
            ledger,
            one,
            "1",
            DAY,
            call("m1", DAY, fresh=1_000_000),
            call("m2", DAY + 30 * HOUR, model="unheard-of-model"),
        )
        turn(ledger, fork, "1", DAY, call("m1", DAY, fresh=1_000_000), call("m3", DAY + HOUR, speed="fast"))
        source(made)
        [seq] = [row.seq for row in ledger.history(fork) if row.kind == "usage" and row.payload["call"] == "m1"]
        place(made, seq, 17, "claude:m1")
        place(made, seq + 1, 400, "claude:m3")
        sighting(made, "claude:m1", one, owned=True)
        sighting(made, "claude:m1", fork, owned=False)
        problem(made, fork, 900)
    return made


def test_every_kind_of_report_has_its_keys(turnlog_: Turnlog, setup: SqliteSetup) -> None:
    expected = {
        "daily": ["2026-02-03", "2026-02-04"],
        "weekly": ["2026-02-02"],
        "monthly": ["2026-02"],
        "blocks": ["2026-02-03T00:00:00.000Z", "2026-02-04T06:00:00.000Z"],
        "session": ["claude:fork", "claude:one"],
        "model": ["claude-opus-4-5", "unheard-of-model"],
        "project": ["/src/app"],
        "task": ["unattributed"],
        "total": ["total"],
    }
    for kind, keys in expected.items():
        value = turnlog_("usage", kind, "--json", "--timezone", "UTC").json
        assert [row["key"] for row in value["rows"]] == keys, kind
        assert value["totals"]["streams"] == 3, kind
        assert value["totals"]["gaps"] == [{"kind": "unreadable", "count": 1}], kind
        assert set(value["prices"]) == {"source", "version", "earlier"}


def test_estimates_stand_beside_what_was_reported_and_unknown_models_are_unpriced(
    turnlog_: Turnlog, setup: SqliteSetup
) -> None:
    rows = {row["key"]: row["cost"] for row in turnlog_("usage", "model", "--json").json["rows"]}
    assert rows["unheard-of-model"] == {
        "reported_usd": None,
        "estimated_usd": None,
        "unpriced_calls": 1,
        "low_estimates": 0,
    }
    assert rows["claude-opus-4-5"]["reported_usd"] is None
    # 1 000 000 × 5 + 100 × 0.5 + 20 × 6.25 + 5 × 25 dollars a million; a tier without a price has no estimate.
    assert rows["claude-opus-4-5"]["estimated_usd"] == pytest.approx(5.0003)
    assert rows["claude-opus-4-5"]["unpriced_calls"] == 1


def test_the_table_says_what_it_may_lack(turnlog_: Turnlog, setup: SqliteSetup) -> None:
    shown = turnlog_("usage", "daily", "--timezone", "UTC", "--since", "2026-02-01", "--breakdown")
    assert [line.split()[0] for line in shown.lines] == [
        "DAY", "2026-02-03", "claude-opus-4-5", "2026-02-04", "unheard-of-model", "total",
    ]  # fmt: skip
    assert shown.lines[1].split()[1] == "≥1,000,010"
    assert "time zone UTC · estimates by genai-prices" in shown.err
    assert "≥ 2 calls without a price and without a reported cost\n" in shown.err
    assert "≥ 1 × unreadable: " in shown.err


def test_csv_has_the_members_of_json_and_nothing_for_what_is_unknown(turnlog_: Turnlog, setup: SqliteSetup) -> None:
    shown = turnlog_("usage", "session", "--csv")
    assert shown.out.count("\r\n") == 3
    rows = list(csv.DictReader(io.StringIO(shown.out)))
    value = turnlog_("usage", "session", "--json").json["rows"]
    for row, each in zip(rows, value, strict=True):
        assert row["key"] == each["key"]
        assert row["native.provider"] == each["native"]["provider"]
        assert row["tokens.reasoning"] == ""
        assert int(row["tokens.cache_read"]) == each["tokens"]["cache_read"]
        assert row["cost.reported_usd"] == ""
        assert int(row["cost.unpriced_calls"]) == each["cost"]["unpriced_calls"]
    assert {row["key"]: row["gaps"] for row in rows} == {"claude:one": "", "claude:fork": "unreadable=1"}


def test_csv_of_a_breakdown_adds_up(turnlog_: Turnlog, setup: SqliteSetup) -> None:
    rows = list(csv.DictReader(io.StringIO(turnlog_("usage", "total", "--breakdown", "--csv").out)))
    assert [row["model"] for row in rows] == ["claude-opus-4-5", "unheard-of-model"]
    assert sum(int(row["streams"]) for row in rows) == 3


def test_csv_and_json_exclude_each_other(turnlog_: Turnlog, setup: SqliteSetup) -> None:
    shown = turnlog_("usage", "--csv", "--json")
    assert shown.code == 2
    assert shown.error["message"] == "--csv and --json exclude each other"


@pytest.mark.parametrize("word", ["app", "/src/app"])
def test_a_repository_is_a_project(turnlog_: Turnlog, setup: SqliteSetup, word: str) -> None:
    assert turnlog_("usage", "--project", word, "--json").json["totals"]["streams"] == 3
    assert turnlog_("usage", "--project", "other", "--json").error["message"] == "no project 'other'"


def test_lengths_of_time_and_instants_bound_a_report(turnlog_: Turnlog, setup: SqliteSetup) -> None:
    for options, streams in (
        (("--since", "2026-02-04"), 1),
        (("--until", "2026-02-03"), 2),
        (("--since", f"{AT}T01:00:00Z", "--until", f"{AT}T01:00:01Z"), 1),
        (("--since", "1d"), 0),
        (("--since", "2000w"), 3),
    ):
        assert turnlog_("usage", "--json", "--timezone", "UTC", *options).json["totals"]["streams"] == streams, options


def test_prices_of_a_file(turnlog_: Turnlog, setup: SqliteSetup, tmp_path: Path) -> None:
    prices = tmp_path / "mine.json"
    prices.write_text(json.dumps({"price": [{"match": "unheard-of-model", "input": 1, "output": 1_000_000}]}))
    value = turnlog_("usage", "--prices", str(prices), "--json").json
    assert value["prices"]["source"] == str(prices)
    assert value["totals"]["cost"]["unpriced_calls"] == 2
    assert value["totals"]["cost"]["estimated_usd"] == pytest.approx(5.0, rel=1e-3)


# --- what stands behind a sum


def test_explain_goes_down_to_the_bytes_of_files(turnlog_: Turnlog, setup: SqliteSetup) -> None:
    shown = turnlog_("usage", "explain", "claude:fork")
    assert "/home/me/.claude/a.jsonl:400" in shown.out
    assert "not estimated: no price is known for it" in shown.out
    assert "/home/me/.claude/a.jsonl:17  claude:m1  owned by claude:one" in shown.out
    assert "gap: 1 × unreadable" in shown.err
    value = turnlog_("usage", "explain", "claude:fork", "--json").json
    [stream] = value["streams"]
    assert (stream["tier"], stream["counted"], stream["model"]) == ("fast", True, "claude-opus-4-5")
    assert stream["receipts"] == [
        {"seq": stream["receipts"][0]["seq"], "source": "/home/me/.claude/a.jsonl", "offset": 400}
    ]
    assert [copy["owner"] for copy in value["copies"]] == ["claude:one"]
    assert value["unreadable"] == 1


def test_explain_takes_an_input_and_shows_its_streams_alone(turnlog_: Turnlog, setup: SqliteSetup) -> None:
    with setup.open() as ledger:
        session = ledger.session("claude:one")
        assert session is not None
        key = session.artifact_key
        ledger.replace_input(session.id, session.captured, artifact_key="22220000000000000000000000000002")
        turn(ledger, session.id, "2", DAY + 40 * HOUR, call("m9", DAY + 40 * HOUR))
    value = turnlog_("usage", "explain", key, "--json").json
    assert (value["input"], len(value["streams"])) == (key, 2)
    assert value["streams"][0]["price_model"] is not None
    assert value["streams"][0]["estimated_usd"] == pytest.approx(5.0003)
    assert len(turnlog_("usage", "explain", "claude:one", "--json").json["streams"]) == 3
    assert turnlog_("usage", "explain", "nothing").code == 1


# --- its command line


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["daily"],
        ["--since", "7d", "weekly"],
        ["model", "--until=2026-01-01", "--csv", "--breakdown"],
        ["--json", "--no-color", "--ledger", "sqlite:////x.db", "--no-import", "total"],
        ["--timezone", "UTC", "--provider", "codex", "--project", "p", "--task", "t", "--wave", "w", "--prices", "f"],
    ],
)
def test_a_plain_command_line_is_read_as_by_the_parser(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from turnlog.surfaces.cli import usage
    from turnlog.surfaces.cli.command import invoke

    seen: list[tuple[Globals, Asked]] = []

    def show(cli: Cli, asked: Asked) -> int:
        seen.append((cli.options, asked))
        return 0

    monkeypatch.setattr(usage, "show", show)
    invoke(usage.usage, "usage", argv, Globals())
    quick = usage_quick.parse(argv, Globals())
    assert quick is not None
    assert [(quick[0].options, quick[1])] == seen


@pytest.mark.parametrize(
    "argv", [["-h"], ["--help"], ["--since"], ["--nope"], ["daily", "weekly"], ["--since", "--csv"], [""]]
)
def test_what_is_not_plain_is_left_to_the_parser(argv: list[str]) -> None:
    assert usage_quick.parse(argv, Globals()) is None


def test_a_report_loads_neither_a_parser_nor_the_price_library(setup: SqliteSetup) -> None:
    assert shell("usage", "daily", "--json").code == 0
    code = "import sys; from turnlog.surfaces.cli.app import run; run(['usage', 'daily']); print(*sorted(sys.modules))"
    import subprocess
    import sys

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    assert not {"typer", "pydantic", "genai_prices", "rich.table", "httpx"} & set(loaded)


def test_a_ledger_that_cannot_be_written_is_reported_on(turnlog_: Turnlog, setup: SqliteSetup, tmp_path: Path) -> None:
    connection = apsw.Connection(str(setup.path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.execute("BEGIN IMMEDIATE")
    try:
        assert turnlog_("usage", "--json").json["totals"]["streams"] == 3
    finally:
        connection.close()
