"""``turnlog show``: one conversation, everything that is known and what is not."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnlog.errors import CorruptError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.fold import Folded, fold
from turnlog.surfaces.cli.output import plain, print_object
from turnlog.surfaces.cli.state import Seat, engine_liveness, seat_of, session_row
from turnlog.surfaces.cli.words import SHORT_ID, one_line, plural, report_failure

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.model import FinalAnswer, InputHistory, Session
    from turnlog.usage.report import UsageReport

PROBLEMS_EXIT = 3


class Facts:
    """What the ledger and the operating system say about one conversation.

    What needs every receipt is read when it is asked for, so that a page can begin at once. ``damage``: reads that
    failed so far.
    """

    def __init__(self, ledger: Ledger, session: Session) -> None:
        self._ledger = ledger
        self.session = session
        self.damage: list[CorruptError] = []
        self.seat = seat_of(ledger, session.id)
        self.row = session_row(ledger, session, self.seat)
        self.thread = ledger.thread(session.id)
        self.engine = _engine(ledger, session.id, self.seat)
        self.keys = ledger.session_inputs(session.id)
        self.pruned = ledger.pruned(session.id)

    @cached_property
    def home(self) -> str:
        """Where it was begun: the name of the home, and as much of its id as tells it from others."""
        name = next((each.name for each in self._ledger.homes() if each.id == self.session.home_id), None)
        short = (self.session.home_id or "").removeprefix("home_")[:SHORT_ID]
        return f"{one_line(name)} ({short})" if name else short

    @cached_property
    def inputs(self) -> list[InputHistory]:
        """The records of its inputs, oldest first; without those that cannot be read."""
        found = []
        for key in self.keys:
            try:
                found.append(self._ledger.input_history(key))
            except CorruptError as error:
                self.damage.append(error)
        return found

    @cached_property
    def folded(self) -> Folded:
        """Its turns and questions."""
        try:
            return fold(self._ledger.history(self.session.id))
        except CorruptError as error:
            self.damage.append(error)
            return Folded([], [])

    @cached_property
    def usage(self) -> UsageReport:
        """What it used."""
        return self._ledger.usage_report("total", session=self.session.id)

    @cached_property
    def answer(self) -> FinalAnswer | None:
        """Its last answer."""
        return self._ledger.final_answer(self.session.artifact_key)


def show(
    cli: Cli,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Id of a conversation, or its beginning.")],
    full: Annotated[bool, typer.Option("--full", help="Tool input and output whole.")] = False,
    no_transcript: Annotated[bool, typer.Option("--no-transcript", help="Only the facts.")] = False,
    no_redact: Annotated[bool, typer.Option("--no-redact", help="Show secrets, too.")] = False,
) -> int:
    """Show a conversation: facts, inputs, turns in order, usage with its gaps, open questions, answer, transcript.

    With --json the facts alone; `turnlog export --format jsonl` has what was said.

    Example: turnlog show 4f1c
    """
    unread: list[str] = []
    with cli.ledger() as ledger:
        facts = Facts(ledger, ledger.find_session(session))
        if cli.json:
            _print_json(facts)
        else:
            from turnlog.surfaces.cli.show_page import print_page

            print_page(cli, facts, redact=not no_redact)
            if not no_transcript:
                from turnlog.surfaces.cli.show_transcript import print_transcript

                unread = print_transcript(cli, ledger, facts.session.id, full=full, redact=not no_redact)
    if facts.damage:
        first = facts.damage[0]
        return report_failure(first.message, first.hint, first.code, PROBLEMS_EXIT, as_json=cli.json)
    if unread:
        what = f"{plural(len(unread), 'passage')} could not be read: {unread[0]}"
        return report_failure(what, "`turnlog verify` locates damage", "corrupt", PROBLEMS_EXIT, as_json=cli.json)
    return 0


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
    inputs, folded = facts.inputs, facts.folded
    print_object(
        session=facts.row,
        thread=facts.thread,
        driver=driver,
        engine=facts.engine,
        inputs=[plain(each) for each in inputs],
        turns=[_instants(turn._asdict()) for turn in folded.turns],
        questions=[_instants(question._asdict()) for question in folded.questions],
        usage=plain(facts.usage.totals),
        answer=None if answer is None else {**plain(answer)},
        pruned=plain(facts.pruned),
        problems=[{"code": error.code, "message": error.message} for error in facts.damage],
    )


def _instants(members: dict[str, Any]) -> dict[str, Any]:
    from turnlog.clock import to_rfc3339

    return {
        name: to_rfc3339(value) if name.endswith("_at") and isinstance(value, int) else value
        for name, value in members.items()
    }
