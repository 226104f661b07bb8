"""A PostgreSQL server that accepts connections and says nothing: nobody waits for it for ever."""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial

import psutil
import psycopg
import pytest

from tests import postgres_server
from tests.postgres_server import Server
from turnlog import Ledger, UnavailableError, open_ledger
from turnlog.ledger.postgres import PostgresBackend
from turnlog.ledger.postgres_connection import Connection, connect
from turnlog.ledger.postgres_url import Place
from turnlog.ledger.store import Store

pytestmark = pytest.mark.timeout(120)

THREAD = "thread"
QUICK = "connect_timeout=2"
"""Seconds; libpq knows none shorter."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server.durable() as server:
        yield server


@pytest.fixture
def url(server: Server) -> str:
    return f"{server.url(server.shared_ledger())}&{QUICK}"


@contextlib.contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Stop every process of the server, as a machine that hangs does: the kernel still takes connections."""
    postmaster = psutil.Process(server.postmaster())
    try:
        postmaster.send_signal(signal.SIGSTOP)  # first: it begins no more of them
        for each in postmaster.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # one may just have ended
                each.send_signal(signal.SIGSTOP)
        yield
    finally:
        for each in (postmaster, *postmaster.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGCONT)


def impatient(url: str) -> Ledger:
    return Ledger(Store(PostgresBackend(url, silence_s=0.2)))


def told(call: Callable[[], object]) -> str:
    """Return what a call says about the server that does not answer."""
    with pytest.raises(UnavailableError) as caught:
        call()
    assert "does not answer" in caught.value.message
    assert "network" in caught.value.hint
    assert "not recorded twice" in caught.value.hint
    return caught.value.message


# --- at the start


def test_a_listener_that_says_nothing_is_given_up_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        message = told(lambda: open_ledger(f"postgresql://u:hidden@127.0.0.1:{port}/db?{QUICK}"))
    assert f"postgresql://u@127.0.0.1:{port}/db" in message
    assert "hidden" not in message


def test_a_stopped_server_is_given_up_at_the_start(server: Server, url: str) -> None:
    with stopped(server):
        told(lambda: open_ledger(url))
    open_ledger(url).close()


# --- in the middle


def fresh(ledger: Ledger, name: str) -> None:
    ledger.create_session(id=name, cwd="/f")
    ledger.record(name, THREAD, "0", "started", {})


@pytest.mark.parametrize(
    "call",
    [
        lambda ledger: ledger.recent_inputs(),
        lambda ledger: ledger.usage_report("daily"),
        lambda ledger: ledger.size(),
    ],
    ids=["many questions at once", "a report", "a plain question"],
)
def test_reads_end_when_the_server_was_stopped(server: Server, url: str, call: Callable[[Ledger], object]) -> None:
    with impatient(url) as ledger:
        if ledger.session("reads") is None:
            fresh(ledger, "reads")
        call(ledger)
        with stopped(server):
            told(lambda: call(ledger))
        call(ledger)


def test_a_write_ends_and_may_be_made_again(server: Server, url: str) -> None:
    with impatient(url) as ledger:
        fresh(ledger, "writes")
        with stopped(server):
            told(lambda: ledger.record("writes", THREAD, "1", "started", {}))
        ledger.record("writes", THREAD, "1", "started", {})
        assert [event.turn for event in ledger.history("writes")] == [None, "0", "1"]


def test_a_heartbeat_and_the_lock_of_a_driver_end(server: Server, url: str) -> None:
    with impatient(url) as ledger:
        fresh(ledger, "driven")
        ledger.start_exec(id="e")
        driver = ledger.claim_driver("driven", None, "e")

        def drive() -> None:
            with ledger.driving("driven", driver):
                pass

        with stopped(server):
            told(lambda: ledger.heartbeat("driven", driver))
            told(drive)
        ledger.heartbeat("driven", driver)
        drive()


def test_a_server_that_is_stopped_while_a_driver_holds_its_lock_lets_it_go(server: Server, url: str) -> None:
    """The tuple fences; what is left of the lock ends with its connection."""
    with impatient(url) as ledger:
        fresh(ledger, "held")
        ledger.start_exec(id="h")
        driver = ledger.claim_driver("held", None, "h")
        with contextlib.ExitStack() as stack, ledger.driving("held", driver):
            stack.enter_context(stopped(server))
        with ledger.driving("held", driver):
            ledger.heartbeat("held", driver)


