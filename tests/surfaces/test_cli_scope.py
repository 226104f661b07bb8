"""What a report is narrowed to: work in any spelling, and a word that names nothing is no zero."""

from __future__ import annotations

import pytest

import turnlog
from tests import postgres_server
from tests.surfaces.conftest import Turnlog
from tests.surfaces.scenes import Scene

LISTS = (
    ["usage", "--no-import"],
    ["usage", "total", "--no-import"],
    ["usage", "--binds"],
    ["inputs", "--since", "all"],
    ["sessions"],
)


@pytest.fixture
def work(scene: Scene) -> str:
    """A task with one turn of 10 tokens, under a nested wave."""
    with turnlog.open_ledger(scene.url) as ledger:
        above = ledger.create_wave("checkout", repo="/r")
        wave = ledger.create_wave("payments", repo="/r", parent_id=above.id)
        project = ledger.create_project(wave.id, external_id="p", slug="pay")
        task = ledger.create_task(project.id, external_id="linear:acme/ENG-77", identifier="ENG-77", id="task_77aa")
        session = ledger.create_session(id="session_for", cwd="/r", title="For it")
        ledger.bind_session(session.id, session.captured, task.id)
        ledger.record(session.id, "t", "one", "started", {})
        usage = {"inputTokens": 10, "cachedInputTokens": 0, "outputTokens": 3, "reasoningOutputTokens": 0}
        ledger.record(session.id, "t", "one", "usage", {"total": usage, "last": usage})
        ledger.record(session.id, "t", "one", "completed", {"status": "completed"})
    return task.id


@pytest.mark.parametrize(
    "word", ["ENG-77", "eng-77", "https://linear.app/acme/issue/ENG-77/a-title", "task_77", "77aa"]
)
def test_every_spelling_of_a_task_gives_the_same_numbers(turnlog_: Turnlog, work: str, word: str) -> None:
    totals = turnlog_("usage", "total", "--no-import", "--task", word, "--json").json["totals"]
    assert (totals["tokens"]["input"], totals["tokens"]["output"], totals["streams"]) == (10, 3, 1)
    inputs = turnlog_("inputs", "--since", "all", "--task", word, "--json").json["inputs"]
    assert [each["session_id"] for each in inputs] == ["session_for"]
    assert [each["id"] for each in turnlog_("sessions", "--task", word, "--json").json["sessions"]] == ["session_for"]
    assert [each["session"] for each in turnlog_("usage", "--binds", "--task", word, "--json").json["binds"]] == [
        "session_for"
    ]


def test_a_wave_is_named_by_the_beginning_of_its_id(turnlog_: Turnlog, work: str) -> None:
    with turnlog.open_ledger() as ledger:
        wave = next(each for each in ledger.waves() if each.name == "payments")
    for word in ("checkout/payments", wave.id, wave.id[:12]):
        totals = turnlog_("usage", "total", "--no-import", "--wave", word, "--json").json["totals"]
        assert totals["tokens"]["input"] == 10


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize("command", LISTS)
def test_an_unknown_task_is_refused_and_one_that_used_nothing_is_not(
    turnlog_: Turnlog, work: str, command: list[str], form: list[str]
) -> None:
    said = turnlog_(*command, *form, "--task", "ENG-7")
    assert (said.code, said.out) == (1, "")
    if form:
        assert said.error["code"] == "missing"
        assert said.error["message"] == "no task 'ENG-7'"
    else:
        assert said.err.startswith("turnlog: no task 'ENG-7'\nhint: did you mean ENG-77? ")
    with turnlog.open_ledger() as ledger:
        project = ledger.projects()[0].id
        ledger.create_task(project, external_id="linear:ENG-8", identifier="ENG-8")
    empty = turnlog_(*command, *form, "--task", "ENG-8")
    assert empty.code == 0
    assert "no task" not in empty.err


@pytest.mark.parametrize("command", LISTS[:-1])
@pytest.mark.parametrize(
    ("option", "word", "hint"),
    [("--wave", "payments", "did you mean checkout/payments? "), ("--project", "pey", "did you mean pay? ")],
)
def test_an_unknown_wave_and_project_are_refused(
    turnlog_: Turnlog, work: str, command: list[str], option: str, word: str, hint: str
) -> None:
    said = turnlog_(*command, option, word)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(f"turnlog: no {option[2:]} '{word}'\nhint: {hint}")


