"""One contract, three real programs: the same command lines, receipts, exit codes and honesty."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.cli import Cli, begun, engine_of, events, hangs, kill_group, observed, session_of, status_of, until
from tests.live.programs import PROVIDERS, command_line
from turnlog import EventKind
from turnlog.testing.stub_llm import StubLlm

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def stub() -> Iterator[StubLlm]:
    with StubLlm() as running:
        yield running


@pytest.fixture(params=PROVIDERS)
def cli(request: pytest.FixtureRequest, stub: StubLlm, tmp_path: Path) -> Cli:
    stub.reset()  # what an earlier test asked is nothing to wait for
    return command_line(str(request.param), tmp_path, stub)


def origins(cli: Cli, session: str) -> list[bool]:
    """For each start: whether it is ours."""
    return [event.exec_id is not None for event in events(cli, session) if event.kind is EventKind.STARTED]


def test_the_same_work_gives_the_same_numbers(cli: Cli) -> None:
    first = cli.run("[[stub: tool]] go", "--permissions", "allow")
    session = first["session"]
    assert (first["status"], first["answer"], first["exact"]) == ("completed", "stub answer", True)
    usage: dict[str, Any] = first["usage"]
    assert (usage["total_input_tokens"], usage["cache_read_tokens"], usage["output_tokens"]) == (3200, 800, 100)
    assert usage["gaps"] == 0
    second = cli.resume(session, "[[stub: text text=again]]")
    assert (second["answer"], second["thread"]) == ("again", first["thread"])
    usage = second["usage"]
    assert (usage["total_input_tokens"], usage["cache_read_tokens"], usage["output_tokens"]) == (1600, 400, 50)
    assert usage["gaps"] == 0, "running totals of the first turn are its predecessor's, not a gap"
    assert origins(cli, session) == [True, True]
    totals = cli("usage", "total")["totals"]["tokens"]
    assert (totals["total_input"], totals["output"]) == (4800, 150)
    assert cli("answer", session)["text"] == "again"
    cli.recover_changes_nothing(session)


def test_an_error_fails_the_turn_and_the_next_one_works(cli: Cli) -> None:
    failed = cli.run("[[stub: error400]] go", code=1)
    assert failed["status"] == "failed"
    assert status_of(cli, failed["session"], failed["turn"]) == "failed"
    assert cli.resume(failed["session"], "[[stub: text]] go")["status"] == "completed"
    cli.recover_changes_nothing(failed["session"])


def test_ctrl_c_interrupts_and_records_it(cli: Cli) -> None:
    running = cli.start("run", "--provider", cli.provider, "[[stub: slow n=600 delay=0.1]] go")
    session = session_of(cli)
    begun(cli, session)
    running.signal(signal.SIGINT)
    result = running.result(130)
    assert result["status"] == "interrupted"
    assert status_of(cli, session, result["turn"]) == "interrupted"
    cli.recover_changes_nothing(session)
    assert cli.resume(session, "[[stub: text]] go")["status"] == "completed"


def test_the_engine_is_killed_while_the_model_hangs(cli: Cli, stub: StubLlm) -> None:
    running = cli.start("run", "--provider", cli.provider, "[[stub: hang]] go")
    session = session_of(cli)
    (start,) = begun(cli, session)
    hangs(stub)
    kill_group(engine_of(cli, session))
    result = running.result(5)
    assert (result["status"], result["answer"]) == ("unknown", None)
    assert result["gaps"] >= 1
    cli("recover", session, code=None)
    before = status_of(cli, session, str(start.turn))
    assert before in {None, "interrupted"}, "only a program that itself says so may call it interrupted"
    cli.recover_changes_nothing(session)
    assert cli.resume(session, "[[stub: text text=on]] go")["answer"] == "on"


def test_turnlog_is_killed_while_the_model_hangs(cli: Cli, stub: StubLlm) -> None:
    running = cli.start("run", "--provider", cli.provider, "[[stub: hang text=held]] go")
    session = session_of(cli)
    (start,) = begun(cli, session)
    hangs(stub)
    assert cli.resume(session, "[[stub: text]] early", code=4)["error"]["code"] == "driven"
    running.kill()
    stub.release()
    assert cli.resume(session, "[[stub: text text=next]] go")["answer"] == "next"
    assert origins(cli, session) == [True, True]
    assert status_of(cli, session, str(start.turn)) in {None, "completed", "interrupted"}
    cli.recover_changes_nothing(session)


def test_turnlog_and_the_engine_are_killed(cli: Cli, stub: StubLlm) -> None:
    running = cli.start("run", "--provider", cli.provider, "[[stub: hang]] go")
    session = session_of(cli)
    begun(cli, session)
    hangs(stub)
    engine = engine_of(cli, session)
    running.kill()
    if engine.is_running():
        with contextlib.suppress(ProcessLookupError):  # it ended with the pipe
            kill_group(engine)
    cli.recover_changes_nothing(session)
    assert cli.resume(session, "[[stub: text text=on]] go")["answer"] == "on"


def test_a_steer_reaches_the_running_turn_or_is_refused_honestly(cli: Cli) -> None:
    running = cli.start(
        "run", "--provider", cli.provider, "--permissions", "allow", "[[stub: loop n=60 cmd=sleep_1]] go"
    )
    session = session_of(cli)
    begun(cli, session)
    steered = cli("steer", session, "[[stub: text text=steered]] rather this", code=None)
    result = running.result()
    assert result["status"] == "completed"
    if "error" not in steered:
        assert result["answer"] == "steered"
    assert cli("steer", session, "too late", code=4)["error"]["code"] == "not_running"
    with cli.ledger() as ledger:
        assert ledger.outstanding_intents(session) == []
    cli.recover_changes_nothing(session)


@pytest.mark.parametrize(("answer", "made"), [("once", True), ("reject", False)])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_permission_is_answered_from_another_process(
    stub: StubLlm, tmp_path: Path, provider: str, answer: str, made: bool
) -> None:
    cli = command_line(provider, tmp_path, stub, asks=True)
    running = cli.start("run", "--provider", provider, "--permissions", "ask", "[[stub: tool cmd=touch_made]] go")
    session = session_of(cli)
    asked = until(lambda: observed(cli, session, "permission:"), "a question")[0]
    ask_id = asked.payload["source"].split(":", 1)[1].rsplit(":", 1)[0]
    cli("permit", session, ask_id, answer)
    assert running.result()["status"] == "completed"
    assert (cli.work / "made").exists() is made
    cli.recover_changes_nothing(session)


def test_without_a_terminal_nothing_is_allowed(cli: Cli) -> None:
    result = cli.run("[[stub: tool cmd=touch_made]] go")
    assert result["status"] == "completed"
    assert not (cli.work / "made").exists()


@pytest.mark.parametrize("provider", ["opencode", "codex"])
def test_structured_answers_fit_their_schema(stub: StubLlm, tmp_path: Path, provider: str) -> None:
    """Claude answers a schema by calling a tool of its own: its harness tests teach the model to call it."""
    cli = command_line(provider, tmp_path, stub)
    schema = tmp_path / "schema.json"
    schema.write_text(
        '{"type":"object","required":["a"],"additionalProperties":false,"properties":{"a":{"type":"integer"}}}'
    )
    good = cli.run('[[stub: text text={"a":1}]]', "--schema", str(schema))
    assert good["value"] == {"a": 1}
