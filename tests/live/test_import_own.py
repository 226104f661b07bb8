"""Conversations that people had with the programs themselves: imported, read, searched, adopted."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.cli import WAIT_S, Cli, events, hangs, observed, status_of, until
from tests.live.natives import (
    Native,
    by_session,
    calls,
    counted,
    imported,
    kill,
    native_id,
    only_session,
    printed,
    receipts,
    said,
    sessions,
    settled,
    total,
    turns,
)
from tests.live.programs import PROVIDERS, command_line
from turnlog import EventKind
from turnlog.clock import now_ms
from turnlog.testing.stub import plan as plans
from turnlog.testing.stub.plan import Answer, Marker, View
from turnlog.testing.stub_llm import StubLlm

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

HOUR_MS = 3_600_000


def asked(cli: Cli, *prompts: str) -> list[str]:
    """Prompts as the programs write them down: OpenCode's own command puts words with spaces into quotes."""
    return [f'"{prompt}"' if cli.provider == "opencode" else prompt for prompt in prompts]


@pytest.fixture
def stub() -> Iterator[StubLlm]:
    with StubLlm() as running:
        yield running


@pytest.fixture(params=PROVIDERS)
def native(request: pytest.FixtureRequest, stub: StubLlm, tmp_path: Path) -> Native:
    return Native(command_line(str(request.param), tmp_path, stub))


def written_title(cli: Cli) -> str | None:
    """What OpenCode calls its only conversation: it asks its model for a name, and may end before that is written."""
    (path,) = (cli.root / "home").rglob("opencode.db")
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        [(title,)] = database.execute("SELECT title FROM session").fetchall()
    return None if title.startswith("New session - ") else str(title)


def held(cli: Cli) -> list[str]:
    """What stays in the recent list however old it is."""
    with cli.ledger() as ledger:
        rows, _ = ledger.recent_inputs(since=now_ms() + HOUR_MS)
        return [row.session_id for row in rows]


def test_a_conversation_without_turnlog_is_read_whole(native: Native) -> None:
    cli = native.cli
    native.say("[[stub: tool]] go")
    done = imported(cli, found=1, sessions=1)
    assert done["receipts"]["new"] == 5, "a start, two calls, an answer, an end"
    session = only_session(cli)
    (turn,) = turns(cli, session)
    assert session.startswith(f"{cli.provider}:")
    assert status_of(cli, session, turn) == "completed"
    assert (counted(total(cli)), total(cli)["gaps"], total(cli)["calls"]) == (calls(2), [], 2)
    assert cli("answer", session)["text"] == "stub answer"
    (row,) = sessions(cli)
    (prompt,) = asked(cli, "[[stub: tool]] go")
    assert row["title"] == ((cli.provider == "opencode" and written_title(cli)) or prompt)
    assert (row["cwd"], row["repo"], row["latest_turn"]) == (str(cli.work), str(cli.work), "completed")
    assert said(cli, session, "user") == asked(cli, "[[stub: tool]] go")
    assert said(cli, session, "assistant") == ["I will run it.", "stub answer"]
    (output,) = said(cli, session, "tool_output")
    assert "hi" in output
    shown = printed(cli, "show", session)
    assert shown.index("I will run it.") < shown.index("echo hi") < shown.rindex("stub answer")
    assert [hit["session"] for hit in cli("search", "stub answer")["hits"]] == [session]
    assert [hit["role"] for hit in cli("search", "echo", "--role", "tool_input")["hits"]] == ["tool_input"]
    assert held(cli) == []
    assert {event.exec_id for event in events(cli, session)} == {None}, "nobody of us asked for it"
    settled(cli)


