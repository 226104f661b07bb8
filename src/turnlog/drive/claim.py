"""Taking a conversation: who drives it now, is that process dead, does its engine live (R9.12, R9.13)."""

from __future__ import annotations

import msgspec

from turnlog import process
from turnlog.api import Ledger
from turnlog.clock import now_ms
from turnlog.errors import ConflictError, DrivenError
from turnlog.model import Driver, Exec, Session
from turnlog.process import Liveness
from turnlog.receipts import Observation


class Claim(msgspec.Struct, frozen=True):
    """A taken conversation. ``engine_alive``: the engine of the previous driver runs on and can be adopted."""

    driver: Driver
    engine_alive: bool


def holder(ledger: Ledger, session_id: str) -> tuple[Exec | None, Liveness]:
    """Return the exec that drives a conversation and what is known about it; (None, DEAD) when nobody does."""
    driver = ledger.driver(session_id)
    if driver is None or driver.exec_id is None:
        return None, Liveness.DEAD
    found = ledger.exec(driver.exec_id)
    if found is None:
        return None, Liveness.UNKNOWN
    if found.completed_at is not None:
        return found, Liveness.DEAD
    return found, process.liveness(found.boot_id, found.pid, found.pid_started_at)


def take(
    ledger: Ledger, session: Session, exec_id: str, *, endpoint: str | None, replace: bool, adoptable: bool
) -> Claim:
    """Claim the conversation unless another living, or possibly living, process drives it.

    ``replace`` takes it from a process whose death cannot be proved. An engine that is not ``adoptable`` is replaced
    even while it runs (the harness waits for its end first). Raises DrivenError, StaleError (a race was lost).
    """
    expected = ledger.driver(session.id)
    if expected is not None and expected.exec_id is not None:
        other, state = holder(ledger, session.id)
        name = f"pid {other.pid}" if other and other.pid else expected.exec_id
        if state is Liveness.ALIVE:
            raise DrivenError(f"session {session.id} is driven by another turnlog ({name})")
        if state is Liveness.UNKNOWN and not replace:
            raise DrivenError(
                f"session {session.id} was driven by {name}, on another machine or in another container",
                hint="if you know that it ended, take over with --replace",
            )
        if state is Liveness.DEAD:
            record_death(ledger, session, other, expected.exec_id)
    alive = adoptable and engine_alive(ledger, session.id, expected, endpoint)
    return Claim(ledger.claim_driver(session.id, expected, exec_id, replace_engine=not alive), alive)


def record_death(ledger: Ledger, session: Session, dead: Exec | None, exec_id: str) -> None:
    """Record that an exec is dead; this ends the hold of the turns it began (D13). Known already: nothing."""
    evidence: dict[str, str | int | None] = {"exec_id": exec_id}
    if dead is not None:
        evidence |= {"boot_id": dead.boot_id, "pid": dead.pid, "pid_started_at": dead.pid_started_at}
    observation = Observation(session.artifact_key, f"death:{exec_id}", now_ms(), evidence)
    try:
        ledger.retain(session.id, observation)
    except ConflictError:
        return  # somebody recorded the same death with less to say


def engine_alive(ledger: Ledger, session_id: str, driver: Driver | None, endpoint: str | None) -> bool:
    """Tell whether the recorded engine is known to run.

    An engine without recorded connection never got a request (requests leave after the connection is recorded), so
    one that was spawned but not recorded may be replaced without risk of sending anything twice.
    """
    engine = ledger.engine(session_id)
    if engine is None or driver is None or driver.provider_exec_id is None:
        return False
    if endpoint is not None and engine.endpoint == endpoint:
        return True
    starter = ledger.exec(driver.provider_exec_id)
    boot = starter.boot_id if starter else None
    return process.liveness(boot, engine.pid, engine.started_at) is Liveness.ALIVE
