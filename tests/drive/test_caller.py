"""Who called whom: a turnlog inside a turnlog turn (semantics 1.4), and what `ps` finds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import turnlog
from turnlog import Ledger
from turnlog.drive import Caller, calling_input, read_caller, running_processes, start_exec, stop_process
from turnlog.drive.caller import VARIABLE, environment
from turnlog.errors import InvalidError, MissingError


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with turnlog.open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as opened:
        yield opened


def test_the_parent_is_the_driving_exec_only_for_the_current_engine(ledger: Ledger) -> None:
    session = ledger.create_session(cwd="/fixture", provider="opencode")
    first, second, third = (ledger.start_exec() for _ in range(3))
    starter = ledger.claim_driver(session.id, None, first.id)
    env = environment(ledger, session, starter)
    caller = read_caller(env)
    assert caller is not None
    assert (caller.session_id, caller.provider_generation, caller.origin_exec_id) == (session.id, 1, first.id)

    handed = ledger.claim_driver(session.id, starter, second.id)  # a live hand-over: the same engine
    child = start_exec(ledger, caller, command=["turnlog"], cwd="/fixture")
    assert (child.parent_id, child.trace_id, child.via_agent) == (second.id, second.trace_id, True)

    ledger.claim_driver(session.id, handed, third.id, replace_engine=True)
    stale = start_exec(ledger, caller, command=["turnlog"], cwd="/fixture")
    assert stale.parent_id == first.id, "a stale engine never borrows the new driver's identity"


def test_an_engine_is_not_given_the_password_of_the_ledger(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    session = ledger.create_session(cwd="/fixture", provider="opencode")
    driver = ledger.claim_driver(session.id, None, ledger.start_exec().id)
    for url, given in (
        ("postgresql://me:hunter2@db/team", "postgresql://me@db/team"),
        ("postgresql://db/team?user=me&password=hunter2", "postgresql://me@db/team"),
        ("postgresql://me@db/team", None),
        ("sqlite:////home/me@work/ledger.db", None),
    ):
        monkeypatch.setenv("TURNLOG_LEDGER", url)
        env = environment(ledger, session, driver)
        assert env.get("TURNLOG_LEDGER") == given
        assert set(env) <= {VARIABLE, "TURNLOG_LEDGER"}
        assert "hunter2" not in str(env)
    monkeypatch.delenv("TURNLOG_LEDGER")
    assert set(environment(ledger, session, driver)) == {VARIABLE}


def test_a_stale_engine_speaks_for_its_own_input(ledger: Ledger) -> None:
    session = ledger.create_session(cwd="/fixture", provider="opencode")
    one, two = ledger.start_exec(), ledger.start_exec()
    driver = ledger.claim_driver(session.id, None, one.id)
    caller = read_caller(environment(ledger, session, driver))
    newer = ledger.replace_input(session.id, session.captured)
    assert calling_input(ledger, caller) == newer.artifact_key
    ledger.claim_driver(session.id, driver, two.id, replace_engine=True)
    assert calling_input(ledger, caller) == session.artifact_key
    assert calling_input(ledger, None) is None


@pytest.mark.parametrize("text", ["", "{", '{"session_id":1}'])
def test_an_unreadable_caller_is_a_person(text: str) -> None:
    assert read_caller({VARIABLE: text}) is None


def test_an_agents_command_joins_its_ledger(tmp_path: Path, ledger: Ledger) -> None:
    session = ledger.create_session(cwd="/fixture", provider="opencode")
    driver = ledger.claim_driver(session.id, None, ledger.start_exec().id)
    env = {key: value for key, value in os.environ.items() if key != "TURNLOG_LEDGER"}
    env |= environment(ledger, session, driver) | {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "turnlog", "sessions"], env=env, capture_output=True, text=True, check=True
    )
    assert session.id.removeprefix("session_")[:8] in done.stdout


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def test_what_an_engine_left_behind_is_found_and_ended(ledger: Ledger) -> None:
    session = ledger.create_session(cwd="/fixture", provider="opencode")
    dead = ledger.start_exec().id
    driver = ledger.claim_driver(session.id, None, dead)
    ledger.end_exec(dead, "failed")
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    env = {**os.environ, **environment(ledger, session, driver)}
    left = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    mine = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        found = [each for each in running_processes(ledger).provider_processes if each.pid == left.pid]
        assert [(each.claim, each.session_id) for each in found] == [("orphaned", session.id)]
        with pytest.raises(MissingError):
            stop_process(ledger, str(mine.pid))
        assert stop_process(ledger, found[0].id).pid == left.pid
        left.wait(10)
        assert mine.poll() is None
    finally:
        for each in (left, mine):
            end(each)
    with pytest.raises(MissingError):
        stop_process(ledger, found[0].id)


def test_an_agent_of_a_person_is_not_ours_to_end(ledger: Ledger, tmp_path: Path) -> None:
    program = tmp_path / "codex"
    program.symlink_to(sys.executable)
    env = {key: value for key, value in os.environ.items() if key != VARIABLE}
    theirs = subprocess.Popen([str(program), "-c", "import sys; sys.stdin.read()"], env=env, stdin=subprocess.PIPE)
    try:
        assert psutil.pid_exists(theirs.pid)
        found = [each for each in running_processes(ledger).provider_processes if each.pid == theirs.pid]
        assert [(each.provider, each.claim) for each in found] == [("codex", "unclaimed")]
        with pytest.raises(InvalidError):
            stop_process(ledger, str(theirs.pid))
        assert theirs.poll() is None
    finally:
        end(theirs)


def test_a_living_driver_is_a_node_with_its_state(ledger: Ledger) -> None:
    session = ledger.create_session(cwd="/fixture", provider="opencode")
    own = ledger.start_exec(command=["turnlog", "run", "x"])
    driver = ledger.claim_driver(session.id, None, own.id)
    (node,) = running_processes(ledger).nodes
    assert (node.id, node.kind, node.state, node.label) == (own.id, "exec", "working", "turnlog run x")
    ledger.retain_for_turn(session.id, "t", None, "permission:per_1:asked", {"action": "bash"})
    (node,) = running_processes(ledger).nodes
    assert node.state == "waiting"
    assert [found.id for found in ledger.sessions(needs_me=True)] == [session.id]
    ledger.retain_for_turn(session.id, "t", None, "permission:per_1:answered", {"answer": "once"})
    assert ledger.open_questions(session.id) == []
    ledger.finish_driver(session.id, driver, "completed")
    ledger.end_exec(own.id, "succeeded")
    assert running_processes(ledger).nodes == ()


def test_the_caller_is_a_plain_value() -> None:
    assert Caller("s", 1, "e", "k", "u") == Caller("s", 1, "e", "k", "u")
