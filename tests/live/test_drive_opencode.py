"""The whole way with the real OpenCode: command line → driver → program → receipts, killed at every place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
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
from turnlog import Event, EventKind
from turnlog.harness import HarnessConfig
from turnlog.harness.opencode.live import OpenCodeHarness
from turnlog.testing.opencode_home import opencode_home
from turnlog.testing.stub_llm import StubLlm

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

ONE_CALL = {"input_tokens": 1200, "total_input_tokens": 1600, "cache_read_tokens": 400, "output_tokens": 50}
TWO_CALLS = {name: 2 * value for name, value in ONE_CALL.items()}


@pytest.fixture(scope="module")
def stub() -> Iterator[StubLlm]:
    with StubLlm() as running:
        yield running


@pytest.fixture
def cli(stub: StubLlm, tmp_path: Path) -> Cli:
    stub.reset()  # what an earlier test asked is nothing to wait for
    home = opencode_home(tmp_path, stub.url)
    return Cli(tmp_path, home.work, home.env)


def has(usage: dict[str, Any], expected: dict[str, int]) -> bool:
    return {name: usage[name] for name in expected} == expected


def test_a_tool_turn_then_the_next_turn_in_a_new_engine(cli: Cli) -> None:
    first = cli.run("[[stub: tool]] go", "--permissions", "allow")
    session = first["session"]
    assert (first["status"], first["answer"], first["exact"], first["gaps"]) == ("completed", "stub answer", True, 0)
    assert has(first["usage"], TWO_CALLS)
    assert first["usage"]["cost_usd"] == pytest.approx(2 * 0.00174)
    assert kinds(cli, session) == ["requested", "started", "usage", "usage", "output", "completed"]

    second = cli.resume(session, "[[stub: text text=again]]")
    assert (second["answer"], second["thread"]) == ("again", first["thread"])
    assert second["artifact_key"] != first["artifact_key"]
    assert has(second["usage"], ONE_CALL)
    with cli.ledger() as ledger:
        # the second turn does not leak into the first input
        assert ledger.input_history(first["artifact_key"]).usage.input_tokens == 2400
        execs = {event.exec_id for event in ledger.history(session) if event.kind is EventKind.STARTED}
    assert len(execs) == 2
    totals = cli("usage", "total")["totals"]
    assert (totals["tokens"]["total_input"], totals["tokens"]["output"], totals["calls"]) == (4800, 150, 3)
    assert cli("answer", session)["text"] == "again"
    cli.recover_changes_nothing(session)


def test_an_error_of_the_model_and_one_that_passes(cli: Cli) -> None:
    failed = cli.run("[[stub: error400]] go", code=1)
    assert (failed["status"], failed["answer"]) == ("failed", None)
    assert status_of(cli, failed["session"], failed["turn"]) == "failed"
    passed = cli.resume(failed["session"], "[[stub: flaky429]] go")
    assert passed["status"] == "completed"
    assert has(passed["usage"], ONE_CALL)
    cli.recover_changes_nothing(failed["session"])


def test_ctrl_c_interrupts_and_records_it(cli: Cli) -> None:
    running = cli.start("run", "[[stub: slow n=600 delay=0.1]] go")
    session = session_of(cli)
    begun(cli, session)
    running.signal(signal.SIGINT)
    result = running.result(130)
    assert result["status"] == "interrupted"
    assert status_of(cli, session, result["turn"]) == "interrupted"
    assert result["usage"]["input_tokens"] is None, "an aborted call's zeros are not a count"
    assert result["gaps"] == 1
    cli.recover_changes_nothing(session)


def test_a_timeout_interrupts(cli: Cli) -> None:
    result = cli.run("[[stub: slow n=600 delay=0.1]] go", "--timeout", "20", code=124)
    assert result["status"] == "interrupted"


def test_the_engine_is_killed_while_the_model_hangs(cli: Cli, stub: StubLlm) -> None:
    running = cli.start("run", "[[stub: hang]] go")
    session = session_of(cli)
    (start,) = begun(cli, session)
    hangs(stub)
    kill_group(engine_of(cli, session))
    result = running.result(5)
    assert (result["status"], result["answer"]) == ("unknown", None)
    assert str(start.turn) in str(cli("recover", session, code=5)), "it stays unknown"
    assert status_of(cli, session, str(start.turn)) is None, "nobody said that it ended"
    assert len(observed(cli, session, "lost:")) == 1
    cli.recover_changes_nothing(session)
    assert cli.resume(session, "[[stub: text]] go")["status"] == "completed"
    assert status_of(cli, session, str(start.turn)) is None


def test_turnlog_is_killed_and_the_next_one_takes_over(cli: Cli, stub: StubLlm) -> None:
    running = cli.start("run", "[[stub: hang text=held]] go")
    session = session_of(cli)
    (start,) = begun(cli, session)
    hangs(stub)
    refused = cli.resume(session, "[[stub: text]] too early", code=4)
    assert refused["error"]["code"] == "driven"
    running.kill()
    report = cli("recover", session)
    assert str(start.turn) in str(report), "a living engine still works on it"
    stub.release()
    second = cli.resume(session, "[[stub: text text=next]] go")
    assert second["answer"] == "next"
    assert status_of(cli, session, str(start.turn)) == "completed", "the engine finished what the dead driver began"
    by_turn = {event.turn: event.exec_id for event in events(cli, session) if event.kind is EventKind.COMPLETED}
    assert by_turn[start.turn] == start.exec_id
    assert by_turn[second["turn"]] != start.exec_id
    cli.recover_changes_nothing(session)


def test_turnlog_and_the_engine_are_killed(cli: Cli, stub: StubLlm) -> None:
    running = cli.start("run", "[[stub: hang]] go")
    session = session_of(cli)
    (start,) = begun(cli, session)
    hangs(stub)
    engine = engine_of(cli, session)
    running.kill()
    kill_group(engine)
    cli("recover", session, code=5)
    assert status_of(cli, session, str(start.turn)) is None
    with cli.ledger() as ledger:
        listed, _ = ledger.recent_inputs(limit=10)
        assert [record.outcome for record in listed[0].providers] == [None]
    cli.recover_changes_nothing(session)
    assert cli.resume(session, "[[stub: text]] go")["status"] == "completed"


def test_a_steer_takes_the_turn_over(cli: Cli) -> None:
    running = cli.start("run", "--permissions", "allow", "[[stub: loop n=60 cmd=sleep_1]] go")
    session = session_of(cli)
    (start,) = begun(cli, session)
    assert cli("steer", session, "[[stub: text text=steered]] rather this")
    result = running.result()
    assert (result["status"], result["answer"]) == ("completed", "steered")
    assert result["turn"] != start.turn
    assert observed(cli, session, f"superseded:{result['thread']}:{start.turn}")
    assert status_of(cli, session, str(start.turn)) is None
    assert cli("steer", session, "too late", code=4)["error"]["code"]
    cli.recover_changes_nothing(session)


def test_queued_prompts_are_absorbed_or_answered_but_never_lost(cli: Cli, stub: StubLlm) -> None:
    running = cli.start("run", "[[stub: hang]] go")
    session = session_of(cli)
    begun(cli, session)
    hangs(stub)
    cli("steer", session, "[[stub: text text=one]]")
    cli("steer", session, "[[stub: text text=two]]")
    stub.release()
    result = running.result()
    assert (result["status"], result["answer"]) == ("completed", "two"), "the command waits for what was said into it"
    with cli.ledger() as ledger:
        assert ledger.outstanding_intents(session) == []
    cli.recover_changes_nothing(session)


@pytest.mark.parametrize(("answer", "output"), [("once", True), ("reject", False)])
def test_a_permission_is_answered_from_another_process(
    stub: StubLlm, tmp_path: Path, answer: str, output: bool
) -> None:
    home = opencode_home(tmp_path, stub.url, permission="ask")
    cli = Cli(tmp_path, home.work, home.env)
    running = cli.start("run", "--permissions", "ask", "[[stub: tool cmd=touch_made]] go")
    session = session_of(cli)
    (asked,) = until(lambda: observed(cli, session, "permission:"), "a question")
    ask_id = asked.payload["source"].split(":")[1]
    assert ask_id in str(cli("show", session))
    cli("permit", session, ask_id, answer)
    assert running.result()["status"] == "completed"
    assert (home.work / "made").exists() is output
    answered = observed(cli, session, f"permission:{ask_id}:answered")[0].payload["evidence"]
    assert answered["answer"] == answer
    assert cli("permit", session, ask_id, answer, code=4)


def test_without_a_terminal_nothing_is_allowed(cli: Cli) -> None:
    result = cli.run("[[stub: tool cmd=touch_made]] go")
    assert result["status"] == "completed"
    assert not (cli.work / "made").exists(), "the user's own settings allow everything; the policy is stricter"


def test_a_subagent_is_a_conversation_of_its_own(cli: Cli) -> None:
    result = cli.run("[[stub: subagent]] go", "--permissions", "allow")
    assert has(result["usage"], TWO_CALLS)
    listed = cli("inputs", "--caller", result["artifact_key"])["inputs"]
    assert len(listed) == 1
    assert listed[0]["session_id"].startswith("opencode:ses_")
    assert has(listed[0]["usage"], ONE_CALL)
    assert listed[0]["usage"]["gaps"] == 0
    totals = cli("usage", "total")["totals"]["tokens"]
    assert totals["total_input"] == 3 * 1600
    cli.recover_changes_nothing(result["session"])


def test_another_client_on_the_same_session_gets_no_origin_of_ours(cli: Cli, tmp_path: Path) -> None:
    with served(cli) as (endpoint, auth):
        cli.env["OPENCODE_SERVER_PASSWORD"] = auth[1]
        ours = cli.run("[[stub: text text=ours]]", "--endpoint", endpoint)
        session, thread = ours["session"], ours["thread"]
        with httpx.Client(base_url=endpoint, auth=auth, trust_env=False, timeout=30) as other:
            body = {"parts": [{"type": "text", "text": "[[stub: text text=theirs]]"}]}
            assert other.post(f"/session/{thread}/message", json=body).status_code == 200, "it was not ours to stop"
    cli("recover", session)
    done = {
        e.payload["status"]: (e.exec_id, e.provider_generation) for e in ended(cli, session) if e.turn != ours["turn"]
    }
    assert done == {"completed": (None, None)}
    starts = [event.turn for event in events(cli, session) if event.kind is EventKind.STARTED]
    assert starts == [ours["turn"]], "a turn nobody of us asked for has no start"
    assert cli("answer", session)["text"] == "ours"
    cli.recover_changes_nothing(session)


def ended(cli: Cli, session: str) -> list[Event]:
    return [event for event in events(cli, session) if event.kind is EventKind.COMPLETED]


@contextlib.contextmanager
def served(cli: Cli) -> Iterator[tuple[str, tuple[str, str]]]:
    """A server that belongs to somebody else."""
    harness = OpenCodeHarness(
        HarnessConfig(cwd=cli.work, title="theirs", state_dir=cli.root / "theirs", permissions="allow", env=cli.env)
    )

    async def start() -> str:
        endpoint = (await harness.start()).endpoint
        await harness.detach()
        return endpoint or ""

    endpoint = asyncio.run(start())
    (record,) = (cli.root / "theirs").glob("opencode-*.json")
    pid = json.loads(record.read_bytes())["engine"]["pid"]
    try:
        yield endpoint, ("opencode", record.with_suffix(".password").read_text())
    finally:
        kill_group(psutil.Process(pid))


def test_structured_answers_are_checked(cli: Cli, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type":"object","required":["a"],"properties":{"a":{"type":"integer"}}}')
    good = cli.run('[[stub: text text={"a":1}]]', "--schema", str(schema))
    assert good["value"] == {"a": 1}
    bad = cli.run("[[stub: text text=nope]]", "--schema", str(schema), code=1)
    assert bad["value"] is None
    asks = [e for e in events(cli, bad["session"]) if e.kind is EventKind.REQUESTED]
    assert len(asks) == 3, "at most three asks in one conversation"


def test_a_missing_program_leaves_nothing_behind(cli: Cli) -> None:
    cli.env["TURNLOG_OPENCODE_BIN"] = os.devnull + "/none"
    refused = cli.run("hello", code=1)
    assert refused["error"]["hint"]
    with cli.ledger() as ledger:
        assert ledger.sessions(all=True) == []
