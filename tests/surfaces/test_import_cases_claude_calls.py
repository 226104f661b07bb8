"""Kinds of faults of importing Claude Code's files: what is told of calls, models and whole conversations."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.claude_reading import AT, SESSION, prompt, said, system, text, usage
from tests.surfaces.import_history import PROBLEMS, History, kinds

ONE = f"claude:{SESSION}"


def test_models_and_versions_that_change_inside_a_file_split_the_sums(history: History) -> None:
    history.claude(
        prompt("p1"),
        said("m1", text("a"), model="claude-opus-4-5", version="2.1.12", stop="end_turn"),
        prompt("p2", version="2.1.13"),
        said("m2", text("b"), model="claude-sonnet-4-5", version="2.1.13", used=usage(7), stop="end_turn"),
    )
    history.imported()
    assert history.rows("model") == {"claude-opus-4-5": (10, 50, 4, 0), "claude-sonnet-4-5": (10, 7, 4, 0)}
    assert history.sessions()[ONE]["model"] == "claude-sonnet-4-5"


def test_an_answer_that_was_retracted_stays_billed(history: History) -> None:
    history.claude(
        prompt("p1"),
        said("m1", text("no"), uuid="a1"),
        system("model_refusal_fallback", originalModel="x", fallbackModel="y", retractedMessageUuids=["a1"]),
        said("m2", text("yes"), uuid="b1", stop="end_turn"),
    )
    history.imported()
    assert history.calls() == 2
    assert history.turnlog("answer", ONE, "--json").json["text"] == "yes"


def test_an_answer_that_was_aborted_counts_and_its_turn_was_interrupted(history: History) -> None:
    history.claude(prompt("p1"), said("m1", text("hal"), isAbortedMidStream=True), prompt("p2"))
    history.imported()
    assert history.calls() == 1
    assert history.ends(ONE) == ["interrupted"]


def test_calls_of_an_advisor_count_beside_the_message_and_its_own_iterations_do_not(history: History) -> None:
    iterations = [
        {"type": "message", "input_tokens": 10, "output_tokens": 50, "cache_read_input_tokens": 4},
        {"type": "advisor_message", "model": "adviser", "input_tokens": 7, "output_tokens": 3},
    ]
    history.claude(prompt("p1"), said("m1", text("a"), used=usage(iterations=iterations), stop="end_turn"))
    history.imported()
    assert history.rows("model") == {"m-1": (10, 50, 4, 0), "adviser": (7, 3, None, None)}


def test_parts_of_cache_writes_that_do_not_add_up_are_told_and_count(history: History) -> None:
    split = {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 50}
    used = usage() | {"cache_creation_input_tokens": 120, "cache_creation": split}
    history.claude(prompt("p1"), said("m1", text("a"), used=used, stop="end_turn"))
    done = history.imported(code=PROBLEMS)
    assert kinds(done) == ["cache_split"]
    told = history.usage()["totals"]["tokens"]
    assert (told["input"], told["output"], told["cache_write_1h"]) == (10, 50, 50)


def test_a_session_of_two_files_is_told_the_same_whichever_is_read_first(history: History, turnlog_: Any) -> None:
    early = [
        prompt("p1", "the first question", timestamp="2026-02-03T01:00:00Z", cwd="/r/early"),
        said("m1", text("a"), model="old", timestamp="2026-02-03T01:00:01Z", stop="end_turn"),
    ]
    late = [
        prompt("p2", "the second question", timestamp="2026-02-03T02:00:00Z", cwd="/r/late"),
        said("m2", text("b"), model="new", timestamp="2026-02-03T02:00:01Z", stop="end_turn"),
    ]
    paths = [history.claude(*early, name="x"), history.claude(*late, name="y")]
    told = []
    for number, order in enumerate((paths, paths[::-1])):
        ledger = f"sqlite:///{history.root.parent}/{number}.db"
        for place in order:
            assert turnlog_("--ledger", ledger, "import", "--root", str(history.root / place)).code == 0
        (session,) = turnlog_("--ledger", ledger, "sessions", "--all", "--json").json["sessions"]
        told.append([session[name] for name in ("title", "cwd", "model", "created_at")])
    assert told[0] == told[1] == ["the first question", "/r/early", "new", "2026-02-03T01:00:00.000Z"]


def test_a_prompt_that_waited_in_the_queue_is_one_turn(history: History) -> None:
    history.claude(
        prompt("p1"),
        {"type": "queue-operation", "operation": "enqueue", "content": "next", "sessionId": SESSION, "timestamp": AT},
        said("m1", text("a"), stop="end_turn"),
        {"type": "queue-operation", "operation": "dequeue", "sessionId": SESSION, "timestamp": AT},
        prompt("p2", "next"),
        said("m2", text("b"), stop="end_turn"),
    )
    history.imported()
    assert len(history.events(ONE, "started")) == 2
    assert len(history.hits("next", "--role", "user")) == 1


@pytest.mark.parametrize("cut", [None, 2, 3])
def test_input_that_one_line_of_a_call_tells_alone_counts_wherever_the_reading_was_cut(
    history: History, cut: int | None
) -> None:
    zeros = usage(20, 0, cache_read_input_tokens=0)
    entries = [
        prompt("p1"),
        said("m1", text("a"), used=usage(0, 55, cache_read_input_tokens=7, cache_creation_input_tokens=8)),
    ]
    entries += [said("m1", text("b"), uuid="b", used=zeros), said("m1", text("c"), uuid="c", used=zeros)]
    if cut is not None:
        history.claude(*entries[:cut])
        history.imported()
    history.claude(*entries)
    history.imported()
    assert (history.total(), history.calls()) == ((55, 20, 7, 8), 1)
