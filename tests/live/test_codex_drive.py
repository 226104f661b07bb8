"""The whole way with the real Codex: command line → driver → program → receipts, killed at every place."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.live.cli import Cli, begun, engine_of, hangs, kill_group, kinds, observed, session_of, status_of, until
from turnlog import EventKind
from turnlog.testing.codex_home import codex_home
from turnlog.testing.stub_llm import StubLlm

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

ONE_CALL = {"total_input_tokens": 1600, "input_tokens": 1000, "cache_read_tokens": 400, "output_tokens": 50}
TWO_CALLS = {name: 2 * value for name, value in ONE_CALL.items()}


@pytest.fixture(scope="module")
def stub() -> Iterator[StubLlm]:
    with StubLlm() as running:
        yield running


@pytest.fixture
def cli(stub: StubLlm, tmp_path: Path) -> Cli:
    stub.reset()  # what an earlier test asked is nothing to wait for
    home = codex_home(tmp_path, stub.url)
    return Cli(tmp_path, home.work, home.env, "codex")


def has(usage: dict[str, Any], expected: dict[str, int]) -> bool:
    return {name: usage[name] for name in expected} == expected


def test_a_tool_turn_then_the_next_turn_in_a_new_engine(cli: Cli) -> None:
    first = cli.run("[[stub: tool]] go", "--permissions", "allow")
    session = first["session"]
    assert (first["status"], first["answer"], first["exact"], first["gaps"]) == ("completed", "stub answer", True, 0)
    assert has(first["usage"], TWO_CALLS)
    assert first["usage"]["total_input_tokens"] == 3200
    assert kinds(cli, session) == ["requested", "started", "usage", "usage", "output", "completed"]

    second = cli.resume(session, "[[stub: text text=again]]")
    assert (second["answer"], second["thread"], second["gaps"]) == ("again", first["thread"], 0)
    assert has(second["usage"], ONE_CALL), "the running totals of the conversation are not this turn's"
    with cli.ledger() as ledger:
        assert ledger.input_history(first["artifact_key"]).usage.total_input_tokens == 3200
        starts = [event for event in ledger.history(session) if event.kind is EventKind.STARTED]
        assert len({event.exec_id for event in starts}) == 2
        assert None not in {event.exec_id for event in starts}
    cli.recover_changes_nothing(session)


def test_an_error_of_the_model_and_one_that_passes(cli: Cli) -> None:
    failed = cli.run("[[stub: error400]] go", code=1)
    assert (failed["status"], failed["answer"]) == ("failed", None)
    assert "stub error 400" in failed["error"]
    passed = cli.resume(failed["session"], "[[stub: flaky429 after=0]] go")
    assert passed["status"] == "completed"
    assert has(passed["usage"], ONE_CALL)
    cli.recover_changes_nothing(failed["session"])


def test_ctrl_c_interrupts_and_records_it(cli: Cli) -> None:
    running = cli.start("run", "--provider", "codex", "[[stub: slow n=600 delay=0.1]] go")
    session = session_of(cli)
    begun(cli, session)
    running.signal(signal.SIGINT)
    result = running.result(130)
    assert result["status"] == "interrupted"
    assert status_of(cli, session, result["turn"]) == "interrupted"
    cli.recover_changes_nothing(session)


def test_the_engine_is_killed_while_the_model_hangs(cli: Cli, stub: StubLlm) -> None:
    running = cli.start("run", "--provider", "codex", "[[stub: hang]] go")
    session = session_of(cli)
    (start,) = begun(cli, session)
    hangs(stub)
    kill_group(engine_of(cli, session))
    result = running.result(5)
    assert (result["status"], result["answer"]) == ("unknown", None)
    assert status_of(cli, session, str(start.turn)) is None
    cli("recover", session)
    assert status_of(cli, session, str(start.turn)) == "interrupted", "Codex says so, and its process is gone"
    cli.recover_changes_nothing(session)
    after = cli.resume(session, "[[stub: text]] go")
    assert after["status"] == "completed"
    assert has(after["usage"], ONE_CALL)


def test_turnlog_is_killed_and_the_next_one_goes_on(cli: Cli, stub: StubLlm) -> None:
    running = cli.start("run", "--provider", "codex", "[[stub: hang]] go")
    session = session_of(cli)
    (start,) = begun(cli, session)
    hangs(stub)
    engine = engine_of(cli, session)
    running.kill()
    second = cli.resume(session, "[[stub: text text=next]] go")
    assert second["answer"] == "next"
    assert not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE
    # The pipe ended with turnlog, and Codex with the pipe: it wrote the end of the turn down by itself.
    assert status_of(cli, session, str(start.turn)) == "interrupted"
    with cli.ledger() as ledger:
        assert ledger.outstanding_intents(session) == []
    cli.recover_changes_nothing(session)


def test_a_steer_from_another_terminal(cli: Cli) -> None:
    running = cli.start("run", "--provider", "codex", "[[stub: slow n=600 delay=0.1]] go")
    session = session_of(cli)
    (start,) = begun(cli, session)
    cli("steer", session, "[[stub: text text=steered]]")
    result = running.result()
    assert (result["answer"], result["turn"]) == ("steered", start.turn)
    assert len(observed(cli, session, "absorbed:")) == 1
    with cli.ledger() as ledger:
        assert ledger.outstanding_intents(session) == [], "the steer ended with its turn"
    cli.recover_changes_nothing(session)


def test_a_permission_answered_from_another_terminal(cli: Cli) -> None:
    target = cli.work / "made"
    running = cli.start("run", "--provider", "codex", "--permissions", "ask", "[[stub: tool cmd=touch_made]] go")
    session = session_of(cli)
    (asked,) = until(lambda: observed(cli, session, "permission:"), "a question")
    name = asked.payload["source"].removeprefix("permission:").removesuffix(":asked")
    cli("permit", session, name, "once")
    assert running.result()["status"] == "completed"
    assert target.exists()


def test_an_answer_to_a_schema(cli: Cli, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    body = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    schema.write_text(json.dumps(body))
    result = cli.run('[[stub: text text={"a":1}]] go', "--schema", str(schema))
    assert result["value"] == {"a": 1}
    cli.recover_changes_nothing(result["session"])


def test_a_subagent_is_a_conversation_of_its_own(cli: Cli, stub: StubLlm) -> None:
    result = cli.run("[[stub: subagent sub=text]] go", "--permissions", "allow")
    own = [entry for entry in stub.log() if "sub agent prompt" not in entry["user"]]
    assert len(own) in {2, 3}, "a third when the subagent is done first: its end is told to the running turn"
    assert {name: result["usage"][name] for name in ONE_CALL} == {name: len(own) * ONE_CALL[name] for name in ONE_CALL}
    cli.recover_changes_nothing(result["session"])
