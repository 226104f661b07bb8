"""``turnlog verify``: the ledger against itself."""

from __future__ import annotations

from turnlog.errors import CorruptError
from turnlog.ledger import shown
from turnlog.model import Problem
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import Column, plain, print_object, print_table
from turnlog.surfaces.cli.words import note, one_line, plural

PROBLEMS_EXIT = 3


def verify(cli: Cli) -> int:
    """Recompute what can be recomputed; exit 3 and list what does not agree.

    Example: turnlog verify
    """
    url = shown(cli.url)
    try:
        with cli.ledger() as ledger:
            problems, url = ledger.verify(), ledger.url
    except CorruptError as error:  # so damaged that it cannot even be opened: that is what was asked
        problems = [Problem(kind="storage", where="database", detail=error.message)]
    if cli.json:
        print_object(ledger=url, problems=[plain(problem) for problem in problems])
    elif problems:
        head = (Column("PROBLEM"), Column("WHERE"), Column("DETAIL", least=24))
        print_table(cli, head, [[one_line(p.kind), one_line(p.where), one_line(p.detail)] for p in problems])
        note(f"{plural(len(problems), 'problem')} in {one_line(url)}")
    else:
        print(f"no problems in {one_line(url)}")
    return PROBLEMS_EXIT if problems else 0
