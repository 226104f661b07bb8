"""Taking a conversation: who drives it now, is that process dead, does its engine live (R9.12, R9.13).

On one machine the process decides, however long its driver has been silent. Of a process on another machine, or in
another container, nothing can be known; there the lease decides: a driver renews it while it drives, and one that has
given no sign for that long, by the database's clock, may be replaced. That is no proof of its death, and none is
recorded; the fence keeps it from doing anything new (promise 3), and by then it has ended its own turn (seat.py).
"""

from __future__ import annotations

import msgspec

from turnlog import process
from turnlog.api import Ledger
from turnlog.clock import now_ms
from turnlog.config import LEASE_S
from turnlog.errors import ConflictError, DrivenError
from turnlog.model import Driver, Exec, Session
from turnlog.process import Liveness
from turnlog.receipts import Observation


class Claim(msgspec.Struct, frozen=True):
    """A taken conversation. ``engine_alive``: the engine of the previous driver runs on and can be adopted."""

    driver: Driver
    engine_alive: bool


def _process_of(ledger: Ledger, session_id: str, exec_id: str) -> tuple[Exec | None, Liveness]:
    """Return the exec that drives a conversation, and what is known about its process."""
    found = ledger.exec(exec_id)
    if found is None:
        return None, Liveness.UNKNOWN
    if found.completed_at is not None:
        return found, Liveness.DEAD
    state = process.liveness(found.boot_id, found.pid, found.pid_started_at)
    if state is Liveness.DEAD and found.boot_id != process.boot_id():
        # Dead as a process of an earlier boot. But machines that were copied have one id: who gave a sign after we
        # booted runs elsewhere. Both are durations by one clock each, so clocks that differ change nothing.
        age = ledger.driver_age(session_id)
        if age is not None and age < process.uptime_ms():
            return found, Liveness.UNKNOWN
    return found, state


def take(
    ledger: Ledger,
    session: Session,
    exec_id: str,
    *,
    endpoint: str | None,
    replace: bool,
    adoptable: bool,
    lease_s: float = LEASE_S,
) -> Claim:
    """Claim the conversation unless another living, or possibly living, process drives it.

    A process that cannot be seen from here is replaced when its lease of ``lease_s`` seconds has run out; ``replace``
    does not wait for that. An engine that is not ``adoptable`` is replaced even while it runs (the harness waits for
    its end first). Raises DrivenError, StaleError (a race was lost).
    """
    expected = ledger.driver(session.id)
    lease_ms: int | None = None
    if expected is not None and expected.exec_id is not None:
        other, state = _process_of(ledger, session.id, expected.exec_id)
        if state is Liveness.ALIVE:
            raise DrivenError(f"session {session.id} is driven by another turnlog ({_name(other, expected.exec_id)})")
        if state is Liveness.UNKNOWN and not replace:
            lease_ms = int(lease_s * 1000)
            _require_expired(ledger, session.id, other, expected.exec_id, lease_ms)
        if state is Liveness.DEAD:
            record_death(ledger, session, other, expected.exec_id)
    alive = adoptable and engine_alive(ledger, session.id, expected, endpoint)
    driver = ledger.claim_driver(session.id, expected, exec_id, replace_engine=not alive, lease_ms=lease_ms)
    if lease_ms is not None and expected is not None:
        _record_expiry(ledger, session, expected, lease_ms)
    return Claim(driver, alive)


def _require_expired(ledger: Ledger, session_id: str, other: Exec | None, exec_id: str, lease_ms: int) -> None:
    """Raise DrivenError unless the driver has given no sign for a whole lease; without any sign it never expires."""
    age = ledger.driver_age(session_id)
    if age is not None and age >= lease_ms:
        return
    where = f"another turnlog {_place(ledger, other)} ({_name(other, exec_id)})"
    if age is None:
        raise DrivenError(
            f"session {session_id} was driven by {where}, which never gave a sign",
            hint="if you know that it ended, take over with --replace",
        )
    left = max(lease_ms - age, 0) / 1000
    raise DrivenError(
        f"session {session_id} is driven by {where}, heard of {max(age, 0) / 1000:.0f} s ago",
        hint=f"wait for it; if it stays silent for {left:.0f} s more you can take over, or now with --replace",
    )


def _place(ledger: Ledger, other: Exec | None) -> str:
    machine = None if other is None else process.machine_of(other.boot_id)
    if machine is None or other is None:
        return "on an unknown machine"
    if process.same_machine(other.boot_id):
        return f"in another container or copy of machine {machine}"
    host = next((home.name for home in ledger.homes() if home.id == other.home_id), None)
    return f"on machine {machine}" if host is None else f"on machine {machine}, host {host}"


def _name(other: Exec | None, exec_id: str) -> str:
    if other is None or other.pid is None:
        return f"exec {exec_id}"
    return f"pid {other.pid} in {other.cwd}" if other.cwd else f"pid {other.pid}"


def _record_expiry(ledger: Ledger, session: Session, replaced: Driver, lease_ms: int) -> None:
    """Record why a driver was replaced that may live."""
    evidence = {"exec_id": replaced.exec_id, "generation": replaced.generation, "lease_ms": lease_ms}
    source = f"lease:{replaced.generation}:expired"
    ledger.retain(session.id, Observation(session.artifact_key, source, now_ms(), evidence))


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
