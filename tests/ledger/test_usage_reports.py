"""What usage reports count: every call once, in its time, under its project and work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ledger.sqlite_setup import SqliteSetup
from tests.ledger.usage_scenes import (
    DAY,
    HOUR,
    MINUTE,
    call,
    conversation,
    place,
    problem,
    result,
    sighting,
    source,
    subagent,
    turn,
)
from turnlog import Ledger
from turnlog.usage.report import GapCount, UsageReport, UsageRow


@pytest.fixture
def setup(tmp_path: Path) -> SqliteSetup:
    return SqliteSetup(tmp_path)


@pytest.fixture
def ledger(setup: SqliteSetup) -> Iterator[Ledger]:
    with setup.open() as opened:
        yield opened


def total(ledger: Ledger, **filters: Any) -> UsageRow:
    return ledger.usage_report("total", timezone="UTC", **filters).totals


def keys(report: UsageReport) -> dict[str, int | None]:
    return {row.key: row.tokens.output for row in report.rows}


def gaps(row: UsageRow) -> dict[str, int]:
    return {each.kind: each.count for each in row.gaps}


# --- what counts


def test_a_copy_of_a_call_counts_in_its_owner_alone(ledger: Ledger, setup: SqliteSetup) -> None:
    one, fork = conversation(ledger, "a"), conversation(ledger, "b")
    turn(ledger, one, "1", DAY, call("m1", DAY))
    turn(ledger, fork, "1", DAY, call("m1", DAY), call("m2", DAY))
    assert total(ledger).streams == 3
    source(setup)
    [seq] = [row.seq for row in ledger.history(fork) if row.kind == "usage" and row.payload["call"] == "m1"]
    place(setup, seq, 17, "claude:m1")
    sighting(setup, "claude:m1", one, owned=True)
    sighting(setup, "claude:m1", fork, owned=False)
    assert keys(ledger.usage_report("session")) == {one: 5, fork: 5}
    assert ledger.input_history(fork).usage.streams == 1
    assert [each.usage.streams for each in ledger.inputs()] == [1, 1]
    assert len([row for row in ledger.history(fork) if row.kind == "usage"]) == 2

    setup.raw_sql("UPDATE calls SET owned = 1 - owned")  # another sighting settled it otherwise
    place(setup, next(row.seq for row in ledger.history(one) if row.kind == "usage"), 3, "claude:m1")
    setup.raw_sql("INSERT OR IGNORE INTO rollup_dirty VALUES (:one)", {"one": one})
    assert keys(ledger.usage_report("session")) == {fork: 10}


def test_a_subagent_counts_where_its_driven_parent_has_no_result(ledger: Ledger, setup: SqliteSetup) -> None:
    ledger.create_session(id="driven", cwd="/w", provider="claude")
    setup.raw_sql("UPDATE agent_sessions SET provider_thread = 'p' WHERE id = 'driven'")
    child, grandchild = conversation(ledger, "c"), conversation(ledger, "g")
    ledger.record("driven", "p", "t1", "started", {})
    turn(ledger, child, "1", DAY, call("m1", DAY))
    turn(ledger, grandchild, "1", DAY, call("m2", DAY))
    setup.raw_sql("UPDATE agent_sessions SET provider_thread = substr(id, 8) WHERE id LIKE 'claude:%'")
    subagent(setup, child, "p", turn="t1")
    subagent(setup, grandchild, "c")
    assert total(ledger).tokens.output == 10

    ledger.record("driven", "p", "t1", "usage", result(DAY, fresh=20, out=40, cost=0.5))
    ledger.record("driven", "p", "t1", "completed", {"status": "completed"})
    report = ledger.usage_report("session")
    assert keys(report) == {"driven": 40}
    assert (report.totals.streams, report.totals.cost.reported_usd) == (1, 0.5)
    assert list(setup.raw_sql("SELECT sum(counted) FROM streams")) == [(1,)]
    assert [each.counted for each in ledger.usage_explain(child).streams] == [False]


def test_a_subagent_is_placed_by_its_begin_when_its_turn_is_not_named(ledger: Ledger, setup: SqliteSetup) -> None:
    ledger.create_session(id="driven", cwd="/w", provider="claude")
    setup.raw_sql("UPDATE agent_sessions SET provider_thread = 'p'")
    ledger.record("driven", "p", "t1", "started", {})
    ledger.record("driven", "p", "t1", "usage", result(DAY, fresh=20, out=40, cost=0.5))
    ledger.record("driven", "p", "t1", "completed", {"status": "completed"})
    started, _, completed = ledger.history("driven")[-3:]
    for name, began in (("in", started.observed_at), ("after", completed.observed_at + 1)):
        session = conversation(ledger, name)
        turn(ledger, session, "1", DAY, call(name, DAY))
        subagent(setup, session, "p", began=began)
    assert keys(ledger.usage_report("session")) == {"driven": 40, "claude:after": 5}


def test_unreadable_bytes_count_once_in_every_total_over_their_session(ledger: Ledger, setup: SqliteSetup) -> None:
    session, other = conversation(ledger, "a"), conversation(ledger, "b")
    turn(ledger, session, "1", DAY, call("m1", DAY), call("m2", DAY + 24 * HOUR))
    turn(ledger, other, "1", DAY, call("m3", DAY))
    source(setup)
    problem(setup, session, 1)
    problem(setup, session, 2)
    problem(setup, None, 3)
    daily = ledger.usage_report("daily", timezone="UTC")
    assert [gaps(row) for row in daily.rows] == [{"unreadable": 2}, {"unreadable": 2}]
    assert gaps(daily.totals) == {"unreadable": 3}
    assert {row.key: gaps(row) for row in ledger.usage_report("session").rows} == {
        session: {"unreadable": 2},
        other: {},
    }
    report = ledger.usage_report("total", since="2026-02-04")
    assert report.rows == (report.totals,)
    assert gaps(report.totals) == {"unreadable": 3}
    assert gaps(total(ledger, provider="codex")) == {}
    assert gaps(total(ledger, session=other)) == {}


def test_a_session_that_only_could_not_be_read_is_named(ledger: Ledger, setup: SqliteSetup) -> None:
    session = conversation(ledger, "a")
    source(setup)
    problem(setup, session)
    report = ledger.usage_report("session")
    assert [(row.key, row.streams, row.gaps) for row in report.rows] == [(session, 0, (GapCount("unreadable", 1),))]
    assert report.rows[0].tokens.output is None


# --- time


def test_days_of_a_zone_with_a_quarter_and_a_change_of_clocks(ledger: Ledger) -> None:
    session = conversation(ledger, "a")
    midnight = DAY - (5 * HOUR + 45 * MINUTE)  # in Kathmandu
    spring = 1_774_746_000_000  # 2026-03-29T01:00Z: clocks go forward in Berlin, whose day has 23 hours
    times = [
        midnight - 1,
        midnight,
        spring - 2 * HOUR - 1,
        spring - 2 * HOUR,
        spring + 21 * HOUR - 1,
        spring + 21 * HOUR,
    ]
    turn(ledger, session, "1", DAY, *(call(f"m{n}", at) for n, at in enumerate(times)))
    daily = ledger.usage_report("daily", timezone="Asia/Kathmandu", until="2026-02-28")
    assert keys(daily) == {"2026-02-02": 5, "2026-02-03": 5}
    berlin = ledger.usage_report("daily", timezone="Europe/Berlin", since="2026-03-01")
    assert keys(berlin) == {"2026-03-28": 5, "2026-03-29": 10, "2026-03-30": 5}
    assert keys(ledger.usage_report("weekly", timezone="Europe/Berlin")) == {
        "2026-02-02": 10,
        "2026-03-23": 15,
        "2026-03-30": 5,
    }
    assert keys(ledger.usage_report("monthly", timezone="UTC")) == {"2026-02": 10, "2026-03": 20}


def test_bounds_inside_a_quarter_of_an_hour(ledger: Ledger) -> None:
    session = conversation(ledger, "a")
    turn(ledger, session, "1", DAY, *(call(f"m{n}", DAY + n * MINUTE) for n in range(60)))
    for since, until in (
        (DAY + 7 * MINUTE, DAY + 50 * MINUTE),
        (DAY + 3 * MINUTE, DAY + 5 * MINUTE),
        (DAY + 15 * MINUTE, None),
    ):
        expected = len(
            [n for n in range(60) if since <= DAY + n * MINUTE and (until is None or DAY + n * MINUTE < until)]
        )
        assert total(ledger, since=since, until=until).streams == expected, (since, until)
    assert total(ledger, since="2026-02-03T00:58:30Z").streams == 1


def test_blocks_begin_with_the_hour_and_end_after_five(ledger: Ledger) -> None:
    session = conversation(ledger, "a")
    times = [DAY + 10 * MINUTE, DAY + 4 * HOUR + 59 * MINUTE, DAY + 5 * HOUR, DAY + 11 * HOUR + 30 * MINUTE]
    turn(ledger, session, "1", DAY, *(call(f"m{n}", at) for n, at in enumerate(times)))
    report = ledger.usage_report("blocks", timezone="UTC")
    assert [(row.key, row.tokens.output) for row in report.rows] == [
        ("2026-02-03T00:00:00.000Z", 10),
        ("2026-02-03T05:00:00.000Z", 5),
        ("2026-02-03T11:00:00.000Z", 5),
    ]
    window = report.rows[0].window
    assert window is not None
    assert (window.starts_at, window.ends_at, window.last_at) == (DAY, DAY + 5 * HOUR, DAY + 4 * HOUR + 59 * MINUTE)


def test_an_instant_outside_the_calendar_is_no_obstacle(ledger: Ledger) -> None:
    session = conversation(ledger, "a")
    receipt = {**call("m1", DAY), "at": 2**60}
    turn(ledger, session, "1", DAY, receipt)
    assert ledger.usage_report("daily", timezone="UTC").totals.tokens.output == 5


def test_a_count_that_nobody_can_have_used_is_unknown(ledger: Ledger) -> None:
    session = conversation(ledger, "a")
    turn(ledger, session, "1", DAY, call("m1", DAY, out=2**62), call("m2", DAY, out=2**62), call("m3", DAY, out=3))
    row = total(ledger)
    assert (row.tokens.output, gaps(row)) == (3, {"overflow": 2})


# --- groups and filters


def test_projects_are_repositories_else_folders(ledger: Ledger) -> None:
    for name, repo in (("a", "/src/app"), ("b", "/src/app"), ("c", None)):
        turn(ledger, conversation(ledger, name, repo=repo), "1", DAY, call(f"m{name}", DAY))
    assert keys(ledger.usage_report("project")) == {"/src/app": 10, "/src/app/sub": 5}
    for word in ("/src/app/", "/src/app", "app"):
        assert total(ledger, project=word).tokens.output == 10
    assert total(ledger, project="nothing").streams == 0


def test_work_is_that_of_the_turn(ledger: Ledger) -> None:
    wave = ledger.create_wave("w", repo="/r")
    planned = ledger.create_project(wave.id, external_id="P-1", slug="plan")
    task = ledger.create_task(planned.id, external_id="I-1", identifier="ENG-1")
    session = conversation(ledger, "a")
    turn(ledger, session, "before", DAY, call("m1", DAY))
    ledger.bind_session(session, ledger.session(session).captured, task.id)  # type: ignore[union-attr]
    turn(ledger, session, "after", DAY, call("m2", DAY, out=7))
    assert keys(ledger.usage_report("task")) == {"unattributed": 5, "ENG-1": 7}
    for filters in ({"task": "ENG-1"}, {"wave": "w"}, {"project": "plan"}, {"project": "plan", "provider": "claude"}):
        assert total(ledger, **filters).tokens.output == 7, filters
    assert total(ledger, task="ENG-1", provider="codex").streams == 0


def test_a_breakdown_adds_up(ledger: Ledger) -> None:
    session = conversation(ledger, "a")
    turn(
        ledger,
        session,
        "1",
        DAY,
        call("m1", DAY, model="x"),
        call("m2", DAY, model="y"),
        call("m3", DAY + 24 * HOUR, model="x"),
    )
    report = ledger.usage_report("daily", timezone="UTC", breakdown=True)
    assert [{m.key: m.tokens.output for m in row.models or ()} for row in report.rows] == [{"x": 5, "y": 5}, {"x": 5}]
    assert {m.key: m.tokens.output for m in report.totals.models or ()} == {"x": 10, "y": 5}
    assert keys(ledger.usage_report("model")) == {"x": 10, "y": 5}
