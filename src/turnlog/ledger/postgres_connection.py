"""One connection to the server: how values are written, what is set on it, and that no wait on it lasts for ever.

The server ends statements and waits for locks that take too long. But a server that was stopped, or whose packets a
network drops, ends nothing and says nothing; so does one that is busy with a long statement. Which of the two it is,
another connection tells.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.adapt import Dumper
from psycopg.rows import TupleRow
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumper

from turnlog.ledger.postgres_errors import VALUE_ERRORS, UnansweredError, value_error
from turnlog.ledger.postgres_url import Place

R = TypeVar("R")

SILENCE_S: Final = 15.0
"""For so long nothing is asked about an answer that does not come."""

ANSWER_S: Final = 660.0
"""No answer comes later: the server ends every statement after ten minutes."""

SETTINGS: Final = (
    "SET lock_timeout = {lock_ms}; SET statement_timeout = '10min';"
    # A process that is stopped inside a transaction holds locks: the server ends it. One that only waits may stay.
    " SET idle_in_transaction_session_timeout = '2min'; SET idle_session_timeout = 0;"
    # A machine that is cut off holds its locks until the server notices: two hours by its own defaults.
    " SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3;"
    " SET tcp_user_timeout = 30000;"
    " SET jit = off; SET standard_conforming_strings = on"
)

_EXACT: Final = 2**53

# What psycopg has to say about the end of a connection that broke is said by the error; it is not printed, too.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class Connection(psycopg.Connection[TupleRow]):
    """A connection that raises UnansweredError, and is closed, when its server says nothing and cannot be reached."""

    silence_s: float = SILENCE_S
    place: Place | None = None

    def wait(self, gen: PQGen[R], *args: Any, **given: Any) -> R:
        """Wait as psycopg does, which looks up ten times a second, and ask about the server when it is silent."""
        return super().wait(self._patient(gen), *args, **given)

    def _patient(self, gen: PQGen[R]) -> PQGen[R]:
        try:
            state = next(gen)
            heard = asked = time.monotonic()
            while True:
                ready = yield state
                now = time.monotonic()
                if ready:
                    heard = asked = now
                elif now - heard > ANSWER_S or (now - asked > self.silence_s and not self._reachable()):
                    self.close()
                    raise UnansweredError(f"no answer for {time.monotonic() - heard:.0f} s")
                elif now - asked > self.silence_s:
                    asked = time.monotonic()
                state = gen.send(ready)
        except StopIteration as end:
            result: R = end.value
            return result

    def _reachable(self) -> bool:
        """Tell whether the server lets anybody in, or at least says why not."""
        if self.place is None:
            return True
        info = self.info
        there = {"host": info.host, "hostaddr": info.hostaddr, "port": info.port, "target_session_attrs": "any"}
        given = {**self.place.parameters, **{name: value for name, value in there.items() if value}}
        with contextlib.suppress(psycopg.Error):
            try:
                psycopg.connect(**given).close()
            except psycopg.errors.ConnectionTimeout:
                return False
        return True


def connect(place: Place, lock_ms: int, silence_s: float, also: str = "") -> tuple[Connection, list[TupleRow]]:
    """Open a connection and set it up; return it with the rows of ``also``, a query that goes along with that.

    One round trip beside those of the connection itself. Raises psycopg's errors, with the connection closed, and
    InvalidError for parameters that no connection can have.
    """
    try:
        connection = Connection.connect(**place.parameters, autocommit=True)
    except VALUE_ERRORS as error:
        raise value_error(error) from None
    connection.place, connection.silence_s = place, silence_s
    # One type for each kind of value: statements are prepared once, and text is never guessed to be something else.
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_dumper(bool, _FlagDumper)
    connection.adapters.register_dumper(str, StrDumper)
    connection.adapters.register_dumper(float, _NumberDumper)
    settings = SETTINGS.format(lock_ms=lock_ms)
    try:
        cursor = connection.execute(f"{settings}; {also}" if also else settings)
        while cursor.nextset():
            pass
        return connection, cursor.fetchall() if also else []
    except BaseException:
        connection.close()
        raise


class _FlagDumper(Int8Dumper):
    """Flags are integers, as in the SQLite ledger."""

    def dump(self, obj: bool) -> bytes:  # noqa: FBT001 - that is what it is for
        return b"1" if obj else b"0"


class _NumberDumper(Dumper):
    """A float is of the type of the column it goes to: PostgreSQL would round a fraction into an integer silently."""

    def dump(self, obj: float) -> bytes:
        return b"%d" % int(obj) if obj.is_integer() and abs(obj) < _EXACT else repr(obj).encode()
