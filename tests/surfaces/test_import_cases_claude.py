"""Kinds of faults of importing Claude Code's files, each through the command line to the sums that come out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.claude_reading import (
    AT,
    LATER,
    OTHER,
    SESSION,
    file_of,
    progress,
    prompt,
    record,
    result,
    said,
    synthetic,
    system,
    text,
    tool,
    usage,
)
from tests.surfaces.import_history import PROBLEMS, History, kinds, problems, tokens

ONE, TWO = f"claude:{SESSION}", f"claude:{OTHER}"
AGENT = "a1"
CHILD = f"{SESSION}/subagents/agent-{AGENT}"


def of(session: str, *entries: dict[str, Any]) -> list[dict[str, Any]]:
    """The same lines as another session's."""
    return [each | {"sessionId": session} for each in entries]


def side(*entries: dict[str, Any]) -> list[dict[str, Any]]:
    """The same lines as an agent's."""
    return [each | {"isSidechain": True, "agentId": AGENT} for each in entries]


# --- one call over several lines


def test_an_answer_in_several_lines_is_one_call_with_the_last_output(history: History) -> None:
    lines = [said("m1", text("a"), used=usage(output), requestId="r1", uuid=f"u{output}") for output in (1, 1, 120)]
    history.claude(prompt("p1"), *lines)
    history.imported()
    assert (history.total(), history.calls()) == ((10, 120, 4, 0), 1)
    assert history.gaps() == {}


def test_every_repetition_of_a_call_adds_its_blocks_and_the_first_one_dates_it(history: History) -> None:
    history.claude(
        prompt("p1", timestamp="2026-02-03T23:59:58.000Z"),
        said("m1", text("looking around"), timestamp="2026-02-03T23:59:59.000Z"),
        said("m1", tool("t1", command="ls pyramids"), uuid="b", timestamp="2026-02-04T00:00:03.000Z"),
        result("t1", "sphinx", timestamp="2026-02-04T00:00:04.000Z"),
    )
    history.imported()
    assert history.rows("daily") == {"2026-02-03": (10, 50, 4, 0)}
    assert [hit["role"] for word in ("looking", "pyramids", "sphinx") for hit in history.hits(word)] == [
        "assistant",
        "tool_input",
        "tool_output",
    ]


@pytest.mark.parametrize("named", [{}, {"requestId": "r1"}])
def test_a_line_without_request_id_is_the_same_call(history: History, named: dict[str, Any]) -> None:
    history.claude(prompt("p1"), said("m1", text("a")), said("m1", text("b"), uuid="b", **named))
    history.imported()
    assert (history.total(), history.calls()) == ((10, 50, 4, 0), 1)


def test_an_id_that_a_gateway_uses_again_is_two_calls_and_noted(history: History) -> None:
    history.claude(
        prompt("p1"),
        said("m1", text("a"), requestId="r1", model="m-1"),
        said("m1", text("b"), uuid="b", requestId="r2", model="m-2", used=usage(7, 3)),
    )
    history.imported()
    assert (history.total(), history.calls()) == ((13, 57, 8, 0), 2)
    assert "reused_id" in history.notes(ONE)


@pytest.mark.parametrize("order", [(SESSION, OTHER), (OTHER, SESSION)])
def test_an_id_that_a_gateway_uses_again_in_another_session_counts_in_both(
    history: History, order: tuple[str, str]
) -> None:
    paths = {
        SESSION: history.claude(said("m1", text("a"), requestId="r1")),
        OTHER: history.claude(
            *of(OTHER, said("m1", text("b"), requestId="r2", model="m-2", used=usage(7, 99))), name=OTHER
        ),
    }
    for name in order:
        history.imported(roots=[paths[name]])
        history.usage()
    assert history.rows() == {ONE: (10, 50, 4, 0), TWO: (99, 7, 4, 0)}
    assert history.explained(TWO)["copies"] == []
    assert "reused_id" in history.notes(ONE)
    assert "reused_id" in history.notes(TWO)
    history.sound()


def test_an_id_that_a_gateway_gives_every_call_tells_each_of_them(history: History) -> None:
    lines = [said("m", text("a"), uuid=f"u{n}", requestId=f"r{n}", used=usage(n, 100 + n)) for n in range(12)]
    history.claude(prompt("p1"), *lines)
    history.claude(*of(OTHER, prompt("p1"), *lines[5:9]), name=OTHER)
    history.imported()
    assert history.calls() == 12
    assert history.total()[:2] == (sum(range(100, 112)), sum(range(12)))


