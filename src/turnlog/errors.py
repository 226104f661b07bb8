"""One tree of errors. Each class owns its exit code, HTTP status and default hint.

    TurnlogError                 1 / 500   anything turnlog refuses or cannot do
    ├── ConflictError            4 / 409   a receipt, name or binding contradicts what is already recorded
    ├── StaleError               4 / 409   the caller no longer owns what it thinks (driver tuple, capture, version)
    │   ├── DrivenError          4 / 409   another process is driving this conversation
    │   └── IdleError            4 / 409   nobody is driving this conversation now
    ├── MissingError             1 / 404   no such session, input, exec, task …
    ├── InvalidError             2 / 400   the caller's input is not acceptable; nothing was written
    │   └── CorruptError         1 / 500   something already stored (or a foreign file) cannot be understood
    ├── UncertainError           5 / 502   a request may or may not have reached the provider; it is never sent again
    ├── CancelledError           130 / 499 a person stopped the command before anything was sent
    ├── TimedOutError            124 / 504 the time for the turn was over before anything was sent
    └── UnavailableError         1 / 503   a program, file, lock or disk that is needed cannot be had now
        ├── NoLedgerError        1 / 404   the ledger to read does not exist yet
        ├── OldLedgerError       1 / 503   the ledger must be upgraded before it can be read
        └── RefusedError         1 / 502   the provider certainly did not accept the request

Surfaces need one handler: print ``str(error)`` and ``error.hint``, leave with ``error.exit_code``.
"""

from __future__ import annotations

from typing import ClassVar


class TurnlogError(Exception):
    """Base of every error turnlog raises on purpose.

    ``message`` says what in one line; ``hint`` says what to do. ``code`` is the stable word used in JSON.
    """

    code: ClassVar[str] = "failed"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    default_hint: ClassVar[str] = "run `turnlog doctor` to check the installation"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is not None else self.default_hint


class ConflictError(TurnlogError):
    """What is offered contradicts what is recorded; the record stays (R1.3, R3.2, R4.3, R12.2)."""

    code = "conflict"
    exit_code = 4
    http_status = 409
    default_hint = "the first record stays; `turnlog history` shows it"


class StaleError(TurnlogError):
    """The caller's driver tuple, capture or version is no longer the current one (R9.1, R9.10, R12.3)."""

    code = "stale"
    exit_code = 4
    http_status = 409
    default_hint = "somebody else acted in between; read the session again with `turnlog show`"


class DrivenError(StaleError):
    """Another process drives this conversation, and it is not provably dead (R9.12)."""

    code = "driven"
    default_hint = "use `turnlog steer` or `turnlog interrupt`, or wait until the other command ends"


class IdleError(StaleError):
    """Nobody drives this conversation, so nothing can be said into it or stopped."""

    code = "not_running"
    default_hint = "`turnlog resume` begins the next turn"


class MissingError(TurnlogError):
    """The named thing does not exist in this ledger."""

    code = "missing"
    http_status = 404
    default_hint = "`turnlog sessions --all` lists what is here"


class InvalidError(TurnlogError):
    """The given input is not acceptable; nothing was written."""

    code = "invalid"
    exit_code = 2
    http_status = 400
    default_hint = "see `turnlog --help`"


class CorruptError(InvalidError):
    """Stored data cannot be understood; exact reads fail loudly rather than return a part (R5.3)."""

    code = "corrupt"
    exit_code = 1
    http_status = 500
    default_hint = "run `turnlog verify` to locate the damage"


class UncertainError(TurnlogError):
    """A request may or may not have been delivered (H6). It is looked up, never sent again."""

    code = "uncertain"
    exit_code = 5
    http_status = 502
    default_hint = "run `turnlog recover` to look it up in the provider's own history; it is never sent twice"


class CancelledError(TurnlogError):
    """A person stopped the command before anything was sent to the provider."""

    code = "interrupted"
    exit_code = 130
    http_status = 499
    default_hint = "nothing was sent"


class TimedOutError(TurnlogError):
    """The time for the turn was over before anything was sent to the provider."""

    code = "timed_out"
    exit_code = 124
    http_status = 504
    default_hint = "nothing was sent; give it more time with --timeout"


class UnavailableError(TurnlogError):
    """A program, file, lock or disk that is needed cannot be had now; trying again later may work."""

    code = "unavailable"
    http_status = 503
    default_hint = "try again; `turnlog doctor` shows what is missing"


class NoLedgerError(UnavailableError):
    """The ledger to read does not exist yet."""

    code = "no_ledger"
    http_status = 404
    default_hint = "any writing command, like `turnlog run`, makes it"


class OldLedgerError(UnavailableError):
    """The ledger was made by an older turnlog; opening it once for writing upgrades it."""

    code = "old_ledger"
    default_hint = "open it once for writing: `turnlog verify`"


class RefusedError(UnavailableError):
    """The provider certainly did not accept a request: not connected, or an error answer."""

    code = "refused"
    http_status = 502
    default_hint = "the provider's own words are above; nothing was sent twice"
