"""Numbers, times and tables: what is unknown stays so, what is a lower bound is never more than is known."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest

from turnlog.clock import now_ms
from turnlog.errors import InvalidError
from turnlog.model import Event, EventKind
from turnlog.surfaces.cli import when, words
from turnlog.surfaces.cli.context import Cli, Globals
from turnlog.surfaces.cli.fold import fold
from turnlog.surfaces.cli.inputs import _grouped
from turnlog.surfaces.cli.output import Cell, Column, cell_len, count_cell, fit, print_table

HEAD = (Column("NAME", least=8), Column("TOKENS", right=True), Column("NOTE", drop=1), Column("EMPTY", drop=9))


class Screen(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("value", "low", "text", "compact"),
    [
        (None, False, "-", "-"),
        (None, True, "-", "-"),
        (0, False, "0", "0"),
        (999, True, "≥999", "≥999"),
        (1_000, False, "1,000", "1k"),
        (1_999, True, "≥1,999", "≥1.99k"),
        (19_999, False, "19,999", "19.9k"),
        (999_999, False, "999,999", "999k"),
        (1_215_999, True, "≥1,215,999", "≥1.21M"),
        (12_345_678_901_234, False, "12,345,678,901,234", "12,345G"),
    ],
)
def test_counts(value: int | None, low: bool, text: str, compact: str) -> None:
    assert (words.number(value, low=low), words.number(value, low=low, compact=True)) == (text, compact)


@pytest.mark.parametrize(
    ("value", "low", "text"),
    [
        (None, True, "-"),
        (0.0, False, "$0.00"),
        (0.01239, False, "$0.0124"),
        (0.01239, True, "≥$0.0123"),
        (1234.567, True, "≥$1,234.56"),
        (0.0000129, False, "$0.000013"),
    ],
)
def test_costs(value: float | None, low: bool, text: str) -> None:
    assert words.dollars(value, low=low) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (-1, "-"), (5, "5 ms"), (1500, "1.5 s"), (61_000, "1 m 01 s"), (3_660_000, "1 h 01 m")],
)
def test_lengths_of_time(value: int | None, text: str) -> None:
    assert words.duration(value) == text


def test_a_time_outside_the_calendar_is_not_invented() -> None:
    assert words.local_time(10**18) == "1000000000000000000 ms"
    assert words.local_time(None) == "-"
    assert words.local_time(0, seconds=True) == "1970-01-01 00:00:00"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("7d", 604_800), ("250ms", 0.25), (" 5 m ", 300)],
)
def test_lengths_as_people_write_them(text: str, seconds: float) -> None:
    assert when.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5", "5 minutes", "nan", "inf", "1e9d", "9" * 40, "٣"])
def test_what_is_no_length(text: str) -> None:
    with pytest.raises(InvalidError):
        when.seconds(text)


def test_instants_as_people_write_them() -> None:
    assert when.instant("2026-03-01T00:00:00Z") == int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000)
    assert when.instant("2026-03-01") == when.instant("2026-03-01T00:00:00+00:00")
    assert abs(now_ms() - 86_400_000 - when.instant("1d")) < 60_000
    assert when.bound("2026-03-01") == "2026-03-01"
    assert when.bound(None) is None
    for text in ("2026-02-30", "tomorrow", "2026-03-01T00:00:00"):
        with pytest.raises(InvalidError):
            when.instant(text)


def test_a_day_without_dashes_is_that_day_and_no_number_of_seconds() -> None:
    assert when.bound("20260301") == "2026-03-01"
    assert when.instant("20260301") == when.instant("2026-03-01")
    for text in ("20260230", "20261301"):
        with pytest.raises(InvalidError, match="no such day"):
            when.instant(text)


@pytest.mark.parametrize("text", ["7", "2026", "202603"])
def test_a_reports_bound_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="no unit"):
        when.bound(text)


def test_outcomes_are_grouped_and_none_is_hidden() -> None:
    assert _grouped("completed → completed → failed → completed") == "completed ×2 → failed → completed"


def test_wide_characters_count_twice() -> None:
    assert (cell_len("abc"), cell_len("日本"), fit("日本語", 5), fit("abcdef", 4), fit("abc", 3)) == (
        3,
        4,
        "日本…",
        "abc…",
        "abc",
    )


def table(monkeypatch: pytest.MonkeyPatch, columns: int, *, color: bool = False) -> tuple[list[str], str]:
    out, err = Screen(), io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    monkeypatch.setenv("COLUMNS", str(columns))
    rows: list[list[Cell | str]] = [
        ["a name of some length", count_cell(1_234_567, low=True), "remark", "-"],
        ["日本", count_cell(None, low=True), Cell("", style="31"), "-"],
    ]
    print_table(Cli(Globals(no_color=not color)), HEAD, rows)
    return out.getvalue().splitlines(), err.getvalue()


def test_a_table_that_fits_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, err = table(monkeypatch, 80)
    assert lines == [
        "NAME                       TOKENS  NOTE    EMPTY",
        "a name of some length  ≥1,234,567  remark  -",
        "日本                            -          -",
    ]
    assert err == ""


def test_a_narrow_terminal_loses_what_says_nothing_then_digits_then_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert table(monkeypatch, 30)[0] == [
        "NAME            TOKENS  NOTE",
        "a name of…  ≥1,234,567  remark",
        "日本                 -",
    ]
    assert table(monkeypatch, 24) == (["NAME      TOKENS  NOTE", "a name…   ≥1.23M  remark", "日本           -"], "")
    assert table(monkeypatch, 20) == (
        ["NAME          TOKENS", "a name of s…  ≥1.23M", "日本               -"],
        "no room for: NOTE (a pipe or --json has all)\n",
    )


def test_every_line_of_a_table_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in range(16, 80):
        lines, _ = table(monkeypatch, columns)
        assert max(cell_len(line) for line in lines) <= columns


def test_colours_do_not_change_the_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, _ = table(monkeypatch, 80, color=True)
    assert lines[0].startswith("\x1b[1mNAME\x1b[0m")
    assert [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in lines] == table(monkeypatch, 80)[0]


@pytest.mark.parametrize(
    ("name", "value", "expected"), [("NO_COLOR", "1", False), ("TERM", "dumb", False), ("TERM", "xterm", True)]
)
def test_colours_are_for_terminals_that_want_them(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: bool
) -> None:
    monkeypatch.setattr("sys.stdout", Screen())
    monkeypatch.setenv(name, value)
    assert Cli(Globals()).color is expected
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert Cli(Globals()).color is False


# --- the fold of `show` and `permit`


def event(seq: int, kind: str, turn: str | None = None, payload: object = None) -> Event:
    return Event(
        seq=seq,
        session_id="s",
        thread=None if turn is None else "t",
        turn=turn,
        kind=EventKind(kind),
        provider_generation=None,
        exec_id=None,
        task_id=None,
        wave_id=None,
        observed_at=seq,
        payload={} if payload is None else payload,
    )


def seen(seq: int, source: str, **evidence: object) -> Event:
    return event(seq, "observed", payload={"input_id": "k", "source": source, "evidence": evidence})


def test_turns_in_the_order_in_which_they_began() -> None:
    folded = fold(
        [
            event(1, "captured"),
            event(2, "requested", "a", {"text": "x"}),
            event(3, "requested", "b", {"text": "x"}),
            event(4, "started", "a"),
            event(5, "requested", "c", {"text": "y", "steer": True}),
            seen(6, "refused:b", reason="no such model"),
            event(7, "started", "d"),
            seen(8, "superseded:t:a", by="d"),
            event(9, "completed", "d", {"status": "interrupted", "error": {"name": "Aborted"}}),
            event(10, "requested", "e", {"text": "z"}),
            event(11, "completed", "f", ["not what was expected"]),
        ]
    )
    assert [(turn.turn, turn.started_at, turn.status, turn.error) for turn in folded.turns] == [
        ("a", 4, "superseded", None),
        ("b", None, "refused", "no such model"),
        ("d", 7, "interrupted", "Aborted"),
        ("e", None, None, None),
        ("f", None, None, None),
    ]


def test_the_providers_own_word_is_never_replaced() -> None:
    done = event(2, "completed", "a", {"status": "completed", "error": "plain words"})
    (turn,) = fold([event(1, "started", "a"), done, seen(3, "superseded:t:a")]).turns
    assert (turn.status, turn.error) == ("completed", "plain words")


def test_questions_and_their_answers() -> None:
    folded = fold(
        [
            seen(1, "permission:per:1:asked", action="bash", detail="ls", turn="a"),
            seen(2, "permission:per_2:asked", action=7),
            seen(3, "permission:per:1:asked", action="again"),
            seen(4, "permission:per_2:unanswered", error="gone"),
            seen(5, "permission:never_asked:answered", answer="once"),
            seen(6, "permission:per_3:asked", action="edit", detail="x"),
            seen(7, "permission:per_3:answered", answer="always"),
        ]
    )
    assert [(each.id, each.action, each.answer) for each in folded.questions] == [
        ("per:1", "bash", None),
        ("per_2", "?", "unanswered"),
        ("per_3", "edit", "always"),
    ]
    assert [each.id for each in folded.waiting] == ["per:1"]
