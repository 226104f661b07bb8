"""Reports by time put every call into its row, wherever in a day, a zone or a year it lies, by one question."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import postgres_server
from tests.postgres_server import PostgresSetup
from turnlog import Ledger, open_ledger
from turnlog.clock import to_rfc3339
from turnlog.queries.zones import PERIODS
from turnlog.usage.blocks import blocks

DAY = 86_400_000
HOUR = 3_600_000
ZONES = ("UTC", "Europe/Berlin", "Asia/Kathmandu", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Pacific/Apia")
numbers = count()
instants = st.integers(15_000, 15_400).flatmap(
    lambda day: st.integers(day * DAY, (day + 1) * DAY - 1) | st.sampled_from([day * DAY, day * DAY + 23 * HOUR])
)


@pytest.fixture(params=["SQLite", "PostgreSQL"], scope="module")
def ledger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    if request.param == "PostgreSQL":
        return PostgresSetup(postgres_server.shared()).open()
    folder: Path = tmp_path_factory.mktemp("ledger")
    return open_ledger(f"sqlite:///{folder}/ledger.db")


def record(ledger: Ledger, times: list[int]) -> str:
    """Record a call at each instant, each of another model; return their session."""
    session = f"claude:{next(numbers)}"
    ledger.create_session(id=session, cwd="/f", provider="claude")
    usage = {"input_tokens": 1, "output_tokens": 2}
    base = {"provider": "claude", "source": "file", "usage": usage}
    ledger.record_many(
        session,
        [
            ("t", f"{n}", "usage", {**base, "call": f"{session}-{n}", "model": f"m{n % 3}", "at": at})
            for n, at in enumerate(times)
        ],
    )
    return session


@pytest.mark.parametrize("by", ["daily", "weekly", "monthly"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times=st.lists(instants, min_size=1, max_size=12), zone=st.sampled_from(ZONES), apart=st.booleans())
def test_every_call_is_in_the_row_of_its_day(ledger: Ledger, by: str, times: list[int], zone: str, apart: bool) -> None:
    session = record(ledger, times)
    report = ledger.usage_report(by, timezone=zone, session=session, breakdown=apart)
    wanted = Counter(PERIODS[by](at, ZoneInfo(zone)).key for at in times)
    assert {row.key: row.streams for row in report.rows} == wanted
    assert [row.key for row in report.rows] == sorted(wanted)
    assert report.totals.streams == len(times)
    if apart:
        models = Counter((PERIODS[by](at, ZoneInfo(zone)).key, f"m{n % 3}") for n, at in enumerate(times))
        assert {(row.key, each.key): each.streams for row in report.rows for each in row.models or ()} == models


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.lists(st.integers(15_000 * DAY, 15_003 * DAY).map(lambda at: at - at % 900_000), min_size=1, max_size=12)
)
def test_every_call_is_in_its_window_of_five_hours(ledger: Ledger, times: list[int]) -> None:
    session = record(ledger, times)
    report = ledger.usage_report("blocks", timezone="UTC", session=session)
    wanted = {
        to_rfc3339(each.start): sum(each.start <= at < each.end for at in times)
        for each in blocks([(at, at) for at in times])
    }
    assert {row.key: row.streams for row in report.rows} == wanted
    assert report.totals.streams == len(times)


@pytest.mark.parametrize(
    ("since", "until", "rows"), [(2, 4, [2, 3]), (0, 1, [0]), (5, 9, []), (None, None, [0, 1, 2, 3, 4])]
)
def test_bounds_cut_rows(ledger: Ledger, since: int | None, until: int | None, rows: list[int]) -> None:
    """Whole quarters of an hour: what is cut within one is added beside them."""
    begin = 15_200 * DAY
    session = record(ledger, [begin + day * DAY + HOUR for day in range(5)])
    first = None if since is None else begin + since * DAY
    last = None if until is None else begin + until * DAY
    report = ledger.usage_report("daily", timezone="UTC", session=session, since=first, until=last)
    assert [row.key for row in report.rows] == [to_rfc3339(begin + day * DAY)[:10] for day in rows]
    assert report.totals.streams == len(rows)
