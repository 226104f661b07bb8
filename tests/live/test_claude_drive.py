"""The whole way with the real Claude: command line → driver → program → receipts, killed at every place."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.cli import (
    Cli,
    begun,
    engine_of,
    events,
    hangs,
    kill_group,
    kinds,
    observed,
    session_of,
    status_of,
    until,
)
from turnlog import EventKind
from turnlog.testing.claude_home import claude_home
from turnlog.testing.stub_llm import StubLlm

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

ONE_CALL = {"total_input_tokens": 1600, "input_tokens": 1000, "cache_read_tokens": 400, "output_tokens": 50}
TWO_CALLS = {name: 2 * value for name, value in ONE_CALL.items()}
COST = 0.00623


@pytest.fixture(scope="module")
def stub() -> Iterator[StubLlm]:
    with StubLlm() as running:
        yield running


@pytest.fixture
def cli(stub: StubLlm, tmp_path: Path) -> Cli:
    stub.reset()  # what an earlier test asked is nothing to wait for
    home = claude_home(tmp_path, stub.url)
    return Cli(tmp_path, home.work, home.env, "claude")


def has(usage: dict[str, Any], expected: dict[str, int]) -> bool:
    return {name: usage[name] for name in expected} == expected


def start(cli: Cli, prompt: str, *args: str) -> tuple[Any, str, str]:
    """Start a command; return it, its conversation and the turn that began."""
    running = cli.start("run", "--provider", "claude", *args, prompt)
    session = session_of(cli)
    (started,) = begun(cli, session)
    return running, session, str(started.turn)


def test_a_tool_turn_then_the_next_turn_in_a_new_engine(cli: Cli) -> None:
    first = cli.run("[[stub: tool]] go", "--permissions", "allow")
    session = first["session"]
    assert (first["status"], first["answer"], first["exact"], first["gaps"]) == ("completed", "stub answer", True, 0)
    assert has(first["usage"], TWO_CALLS)
    assert first["usage"]["total_input_tokens"] == 3200
    assert first["usage"]["cost_usd"] == pytest.approx(2 * COST)
    assert kinds(cli, session) == ["requested", "started", "output", "usage", "completed"]

    second = cli.resume(session, "[[stub: text text=again]]")
    assert (second["answer"], second["thread"], second["gaps"]) == ("again", first["thread"], 0)
    assert has(second["usage"], ONE_CALL)
    assert second["usage"]["cost_usd"] == pytest.approx(COST), (
        "the running total of the conversation is not this turn's"
    )
    with cli.ledger() as ledger:
        starts = [event for event in ledger.history(session) if event.kind is EventKind.STARTED]
        assert len({event.exec_id for event in starts}) == 2
        assert None not in {event.exec_id for event in starts}
    assert observed(cli, session, "conflict:") == []
    cli.recover_changes_nothing(session)
    assert observed(cli, session, "conflict:") == []


def test_an_error_of_the_model_and_one_that_passes(cli: Cli) -> None:
    failed = cli.run("[[stub: error400]] go", code=1)
    assert (failed["status"], failed["answer"]) == ("failed", None)
    assert "stub error 400" in failed["error"]
    passed = cli.resume(failed["session"], "[[stub: flaky429]] go")
    assert passed["status"] == "completed"
    assert has(passed["usage"], ONE_CALL)


def test_ctrl_c_interrupts_and_records_it(cli: Cli) -> None:
    running, session, turn = start(cli, "[[stub: slow n=600 delay=0.1]] go")
    running.signal(signal.SIGINT)
    result = running.result(130)
    assert (result["status"], result["turn"]) == ("interrupted", turn)
    assert status_of(cli, session, turn) == "interrupted"
    cli.recover_changes_nothing(session)


def test_the_engine_is_killed_while_the_model_hangs(cli: Cli, stub: StubLlm) -> None:
    running, session, turn = start(cli, "[[stub: hang]] go")
    hangs(stub)
    kill_group(engine_of(cli, session))
    result = running.result(5)
    assert (result["status"], result["answer"]) == ("unknown", None)
    assert turn in str(cli("recover", session, code=5)), "it stays unknown"
    assert status_of(cli, session, turn) is None, "nobody said that it ended"
    cli.recover_changes_nothing(session)
    assert cli.resume(session, "[[stub: text]] go")["status"] == "completed"
    assert status_of(cli, session, turn) is None


def test_turnlog_is_killed_and_the_engine_finishes_alone(cli: Cli, stub: StubLlm) -> None:
    running, session, turn = start(cli, "[[stub: hang text=said_by_nobody_but_itself]] go")
    hangs(stub)
    running.kill()
    stub.release()
    report = cli("recover", session)
    assert turn in str(report)
    assert status_of(cli, session, turn) == "completed", "its own file tells the end"
    assert cli("answer", session)["text"] == "said by nobody but itself"
    with cli.ledger() as ledger:
        usage = ledger.input_history(events(cli, session)[0].payload.get("artifact_key") or session).usage
    assert (usage.total_input_tokens, usage.output_tokens) == (1600, 50)
    cli.recover_changes_nothing(session)
    second = cli.resume(session, "[[stub: text text=next]] go")
    assert second["answer"] == "next"
    assert has(second["usage"], ONE_CALL)
    # The file tells no running total to go on from: the cost is unknown unless the wire tells it by itself.
    assert second["usage"]["cost_usd"] is None or second["usage"]["cost_usd"] == pytest.approx(COST)


def test_turnlog_and_the_engine_are_killed(cli: Cli, stub: StubLlm) -> None:
    running, session, turn = start(cli, "[[stub: hang]] go")
    hangs(stub)
    engine = engine_of(cli, session)
    running.kill()
    kill_group(engine)
    cli("recover", session, code=5)
    assert status_of(cli, session, turn) is None
    assert cli.resume(session, "[[stub: text]] go")["status"] == "completed"


def test_a_steer_goes_into_the_running_turn(cli: Cli) -> None:
    running, session, turn = start(cli, "[[stub: loop n=99 cmd=true_&&_sleep_0.5]] go", "--permissions", "allow")
    assert cli("steer", session, "[[stub: text text=steered]] rather this")
    result = running.result()
    assert (result["status"], result["answer"], result["turn"]) == ("completed", "steered", turn)
    assert observed(cli, session, f"absorbed:{result['thread']}:")


def test_prompts_that_wait_are_never_lost(cli: Cli, stub: StubLlm) -> None:
    running, session, _ = start(cli, "[[stub: hang]] go")
    hangs(stub)
    cli("steer", session, "[[stub: text text=one]]")
    cli("steer", session, "[[stub: text text=two]]")
    stub.release()
    result = running.result()
    assert (result["status"], result["answer"]) == ("completed", "two"), "the command waits for what was said into it"
    with cli.ledger() as ledger:
        assert ledger.outstanding_intents(session) == []


@pytest.mark.parametrize(("answer", "output"), [("once", True), ("reject", False)])
def test_a_permission_is_answered_from_another_process(cli: Cli, answer: str, output: bool) -> None:
    running, session, _ = start(cli, "[[stub: tool cmd=touch_made]] go", "--permissions", "ask")
    (asked,) = until(lambda: observed(cli, session, "permission:"), "a question")
    ask_id = asked.payload["source"].split(":")[1]
    cli("permit", session, ask_id, answer)
    assert running.result()["status"] == "completed"
    assert (cli.work / "made").exists() is output
    answered = observed(cli, session, f"permission:{ask_id}:answered")[0].payload["evidence"]
    assert answered["answer"] == answer


def test_without_a_terminal_nothing_is_allowed(cli: Cli) -> None:
    result = cli.run("[[stub: tool cmd=touch_made]] go")
    assert result["status"] == "completed"
    assert not (cli.work / "made").exists()


def test_a_missing_program_leaves_nothing_behind(cli: Cli) -> None:
    cli.env["TURNLOG_CLAUDE_BIN"] = "/dev/null/none"
    refused = cli.run("hello", code=1)
    assert refused["error"]["hint"]
    with cli.ledger() as ledger:
        assert ledger.sessions(all=True) == []
