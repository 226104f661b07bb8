"""Several homes push into one ledger, in any order, at once, through networks that break: the same ledger."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import postgres_server
from tests.ledger.children import child
from tests.ledger.moving_scenes import content, furnish, new_ledger, own_home, talk
from turnlog import Ledger, UnavailableError, open_ledger
from turnlog.ledger.homes import Home
from turnlog.ledger.pushing import Pushed

__all__ = ["own_home"]

HOMES = {name: Home(f"home_{name}", name, name, 1) for name in ("one", "two")}


def push(ledger: Ledger, target: str, name: str) -> Pushed:
    """Push as another home."""
    with open_ledger(target) as team:
        return ledger._store.pushes.into(
            team._store.pushes,
            home=HOMES[name],
            archive=False,
            same=lambda kind, one, other: False,
            said=lambda place: None,
        )


def act(ledger: Ledger, name: str, action: str, number: int) -> None:
    """Do something at a home; imported conversations and work are the same at both."""
    shared = f"codex:native-{number % 2}"
    if action == "shared":
        _import(ledger, shared, number)
    elif action == "own":
        session = f"session_{name}{number}"
        _work(ledger)
        ledger.create_session(id=session, cwd="/f", provider="codex", task_id="task", created_at=number, thread="t")
        talk(ledger, session, f"turn-{number}")
    elif action == "exec":
        ledger.start_exec(id=f"exec-{name}-{number}", trace_id="trace")
        if number % 2:
            ledger.end_exec(f"exec-{name}-{number}", "succeeded")
    else:
        for each in ledger.execs():
            if each.completed_at is None:
                ledger.end_exec(each.id, "interrupted")


def _import(ledger: Ledger, session: str, turns: int) -> None:
    key = f"{session.rpartition('-')[2]:0>32}"
    ledger.create_session(
        id=session, artifact_key=key, cwd="/s", provider="codex", created_at=5, thread=session.partition(":")[2]
    )
    for turn in range(turns):
        talk(ledger, session, f"turn-{turn}", thread=session.partition(":")[2])


def _work(ledger: Ledger) -> None:
    if ledger.wave("wave") is None:
        ledger.create_wave("area", repo="/r", id="wave")
        ledger.create_project("wave", external_id="lin", id="project")
        ledger.create_task("project", external_id="issue", identifier="P-1", id="task")


Action = tuple[str, str, int]
_ACTIONS = st.tuples(
    st.sampled_from(["one", "two"]), st.sampled_from(["shared", "own", "exec", "end", "push"]), st.integers(0, 4)
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(_ACTIONS, max_size=14), order=st.permutations(["one", "two", "one", "two"]))
def test_any_order_makes_the_same_ledger(steps: list[Action], order: list[str]) -> None:
    """``steps`` with pushes between; beside them a ledger that is pushed into only at the end, in another order."""
    with tempfile.TemporaryDirectory() as folder:
        team, late = (f"sqlite:///{folder}/{name}.db" for name in ("team", "late"))
        ledgers = {name: open_ledger(f"sqlite:///{folder}/{name}.db", now=lambda: 7) for name in HOMES}
        try:
            numbers: dict[tuple[str, str], int] = {}
            for count, (name, action, number) in enumerate(steps):
                if action == "push":
                    push(ledgers[name], team, name)
                elif action == "exec":
                    act(ledgers[name], name, action, count)
                elif numbers.setdefault((name, f"{action}{number}"), count) == count or action != "own":
                    act(ledgers[name], name, action, number)
            for name in order:
                push(ledgers[name], team, name)
            for name in reversed(order):
                assert push(ledgers[name], late, name).problems == []
            assert content(team) == content(late)
            for url in (team, late):
                with open_ledger(url) as ledger:
                    assert ledger.verify() == []
        finally:
            for ledger in ledgers.values():
                ledger.close()


PUSHER = """
import sys
from turnlog import open_ledger
from turnlog.ledger import homes
from pathlib import Path
homes.folder = lambda: Path(sys.argv[3])
with open_ledger(sys.argv[1]) as ledger:
    print("ready")
    sys.stdin.readline()
    done = ledger.push_to(sys.argv[2])
