"""What runs now: turnlog's own processes, the engines they started, and what was left behind (semantics 7.4).

A process counts as ours by evidence only: an exec or engine record of the ledger that agrees in boot, pid and start
time, or the ``TURNLOG_CALLER`` that an engine's environment gives to everything below it. Of a process on another
machine nobody can tell whether it runs: one that drives is shown for as long as its lease holds.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import psutil

from turnlog import process
from turnlog.api import Ledger
from turnlog.clock import now_ms
from turnlog.config import LEASE_S
from turnlog.drive.caller import VARIABLE, Caller, read
from turnlog.errors import InvalidError, MissingError, UnavailableError
from turnlog.model import Exec, Session
from turnlog.process import START_TOLERANCE_MS, Liveness

STALLED_MS: Final = 30_000
"""A driver that lives but has not touched its heartbeat for so long does not work (it writes every 10 s)."""

PROGRAMS: Final = ("opencode", "codex", "claude")
_EXECS: Final = 500


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A running turnlog or engine. ``kind``: ``exec provider_process``; ``state``: ``working waiting stalled``.

    ``home_id`` is where it runs (None = unknown): ``pid`` is one of that machine.
    """

    id: str
    parent_id: str | None
    kind: str
    label: str
    repo: str | None
    worktree: str | None
    wave: str | None
    pid: int
    started_at: int
    state: str
    session_id: str | None = None
    home_id: str | None = None


class ProviderProcess(msgspec.Struct, frozen=True, kw_only=True):
    """An agent program, or something it started, that no running turnlog holds.

    ``claim``: ``orphaned`` (turnlog started it, or what started it) or ``unclaimed`` (a person's own, or unknown).
    """

    id: str
    pid: int
    ppid: int
    process_group: int
    started_at: int
    kernel_state: str
    provider: str | None
    command: str
    claim: str
    session_id: str | None = None


class Processes(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the machine."""

    observed_at: int
    nodes: tuple[Node, ...]
    provider_processes: tuple[ProviderProcess, ...]


class _Seen(msgspec.Struct, frozen=True):
    """A process of the machine as it is now."""

    pid: int
    ppid: int
    started_at: int
    status: str
    command: tuple[str, ...]
    caller: Caller | None


def running(ledger: Ledger) -> Processes:
    """Return what runs now. Cost: one pass over the machine's processes, one over the newest open execs."""
    seen = {each.pid: each for each in _machine()}
    nodes: list[Node] = []
    held: set[int] = set()
    for one in _living_execs(ledger):
        if one.pid is None or one.pid_started_at is None:
            continue
        sessions = [s for s in map(ledger.session, ledger.driven_sessions(one.id)) if s is not None]
        elsewhere = _is_elsewhere(one)
        if elsewhere and not any(_gave_a_sign(ledger, session) for session in sessions):
            continue
        states = [_state(ledger, session) for session in sessions]
        nodes.append(
            Node(
                id=one.id,
                parent_id=one.parent_id,
                kind="exec",
                label=_label(one.command),
                repo=one.repo,
                worktree=one.cwd,
                wave=sessions[0].wave_id if sessions else None,
                pid=one.pid,
                started_at=one.pid_started_at,
                state=_worst(states),
                session_id=sessions[0].id if sessions else None,
                home_id=one.home_id,
            )
        )
        if elsewhere:
            continue
        held.add(one.pid)
        for session in sessions:
            engine = _engine_node(ledger, session, one, seen)
            if engine is not None:
                nodes.append(engine)
                held.add(engine.pid)
    left = tuple(_left(ledger, each) for each in seen.values() if _is_left(each, seen, held))
    return Processes(observed_at=now_ms(), nodes=tuple(nodes), provider_processes=left)


def stop(ledger: Ledger, name: str) -> ProviderProcess | Node:
    """End one process by the id that ``running`` gave; only what turnlog started. Raises MissingError, InvalidError."""
    look = running(ledger)
    elsewhere = {node.id for node in look.nodes if _runs_elsewhere(ledger, node)}
    everything: list[ProviderProcess | Node] = [*look.nodes, *look.provider_processes]
    found = [each for each in everything if name == each.id or (name == str(each.pid) and each.id not in elsewhere)]
    if found and found[0].id in elsewhere:
        raise InvalidError(
            f"process {found[0].pid} runs on another machine",
            hint="end it there, or ask it to stop: `turnlog interrupt SESSION`",
        )
    if not found:
        raise MissingError(f"no running process {name}", hint="`turnlog ps` lists what runs")
    target = found[0]
    if isinstance(target, ProviderProcess) and target.claim != "orphaned":
        raise InvalidError(f"process {target.pid} was not started by turnlog", hint="end it yourself if it is yours")
    identity = process.identify(target.pid)
    if identity is None or abs(identity.started_at - target.started_at) > START_TOLERANCE_MS:
        raise MissingError(f"process {target.pid} has ended")
    try:
        os.kill(target.pid, signal.SIGTERM)
    except ProcessLookupError as error:
        raise MissingError(f"process {target.pid} has ended") from error
    except PermissionError as error:
        raise UnavailableError(
            f"process {target.pid} may not be ended by this user", hint="end it as its owner"
        ) from error
    with contextlib.suppress(psutil.Error):
        leaving = psutil.Process(target.pid)
        if isinstance(target, ProviderProcess):
            try:
                leaving.wait(3)
            except psutil.TimeoutExpired:
                leaving.kill()
    return target


def _machine() -> Iterator[_Seen]:
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError), each.oneshot():
            caller = None
            with contextlib.suppress(psutil.Error, OSError):
                caller = read({VARIABLE: each.environ().get(VARIABLE, "")})
            started = int(each.create_time() * 1000)
            yield _Seen(each.pid, each.ppid(), started, each.status(), tuple(each.cmdline()), caller)


