"""``turnlog show``: one conversation, everything that is known and what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from turnlog.errors import CorruptError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.fold import Folded, fold
from turnlog.surfaces.cli.output import plain, print_object
from turnlog.surfaces.cli.state import Seat, engine_liveness, seat_of, session_row
from turnlog.surfaces.cli.words import report_failure

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.model import FinalAnswer, InputHistory, Session
    from turnlog.usage.report import UsageReport

PROBLEMS_EXIT = 3


class Facts(NamedTuple):
    """What the ledger and the operating system say about one conversation. ``damage``: reads that failed."""

    session: Session
    row: dict[str, Any]
    seat: Seat
    thread: str | None
    engine: dict[str, Any] | None
    inputs: list[InputHistory]
    folded: Folded
    usage: UsageReport
    answer: FinalAnswer | None
    damage: list[CorruptError]


def show(
    cli: Cli,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Id of a conversation, or its beginning.")],
) -> int:
    """Show a conversation: facts, inputs, turns in order, usage with its gaps, open questions, last answer.

    Example: turnlog show 4f1c
    """
    with cli.ledger() as ledger:
        facts = _gather(ledger, ledger.find_session(session))
    if cli.json:
        _print_json(facts)
    else:
        from turnlog.surfaces.cli.show_page import print_page

        print_page(cli, facts)
    if facts.damage:
        first = facts.damage[0]
        return report_failure(first.message, first.hint, first.code, PROBLEMS_EXIT, as_json=cli.json)
    return 0


def _gather(ledger: Ledger, session: Session) -> Facts:
    seat = seat_of(ledger, session.id)
    damage: list[CorruptError] = []
    inputs = []
    for key in ledger.session_inputs(session.id):
        try:
            inputs.append(ledger.input_history(key))
        except CorruptError as error:
            damage.append(error)
    try:
        folded = fold(ledger.history(session.id))
    except CorruptError as error:
        damage.append(error)
        folded = Folded([], [])
    return Facts(
        session=session,
        row=session_row(ledger, session, seat),
        seat=seat,
        thread=ledger.thread(session.id),
        engine=_engine(ledger, session.id, seat),
        inputs=inputs,
        folded=folded,
        usage=ledger.usage_report("total", session=session.id),
        answer=ledger.final_answer(session.artifact_key),
        damage=damage,
    )


def _engine(ledger: Ledger, session_id: str, seat: Seat) -> dict[str, Any] | None:
    record = ledger.engine(session_id)
    if record is None or (record.endpoint is None and record.pid is None):
        return None
    return {**plain(record), "liveness": engine_liveness(ledger, seat.driver, record.pid, record.started_at).value}


def _print_json(facts: Facts) -> None:
    seat, answer = facts.seat, facts.answer
    driver = None
    if seat.driver is not None:
        driver = {
            **plain(seat.driver),
            "liveness": None if seat.liveness is None else seat.liveness.value,
            "exec": None if seat.exec is None else plain(seat.exec),
        }
    print_object(
        session=facts.row,
        thread=facts.thread,
        driver=driver,
        engine=facts.engine,
        inputs=[plain(each) for each in facts.inputs],
        turns=[_instants(turn._asdict()) for turn in facts.folded.turns],
        questions=[_instants(question._asdict()) for question in facts.folded.questions],
        usage=plain(facts.usage.totals),
        answer=None if answer is None else {**plain(answer)},
        problems=[{"code": error.code, "message": error.message} for error in facts.damage],
    )


def _instants(members: dict[str, Any]) -> dict[str, Any]:
    from turnlog.clock import to_rfc3339

    return {
        name: to_rfc3339(value) if name.endswith("_at") and isinstance(value, int) else value
        for name, value in members.items()
    }
