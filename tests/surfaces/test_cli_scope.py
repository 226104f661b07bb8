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


@pytest.mark.parametrize("command", LISTS)
def test_an_unknown_task_is_told_from_one_that_used_nothing(turnlog_: Turnlog, work: str, command: list[str]) -> None:
    said = turnlog_(*command, "--task", "ENG-7")
    assert said.code == 0
    assert "There is no task 'ENG-7': did you mean ENG-77? " in said.err
    with turnlog.open_ledger() as ledger:
        project = ledger.projects()[0].id
        ledger.create_task(project, external_id="linear:ENG-8", identifier="ENG-8")
    assert "There is no" not in turnlog_(*command, "--task", "ENG-8").err


@pytest.mark.parametrize("command", LISTS[:-1])
def test_an_unknown_wave_is_told(turnlog_: Turnlog, work: str, command: list[str]) -> None:
    assert (
        "There is no wave 'payments': did you mean checkout/payments? " in turnlog_(*command, "--wave", "payments").err
    )


def test_an_empty_team_ledger_does_not_claim_to_have_looked_at_the_disk(turnlog_: Turnlog) -> None:
    url = postgres_server.PostgresSetup(postgres_server.shared()).url()
    said = turnlog_("--ledger", url, "usage").err
    assert "looked for" not in said
    assert "a team's ledger holds what is told to it: `turnlog ledger push URL`" in said
    assert "looked for claude in " in turnlog_("usage").err