def _living_execs(ledger: Ledger) -> Iterator[Exec]:
    """Yield the execs that live, and those of which only their own machine can tell."""
    for one in ledger.execs(limit=_EXECS):
        if one.completed_at is None and _liveness(one) is not Liveness.DEAD:
            yield one


def _liveness(one: Exec) -> Liveness:
    return process.liveness(one.boot_id, one.pid, one.pid_started_at)


def _is_elsewhere(one: Exec) -> bool:
    """Tell whether a process is none of this machine, or cannot be known to be one."""
    return _liveness(one) is Liveness.UNKNOWN


def _runs_elsewhere(ledger: Ledger, node: Node) -> bool:
    one = ledger.exec(node.id) if node.kind == "exec" else None
    return one is not None and _is_elsewhere(one)


def _gave_a_sign(ledger: Ledger, session: Session) -> bool:
    age = ledger.driver_age(session.id)
    return age is not None and age < LEASE_S * 1000


def _engine_node(ledger: Ledger, session: Session, owner: Exec, seen: dict[int, _Seen]) -> Node | None:
    record = ledger.process(session.id)
    if record is None or record[0] not in seen:
        return None
    found = seen[record[0]]
    if abs(found.started_at - record[1]) > START_TOLERANCE_MS:
        return None  # the pid was given to somebody else
    return Node(
        id=f"{session.id}:engine",
        parent_id=owner.id,
        kind="provider_process",
        label=f"{session.provider} · {session.title}",
        repo=session.repo,
        worktree=session.cwd,
        wave=session.wave_id,
        pid=found.pid,
        started_at=found.started_at,
        state=_state(ledger, session),
        session_id=session.id,
        home_id=owner.home_id,
    )


def _is_left(each: _Seen, seen: dict[int, _Seen], held: set[int]) -> bool:
    """Tell whether a process is an agent's and hangs below nothing that is shown already."""
    if each.pid in held or each.pid == os.getpid() or each.status == psutil.STATUS_ZOMBIE:
        return False
    if each.caller is None and _provider(each.command) is None:
        return False
    parent = seen.get(each.ppid)
    while parent is not None:
        if parent.pid in held:
            return False
        if parent.caller is not None or _provider(parent.command) is not None:
            return False  # its parent is shown and ends with what it started
        parent = seen.get(parent.ppid) if parent.ppid != parent.pid else None
    return True


def _left(ledger: Ledger, each: _Seen) -> ProviderProcess:
    group = 0
    with contextlib.suppress(OSError):
        group = os.getpgid(each.pid)
    caller = each.caller
    session = ledger.session(caller.session_id) if caller else None
    return ProviderProcess(
        id=f"pid-{each.pid}-{each.started_at}",
        pid=each.pid,
        ppid=each.ppid,
        process_group=group,
        started_at=each.started_at,
        kernel_state=each.status,
        provider=_provider(each.command) or (session.provider if session else None),
        command=" ".join(each.command)[:300],
        claim="orphaned" if caller is not None else "unclaimed",
        session_id=caller.session_id if caller else None,
    )


def _provider(command: tuple[str, ...]) -> str | None:
    """Return the agent program that a command line runs, by the name of its program or script."""
    for word in command[:2]:
        stem = Path(word).name.removesuffix(".exe").removesuffix(".js")
        if stem in PROGRAMS:
            return stem
    return None


def _state(ledger: Ledger, session: Session) -> str:
    age = ledger.driver_age(session.id)
    if age is not None and age > STALLED_MS:
        return "stalled"
    return "waiting" if ledger.open_questions(session.id) else "working"


def _worst(states: list[str]) -> str:
    return next((word for word in ("stalled", "waiting") if word in states), "working")


def _label(command: str | None) -> str:
    if command is None:
        return "turnlog"
    try:
        words = msgspec.json.decode(command, type=list[str])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return command[:80]
    return " ".join([Path(words[0]).name, *words[1:]])[:80] if words else "turnlog"
