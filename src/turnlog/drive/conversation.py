"""Run and resume: one command's turn from claim to finish (semantics 6.2, contract §2)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from turnlog.api import Ledger
from turnlog.clock import now_ms
from turnlog.drive.attempt import Answered, Hold, attempt, settle_living
from turnlog.drive.claim import take
from turnlog.drive.fallback import Ledgered, hand_over, may_hand_over
from turnlog.drive.repository import repository_of
from turnlog.drive.seat import in_thread, require_folder
from turnlog.drive.types import Listener, RunOptions, Stop, TurnResult
from turnlog.errors import ConflictError, InvalidError, MissingError, StaleError, TurnlogError, UnavailableError
from turnlog.harness import HarnessConfig, harness_for
from turnlog.model import Driver, Session

TITLE_WIDTH: Final = 60
EXIT_TIMEOUT: Final = 124
EXIT_INTERRUPTED: Final = 130
EXIT_UNKNOWN: Final = 5
_EXITS: Final = {"completed": 0, "failed": 1, "interrupted": EXIT_INTERRUPTED, "unknown": EXIT_UNKNOWN}


async def run(
    ledger: Ledger, exec_id: str, prompt: str, options: RunOptions, listener: Listener, stop: Stop
) -> TurnResult:
    """Begin a conversation and drive one turn of it.

    Raises InvalidError before anything is recorded; UnavailableError, RefusedError, StaleError afterwards, with what
    happened recorded and the driver finished.
    """
    text = _prompt(prompt)
    cwd = (options.cwd or Path.cwd()).resolve()
    await _preflight(options.provider or "opencode", options, cwd)
    session = await in_thread(
        ledger.create_session,
        title=options.title or _title(text),
        title_source="human" if options.title else "generated",
        cwd=str(cwd),
        repo=repository_of(cwd),
        provider=options.provider or "opencode",
        model=options.model,
        task_id=options.task_id,
        wave_id=options.wave_id,
        work_source=options.work_source,
        caller=options.caller,
        exec_id=exec_id,
    )
    return await _drive(ledger, exec_id, lambda: session, session, text, options, listener, stop)


async def resume(
    ledger: Ledger, exec_id: str, session_id: str, prompt: str, options: RunOptions, listener: Listener, stop: Stop
) -> TurnResult:
    """Drive the next turn of a conversation, as a new input of it. Errors as ``run``; DrivenError when it is driven."""
    text = _prompt(prompt)
    session = await in_thread(ledger.session, session_id)
    if session is None:
        raise MissingError(f"no session {session_id}")
    if options.provider not in (None, session.provider):
        raise InvalidError(
            f"session {session_id} is a conversation with {session.provider}",
            hint="begin another one with `turnlog run`",
        )
    if session.task_id is not None and options.task_id not in (None, session.task_id):
        raise ConflictError(f"session {session_id} is bound to task {session.task_id} already")
    cwd = str((options.cwd or Path(session.cwd)).resolve())
    await _preflight(session.provider or "", options, Path(cwd))
    known = session

    def next_input() -> Session:
        # After the claim: nobody else may give the conversation another input meanwhile.
        current = ledger.reopen_session(known.id)
        if options.task_id is not None:
            current = ledger.bind_session(known.id, current.captured, options.task_id)
        if options.title is not None:
            ledger.rename_session(known.id, options.title)
        replaced = ledger.replace_input(
            known.id, current.captured, cwd=cwd, model=options.model, caller=options.caller, exec_id=exec_id
        )
        ledger.publish_input(known.id, replaced.captured)
        return replaced

    return await _drive(ledger, exec_id, next_input, session, text, options, listener, stop)


async def _drive(
    ledger: Ledger,
    exec_id: str,
    next_input: Callable[[], Session],
    session: Session,
    text: str,
    options: RunOptions,
    listener: Listener,
    stop: Stop,
) -> TurnResult:
    asked_before = now_ms()
    claim = await in_thread(
        take,
        ledger,
        session,
        exec_id,
        endpoint=options.endpoint,
        replace=options.replace,
        adoptable=harness_for(session.provider or "").adoptable,
        lease_s=options.lease_s,
    )
    hold = Hold(ledger, exec_id, claim, options, listener, stop)
    outcome = "failed"
    try:
        await in_thread(_close_requests, ledger, session.id, claim.driver, asked_before)
        session = await in_thread(next_input)
        listener.session(session.id, session.artifact_key)
        deadline = anyio.current_time() + (options.timeout_s or math.inf)
        if claim.engine_alive and options.endpoint is None:
            await settle_living(hold, session, deadline)
        answered = await _attempts(hold, session, text, deadline)
        outcome = {"completed": "completed", "interrupted": "interrupted"}.get(answered.end.status, "failed")
        return await in_thread(_result, hold, session.id, answered)
    finally:
        with anyio.CancelScope(shield=True):
            await _leave(hold, session.id, outcome)


async def _attempts(hold: Hold, session: Session, text: str, deadline: float) -> Answered:
    """Ask, and when that fails without a trace in the world, ask the fallback within the same input (6.6)."""
    failure: TurnlogError | None = None
    answered: Answered | None = None
    record = Ledgered(hold, session)
    try:
        answered = await attempt(hold, session, text, deadline)
    except TurnlogError as error:
        failure = error
    if may_hand_over(hold, answered, failure):
        await record.failed_attempt(answered)
        session = await hand_over(hold, session)
        answered = await attempt(hold, session, text, deadline)
        await record.last_attempt(session, answered)
        return answered
    if failure is not None:
        raise failure
    if answered is None:
        raise MissingError("the attempt told nothing")
    return answered


def _result(hold: Hold, session_id: str, answered: Answered) -> TurnResult:
    ledger, seat, end, value, problem = hold.ledger, hold.seat, answered.end, answered.value, answered.problem
    session = ledger.session(session_id)
    if session is None or seat is None:
        raise MissingError(f"no session {session_id}")
    answer = ledger.final_answer(session.artifact_key)
    code = _EXITS.get(end.status, 1)
    if end.why == "timeout":
        code = EXIT_TIMEOUT
    elif end.why == "stop":
        code = EXIT_INTERRUPTED
    elif problem is not None and code == 0:
        code = 1
    return TurnResult(
        session_id=session.id,
        artifact_key=session.artifact_key,
        provider=session.provider or "",
        thread=seat.thread,
        turn=end.turn,
        status=end.status,
        answer=answer,
        value=value if value is not None else (answer.value if answer else None),
        usage=ledger.input_history(session.artifact_key).usage,
        exit_code=code,
        error=seat.error_of(end.turn) or problem,
    )


async def _leave(hold: Hold, session_id: str, outcome: str) -> None:
    """End or leave the engine, then finish the driver; a driver that was replaced has nothing to finish."""
    ledger, seat = hold.ledger, hold.seat
    closed = False
    with contextlib.suppress(UnavailableError):  # a ledger that cannot be had is no reason to leave an engine behind
        await in_thread(_close_requests, ledger, session_id, hold.claim.driver)
    if seat is not None:
        with contextlib.suppress(TurnlogError):
            if hold.options.keep_engine and not seat.engine_gone and not seat.lease.cut_off:
                await seat.harness.detach()
            else:
                closed = await seat.end_engine()
    with contextlib.suppress(StaleError):
        await in_thread(ledger.finish_driver, session_id, hold.claim.driver, outcome, engine_closed=closed)


def _close_requests(ledger: Ledger, session_id: str, driver: Driver, before: int | None = None) -> None:
    """Tell those who asked something (``before`` an instant) that nobody will act on it: the turn they meant is over.

    A replaced driver leaves it alone.
    """
    with contextlib.suppress(StaleError):
        ledger.heartbeat(session_id, driver)
        for request in ledger.requests(session_id, open_only=True):
            if before is None or request.created_at < before:
                state = "not_steerable" if request.state == "queued" else "uncertain"
                ledger.settle_request(request.id, state, "the turn had ended")


async def _preflight(provider: str, options: RunOptions, cwd: Path) -> None:
    """Refuse what cannot work before anything is recorded: unknown provider, bad model, missing program or folder."""
    require_folder(str(cwd))
    if options.fallback == provider:
        raise InvalidError(f"the fallback is {provider} itself", hint="name another provider with --fallback")
    for name in (provider, options.fallback):
        if name is not None:
            first = name == provider
            config = HarnessConfig(
                cwd=cwd,
                title="",
                state_dir=options.state_dir,
                model=options.model if first else None,
                endpoint=options.endpoint if first else None,
                permissions=options.permissions,
            )
            await harness_for(name)(config).preflight()


def _prompt(prompt: str) -> str:
    if not prompt.strip():
        raise InvalidError("the prompt is empty", hint="say what the agent should do; `-` reads standard input")
    if "\x00" in prompt:
        raise InvalidError("the prompt holds a NUL character", hint="remove it; other control characters are fine")
    return prompt


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_WIDTH else line[: TITLE_WIDTH - 1].rstrip() + "…"