@pytest.mark.parametrize("request_id", [None, "r2"])
def test_a_copy_that_lost_or_changed_its_request_id_is_no_second_call(history: History, request_id: str | None) -> None:
    history.claude(said("m1", text("a"), requestId="r1"))
    history.claude(*of(OTHER, said("m1", text("a"), requestId=request_id)), name=OTHER)
    history.imported()
    assert (history.total(), history.calls()) == ((10, 50, 4, 0), 1)


# --- copies


@pytest.mark.parametrize("order", [(SESSION, OTHER), (OTHER, SESSION)])
def test_a_resumed_copy_under_a_new_session_counts_once_in_any_order(history: History, order: tuple[str, str]) -> None:
    begun = [prompt("p1"), said("m1", text("a"), stop="end_turn")]
    more = [prompt("p2", timestamp=LATER), said("m2", text("b"), used=usage(7), stop="end_turn", timestamp=LATER)]
    paths = {
        SESSION: history.claude(*begun),
        OTHER: history.claude(*of(OTHER, *begun, *more), name=OTHER),
    }
    inherited = 0
    for name in order:
        inherited += history.imported(roots=[paths[name]])["receipts"]["inherited"]
        history.usage()  # sums that exist already follow
    assert history.calls() == 2
    assert history.rows() == {ONE: (10, 50, 4, 0), TWO: (10, 7, 4, 0)}
    assert inherited == 1
    assert [copy["owner"] for copy in history.explained(TWO)["copies"]] == [ONE]
    assert history.explained(TWO)["copies"][0]["offset"] > 0
    history.sound()


def test_a_history_opened_again_under_a_new_session_adds_nothing_to_any_sum(history: History) -> None:
    lines = [prompt("p1"), said("m1", text("a"), stop="end_turn")]
    history.claude(*lines)
    history.imported()
    before = history.usage()
    history.claude(*of(OTHER, *lines), name=OTHER)
    history.imported()
    assert history.usage() == before


def test_a_resume_that_names_the_old_session_is_one_session_of_two_files(history: History) -> None:
    begun = [prompt("p1"), said("m1", text("a"), stop="end_turn")]
    history.claude(*begun)
    history.claude(*begun, prompt("p2"), said("m2", text("b"), stop="end_turn"), name=OTHER)
    history.imported()
    assert history.rows() == {ONE: (20, 100, 8, 0)}
    assert history.ends(ONE) == ["completed", "completed"]
    assert list(history.sessions()) == [ONE]


def test_a_side_question_that_logs_everything_again_counts_its_new_call_alone(history: History) -> None:
    lines = [line for n in range(60) for line in (prompt(f"p{n}"), said(f"m{n}", text("a"), stop="end_turn"))]
    history.claude(*lines)
    history.claude(*side(*lines, prompt("side"), said("new", text("b"), used=usage(3), stop="end_turn")), name=CHILD)
    done = history.imported()
    assert history.calls() == 61
    assert history.rows() == {ONE: (600, 3000, 240, 0), f"{ONE}/{AGENT}": (10, 3, 4, 0)}
    assert done["receipts"]["inherited"] == 60


# --- subagents


def test_a_call_in_the_parents_and_the_agents_file_counts_once(history: History) -> None:
    shared = said("mS", text("x"))
    history.claude(prompt("p1"), said("m1", text("a")), *side(shared))
    history.claude(*side(prompt("q1"), shared, said("mT", text("y"))), name=CHILD)
    history.imported()
    assert history.calls() == 3
    assert history.rows() == {ONE: (10, 50, 4, 0), f"{ONE}/{AGENT}": (20, 100, 8, 0)}


def test_sidechain_lines_count(history: History) -> None:
    history.claude(prompt("p1"), said("m1", text("a")), said("m2", text("b"), used=usage(9), isSidechain=True))
    history.imported()
    assert (history.total(), history.calls()) == ((20, 59, 8, 0), 2)


