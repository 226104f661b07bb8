"""A conversation that turnlog drove is found on disk: one conversation, two witnesses, nothing twice."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from tests.live.cli import HELD, Cli, begun, engine_of, hangs, kill_group, observed, session_of, status_of, until
from tests.live.natives import by_session, calls, counted, imported, receipts, sessions, settled, total
from tests.live.programs import PROVIDERS, command_line
from turnlog.testing.claude_home import claude_home
from turnlog.testing.codex_home import codex_home
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


def joins(cli: Cli, session: str, *, more: int = 0, may: Collection[str] = ()) -> None:
    """Import: the conversation stays one (``more`` subagents come), its totals stay, nobody contradicts anybody.

    ``may`` are kinds of gaps that files may add: they tell of what nobody saw.
    """
    before, count = total(cli), len(sessions(cli))
    ends = [row for row in receipts(cli, session) if row[0] in {"started", "output", "completed"}]
    imported(cli)
    after = total(cli)
    assert len(sessions(cli)) == count + more
    assert after["tokens"] == before["tokens"]
    assert after["cost"]["reported_usd"] == pytest.approx(before["cost"]["reported_usd"])
    # A turn that Claude began by itself has a start in its file alone.
    known = [gap for gap in before["gaps"] if gap["kind"] != "start_unknown"]
    assert [gap for gap in after["gaps"] if gap in known or gap["kind"] not in may] == known
    assert set(ends) <= set(receipts(cli, session)), "the wire was there first and stays"
    assert observed(cli, session, "conflict:") == []
    settled(cli)


def test_turns_that_turnlog_drove_are_told_by_two_and_counted_once(cli: Cli) -> None:
    first = cli.run("[[stub: tool]] go", "--permissions", "allow")
    session = first["session"]
    cli.resume(session, "[[stub: text text=again]] on")
    assert counted(total(cli)) == calls(3)
    joins(cli, session)
    assert (counted(total(cli)), total(cli)["gaps"]) == (calls(3), [])
    assert [row["id"] for row in sessions(cli)] == [session]
    native = cli("usage", "session", "--no-import")["rows"][0]["native"]
    assert native == {"provider": cli.provider, "id": first["thread"]}
    cli.recover_changes_nothing(session)
    third = cli.resume(session, "[[stub: text text=third]] on")
    assert (third["answer"], third["gaps"], third["thread"]) == ("third", 0, first["thread"])
    joins(cli, session)
    assert (counted(total(cli)), total(cli)["gaps"]) == (calls(4), [])


def test_subagents_of_a_driven_conversation_count_once(cli: Cli, stub: StubLlm) -> None:
    first = cli.run("[[stub: subagent sub=text]] go", "--permissions", "allow")
    session = first["session"]
    asked = len(stub.log())
    assert asked >= 3, "two calls of its own, one of the subagent; Claude tells itself of the end in another one"
    assert counted(total(cli)) == calls(asked)
    # Claude's subagents are seen in its files alone: their work is in the turn's own sum.
    joins(cli, session, more=1 if cli.provider == "claude" else 0)
    assert (counted(total(cli)), total(cli)["gaps"]) == (calls(asked), [])
    assert len(sessions(cli)) == 2
    own = by_session(cli)[session]
    assert own == calls(asked if cli.provider == "claude" else asked - 1)
    cli.resume(session, "[[stub: text text=again]] on")
    joins(cli, session)
    assert (counted(total(cli)), total(cli)["gaps"]) == (calls(asked + 1), [])


@pytest.mark.parametrize("provider", ["opencode", "codex"])
def test_an_answer_to_a_schema_is_the_same_in_the_file(stub: StubLlm, tmp_path: Path, provider: str) -> None:
    cli = command_line(provider, tmp_path, stub)
    schema = tmp_path / "schema.json"
    schema.write_text(
        '{"type":"object","required":["a"],"additionalProperties":false,"properties":{"a":{"type":"integer"}}}'
    )
    done = cli.run('[[stub: text text={"a":1}]]', "--schema", str(schema))
    assert done["value"] == {"a": 1}
    answer = cli("answer", done["session"])
    joins(cli, done["session"])
    assert cli("answer", done["session"]) == answer


def test_a_failed_turn_is_joined(cli: Cli) -> None:
    failed = cli.run("[[stub: error400]] go", code=1)
    joins(cli, failed["session"])
    assert status_of(cli, failed["session"], failed["turn"]) == "failed"


def test_an_interrupted_turn_is_joined(cli: Cli) -> None:
    running = cli.start("run", "--provider", cli.provider, "[[stub: slow n=600 delay=0.1]] go")
    session = session_of(cli)
    begun(cli, session)
    running.signal(signal.SIGINT)
    turn = running.result(130)["turn"]
    joins(cli, session, may={"interrupted"})
    assert status_of(cli, session, turn) == "interrupted"


def test_a_turn_whose_program_and_driver_were_killed_is_joined(cli: Cli, stub: StubLlm) -> None:
    running = cli.start("run", "--provider", cli.provider, "[[stub: hang]] go")
    session = session_of(cli)
    (start,) = begun(cli, session)
    hangs(stub)
    engine = engine_of(cli, session)
    running.kill()
    with contextlib.suppress(ProcessLookupError):  # it ended with the pipe
        kill_group(engine)
    joins(cli, session, may={"unfinished", "interrupted"})
    assert status_of(cli, session, str(start.turn)) in {None, "interrupted"}
    assert cli.resume(session, "[[stub: text text=on]] go")["answer"] == "on"
    joins(cli, session)
    assert counted(total(cli)) == calls(1)


def test_a_steer_is_joined(cli: Cli) -> None:
    running = cli.start(
        "run", "--provider", cli.provider, "--permissions", "allow", "[[stub: loop n=60 cmd=sleep_1]] go"
    )
    session = session_of(cli)
    begun(cli, session)
    cli("steer", session, "[[stub: text text=steered]] rather this", code=None)
    assert running.result()["status"] == "completed"
    joins(cli, session)


def test_a_conversation_handed_over_to_another_program_is_one_conversation(tmp_path: Path) -> None:
    with StubLlm() as first, StubLlm() as second:
        codex, claude = codex_home(tmp_path / "codex", first.url), claude_home(tmp_path / "claude", second.url)
        env = {**claude.env, "IS_SANDBOX": "1"} | {key: codex.env[key] for key in codex.env if key != "HOME"}
        cli = Cli(tmp_path, codex.work, env, "codex")
        words = ["--fallback", "claude", "--fallback-after-effects", "--permissions", "allow"]
        running = cli.start("run", "--provider", "codex", *words, f"{HELD} go")
        until((cli.work / "made").exists, "the tool's effect")
        first.close()
        (cli.work / "go").touch()
        done = running.result()
        assert done["provider"] == "claude"
        before = total(cli)
        cli("import")
        assert [row["id"] for row in sessions(cli)] == [done["session"]]
        assert total(cli)["tokens"] == before["tokens"]
        assert observed(cli, done["session"], "conflict:") == []
        settled(cli)
