"""Run and resume: one command's turn from claim to finish (semantics 6.2, contract §2)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import anyio

from turnlog.api import Ledger
from turnlog.drive import structured
from turnlog.drive.caller import environment
from turnlog.drive.claim import Claim, take
from turnlog.drive.reconcile import settle_earlier
from turnlog.drive.requests import serve_requests
from turnlog.drive.seat import Seat, harness_of, in_thread, own_requests, require_folder
from turnlog.drive.turns import Asked, TurnEnd, begin_turn, wait_turn
from turnlog.drive.types import Listener, RunOptions, Stop, TurnResult
from turnlog.errors import InvalidError, MissingError, StaleError, TurnlogError
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
    await _preflight(options, cwd)
    session = await in_thread(
        ledger.create_session,
        title=options.title or _title(text),
        title_source="human" if options.title else "generated",
        cwd=str(cwd),
        provider=options.provider or "opencode",
        model=options.model,
        task_id=options.task_id,
        wave_id=options.wave_id,
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
    require_folder(session.cwd)
    known = session

    def next_input() -> Session:
        # After the claim: nobody else may give the conversation another input meanwhile.
        current = ledger.reopen_session(known.id)
        replaced = ledger.replace_input(
            known.id, current.captured, model=options.model, caller=options.caller, exec_id=exec_id
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
    claim = await in_thread(take, ledger, session, exec_id, endpoint=options.endpoint, replace=options.replace)
    outcome = "failed"
    seat: Seat | None = None
    try:
        session = await in_thread(next_input)
        current = session
        own = await in_thread(own_requests, ledger, current.id)
        thread = await in_thread(ledger.thread, current.id)
        seat = Seat(
            ledger,
            session,
            claim,
            harness_of(session, options, thread, own, environment(ledger, session, claim.driver)),
            options,
            listener,
        )
        listener.session(session.id, session.artifact_key)
        deadline = anyio.current_time() + (options.timeout_s or math.inf)
        await seat.start()
        async with watched(seat):
            await settle_earlier(seat, stop, deadline)
            end, value, problem = await _ask(seat, text, options, stop, deadline)
        outcome = {"completed": "completed", "interrupted": "interrupted"}.get(end.status, "failed")
        return await in_thread(_result, ledger, current, seat, end, value, problem)
    finally:
        with anyio.CancelScope(shield=True):
            await _leave(ledger, claim, session.id, seat, outcome, keep=options.keep_engine)


@contextlib.asynccontextmanager
async def watched(seat: Seat) -> AsyncIterator[None]:
    """Watch the provider and the requests of others while the body runs; an error of the body comes out as it is."""
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        seat.permissions.use(tasks)
        tasks.start_soon(seat.watch)
        tasks.start_soon(seat.heartbeat)
        tasks.start_soon(serve_requests, seat)
        try:
            await seat.first_look()
            yield
        except TurnlogError as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _ask(
    seat: Seat, text: str, options: RunOptions, stop: Stop, deadline: float
) -> tuple[TurnEnd, Any, str | None]:
    """Ask once, or with a schema up to three times in the same conversation until the answer fits."""
    native = options.schema if seat.harness.structured else None
    prompt = text if options.schema is None or native is not None else structured.request(text, options.schema)
    problem: str | None = None
    for attempt in range(1, structured.TRIES + 1):
        turn, asked = await begin_turn(seat, prompt, {} if attempt == 1 else {"attempt": attempt}, native)
        if asked is Asked.UNKNOWN:
            return TurnEnd(turn, seat.outcome(turn) or "unknown", "engine"), None, "delivery unknown"
        end = await wait_turn(seat, turn, stop, deadline)
        while end.why == "done" and (steer := seat.open_steer()) is not None:
            end = await wait_turn(seat, steer, stop, deadline)
        if options.schema is None or end.status != "completed" or end.why != "done":
            return end, None, None
        answer = await in_thread(seat.ledger.final_answer, seat.session.artifact_key)
        if native is not None and answer is not None and answer.value is not None:
            return end, answer.value, None
        value, problem = structured.read(answer.text if answer else "", options.schema)
        if problem is None:
            evidence = {"value": value, "emulated": True}
            source = f"structured:{seat.thread}:{end.turn}"
            await in_thread(seat.ledger.retain_for_turn, seat.session.id, seat.thread, end.turn, source, evidence)
            return end, value, None
        prompt = structured.again(problem)
    return end, None, problem


def _result(ledger: Ledger, session: Session, seat: Seat, end: TurnEnd, value: Any, problem: str | None) -> TurnResult:
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


async def _leave(ledger: Ledger, claim: Claim, session_id: str, seat: Seat | None, outcome: str, *, keep: bool) -> None:
    """End or leave the engine, then finish the driver; a driver that was replaced has nothing to finish."""
    closed = False
    await in_thread(_close_requests, ledger, session_id, claim.driver)
    if seat is not None:
        with contextlib.suppress(TurnlogError):
            if keep and not seat.engine_gone:
                await seat.harness.detach()
            else:
                await seat.harness.stop()
                closed = True
    with contextlib.suppress(StaleError):
        await in_thread(ledger.finish_driver, session_id, claim.driver, outcome, engine_closed=closed)


def _close_requests(ledger: Ledger, session_id: str, driver: Driver) -> None:
    """Tell those who asked something of this driver that nobody will act on it; a replaced driver leaves it alone."""
    try:
        late = {request.id for request in ledger.take_requests(session_id, driver)}
    except StaleError:
        return
    for request in ledger.requests(session_id, open_only=True):
        state = "not_steerable" if request.id in late else "uncertain"
        ledger.settle_request(request.id, state, "the turn had ended")


async def _preflight(options: RunOptions, cwd: Path) -> None:
    """Refuse what cannot work before anything is recorded: unknown provider, bad model, missing program or folder."""
    require_folder(str(cwd))
    harness = harness_for(options.provider or "opencode")(
        HarnessConfig(
            cwd=cwd,
            title="",
            state_dir=options.state_dir,
            model=options.model,
            endpoint=options.endpoint,
            permissions=options.permissions,
        )
    )
    await harness.preflight()


def _prompt(prompt: str) -> str:
    if not prompt.strip():
        raise InvalidError("the prompt is empty", hint="say what the agent should do; `-` reads standard input")
    if "\x00" in prompt:
        raise InvalidError("the prompt holds a NUL character", hint="remove it; other control characters are fine")
    return prompt


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_WIDTH else line[: TITLE_WIDTH - 1].rstrip() + "…"