@pytest.mark.parametrize("nested", ["subagents", "subagents/workflows/wf_1"])
def test_usage_that_only_nested_files_have_is_found(history: History, nested: str) -> None:
    history.claude(prompt("p1"))
    history.claude(*side(prompt("q1"), said("m1", text("a"))), name=f"{SESSION}/{nested}/agent-{AGENT}")
    history.imported()
    assert history.rows()[f"{ONE}/{AGENT}"] == (10, 50, 4, 0)
    assert history.sessions()[f"{ONE}/{AGENT}"]["interactive"] is False


def test_agents_of_two_sessions_with_one_id_are_two(history: History) -> None:
    for session in (SESSION, OTHER):
        history.claude(*of(session, prompt("p1"), said("m1", text("a"))), name=session)
        lines = side(prompt("q1"), said(f"m-{session}", text("a")))
        history.claude(*of(session, *lines), name=f"{session}/subagents/agent-{AGENT}")
    history.imported()
    agents = {name: sums for name, sums in history.rows().items() if "/" in name}
    assert agents == {f"{name}/{AGENT}": (10, 50, 4, 0) for name in (ONE, TWO)}


def test_what_an_agent_used_is_known_from_its_parents_notes_alone(history: History) -> None:
    history.claude(prompt("p1"), said("m1", tool("t1", "Task")), progress(AGENT, said("mA", text("a"))))
    history.imported()
    assert history.rows() == {ONE: (10, 50, 4, 0), f"{ONE}/{AGENT}": (10, 50, 4, 0)}


def test_an_agents_file_beside_its_parents_stops_nothing_and_is_counted(history: History) -> None:
    history.claude(prompt("p1"), said("m1", text("a"), stop="end_turn"))
    history.claude(*side(prompt("p1"), said("m2", text("b"), stop="end_turn")), name=CHILD)
    history.claude(b"\xff\xfe rubbish", prompt("p1"), name="broken")
    done = history.imported(code=PROBLEMS)
    assert (done["files"], done["sessions"]) == (3, 2)
    assert problems(done) == [("not_json", 0)]
    assert history.calls() == 2


def test_a_notice_of_completion_is_not_the_end_of_an_agent(history: History) -> None:
    notice = "<task-notification><task-id>a1</task-id><status>completed</status></task-notification>"
    history.claude(prompt("p1"), said("m1", text("a"), stop="end_turn"), prompt("n1", notice))
    place = history.claude(*side(prompt("q1"), said("m2", tool("t9"))), name=CHILD)
    history.imported()
    assert history.ends(f"{ONE}/{AGENT}") == []
    history.append(place, file_of(*side(result("t9", timestamp=LATER), said("m3", text("done"), stop="end_turn"))))
    history.imported()
    assert history.ends(f"{ONE}/{AGENT}") == ["completed"]


def test_an_agent_that_ended_is_complete_though_its_parent_never_heard_of_it(history: History) -> None:
    history.claude(prompt("p1"), said("m1", tool("t1", "Task")))
    history.claude(*side(prompt("q1"), said("m2", text("done"), stop="end_turn")), name=CHILD)
    history.imported()
    assert history.ends(f"{ONE}/{AGENT}") == ["completed"]
    assert history.ends(ONE) == []
    assert history.gaps()["unfinished"] == 1


# --- cost


def test_an_hours_cache_writes_cost_twice_the_input(history: History) -> None:
    split = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 100_000}
    used = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 100_000, "cache_creation": split}
    history.claude(prompt("p1"), said("m1", text("a"), used=used, model="claude-sonnet-4-5", stop="end_turn"))
    history.imported()
    cost = history.usage()["totals"]["cost"]
    assert cost["estimated_usd"] == pytest.approx(0.60)
    assert (cost["low_estimates"], cost["reported_usd"]) == (0, None)


def test_cache_writes_of_unknown_lifetime_are_a_lower_bound(history: History) -> None:
    used = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 100_000}
    history.claude(prompt("p1"), said("m1", text("a"), used=used, model="claude-sonnet-4-5", stop="end_turn"))
    history.imported()
    cost = history.usage()["totals"]["cost"]
    assert (cost["estimated_usd"], cost["low_estimates"]) == (pytest.approx(0.375), 1)
    assert "≥$0.3750" in history.table().out