def test_an_imported_conversation_is_adopted_in_its_own_thread(native: Native) -> None:
    cli = native.cli
    native.say("[[stub: tool]] go")
    imported(cli)
    session = only_session(cli)
    adopted = cli.resume(session, "[[stub: text text=on]] go on")
    assert (adopted["status"], adopted["answer"], adopted["session"]) == ("completed", "on", session)
    assert adopted["thread"] == native_id(session)
    assert counted(total(cli)) == calls(3)
    imported(cli)
    assert only_session(cli) == session
    assert (counted(total(cli)), total(cli)["gaps"]) == (calls(3), [])
    assert turns(cli, session)[1] == adopted["turn"]
    assert cli("answer", session)["text"] == "on"
    assert observed(cli, session, "conflict:") == []
    assert said(cli, session, "user") == [*asked(cli, "[[stub: tool]] go"), "[[stub: text text=on]] go on"]
    cli.recover_changes_nothing(session)
    settled(cli)
    native.say("[[stub: text text=mine]] again", resume=native_id(session))
    imported(cli)
    assert only_session(cli) == session
    assert (counted(total(cli)), total(cli)["gaps"]) == (calls(4), [])
    assert len(turns(cli, session)) == 3
    settled(cli)


def test_a_conversation_with_a_subagent_is_two(native: Native, stub: StubLlm, monkeypatch: pytest.MonkeyPatch) -> None:
    cli = native.cli
    whole = plans.plan

    def plan(marker: Marker, view: View) -> Answer:
        if marker.mode == "subagent" and view.results:  # a parent that ended earlier could end its program with it
            stub.wait(lambda log: any("sub agent prompt" in entry["user"] for entry in log), WAIT_S)
        return whole(marker, view)

    monkeypatch.setattr("turnlog.testing.stub_llm.plan", plan)
    native.say("[[stub: subagent sub=text]] go")
    requests = len([entry for entry in stub.log() if not entry["helper"]])
    imported(cli, sessions=2)
    (parent,) = [row["id"] for row in cli("sessions")["sessions"]]
    (child,) = {row["id"] for row in sessions(cli)} - {parent}
    row = total(cli)
    if status_of(cli, child, turns(cli, child)[0]) == "interrupted":
        # Codex ends what its subagents do when it has its own answer: what they used is in no file.
        assert cli.provider == "codex"
        assert [gap["kind"] for gap in row["gaps"]] == ["interrupted"]
        assert counted(row) in [calls(count) for count in range(2, requests + 1)]
    else:
        assert by_session(cli) == {parent: calls(requests - 1), child: calls(1)}
        assert (counted(row), row["gaps"]) == (calls(requests), [])
    assert child in printed(cli, "export", parent, "--format", "jsonl")
    settled(cli)


def test_a_program_killed_in_the_middle_of_a_turn_leaves_it_unknown(native: Native, stub: StubLlm) -> None:
    cli = native.cli
    running = native.start("[[stub: hang text=never_told]] go")
    hangs(stub)
    done = until(lambda: found if (found := imported(cli))["receipts"]["new"] else None, "the turn on disk")
    kill(running)
    imported(cli)
    session = only_session(cli)
    (turn,) = turns(cli, session)
    assert done["receipts"]["new"] >= 1
    assert status_of(cli, session, turn) is None
    assert cli("answer", session, code=1)["error"]["code"] == "missing"
    row = total(cli)
    assert counted(row) == (None, None, None), "unknown is no zero"
    assert {gap["kind"] for gap in row["gaps"]} == {"unfinished"}
    assert held(cli) == []
    adopted = cli.resume(session, "[[stub: text text=on]] go on")
    assert (adopted["answer"], adopted["thread"]) == ("on", native_id(session))
    imported(cli)
    assert status_of(cli, session, turn) in {None, "interrupted"}, "only the program itself may say so"
    assert counted(total(cli)) == calls(1)
    assert observed(cli, session, "conflict:") == []
    settled(cli)


