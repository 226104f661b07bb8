"""What is known of a conversation now: its driver, whether that process lives, and one word for it all.

Liveness is asked of the operating system, never read from history: no thread is "running" because a row says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from turnlog import process
from turnlog.process import Liveness
from turnlog.surfaces.cli.output import plain

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.model import Driver, Exec, Session

STYLES: Final = {
    "active": "32",
    "completed": "32",
    "ready": "36",
    "closed": "2",
    "unknown": "2",
    "failed": "31",
    "interrupted": "33",
    "running": "33",
    "unfinished": "33",
}
"""Colours of status words."""


class Seat(NamedTuple):
    """Who drives a conversation; ``exec`` is None when nobody does, or its record is missing."""

    driver: Driver | None
    exec: Exec | None
    liveness: Liveness | None

    @property
    def taken(self) -> bool:
        """Whether a driver is recorded that has not let go."""
        return self.driver is not None and self.driver.exec_id is not None


def seat_of(ledger: Ledger, session_id: str) -> Seat:
    """Return the recorded driver and whether its process lives; liveness is None when nobody drives."""
    driver = ledger.driver(session_id)
    if driver is None or driver.exec_id is None:
        return Seat(driver, None, None)
    found = ledger.exec(driver.exec_id)
    if found is None:
        return Seat(driver, None, Liveness.UNKNOWN)
    if found.completed_at is not None:
        return Seat(driver, found, Liveness.DEAD)
    return Seat(driver, found, process.liveness(found.boot_id, found.pid, found.pid_started_at))


def state_word(session: Session, seat: Seat) -> str:
    """Return ``closed ready active unknown``."""
    if session.completed_at is not None:
        return "closed"
    if seat.liveness is Liveness.ALIVE:
        return "active"
    return "ready" if session.ready_summary else "unknown"


def turn_word(latest_turn: str | None, seat: Seat) -> str:
    """Return the state of the newest turn for a person: a start alone is not "running"."""
    if latest_turn is None:
        return "-"
    return "unfinished" if latest_turn == "running" and seat.liveness is not Liveness.ALIVE else latest_turn


def session_row(ledger: Ledger, session: Session, seat: Seat) -> dict[str, Any]:
    """Return a conversation as the contract's JSON: Session, latest_turn, state, work."""
    summary = ledger.session_summary(session.id)
    latest = summary.latest_turn if summary else None
    work = ledger.session_work(session.id)
    shown = {"label": work.label if work else "-", "mixed": work is not None and work.mixed}
    return {**plain(session), "latest_turn": latest, "state": state_word(session, seat), "work": shown}


def engine_liveness(ledger: Ledger, driver: Driver | None, pid: int | None, started_at: int | None) -> Liveness:
    """Tell whether the recorded engine process runs; without a pid of ours nobody knows."""
    starter = ledger.exec(driver.provider_exec_id) if driver and driver.provider_exec_id else None
    boot = starter.boot_id if starter else None
    return process.liveness(boot, pid, started_at)