def test_a_model_without_a_price_is_unpriced_and_not_free(history: History) -> None:
    history.claude(
        prompt("p1"),
        said("m1", text("a"), used=usage(0, 100_000), model="made-up-model-9"),
        said("m2", text("b"), used=usage(0, 100_000), model="claude-sonnet-4-5", stop="end_turn"),
    )
    history.imported()
    totals = history.usage()["totals"]
    assert totals["cost"]["unpriced_calls"] == 1
    assert totals["cost"]["estimated_usd"] == pytest.approx(0.30, abs=1e-4)
    shown = history.table("model").out
    assert "≥$0.3000" in shown.splitlines()[-1]
    assert "$0.00" not in shown


def test_fast_mode_is_a_price_of_its_own(history: History) -> None:
    used = usage(0, 1_000_000, speed="fast")
    history.claude(prompt("p1"), said("m1", text("a"), used=used, model="claude-sonnet-4-5", stop="end_turn"))
    history.imported()
    assert history.explained(ONE)["streams"][0]["tier"] == "fast"
    assert history.usage()["totals"]["cost"]["unpriced_calls"] == 1


def test_messages_that_claude_wrote_itself_are_no_calls_and_no_model(history: History) -> None:
    history.claude(
        prompt("p1"),
        system("api_error", retryAttempt=1, retryInMs=500, maxRetries=10, error={}),
        synthetic("API Error: 529", isApiErrorMessage=True),
    )
    history.imported()
    assert history.usage()["rows"] in ([], history.usage()["rows"])
    assert history.usage("model")["totals"]["calls"] in {None, 0}
    assert history.ends(ONE) == ["failed"]
    assert "<synthetic>" not in history.table("model").out


# --- damage


def test_a_torn_line_gives_the_whole_object_glued_behind_it(history: History) -> None:
    torn = b'{"type":"assistant","mess'
    whole = file_of(said("m1", text("a"), stop="end_turn")).rstrip(b"\n")
    first = file_of(prompt("p1"))
    place = history.claude(first.rstrip(b"\n"), torn + whole)
    done = history.imported(code=PROBLEMS)
    assert problems(done) == [("torn", len(first))]
    assert history.total() == (10, 50, 4, 0)
    assert history.gaps() == {"unreadable": 1}
    assert "≥10" in history.table().out
    receipt = history.explained(ONE)["streams"][0]["receipts"][0]
    assert receipt["source"].endswith(place)
    assert receipt["offset"] == len(first) + len(torn)


def test_two_programs_that_write_one_session_are_noted_and_both_count(history: History) -> None:
    history.claude(
        prompt("p1"),
        said("m1", text("a"), uuid="a1", parentUuid="p1"),
        prompt("p2", parentUuid="a1"),
        prompt("q2", parentUuid="a1"),
        said("m2", text("b"), uuid="b1", parentUuid="q2"),
        said("m3", text("c"), uuid="c1", parentUuid="p2"),
    )
    history.imported()
    assert history.calls() == 3
    assert "concurrent_writers" in history.notes(ONE)


def test_the_inner_id_wins_and_the_files_name_is_an_alias(history: History, turnlog_: Any) -> None:
    history.claude(prompt("p1"), said("m1", text("a")), name="x")
    history.imported()
    assert list(history.rows()) == [ONE]
    assert list(history.sessions()) == [ONE]
    assert {turnlog_("show", word, "--json").json["session"]["id"] for word in ("claude:x", "x")} == {ONE}


def test_a_result_without_its_call_is_a_gap(history: History) -> None:
    history.claude(prompt("p1"), said("m1", text("a")), result("t-unknown"), said("m2", text("b"), stop="end_turn"))
    done = history.imported(code=PROBLEMS)
    assert kinds(done) == ["missing_call"]
    assert history.gaps() == {"unreadable": 1}
    assert history.calls() == 2


def test_a_deleted_file_keeps_its_totals_its_text_and_says_so(history: History, turnlog_: Any) -> None:
    place = history.claude(prompt("p1", "where is the obelisk"), said("m1", text("in Luxor"), stop="end_turn"))
    history.imported()
    before = history.usage("session")
    (history.root / place).unlink()
    assert history.imported()["missing"] == 1
    assert history.imported()["missing"] == 0
    assert history.usage("session") == before
    assert len(history.hits("obelisk")) == 1
    assert "Luxor" in turnlog_("show", ONE).out
    assert "Luxor" in turnlog_("export", ONE, "--format", "md").out


