"""``turnlog recover``: ask the provider's own history about turns without an end."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnlog.errors import TurnlogError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.execs import as_exec
from turnlog.surfaces.cli.output import plain, print_object
from turnlog.surfaces.cli.words import note, one_line, plural, short_id

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.drive import RecoverReport, RunOptions, Stop

PROBLEMS_EXIT = 3
UNCERTAIN_EXIT = 5


def recover(
    cli: Cli,
    session: Annotated[
        str | None, typer.Argument(metavar="[SESSION]", help="One conversation; without it all unfinished ones.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Take over from a process whose end cannot be proved.")
    ] = False,
) -> int:
    """Look unfinished turns up in the provider's own history; nothing is ever sent again.

    Example: turnlog recover
    """
    from turnlog.drive import unfinished_sessions

    with cli.ledger(write=True) as ledger:
        names = [ledger.find_session(session).id] if session else list(unfinished_sessions(ledger))
        reports: list[RecoverReport] = []
        failures: list[tuple[str, TurnlogError]] = []
        code = 0
        if names:
            code = as_exec(ledger, lambda exec_id: _recover(cli, ledger, exec_id, names, replace, reports, failures))
    if cli.json:
        print_object(
            sessions=[_plain(report) for report in reports],
            failures=[
                {"session": name, "code": error.code, "message": error.message, "hint": error.hint}
                for name, error in failures
            ],
        )
        return code
    for report in reports:
        _print(report)
    for name, error in failures:
        note(f"turnlog: session {short_id(name)}: {one_line(error.message)}\nhint: {one_line(error.hint)}")
    if not names:
        print("nothing is unfinished")
    return code


def _recover(
    cli: Cli,
    ledger: Ledger,
    exec_id: str,
    names: list[str],
    replace: bool,
    reports: list[RecoverReport],
    failures: list[tuple[str, TurnlogError]],
) -> int:
    from turnlog import config, drive
    from turnlog.surfaces.cli.driving import drive_loop

    settings = config.load(cli.options.ledger)
    options = drive.RunOptions(
        state_dir=settings.state_dir, keep_engine=settings.keep_engine, lease_s=settings.lease_s, replace=replace
    )
    for name in names:
        try:
            reports.append(drive_loop(functools.partial(_one, ledger, exec_id, name, options)))
        except TurnlogError as error:
            if len(names) == 1:
                raise
            failures.append((name, error))
    if failures:
        return PROBLEMS_EXIT
    return UNCERTAIN_EXIT if any(report.unknown for report in reports) else 0


async def _one(ledger: Ledger, exec_id: str, name: str, options: RunOptions, _: Stop) -> RecoverReport:
    from turnlog import drive

    return await drive.recover(ledger, exec_id, name, options)


def _plain(report: RecoverReport) -> dict[str, Any]:
    members: dict[str, Any] = plain(report)
    members["session"] = members.pop("session_id")
    members["completed"] = [{"turn": turn, "status": status} for turn, status in report.completed]
    return members


def _print(report: RecoverReport) -> None:
    new = plural(report.new_receipts, "new receipt") if report.new_receipts else "nothing new recorded"
    print(f"session {short_id(report.session_id)}: {new}")
    lines = [(turn, status) for turn, status in report.completed]
    lines += [(turn, "still running") for turn in report.running]
    lines += [(turn, "nobody can tell any more; it stays unknown") for turn in report.unknown]
    lines += [(turn, "never reached the provider") for turn in report.refused]
    for turn, words in lines:
        print(f"  {one_line(turn)}  {one_line(words)}")
    if not lines:
        print("  nothing new became known about its turns")
