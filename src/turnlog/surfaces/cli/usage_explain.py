"""``turnlog usage explain``: what stands behind a conversation's usage, down to the bytes of files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnlog.surfaces.cli.answer import input_key
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.gaps import explain as explain_gaps
from turnlog.surfaces.cli.output import plain, print_object
from turnlog.surfaces.cli.words import UNKNOWN, dollars, local_time, note, number, one_line

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.queries.explain import Copy, Explained, ReceiptPlace, StreamTold

_TOKENS: Final = {
    "input": "input",
    "cache_read": "cache read",
    "cache_write": "cache write",
    "cache_write_1h": "of which 1 h",
    "output": "output",
    "reasoning": "of which reasoning",
}


def explain(
    cli: Cli,
    word: Annotated[str, typer.Argument(metavar="SESSION|INPUT", help="Id of either, or its beginning.")],
) -> int:
    """Show every stream that is counted for a conversation or input, its price, and the receipts it rests on.

    Example: turnlog usage explain 4f1c
    """
    with cli.ledger() as ledger:
        told = ledger.usage_explain(_selector(ledger, word))
    if cli.json:
        print_object(**plain(told))
        return 0
    native = f" · {one_line(told.native.provider or UNKNOWN)} {one_line(told.native.id)}" if told.native.id else ""
    print(f"session {one_line(told.session)}{native}")
    if told.input is not None:
        print(f"input {one_line(told.input)}")
    for stream in told.streams:
        print()
        for line in _stream(stream):
            print(line)
    _rest(told)
    return 0


def _selector(ledger: Ledger, word: str) -> str:
    """Return the session, or else the artifact key, that a word names."""
    from turnlog.errors import MissingError

    try:
        return ledger.find_session(word).id
    except MissingError:
        return input_key(ledger, word)


def _stream(stream: StreamTold) -> Iterator[str]:
    model = one_line(stream.model) if stream.model else "unknown model"
    marks = [stream.source, "final" if stream.final else "not final"]
    if not stream.counted:
        marks.append("not counted: the parent conversation's receipts include it")
    yield f"{local_time(stream.at, seconds=True)}  {model}  ({', '.join(marks)})"
    yield f"  stream   {one_line(stream.id)}"
    tokens = [
        f"{words} {number(value)}"
        for name, words in _TOKENS.items()
        if (value := getattr(stream.tokens, name)) is not None
    ]
    yield f"  tokens   {', '.join(tokens) or UNKNOWN}"
    yield f"  cost     {_cost(stream)}"
    for gap in explain_gaps(stream.gaps):
        yield f"  gap      {gap}"
    for receipt in stream.receipts:
        yield f"  receipt  {_place(receipt)}"


def _cost(stream: StreamTold) -> str:
    parts = [f"reported {dollars(stream.reported_usd)}"]
    if stream.estimated_usd is None:
        parts.append("not estimated: no price is known for it")
    else:
        tier = f", tier {one_line(stream.tier)}" if stream.tier else ""
        entry = f" as {one_line(stream.price_model)}" if stream.price_model else ""
        by = f" by {one_line(stream.prices)}" if stream.prices else ""
        parts.append(f"estimated {dollars(stream.estimated_usd, low=stream.lower_bound)}{entry}{by}{tier}")
    return ", ".join(parts)


def _place(receipt: ReceiptPlace | Copy) -> str:
    where = "over the wire" if receipt.source is None else f"{one_line(receipt.source)}:{receipt.offset}"
    return f"{receipt.seq}  {where}"


def _rest(told: Explained) -> None:
    if told.copies:
        print("\nnot counted here, for another conversation owns the call:")
    for copy in told.copies:
        owner = f"owned by {one_line(copy.owner)}" if copy.owner else "owned elsewhere"
        print(f"  {_place(copy)}  {one_line(copy.call)}  {owner}")
    for gap in explain_gaps(told.gaps):
        note(f"gap: {gap}")
    if told.unreadable:
        note(f"gap: {told.unreadable} × unreadable: bytes of its files that could not be read may have held usage")