def test_a_session_without_header_line_and_index_is_found(history: History) -> None:
    history.claude(prompt("p1"), said("m1", text("a"), stop="end_turn"))
    history.write("claude/projects/-home-dev-app/sessions-index.json", b'{"version":1,"entries":[]}')
    history.claude(
        {"type": "summary", "summary": "s", "leafUuid": "nowhere"},
        *of(OTHER, said("m2", text("b"), stop="end_turn")),
        name=OTHER,
    )
    history.imported()
    assert history.calls() == 2
    assert set(history.sessions()) == {ONE, TWO}


def test_summaries_and_snapshots_alone_make_no_session(history: History) -> None:
    history.claude({"type": "summary", "summary": "s", "leafUuid": "x"}, {"type": "file-history-snapshot"})
    assert history.imported()["sessions"] == 0
    assert history.sessions() == {}


def test_unknown_records_between_calls_are_passed_over(history: History) -> None:
    noise = [record("progress", data={"type": "hook_progress", "n": n}, uuid=f"h{n}") for n in range(100)]
    place = history.claude(prompt("p1"), said("m1", text("a")))
    history.imported()
    more = file_of(*noise, {"type": "never-heard-of", "payload": [1, {"input_tokens": 9}]})
    history.append(place, more)
    done = history.imported()
    assert (done["bytes"], done["lines"], done["receipts"]["new"]) == (len(more), 101, 0)
    assert history.total() == (10, 50, 4, 0)


def test_an_unclean_stop_leaves_the_turn_unknown(history: History, turnlog_: Any) -> None:
    history.claude(prompt("p1"), said("m1", tool("t1")))
    history.imported()
    assert history.ends(ONE) == []
    assert history.gaps() == {"unfinished": 1}
    assert "running" not in turnlog_("sessions", "--all").out.lower()
    assert tokens(history.usage()["totals"]) == (10, 50, 4, 0)


def test_a_rewound_branch_stays_spent(history: History) -> None:
    history.claude(
        prompt("p1"),
        said("m1", text("a"), uuid="a1", parentUuid="p1", stop="end_turn"),
        prompt("p2", "wrong turn", parentUuid="a1"),
        said("m2", text("b"), uuid="b1", parentUuid="p2", stop="end_turn"),
        prompt("p3", "right turn", parentUuid="a1"),
        said("m3", text("c"), uuid="c1", parentUuid="p3", stop="end_turn"),
    )
    history.imported()
    assert history.calls() == 3
    assert history.ends(ONE) == ["completed"] * 3
    assert "concurrent_writers" not in history.notes(ONE)


def test_a_compaction_is_one_note_and_no_prompt(history: History) -> None:
    meta = {"trigger": "auto", "preTokens": 155_000}
    history.claude(
        prompt("p1"),
        said("m1", text("a"), stop="end_turn"),
        system("compact_boundary", logicalParentUuid="a-m1", compactMetadata=meta),
        prompt("c1", "This session is being continued …", isCompactSummary=True),
        prompt("p2"),
        said("m2", text("b"), stop="end_turn"),
    )
    history.imported()
    assert history.notes(ONE).count("compaction") == 1
    assert len(history.events(ONE, "started")) == 2
    assert history.gaps() == {"compaction_unrecorded": 1}


def test_a_project_that_moved_is_one_repository_by_where_it_lies_now(history: History, tmp_path: Path) -> None:
    for name in ("p/.git", "p2"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "p2").rmdir()
    (tmp_path / "p").rename(tmp_path / "p2")
    history.claude(prompt("p1", cwd=str(tmp_path / "p2")), said("m1", text("a"), cwd=str(tmp_path / "p2" / "src")))
    history.claude(
        *of(OTHER, prompt("p1", cwd=str(tmp_path / "p2" / "src")), said("m2", text("a"))),
        name=OTHER,
        project="-elsewhere",
    )
    history.imported()
    assert history.rows("project") == {str(tmp_path / "p2"): (20, 100, 8, 0)}


def test_times_of_lines_are_what_they_say(history: History) -> None:
    assert AT < LATER
    history.claude(prompt("p1"), said("m1", text("a"), stop="end_turn", timestamp=LATER))
    history.imported()
    (started,) = history.events(ONE, "started")
    (usage_event,) = history.events(ONE, "usage")
    assert (started["observed_at"], usage_event["observed_at"]) == (AT, LATER)
