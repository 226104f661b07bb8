"""``turnlog steer``, ``interrupt``, ``permit``: requests to the process that drives a conversation (D20)."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnlog.errors import (
    ConflictError,
    CorruptError,
    IdleError,
    InvalidError,
    MissingError,
    StaleError,
    UncertainError,
)
from turnlog.process import Liveness
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.execs import as_exec
from turnlog.surfaces.cli.fold import Question, fold
from turnlog.surfaces.cli.output import plain, print_object
from turnlog.surfaces.cli.state import seat_of
from turnlog.surfaces.cli.words import one_line, short_id

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.model import Request, Session

WAIT_S: Final = 15.0
POLL_S: Final = 0.05
_OPEN: Final = {"queued", "sent"}
_SESSION: Final = typer.Argument(metavar="SESSION", help="Id of a conversation, or its beginning.")


class Answer(StrEnum):
    """What a person may answer to a permission question."""

    ONCE = "once"
    ALWAYS = "always"
    REJECT = "reject"


def steer(
    cli: Cli,
    session: Annotated[str, _SESSION],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to tell the agent.")],
) -> int:
    """Say something into the running turn, from any terminal.

    Example: turnlog steer 4f1c "leave the tests alone"
    """
    from turnlog.surfaces.cli.prompt import checked

    return _send(cli, session, "steer", checked(text, "text"))


def interrupt(cli: Cli, session: Annotated[str, _SESSION]) -> int:
    """Ask the agent to stop the running turn; its end is recorded when the provider reports it.

    Example: turnlog interrupt 4f1c
    """
    return _send(cli, session, "interrupt", None)


def permit(
    cli: Cli,
    session: Annotated[str, _SESSION],
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="Id of the question (`turnlog show`).")],
    answer: Annotated[Answer, typer.Argument(metavar="once|always|reject", help="What to answer.")],
) -> int:
    """Answer a permission question of a running turn, from any terminal.

    Example: turnlog permit 4f1c per_0a1b once
    """
    return _send(cli, session, "permission", (request, answer.value))


def _send(cli: Cli, word: str, kind: str, what: str | tuple[str, str] | None) -> int:
    with cli.ledger(write=True) as ledger:
        session = ledger.find_session(word)
        _refuse_without_driver(ledger, session)
        text = what if not isinstance(what, tuple) else f"{_question(ledger, session, what[0])} {what[1]}"

        def ask(exec_id: str) -> int:
            asked = ledger.request(session.id, kind, text, exec_id=exec_id)
            try:
                request = _wait(ledger, asked)
            except KeyboardInterrupt:
                if _state(ledger, asked).state == "queued":  # it must not come late
                    ledger.settle_request(asked, "refused", "withdrawn by who asked")
                raise
            return _tell(cli, session, request)

        return as_exec(ledger, ask)


def _refuse_without_driver(ledger: Ledger, session: Session) -> None:
    seat = seat_of(ledger, session.id)
    name = short_id(session.id)
    if not seat.taken:
        raise IdleError(f"nothing is running in session {name}", hint=f'the next turn is `turnlog resume {name} "…"`')
    if seat.liveness is Liveness.DEAD:
        raise StaleError(
            f"the process that drove session {name} is gone", hint=f"`turnlog recover {name}` finds out how far it came"
        )


def _question(ledger: Ledger, session: Session, word: str) -> str:
    """Return the id of the question that is meant. An unreadable history is no reason to refuse an exact id."""
    try:
        questions = fold(ledger.history(session.id)).questions
    except CorruptError:
        return word
    found = [each for each in questions if each.id == word]
    waiting = [each for each in questions if each.answer is None and each.id.startswith(word)]
    if not found and len(waiting) == 1:
        return waiting[0].id
    if not found and len(waiting) > 1:
        raise InvalidError(f"question {one_line(word, 60)} is ambiguous", hint="give more characters of the id")
    if not found:
        raise MissingError(f"no question {one_line(word, 60)!r} in this session", hint=_list(session, questions))
    if found[0].answer is not None:
        raise ConflictError(
            f"question {one_line(word, 60)} was answered already: {one_line(found[0].answer, 60)}",
            hint=_list(session, questions),
        )
    return word


def _list(session: Session, questions: list[Question]) -> str:
    ids = [one_line(each.id, 60) for each in questions if each.answer is None]
    return (
        f"open questions: {', '.join(ids)}"
        if ids
        else f"no question is open; see `turnlog show {short_id(session.id)}`"
    )


def _wait(ledger: Ledger, request_id: str) -> Request:
    """Wait until the driver settled the request. One that nobody took in time is withdrawn: it will not come late."""
    deadline = time.monotonic() + WAIT_S
    token: int | None = None
    while True:
        now = ledger.change_token()
        if now != token:
            token = now
            request = _state(ledger, request_id)
            if request.state not in _OPEN:
                return request
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    request = _state(ledger, request_id)
    if request.state == "queued":
        ledger.settle_request(request_id, "refused", f"withdrawn: nobody took it within {WAIT_S:g} s")
        request = _state(ledger, request_id)
    return request


def _state(ledger: Ledger, request_id: str) -> Request:
    request = ledger.request_state(request_id)
    if request is None:
        raise MissingError(f"request {request_id} has vanished from the ledger", hint="run `turnlog verify`")
    return request


def _tell(cli: Cli, session: Session, request: Request) -> int:
    name, words = short_id(session.id), f": {one_line(request.detail)}" if request.detail else ""
    if request.state == "not_steerable":
        raise ConflictError(
            f"the turn takes no text now{words}",
            hint=f'wait for its end, then `turnlog resume {name} "…"`; or `turnlog interrupt {name}`',
        )
    if request.state == "refused":
        raise StaleError(f"the {request.kind} was refused{words}", hint=f"`turnlog show {name}` tells how things stand")
    if request.state != "accepted":
        raise UncertainError(
            f"whether the {request.kind} reached the agent is not known{words}",
            hint=f"`turnlog show {name}` and `turnlog history {name}` tell later",
        )
    if cli.json:
        print_object(request=plain(request))
    else:
        done = {"steer": "said", "interrupt": "asked to stop", "permission": "answered"}
        print(f"{done.get(request.kind, request.kind)}: session {name}")
    return 0
