"""``turnlog answer``: the final answer of a conversation or of one input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from turnlog.errors import MissingError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.gaps import explain
from turnlog.surfaces.cli.output import json_text, plain, print_foreign, print_object
from turnlog.surfaces.cli.words import note, one_line, short_id

if TYPE_CHECKING:
    from turnlog.api import Ledger


def answer(
    cli: Cli,
    word: Annotated[str, typer.Argument(metavar="SESSION|INPUT", help="Id of either, or its beginning.")],
) -> int:
    """Print the final answer of a conversation's newest input, or of the named input.

    Example: turnlog answer 4f1c
    """
    with cli.ledger() as ledger:
        key = input_key(ledger, word)
        found = ledger.final_answer(key)
        if found is None:
            raise MissingError(f"no answer is recorded for {short_id(word)}", hint=_why_not(ledger, key))
    if cli.json:
        print_object(
            text=found.text,
            value=found.value,
            exact=found.exact,
            turn=found.turn,
            gaps=[plain(gap) for gap in found.gaps],
        )
        return 0
    # A structured answer may come without words.
    print_foreign(found.text if found.text or found.value is None else json_text(found.value, indent=True))
    if not found.exact:
        whose = f"turn {one_line(found.turn)}" if found.turn else "an unnamed turn"
        note(f"note: not the newest turn's own answer, but the last words known, of {whose}")
    for line in explain(found.gaps):
        note(f"note: {line}")
    return 0


def input_key(ledger: Ledger, word: str) -> str:
    """Return the artifact key that a session's or input's id, or a unique beginning of one, names."""
    try:
        return ledger.find_session(word).artifact_key
    except MissingError:
        owner = ledger.session_for_artifact(word)
        if owner is not None:
            return word
    key = ledger.input_history(word).artifact_key
    if key is None:
        raise MissingError(f"no session or input {word[:80]!r}")
    return key


def _why_not(ledger: Ledger, key: str) -> str:
    session = ledger.session_for_artifact(key)
    if session is None or session.artifact_key != key:
        return "`turnlog show` tells how its turns went"
    summary = ledger.session_summary(session.id)
    latest = summary.latest_turn if summary else None
    name = short_id(session.id)
    if latest is None:
        return f"no turn of it has begun; `turnlog show {name}` tells more"
    if latest == "running":
        return f"its newest turn has no completion yet; `turnlog recover {name}` looks it up if nothing runs"
    return f"its newest turn ended as {one_line(latest)} without an answer; see `turnlog show {name}`"
