"""Kinds of faults of reports over imported histories: days, prices, projects, search, transcripts, two imports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.claude_reading import OTHER, SESSION, prompt, result, said, text, tool, usage
from tests.harness.codex_rollouts import CHILD, PARENT, T0, Rollout, stamp
from tests.harness.codex_rollouts import usage as used
from tests.surfaces.conftest import Turnlog
from tests.surfaces.import_history import History, tokens

ONE, TWO = f"claude:{SESSION}", f"claude:{OTHER}"
CALL = (10, 50, 4, 0)


def of(session: str, *entries: dict[str, Any]) -> list[dict[str, Any]]:
    return [each | {"sessionId": session} for each in entries]


def at(name: str, when: str, **more: Any) -> dict[str, Any]:
    return said(name, text(name), stop="end_turn", timestamp=when, **more)


# --- days and windows


def test_days_are_cut_in_the_zone_that_is_named_and_told(history: History) -> None:
    history.claude(prompt("p1"), at("m1", "2026-02-03T23:30:00Z"), at("m2", "2026-02-04T00:30:00Z", used=usage(7)))
    history.imported()
    assert history.rows("daily") == {"2026-02-03": CALL, "2026-02-04": (10, 7, 4, 0)}
    done = history.turnlog("usage", "daily", "--no-import", "--json", "--timezone", "America/Los_Angeles")
    assert done.json["timezone"] == "America/Los_Angeles"
    assert {row["key"]: tokens(row) for row in done.json["rows"]} == {"2026-02-03": (20, 57, 8, 0)}
    assert "America/Los_Angeles" in history.turnlog("usage", "--no-import", "--timezone", "America/Los_Angeles").err
    kiritimati = history.turnlog("usage", "daily", "--no-import", "--json", "--timezone", "Pacific/Kiritimati")
    assert [row["key"] for row in kiritimati.json["rows"]] == ["2026-02-04"]


def test_the_local_zone_is_used_and_named_where_none_is_told(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    history.claude(prompt("p1"), at("m1", "2026-02-04T00:30:00Z"))
    history.imported()
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    done = history.turnlog("usage", "daily", "--no-import", "--json")
    assert (done.json["timezone"], done.json["rows"][0]["key"]) == ("America/Los_Angeles", "2026-02-03")


def test_both_bounds_are_included(history: History) -> None:
    days = ["2026-02-02", "2026-02-03", "2026-02-04", "2026-02-05"]
    history.claude(prompt("p1"), *(at(f"m{n}", f"{day}T23:59:59.999Z") for n, day in enumerate(days)))
    history.imported()
    assert list(history.rows("daily", "--since", "2026-02-03", "--until", "2026-02-04")) == days[1:3]
    assert history.total("--since", "2026-02-05") == CALL


def test_a_window_of_five_hours_ends_and_the_next_begins_with_the_next_call(history: History) -> None:
    times = ["2026-02-03T10:20:00Z", "2026-02-03T14:59:00Z", "2026-02-03T15:01:00Z"]
    history.claude(prompt("p1"), *(at(f"m{n}", when) for n, when in enumerate(times)))
    history.imported()
    assert history.rows("blocks") == {
        "2026-02-03T10:00:00.000Z": (20, 100, 8, 0),
        "2026-02-03T15:00:00.000Z": CALL,
    }


# --- cost


PRICES = """
[[price]]
match = "m-1"
until = 2026-08-20
input = 5.0
output = 0.0
[[price]]
match = "m-1"
from = 2026-08-21
input = 4.0
output = 0.0
[[price]]
match = "long"
input = 3.0
output = 0.0
[[price.tiers]]
above = 272_000
input = 6.0
"""


@pytest.fixture
def prices(tmp_path: Path) -> str:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)
    return str(path)


def test_a_call_has_the_price_of_its_day(history: History, prices: str) -> None:
    million = usage(0, 1_000_000, cache_read_input_tokens=0)
    history.claude(
        prompt("p1"), at("m1", "2026-08-20T12:00:00Z", used=million), at("m2", "2026-08-21T12:00:00Z", used=million)
    )
    history.imported()
    days = history.usage("daily", "--prices", prices)
    assert [row["cost"]["estimated_usd"] for row in days["rows"]] == [pytest.approx(5.0), pytest.approx(4.0)]
    assert days["totals"]["cost"]["estimated_usd"] == pytest.approx(9.0)
    assert days["prices"]["version"]
    before = history.events(ONE, "usage")
    assert history.usage("daily", "--prices", prices) == days
    assert history.events(ONE, "usage") == before


def test_a_long_prompt_pays_the_long_price_for_all_of_it(history: History, prices: str) -> None:
    over = usage(0, 270_540, cache_read_input_tokens=7_936)
    under = usage(0, 264_000, cache_read_input_tokens=8_000)
    history.claude(prompt("p1"), said("m1", text("a"), used=over, model="long", stop="end_turn"))
    history.claude(*of(OTHER, prompt("p1"), said("m2", text("a"), used=under, model="long")), name=OTHER)
    history.imported()
    rows = {row["key"]: row["cost"]["estimated_usd"] for row in history.usage("session", "--prices", prices)["rows"]}
    assert rows[ONE] == pytest.approx((270_540 + 7_936) * 6 / 1e6)
    assert rows[TWO] == pytest.approx(272_000 * 3 / 1e6)


def test_costs_of_unknown_and_known_models_add_up_to_a_lower_bound_for_people(history: History, prices: str) -> None:
    history.claude(
        prompt("p1"),
        said("m1", text("a"), used=usage(0, 1_000_000), model="m-1"),
        said("m2", text("b"), used=usage(0, 1_000_000), model="unheard-of", stop="end_turn"),
    )
    history.imported()
    shown = history.table("total", "--prices", prices)
    assert "≥$5.00" in shown.out
    assert "1 call without a price" in shown.err


# --- projects


@pytest.mark.parametrize(
    "place", ["{base}/p.worktrees/feat/x", "{base}/p/.worktrees/x", "{base}/p/.claude/worktrees/x"]
)
def test_a_worktree_that_is_gone_belongs_to_its_repository(history: History, tmp_path: Path, place: str) -> None:
    repository = tmp_path / "r" / "p"
    (repository / ".git").mkdir(parents=True)
    cwd = place.format(base=tmp_path / "r")
    history.claude(prompt("p1", cwd=str(repository / "src")), said("m1", text("a"), cwd=str(repository / "src")))
    history.claude(*of(OTHER, prompt("p1", cwd=cwd), said("m2", text("a"), cwd=cwd)), name=OTHER)
    history.imported()
    assert history.rows("project") == {str(repository): (20, 100, 8, 0)}
    assert history.rows("session", "--project", "p") == {ONE: CALL, TWO: CALL}


def test_a_worktree_that_is_there_belongs_to_its_repository(history: History, tmp_path: Path) -> None:
    repository, tree = tmp_path / "p", tmp_path / "elsewhere"
    inner = repository / ".git" / "worktrees" / "elsewhere"
    inner.mkdir(parents=True)
    (inner / "commondir").write_text("../..\n")
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {inner}\n")
    history.claude(prompt("p1", cwd=str(tree)), said("m1", text("a"), cwd=str(tree)))
    history.imported()
    assert history.rows("project") == {str(repository): CALL}


# --- gaps


def test_what_could_not_be_read_stands_in_every_total_over_its_session_and_no_other(history: History) -> None:
    history.claude(prompt("p1"), said("m1", text("a"), stop="end_turn"), b"{torn")
    history.claude(*of(OTHER, prompt("p1"), said("m2", text("b"), stop="end_turn")), name=OTHER)
    history.turnlog("import", "--root", str(history.root))
    for kind, keys in (
        ("session", {ONE}),
        ("daily", {"2026-02-03"}),
        ("model", {"m-1"}),
        ("project", {"/home/dev/app"}),
    ):
        rows = history.usage(kind)["rows"]
        assert {row["key"] for row in rows if row["gaps"]} == keys, kind
        assert history.usage(kind)["totals"]["gaps"] == [{"kind": "unreadable", "count": 1}]
    assert history.explained(ONE)["unreadable"] == 1
    assert history.explained(TWO)["unreadable"] == 0


# --- search, transcripts, export


def test_text_is_found_shown_and_exported_with_its_turn(history: History, turnlog_: Turnlog) -> None:
    history.claude(
        prompt("p1", "build the ziggurat"),
        said("m1", text("starting"), tool("t1", command="make ziggurat-brick")),
        result("t1", "brick laid"),
        said("m2", text("the ziggurat stands"), stop="end_turn"),
    )
    history.imported()
    found = {hit["role"]: hit for hit in history.hits("ziggurat")}
    assert set(found) == {"user", "tool_input", "assistant"}
    assert {hit["turn"] for hit in found.values()} == {"p1"}
    assert [hit["role"] for hit in history.hits("brick", "--role", "tool_output")] == ["tool_output"]
    shown = turnlog_("show", ONE).out
    assert shown.rindex("build the ziggurat") < shown.rindex("brick laid") < shown.rindex("the ziggurat stands")
    for form in ("md", "html", "jsonl"):
        out = turnlog_("export", ONE, "--format", form).out
        assert all(words in out for words in ("build the ziggurat", "brick laid", "the ziggurat stands")), form


def test_an_export_after_a_resume_has_the_new_turn_once(history: History, turnlog_: Turnlog) -> None:
    begun = [prompt("p1", "first obelisk"), said("m1", text("a"), stop="end_turn")]
    history.claude(*begun)
    history.claude(
        *of(OTHER, *begun, prompt("p2", "second obelisk"), said("m2", text("b"), stop="end_turn")), name=OTHER
    )
    history.imported()
    assert turnlog_("export", TWO, "--format", "jsonl").out.count("second obelisk") == 1
    assert history.total() == (20, 100, 8, 0)


def test_without_an_archive_receipts_count_and_there_is_no_text(history: History, turnlog_: Turnlog) -> None:
    history.claude(prompt("p1", "the obelisk"), said("m1", text("a"), stop="end_turn"))
    history.imported("--no-archive")
    assert history.total() == CALL
    assert turnlog_("search", "obelisk").code == 1
    history.imported()
    assert history.total() == CALL


def test_reading_the_archive_again_changes_nothing(history: History) -> None:
    history.claude(prompt("p1", "the obelisk"), said("m1", text("a"), stop="end_turn"), b"{torn")
    history.codex(Rollout(CHILD).started("t").context().count(1000).said("pyramid").ended("t"))
    history.turnlog("import", "--root", str(history.root))
    before = history.usage("session")
    for path in sorted(history.root.rglob("*.jsonl")):
        path.unlink()
    again = history.turnlog("import", "--reparse", "--json")
    assert again.json["receipts"]["new"] == 0
    assert history.usage("session") == before
    assert [len(history.hits(word)) for word in ("obelisk", "pyramid")] == [1, 1]


# --- orders


def lines_of(session: str) -> list[dict[str, Any]]:
    return of(
        session,
        prompt("p1", "one"),
        said("m1", text("a"), stop="end_turn"),
        prompt("p2", "two"),
        said("m2", text("b"), stop="end_turn"),
    )


THIRD = "5a1d0000-0000-4000-8000-000000000003"


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(range(4)), again=st.integers(0, 3))
def test_files_imported_in_any_order_and_again_give_the_same_reports(
    turnlog_: Turnlog, tmp_path_factory: pytest.TempPathFactory, order: list[int], again: int
) -> None:
    folder = tmp_path_factory.mktemp("orders")
    history = History(turnlog_, folder / "histories")
    ledger = f"sqlite:///{folder}/ledger.db"
    lines = lines_of(SESSION)
    paths = [
        history.claude(*lines),
        history.claude(*of(OTHER, *lines, prompt("p3"), said("m3", text("c"), used=usage(3)))[2:], name=OTHER),
        history.claude(*of(THIRD, *lines[:2], said("m4", text("d"), used=usage(9))), name=THIRD),
        history.codex(Rollout(PARENT).started("t").context().count(used(100, 20, 10, 2)).ended("t")),
    ]
    for number in [*order, again]:
        turnlog_("--ledger", ledger, "import", "--root", str(history.root / paths[number]))
    told = [
        turnlog_("--ledger", ledger, "usage", kind, "--no-import", "--json", "--timezone", "UTC").json["rows"]
        for kind in ("session", "daily", "model")
    ]
    sums = {row["key"]: tokens(row) for row in told[0]}
    assert sums == {
        ONE: (20, 100, 8, 0),
        TWO: (10, 3, 4, 0),
        f"claude:{THIRD}": (10, 9, 4, 0),
        f"codex:{PARENT}": (80, 10, 20, None),
    }
    assert [tokens(row) for row in told[1]] == [(40, 112, 16, 0), (80, 10, 20, None)]
    assert told[1][1]["key"] == stamp(T0)[:10]
    assert {row["key"]: row["calls"] for row in told[2]} == {"m-1": 4, "gpt-5.5": 1}


# --- names


def test_a_short_name_is_the_conversations_and_a_subagent_is_named_behind_it(
    history: History, turnlog_: Turnlog
) -> None:
    history.claude(prompt("p1"), said("m1", text("a"), stop="end_turn"))
    agents = [prompt("q1"), said("m2", text("b"), stop="end_turn")]
    for name in ("a1b2", "a1c3"):
        lines = [each | {"isSidechain": True, "agentId": name} for each in agents]
        history.claude(*lines, name=f"{SESSION}/subagents/agent-{name}")
    history.imported()

    def named(word: str) -> str:
        done = turnlog_("show", word, "--json")
        return str(done.json["session"]["id"]) if done.code == 0 else str(done.code)

    assert {named(word) for word in (ONE, ONE[:12], SESSION, SESSION[:6])} == {ONE}
    assert {named(word) for word in (f"{ONE}/a1b2", f"{ONE[:12]}/a1b", f"{SESSION[:8]}/a1b2")} == {f"{ONE}/a1b2"}
    assert named(f"{ONE[:12]}/a1") == "2"
    assert named(f"{ONE[:12]}/zz") == "1"


def test_a_page_says_why_a_sum_may_lack_something(history: History, turnlog_: Turnlog) -> None:
    history.claude(prompt("p1"), b"{torn", said("m1", text("a"), stop="end_turn"))
    history.turnlog("import", "--root", str(history.root))
    shown = turnlog_("show", ONE, "--no-transcript").out
    assert "input ≥10" in shown
    assert "≥ 1 × unreadable" in shown