print(done.new, done.known, len(done.problems))
"""


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_two_at_once(tmp_path: Path, kind: str) -> None:
    (tmp_path / "team").mkdir()
    team = new_ledger(kind, tmp_path / "team")
    open_ledger(team).close()
    urls = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        urls.append(url := furnish(tmp_path / name))
        with open_ledger(url) as ledger:
            for number in range(60):
                session = ledger.create_session(id=f"session_{name}{number:03}", cwd="/f", created_at=1).id
                talk(ledger, session, "1")
    with (
        child(PUSHER, urls[0], team, str(tmp_path / "h1")) as one,
        child(PUSHER, urls[1], team, str(tmp_path / "h2")) as two,
    ):
        for each in (one, two):
            assert each.line() == "ready"
        for each in (one, two):
            each.say()
        counts = [each.line().split() for each in (one, two)]
    # Both hold the same imported conversations; the driven ones have the same ids but other execs and times.
    receipts = content(team)["receipts"]
    assert len({row[:5] for row in receipts}) == len(receipts)
    assert sum(int(each[0]) for each in counts) <= len(receipts)
    with open_ledger(team) as ledger:
        assert ledger.verify() == []
        assert {f"session_{name}{number:03}" for name in ("one", "two") for number in range(60)} <= {
            each.id for each in ledger.sessions(all=True, limit=None)
        }


class Wire:
    """A network that is cut after so many bytes from the client."""

    def __init__(self, socket_path: str, budget: int) -> None:
        self._path = socket_path
        self._left = budget
        self._pairs: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._path)
            self._pairs += [near, far]
            threading.Thread(target=self._pump, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, False), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        try:
            while data := source.recv(4096):
                if counted:
                    self._left -= len(data)
                    if self._left < 0:
                        self.cut()
                        return
                sink.sendall(data)
        except OSError:
            pass
        for each in (source, sink):
            each.close()

    def cut(self) -> None:
        self._listener.close()
        for each in self._pairs:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


@contextmanager
def wire(budget: int) -> Iterator[Any]:
    server = postgres_server.shared()
    made = Wire(f"{server.folder}/.s.PGSQL.{server.port}", budget)
    try:
        yield made
    finally:
        made.cut()


def test_a_push_that_was_cut_goes_on(tmp_path: Path) -> None:
    server = postgres_server.shared()
    name = server.new_database()
    open_ledger(server.url(name)).close()
    laptop = furnish(tmp_path)
    with open_ledger(laptop) as ledger:
        for number in range(40):
            talk(ledger, ledger.create_session(id=f"s{number}", cwd="/f").id, "1")
        whole = content(laptop)
        cuts: list[UnavailableError] = []
        for budget in (2_000, 6_000, 12_000, 30_000, 60_000, 120_000, 10**9):
            with wire(budget) as network:
                url = f"postgresql://owner@127.0.0.1:{network.port}/{name}?sslmode=disable&gssencmode=disable"
                try:
                    done = ledger.push_to(url)
                except UnavailableError as error:
                    cuts.append(error)
                else:
                    break
        assert done.problems == []
        assert len(cuts) >= 3
        assert all(each.hint and "owner@127.0.0.1" in each.message for each in cuts)
    assert content(server.url(name)) == whole
    with open_ledger(server.url(name)) as team:
        assert team.verify() == []


KILLED = """
import os, signal, sys
from pathlib import Path
import turnlog.ledger.push_receipts as receipts
import turnlog.ledger.push_state as state
from turnlog import open_ledger
from turnlog.ledger import homes
homes.folder = lambda: Path(sys.argv[3])
receipts._PAGE = state._PAGE = 5
left = int(sys.argv[4])
real = state.Push.tell
def dying(self, kind, states):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, kind, states)
state.Push.tell = dying
with open_ledger(sys.argv[1]) as ledger:
    ledger.push_to(sys.argv[2])
print("whole")
"""


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_push_that_is_killed_between_the_two_ledgers_goes_on(tmp_path: Path, kind: str) -> None:
    (tmp_path / "team").mkdir()
    laptop, team = furnish(tmp_path), new_ledger(kind, tmp_path / "team")
    killed = 0
    for point in (1, 2, 5, 9, 14, 20, 27, 35, 0):
        with child(KILLED, laptop, team, str(tmp_path / "home"), str(point)) as pushing:
            pushing.process.communicate(timeout=120)
            killed += pushing.process.returncode == -9
    assert killed >= 4
    assert content(team) == content(laptop)
    with open_ledger(team) as ledger:
        assert ledger.verify() == []