@pytest.mark.parametrize("provider", ["opencode", "claude"])
def test_a_fork_counts_what_it_copied_once(stub: StubLlm, tmp_path: Path, provider: str) -> None:
    native = Native(command_line(provider, tmp_path, stub))
    cli = native.cli
    native.say("[[stub: tool]] go")
    imported(cli)
    origin = only_session(cli)
    native.say("[[stub: text text=fork]] elsewhere", resume=native_id(origin), fork=True)
    native.say("[[stub: text text=on]] here", resume=native_id(origin))
    done = imported(cli)
    assert done["receipts"]["inherited"] == 2
    (fork,) = {row["id"] for row in sessions(cli)} - {origin}
    assert by_session(cli) == {origin: calls(3), fork: calls(1)}
    assert (counted(total(cli)), total(cli)["gaps"]) == (calls(4), [])
    assert (cli("answer", fork)["text"], cli("answer", origin)["text"]) == ("fork", "on")
    settled(cli)


def test_a_fork_and_a_compaction_of_codex_count_what_was_asked(stub: StubLlm, tmp_path: Path) -> None:
    native = Native(command_line("codex", tmp_path, stub))
    cli = native.cli
    with native.server() as server:
        origin = server.ask("thread/start", cwd=str(cli.work))["thread"]["id"]
        server.turn(origin, "[[stub: tool]] go")
        fork = server.ask("thread/fork", threadId=origin)["thread"]["id"]
        server.turn(fork, "[[stub: text text=fork]] elsewhere")
        server.turn(origin, "[[stub: text text=on]] here")
        server.ask("thread/compact/start", threadId=origin)
        server.ended(origin)
        server.turn(origin, "[[stub: text text=after]] the summary")
    # The stub takes the request for a summary for one for a title: 100 tokens in, 5 out.
    assert [entry["helper"] for entry in stub.log()].count(True) == 1
    imported(cli, sessions=2)
    assert by_session(cli) == {f"codex:{origin}": (4 * 1600 + 100, 4 * 400, 4 * 50 + 5), f"codex:{fork}": calls(1)}
    assert (counted(total(cli)), total(cli)["gaps"]) == ((5 * 1600 + 100, 5 * 400, 5 * 50 + 5), [])
    assert (cli("answer", f"codex:{fork}")["text"], cli("answer", f"codex:{origin}")["text"]) == ("fork", "after")
    assert cli.resume(f"codex:{fork}", "[[stub: text text=last]] go on")["answer"] == "last"
    imported(cli)
    assert by_session(cli)[f"codex:{fork}"] == calls(2)
    assert total(cli)["gaps"] == []
    settled(cli)


def test_one_import_at_the_end_tells_the_same_as_one_after_every_turn(native: Native) -> None:
    cli = native.cli
    native.say("[[stub: tool]] one")
    imported(cli)
    session = only_session(cli)
    native.say("[[stub: text text=second]] two", resume=native_id(session))
    imported(cli)
    anew = Cli(cli.root / "anew", cli.work, cli.env, cli.provider)
    anew.root.mkdir()
    imported(anew)
    assert receipts(anew, session) == receipts(cli, session)
    assert by_session(anew) == by_session(cli) == {session: calls(3)}


def test_a_deleted_source_keeps_what_it_told(native: Native) -> None:
    cli = native.cli
    native.say("[[stub: text text=kept]] remember")
    imported(cli)
    session = only_session(cli)
    before, shown = total(cli), printed(cli, "show", session)
    for path in [place for place in (cli.root / "home").rglob("*") if place.name in {"projects", "sessions"}]:
        shutil.rmtree(path, ignore_errors=True)
    for path in (cli.root / "home").rglob("opencode.db*"):
        path.unlink()
    assert imported(cli)["missing"] == 1
    (source,) = [each for each in cli("doctor")["sources"] if each["provider"] == cli.provider]
    assert (source["files"], source["gone"]) == (0, 1)
    assert "no longer" in printed(cli, "doctor") or "gone" in printed(cli, "doctor")
    assert (total(cli), printed(cli, "show", session)) == (before, shown)
    assert said(cli, session, "assistant") == ["kept"]
    assert [hit["session"] for hit in cli("search", "kept", "--role", "assistant")["hits"]] == [session]
    assert [event.kind for event in events(cli, session)].count(EventKind.COMPLETED) == 1
    settled(cli)
