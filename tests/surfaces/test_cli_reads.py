"""Reading commands: what they say to a person and to a program, and what they do not make up."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

import turnlog
from tests.surfaces.conftest import Turnlog
from tests.surfaces.scenes import BAD, BEGIN, DONE, OPEN, Scene

CONTROL = ("\x1b", "\x07", "\x9b")


def cells(line: str, skip: int = 0) -> str:
    return " ".join(line.split()[skip:])


def instant(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


# --- sessions


def test_sessions(turnlog_: Turnlog, scene: Scene) -> None:
    shown = turnlog_("sessions")
    assert shown.code == 0
    head, first, second = shown.lines
    assert head.split() == ["SESSION", "STATE", "TURN", "PROVIDER", "MODEL", "CREATED", "WORK", "TITLE", "FOLDER"]
    assert first.split()[:5] == ["aaaa00000000", "unknown", "failed", "opencode", "stub/stub-model"]
    assert "Fix the login test" in first
    assert second.split()[:5] == ["aaab00000000", "unknown", "unfinished", "opencode", "-"]
    assert shown.err == "closed conversations: --all\n"


def test_sessions_as_json(turnlog_: Turnlog, scene: Scene) -> None:
    value = turnlog_("sessions", "--json").json
    assert (value["schema_version"], value["next"]) == (1, None)
    first, second = value["sessions"]
    assert first["id"] == scene.fixed
    assert first["title"] == "Fix the \x1b[31mlogin\x1b[0m test"  # a program gets what is recorded
    assert first["created_at"] == instant(BEGIN)
    assert (first["latest_turn"], first["state"], first["completed_at"]) == ("failed", "unknown", None)
    assert (second["latest_turn"], second["state"]) == ("running", "unknown")
    assert set(turnlog.Session.__struct_fields__) | {"latest_turn", "state", "work"} == set(first)


def test_sessions_all_and_closed(turnlog_: Turnlog, scene: Scene) -> None:
    value = turnlog_("sessions", "--all", "--json").json
    assert [each["state"] for each in value["sessions"]] == ["unknown", "unknown", "closed"]
    assert turnlog_("sessions", "--all").err == ""


def test_a_session_is_active_only_while_its_driver_lives(turnlog_: Turnlog, scene: Scene) -> None:
    with turnlog.open_ledger(scene.url) as ledger:
        mine = ledger.start_exec(command="this test")
        ledger.claim_driver(scene.fixed, ledger.driver(scene.fixed), mine.id)
        session = ledger.session(scene.gappy)
        assert session is not None
        ledger.ready_session(scene.gappy, session.captured, "please look")
    states = {each["id"]: each["state"] for each in turnlog_("sessions", "--json").json["sessions"]}
    assert states == {scene.fixed: "active", scene.gappy: "ready"}
    assert [each["id"] for each in turnlog_("sessions", "--needs-me", "--json").json["sessions"]] == [scene.gappy]
    with turnlog.open_ledger(scene.url) as ledger:
        ledger.end_exec(mine.id, "failed")
    assert turnlog_("sessions", "--json").json["sessions"][0]["state"] == "unknown"


def test_sessions_by_pages(turnlog_: Turnlog, scene: Scene) -> None:
    first = turnlog_("sessions", "--all", "--limit", "2", "--json").json
    assert [each["id"] for each in first["sessions"]] == [scene.fixed, scene.gappy]
    assert first["next"] == scene.gappy
    second = turnlog_("sessions", "--all", "--limit", "2", "--cursor", first["next"], "--json").json
    assert ([each["id"] for each in second["sessions"]], second["next"]) == ([scene.closed], None)
    assert turnlog_("sessions", "--limit", "1").err == f"more: --cursor {scene.fixed}\n"
    assert len(turnlog_("sessions", "--all", "--limit", "0", "--json").json["sessions"]) == 3


def test_sessions_searched_and_filtered(turnlog_: Turnlog, scene: Scene) -> None:
    assert [each["id"] for each in turnlog_("sessions", "--search", "LOGIN", "--json").json["sessions"]] == [
        scene.fixed
    ]
    assert turnlog_("sessions", "--provider", "codex", "--json").json == {
        "schema_version": 1,
        "sessions": [],
        "next": None,
    }
    assert turnlog_("sessions", "--task", "NO-1").err.splitlines() == [
        "turnlog: no task 'NO-1'",
        "hint: `turnlog work task list` lists them, `turnlog work task create` makes one",
    ]


# --- which one is meant


def test_a_unique_beginning_of_an_id_is_enough(turnlog_: Turnlog, scene: Scene) -> None:
    for word in (scene.fixed, "session_aaaa", "aaaa", "aaaa0000"):
        assert turnlog_("show", word, "--json").json["session"]["id"] == scene.fixed


@pytest.mark.parametrize("command", ["show", "history", "steer", "interrupt", "resume", "recover"])
def test_ambiguous_and_unknown_ids_are_refused(turnlog_: Turnlog, scene: Scene, command: str) -> None:
    extra = ["text"] if command in {"steer", "resume"} else []
    ambiguous, unknown = turnlog_(command, "aaa", *extra), turnlog_(command, "ffff", *extra, "--json")
    assert (ambiguous.code, unknown.code) == (2, 1)
    assert ambiguous.err == "turnlog: session aaa is ambiguous\nhint: give more characters of the id\n"
    assert unknown.error["code"] == "missing"


# --- show


def test_show(turnlog_: Turnlog, scene: Scene) -> None:
    shown = turnlog_("show", "aaaa")
    assert shown.code == 0
    assert shown.lines[0] == "Fix the login test"
    for line in (
        "state      unknown, newest turn: failed",
        "folder     /home/me/project",
        "provider   opencode, model stub/stub-model",
        "thread     ses_1",
        "driver     nobody drives it",
        "inputs     111100000000",
        f"  {BAD} failed: rate limited",
        "input 12,000 · cache read 3,000 · cache write 0 · output 800 · of it reasoning 0",
        "cost $0.0123 as reported · 1 of 1 stream final",
        f"answer (turn {DONE})",
        "It was the time zone.",
    ):
        assert line in shown.lines
    done, bad = (next(line for line in shown.lines if line.startswith(turn)) for turn in (DONE, BAD))
    assert done.split()[-6:] == ["completed", "12,000", "800", "3,000", "$0.0123", "0"]
    assert bad.split()[-6:] == ["failed", "-", "-", "-", "-", "0"]


def test_show_tells_what_is_not_known(turnlog_: Turnlog, scene: Scene) -> None:
    shown = turnlog_("show", scene.gappy)
    text = shown.out
    assert "state      unknown, newest turn: unfinished\n" in text
    assert "not running any more\n" in text
    assert "engine     http://127.0.0.1:4096, running or not: unknown\n" in text
    assert "input ≥1,200,000 · cache read ≥0" in text
    assert "cost unknown · 1 of 1 stream final\n" in text
    assert "≥ 1 × schema: a value had a shape that is not understood; nothing was made up for it\n" in text
    assert "bash: rm build\n  turnlog permit aaab00000000 per_one once|always|reject\n" in text
    assert "per_two" not in text
    assert "no process is known to run that could take an answer\n" in text
    assert "answer (" not in text


def test_show_as_json(turnlog_: Turnlog, scene: Scene) -> None:
    value = turnlog_("show", scene.gappy, "--json").json
    assert value["schema_version"] == 1
    assert value["thread"] == "ses_2"
    assert value["driver"]["liveness"] == "dead"
    assert value["engine"]["endpoint"] == "http://127.0.0.1:4096"
    assert [each["turn"] for each in value["turns"]] == [OPEN]
    assert value["turns"][0]["status"] is None
    assert {each["id"]: each["answer"] for each in value["questions"]} == {"per_one": None, "per_two": "once"}
    assert value["inputs"][0]["usage"]["gap_list"][0]["kind"] == "schema"
    assert value["answer"] is None
    finished = turnlog_("show", scene.fixed, "--json").json
    assert [(each["turn"], each["status"]) for each in finished["turns"]] == [(DONE, "completed"), (BAD, "failed")]
    assert finished["driver"]["exec_id"] is None


def test_show_of_a_closed_conversation_without_turns(turnlog_: Turnlog, scene: Scene) -> None:
    text = turnlog_("show", scene.closed).out
    assert "state      closed, newest turn: -\n" in text
    assert "engine     none recorded\n" in text
    assert "nothing was reported" in text


# --- history


def test_history(turnlog_: Turnlog, scene: Scene) -> None:
    shown = turnlog_("history", scene.gappy)
    assert shown.lines[0].split() == ["SEQ", "TIME", "TURN", "KIND", "WHAT"]
    kinds = [line.split()[4] for line in shown.lines[1:]]
    assert kinds == ["captured", "started", "usage", "usage", "observed", "observed", "observed"]
    assert "may it? " in shown.out
    assert "(per_one)" in shown.out


def test_history_as_json_is_the_events(turnlog_: Turnlog, scene: Scene) -> None:
    value = turnlog_("history", scene.fixed, "--json").json
    assert all(set(each) == set(turnlog.Event.__struct_fields__) for each in value)
    with turnlog.open_ledger(scene.url) as ledger:
        events = ledger.history(scene.fixed)
    assert [(each["seq"], each["kind"], each["payload"]) for each in value] == [
        (event.seq, event.kind.value, event.payload) for event in events
    ]
    assert value[0]["observed_at"] == instant(BEGIN)
    first = events[0].seq
    after = turnlog_("history", scene.fixed, "--after", str(first), "--limit", "2", "--json").json
    assert [each["seq"] for each in after] == [event.seq for event in events[1:3]]


def test_history_continues(turnlog_: Turnlog, scene: Scene) -> None:
    value = turnlog_("history", scene.fixed, "--json").json
    assert turnlog_("history", scene.fixed, "--limit", "1").err == f"more: --after {value[0]['seq']}\n"
    last = str(value[-1]["seq"])
    assert turnlog_("history", scene.fixed, "--after", last).err == f"no receipts after seq {last}\n"
    assert turnlog_("history", scene.fixed, "--after", last, "--json").json == []
    assert turnlog_("history", scene.fixed, "--limit", "0").code == 2


# --- answer


def test_answer(turnlog_: Turnlog, scene: Scene) -> None:
    for word in ("aaaa", scene.fixed, "11110000000000000000000000000001", "1111"):
        shown = turnlog_("answer", word)
        assert (shown.code, shown.out) == (0, "It was the time zone.\nFixed.\n")
    value = turnlog_("answer", "aaaa", "--json").json
    assert value["schema_version"] == 1
    assert value["text"] == "It was \x1b[31mthe time zone\x1b[0m.\nFixed."
    assert (value["value"], value["turn"], value["gaps"]) == (None, DONE, [])


def test_answer_says_when_it_is_not_the_newest_turns(turnlog_: Turnlog, scene: Scene) -> None:
    with turnlog.open_ledger(scene.url) as ledger:
        answer = ledger.final_answer("11110000000000000000000000000001")
    assert answer is not None
    shown = turnlog_("answer", "aaaa")
    assert (f"of turn {DONE}" in shown.err) is not answer.exact
    assert turnlog_("answer", "aaaa", "--json").json["exact"] is answer.exact


def test_a_structured_answer_is_printed_as_json(turnlog_: Turnlog, scene: Scene) -> None:
    with turnlog.open_ledger(scene.url) as ledger:
        ledger.record(scene.gappy, "ses_2", OPEN, "output", {"value": {"verdict": "ok"}})
        ledger.record(scene.gappy, "ses_2", OPEN, "completed", {"status": "completed"})
    assert json.loads(turnlog_("answer", "aaab").out) == {"verdict": "ok"}
    assert turnlog_("answer", "aaab", "--json").json["value"] == {"verdict": "ok"}


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("aaab", "its newest turn has no completion yet; `turnlog recover aaab00000000` looks it up"),
        ("cccc", "no turn of it has begun; `turnlog show cccc00000000` tells more"),
    ],
)
def test_no_answer_says_why(turnlog_: Turnlog, scene: Scene, word: str, hint: str) -> None:
    shown = turnlog_("answer", word)
    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith(f"turnlog: no answer is recorded for {word}\nhint: {hint}")


# --- inputs


def test_inputs(turnlog_: Turnlog, scene: Scene) -> None:
    shown = turnlog_("inputs", "--since", "all")
    rows = {line.split()[-1]: line for line in shown.lines[1:]}
    titles = ["TIME", "REPO", "WORK", "SESSION", "STATUS", "INPUT", "OUTPUT", "CACHE", "READ", "COST", "FINAL", "GAPS"]
    assert shown.lines[0].split() == [*titles, "INPUT", "ID"]
    assert (
        cells(rows["111100000000"], 2)
        == "project - aaaa00000000 completed → failed 12,000 800 3,000 $0.0123 1/1 0 111100000000"
    )
    assert cells(rows["222200000000"], 2) == "- - aaab00000000 unknown ≥1,200,000 ≥80,000 ≥0 - 1/1 1 222200000000"
    assert cells(rows["333300000000"], 2) == "- - cccc00000000 unknown - - - - 0/0 0 333300000000"


def test_inputs_as_json(turnlog_: Turnlog, scene: Scene) -> None:
    value = turnlog_("inputs", "--since", "all", "--json").json
    assert (value["schema_version"], value["truncated"]) == (1, False)
    record = next(each for each in value["inputs"] if each["artifact_key"].startswith("1111"))
    assert set(record) == set(turnlog.InputHistory.__struct_fields__)
    assert record["observed_at"] == instant(BEGIN)
    assert [each["outcome"] for each in record["providers"]] == ["completed", "failed"]
    assert record["providers"][0]["started_at"].startswith("2026-02-02T02:40:")
    assert record["usage"]["input_tokens"] == 12_000


def test_inputs_of_a_window(turnlog_: Turnlog, scene: Scene) -> None:
    assert turnlog_("inputs", "--since", "2999-01-01").err == "No input was recorded since 2999-01-01 00:00.\n"
    assert turnlog_("inputs", "--since", "1h", "--wave", "nope").code == 1, "no such wave"
    assert turnlog_("inputs", "--since", "2999-01-01T00:00:00Z", "--json").json["inputs"] == []
    assert turnlog_("inputs").err.startswith("No input was recorded since "), "seven days unless told otherwise"
    assert len(turnlog_("inputs", "--since", "2026-02-02", "--json").json["inputs"]) == 3
    assert turnlog_("inputs", "--since", "yesterday").code == 2


def test_inputs_of_a_caller(turnlog_: Turnlog, scene: Scene) -> None:
    key = "11110000000000000000000000000001"
    with turnlog.open_ledger(scene.url) as ledger:
        child = ledger.create_session(title="child", cwd="/w", caller=key)
    value = turnlog_("inputs", "--caller", key, "--json").json
    assert [each["artifact_key"] for each in value["inputs"]] == [child.artifact_key]
    assert [each["session_id"] for each in turnlog_("inputs", "--caller", scene.fixed, "--json").json["inputs"]] == [
        child.id
    ]


def test_inputs_say_when_there_are_more(turnlog_: Turnlog, scene: Scene) -> None:
    with turnlog.open_ledger(scene.url) as ledger:
        for _ in range(2):
            driver_exec = ledger.start_exec()
            session = ledger.create_session(cwd="/w", title="short")
            driver = ledger.claim_driver(session.id, None, driver_exec.id)
            ledger.record_turn_origin(session.id, "t", "u", driver.provider_generation, driver_exec.id)
            ledger.record(session.id, "t", "u", "completed", {"status": "completed"})
            ledger.finish_driver(session.id, driver, "completed")
    shown = turnlog_("inputs", "--limit", "1")
    assert turnlog_("inputs", "--limit", "1", "--json").json["truncated"] is True
    assert shown.err == "there are more: --limit (now 1)\n"


# --- usage


def test_usage_total(turnlog_: Turnlog, scene: Scene) -> None:
    shown = turnlog_("usage", "--timezone", "UTC")
    head, row = shown.lines
    assert head.split()[6:] == ["REPORTED", "ESTIMATED", "CALLS", "FINAL", "GAPS"]
    assert cells(row) == "total ≥1,212,000 ≥80,800 ≥3,000 ≥0 ≥$0.0123 - 2 2/2 1"
    assert "time zone UTC · estimates by genai-prices " in shown.err
    assert "≥ 1 call without a price and without a reported cost\n" in shown.err
    assert "≥ 1 × schema: " in shown.err


def test_usage_total_as_json(turnlog_: Turnlog, scene: Scene) -> None:
    value = turnlog_("usage", "total", "--timezone", "UTC", "--json").json
    assert value["schema_version"] == 1
    assert value["timezone"] == "UTC"
    (row,) = value["rows"]
    assert row == value["totals"]
    assert row["tokens"] == {
        "input": 1_212_000,
        "output": 80_800,
        "total_input": 1_215_000,
        "cache_read": 3_000,
        "cache_write": 0,
        "cache_write_1h": None,
        "reasoning": 0,
    }
    assert row["gaps"] == [{"kind": "schema", "count": 1}]
    assert row["cost"] == {"reported_usd": 0.0123, "estimated_usd": None, "unpriced_calls": 1, "low_estimates": 0}
    assert (row["calls"], row["streams"], row["final_streams"]) == (2, 2, 2)


def test_usage_by_session(turnlog_: Turnlog, scene: Scene) -> None:
    rows = {each["key"]: each for each in turnlog_("usage", "session", "--json").json["rows"]}
    assert set(rows) == {scene.fixed, scene.gappy}
    assert rows[scene.fixed]["native"] == {"provider": "opencode", "id": "ses_1"}
    shown = turnlog_("usage", "session").lines
    assert cells(shown[1]) == "aaaa00000000 12,000 800 3,000 0 $0.0123 - 1 1/1 0"
    assert shown[-1].split()[0] == "total"


def test_usage_by_day_in_a_zone(turnlog_: Turnlog, scene: Scene) -> None:
    rows = turnlog_("usage", "daily", "--timezone", "UTC", "--json").json["rows"]
    assert [each["key"] for each in rows] == ["2026-02-02", "2026-02-03"]
    other = turnlog_("usage", "daily", "--timezone", "Pacific/Honolulu", "--since", "2026-01-01").lines
    assert [line.split()[0] for line in other[1:-1]] == ["2026-02-01", "2026-02-02"]
    only = turnlog_("usage", "daily", "--timezone", "UTC", "--until", "2026-02-02", "--json").json["rows"]
    assert [each["key"] for each in only] == ["2026-02-02"]
    assert turnlog_("usage", "--since", "2030-01-01", "--timezone", "UTC").err == (
        "No usage was recorded since 2030-01-01 (time zone UTC).\n"
    )


def test_usage_by_model_and_broken_down(turnlog_: Turnlog, scene: Scene) -> None:
    value = turnlog_("usage", "model", "--json").json
    assert value["rows"][0]["key"] == "stub-model"
    assert "models" not in value["rows"][0]
    models = turnlog_("usage", "total", "--breakdown", "--json").json["rows"][0]["models"]
    assert [each["key"] for each in models] == ["stub-model"]
    assert turnlog_("usage", "--breakdown").lines[2].startswith("  stub-model")


@pytest.mark.parametrize(
    "options", [["--timezone", "Nowhere/Land"], ["--since", "sometime"], ["--until", "2026-02-30"]]
)
def test_usage_with_a_senseless_bound_is_refused(turnlog_: Turnlog, scene: Scene, options: list[str]) -> None:
    assert turnlog_("usage", *options).code == 2


# --- foreign text


@pytest.mark.parametrize("command", ["sessions", "show", "history", "answer"])
def test_no_command_prints_foreign_escapes(turnlog_: Turnlog, scene: Scene, command: str) -> None:
    argv = [command] if command == "sessions" else [command, scene.fixed]
    for options in ([], ["--json"]):
        shown = turnlog_(*argv, *options)
        assert shown.out
        assert not [char for char in CONTROL if char in shown.out + shown.err]


def test_json_escapes_what_a_terminal_might_obey(turnlog_: Turnlog, scene: Scene) -> None:
    title = "a\x9b31m\x7f\u202eb"
    with turnlog.open_ledger(scene.url) as ledger:
        session = ledger.create_session(title=title, cwd="/w")
    shown = turnlog_("show", session.id, "--json")
    assert shown.json["session"]["title"] == title
    assert "\\u009b31m\\u007f\\u202e" in shown.out