@pytest.mark.parametrize("command", [*LISTS, ["run", "--permissions", "deny", "x"], ["bind", "session_for"]])
def test_every_command_refuses_an_unknown_task_alike(turnlog_: Turnlog, work: str, command: list[str]) -> None:
    said = turnlog_(*command, "--task", "ENG-7")
    assert (said.code, said.err.splitlines()[0]) == (1, "turnlog: no task 'ENG-7'")


@pytest.mark.parametrize("command", LISTS)
def test_the_beginning_of_several_ids_is_refused(turnlog_: Turnlog, work: str, command: list[str]) -> None:
    with turnlog.open_ledger() as ledger:
        ledger.create_task(ledger.projects()[0].id, external_id="x", identifier="X-1", id="task_77ab")
    said = turnlog_(*command, "--task", "task_77a")
    assert (said.code, said.err.splitlines()[0]) == (2, "turnlog: task 'task_77a' is ambiguous")


def test_tasks_that_bear_one_name_are_added_up(turnlog_: Turnlog, work: str) -> None:
    with turnlog.open_ledger() as ledger:
        other = ledger.create_project(ledger.create_wave("other", repo="/r").id, external_id="q")
        ledger.create_task(other.id, external_id="linear:acme/ENG-77", identifier="ENG-77")
    totals = turnlog_("usage", "total", "--no-import", "--task", "ENG-77", "--json").json["totals"]
    assert (totals["tokens"]["input"], totals["streams"]) == (10, 1)


@pytest.mark.parametrize("command", [LISTS[0], LISTS[4]])
def test_an_unknown_provider_is_refused_and_one_without_anything_is_not(
    turnlog_: Turnlog, work: str, command: list[str]
) -> None:
    said = turnlog_(*command, "--provider", "claud")
    assert (said.code, said.out) == (2, "")
    assert said.err == "turnlog: no provider 'claud'\nhint: choose one of claude, codex, opencode\n"
    assert turnlog_(*command, "--provider", "claude").code == 0
    with turnlog.open_ledger() as ledger:
        ledger.create_session(cwd="/r", provider="another")
    assert turnlog_(*command, "--provider", "another").code == 0


@pytest.mark.parametrize("word", ["pay", "proj_", "/home/dev/shop", "shop", "/home/dev/shop/"])
def test_a_project_is_work_or_a_repository_that_was_recorded(turnlog_: Turnlog, work: str, word: str) -> None:
    with turnlog.open_ledger() as ledger:
        ledger.create_session(cwd="/home/dev/shop/src", repo="/home/dev/shop")
    said = turnlog_("usage", "total", "--no-import", "--project", word, "--json")
    assert said.code == 0
    assert [row["tokens"]["input"] for row in said.json["rows"]] == ([10] if word in {"pay", "proj_"} else [])


def test_an_unknown_repository_is_told_from_one_without_usage(turnlog_: Turnlog, work: str) -> None:
    with turnlog.open_ledger() as ledger:
        ledger.create_session(cwd="/home/dev/shop/src", repo="/home/dev/shop")
    said = turnlog_("usage", "--no-import", "--project", "shpo")
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        "turnlog: no project 'shpo'\nhint: did you mean shop? "
        "`turnlog usage project` lists repositories, `turnlog work project list` planned ones\n"
    )


def test_an_unknown_caller_is_refused_and_one_that_launched_nothing_is_not(turnlog_: Turnlog, work: str) -> None:
    with turnlog.open_ledger() as ledger:
        key = ledger.find_session("session_for").artifact_key
    for word in ("session_for", key):
        assert turnlog_("inputs", "--caller", word, "--json").json["inputs"] == []
    said = turnlog_("inputs", "--caller", "session_fro")
    assert (said.code, said.err.splitlines()[0]) == (1, "turnlog: no input or session 'session_fro'")


def test_an_empty_team_ledger_does_not_claim_to_have_looked_at_the_disk(turnlog_: Turnlog) -> None:
    url = postgres_server.PostgresSetup(postgres_server.shared()).url()
    said = turnlog_("--ledger", url, "usage").err
    assert "looked for" not in said
    assert "a team's ledger holds what is told to it: `turnlog ledger push URL`" in said
    assert "looked for claude in " in turnlog_("usage").err