def test_a_watcher_waits_for_as_long_as_nothing_comes_and_ends_when_the_server_was_stopped(
    server: Server, url: str
) -> None:
    with impatient(url) as ledger, impatient(url) as reader:
        fresh(ledger, "watched")
        pages = reader.follow(reader.tail_end())
        quiet = [next(pages).receipts for _ in range(3)]  # two of them after a whole second of silence
        assert quiet == [(), (), ()]
        ledger.record("watched", THREAD, "late", "started", {})
        assert [each.turn for each in next(pages).receipts] == ["late"]
        with stopped(server):
            told(lambda: [next(pages) for _ in range(100)])


def test_a_statement_that_takes_long_is_waited_for(server: Server, url: str) -> None:
    """Each time it was silent for long, the server is asked whether it is there: it is."""
    connection, _ = connect(Place(url), 1_000, 0.1)
    asked = 0
    reachable = Connection._reachable

    def count(self: Connection) -> bool:
        nonlocal asked
        asked += 1
        return reachable(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Connection, "_reachable", count)
        assert connection.execute("SELECT pg_sleep(1), 7").fetchall()[0][1] == 7
    assert asked >= 2
    connection.close()


def test_a_server_that_lets_nobody_else_in_is_there(server: Server, url: str) -> None:
    """It says why: that is an answer."""
    connection, _ = connect(Place(url), 1_000, 0.1)
    role = f"{server.url(server.shared_ledger(), role='locked')}&{QUICK}"
    connection.place = Place(role)
    assert connection.execute("SELECT pg_sleep(0.5), 7").fetchall()[0][1] == 7
    connection.close()


def test_no_answer_comes_after_the_server_would_have_ended_the_statement(
    server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process of the server was stopped alone; the others let people in."""
    monkeypatch.setattr("turnlog.ledger.postgres_connection.ANSWER_S", 0.5)
    connection, _ = connect(Place(url), 1_000, 0.1)
    victim = psutil.Process(connection.info.backend_pid)
    victim.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(psycopg.OperationalError, match="no answer"):
            connection.execute("SELECT 1")
        assert connection.closed
    finally:
        victim.send_signal(signal.SIGCONT)


# --- a network that drops packets


class Wire:
    """A way to the server that can be cut: what is sent then goes nowhere, and new connections stay unanswered."""

    def __init__(self, server: Server) -> None:
        self._there = f"{server.folder}/.s.PGSQL.{server.port}"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._cut = threading.Event()
        self._ended = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._wake, waker = socket.socketpair()
        self._selector.register(waker, selectors.EVENT_READ, self._ended.set)
        self._open: list[socket.socket] = [self._listener, waker, self._wake]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def cut(self) -> None:
        self._cut.set()

    def end(self) -> None:
        self._wake.send(b"x")
        self._thread.join(30)
        self._selector.close()
        for each in self._open:
            each.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            for key, _ in self._selector.select():
                key.data()

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.socket(socket.AF_UNIX)
        far.connect(self._there)
        self._open += [near, far]
        for one, other in ((near, far), (far, near)):
            self._selector.register(one, selectors.EVENT_READ, partial(self._pass, one, other))

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        data = one.recv(65536)
        if not data:
            self._selector.unregister(one)
        if not self._cut.is_set():
            other.sendall(data) if data else other.shutdown(socket.SHUT_WR)


def test_a_network_that_drops_everything_ends_the_wait(server: Server) -> None:
    wire = Wire(server)
    try:
        database = server.shared_ledger()
        url = f"postgresql://owner@127.0.0.1:{wire.port}/{database}?{QUICK}&sslmode=disable&gssencmode=disable"
        with impatient(url) as ledger:
            fresh(ledger, "cut")
            wire.cut()
            told(lambda: ledger.record("cut", THREAD, "1", "started", {}))
            told(lambda: ledger.history("cut"))
    finally:
        wire.end()
    with open_ledger(server.url(database)) as ledger:
        assert [event.turn for event in ledger.history("cut")] == [None, "0"]
