"""Data on stdout: JSON as the contract spells it, and tables that fit the terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from turnlog.surfaces.cli.words import UNKNOWN, local_time, note, number, safe

if TYPE_CHECKING:
    from turnlog.surfaces.cli.context import Cli

SCHEMA_VERSION: Final = 1
_GAP: Final = "  "
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Cell(NamedTuple):
    """One value of a table: as exact as there is room for; ``style`` is the middle of an SGR sequence."""

    text: str
    compact: str | None = None
    style: str = ""


def count_cell(value: int | None, *, low: bool) -> Cell:
    """Return a count that may be shortened where there is no room."""
    return Cell(number(value, low=low), number(value, low=low, compact=True))


def time_cell(instant: int | None, *, seconds: bool = False) -> Cell:
    """Return a local time that loses its year where there is no room."""
    text = local_time(instant, seconds=seconds)
    return Cell(text, text[5:] if text[4:5] == "-" else text)


class Column(NamedTuple):
    """One column. ``drop`` > 0: may be left out where the terminal is narrow, the largest first.

    ``least``: may be cut, but not below so many characters; None: never cut.
    """

    title: str
    right: bool = False
    drop: int = 0
    least: int | None = None


def plain(value: Any) -> Any:
    """Return a frozen value as JSON: its members by name, instants (``…_at``) as RFC 3339, payloads untouched."""
    return {name: _member(name, getattr(value, name)) for name in value.__struct_fields__}


def _member(name: str, value: Any) -> Any:
    if name.endswith("_at") and isinstance(value, int):
        from turnlog.clock import to_rfc3339

        return to_rfc3339(value)
    if isinstance(value, tuple):
        return [_member("", item) for item in value]
    return plain(value) if hasattr(value, "__struct_fields__") else value


def json_text(value: Any, *, indent: bool = False) -> str:
    """Return JSON text in which every character that a terminal might obey is escaped."""
    import orjson

    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else 0).decode()
    if text.isascii() and "\x7f" not in text:
        return text  # JSON itself escapes what else may be obeyed
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_json(value: Any) -> None:
    """Print one JSON value: indented for a person, one line for a program."""
    text = json_text(value, indent=sys.stdout.isatty())
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        print(text)
    else:  # JSON is UTF-8 whatever the locale says
        sys.stdout.flush()
        buffer.write(text.encode() + b"\n")


def print_object(**members: Any) -> None:
    """Print one JSON object with its schema version."""
    print_json({"schema_version": SCHEMA_VERSION, **members})


def print_foreign(text: str) -> None:
    """Print text that an agent wrote, without anything a terminal might obey; ``--json`` has it as it was."""
    print(safe(text))


def columns() -> int:
    """Return the width of the terminal."""
    import shutil

    return shutil.get_terminal_size((80, 24)).columns


def cell_len(text: str) -> int:
    """Return how many columns a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len as wide

    return wide(text)


def fit(text: str, width: int) -> str:
    """Return a text cut to a width, with an ellipsis."""
    if cell_len(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, max(width - 1, 0)).rstrip() + "…"


def print_table(cli: Cli, head: Sequence[Column], rows: Iterable[Sequence[Cell | str]]) -> None:
    """Print a table; on a terminal it is made to fit, elsewhere everything is exact and whole."""
    body = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        _write(head, body, list(range(len(head))), None, compact=False, color=False)
        return
    width = columns()
    shown, compact = _layout(head, body, width)
    _write(head, body, shown, width, compact=compact, color=cli.color)
    hidden = [head[index].title for index in range(len(head)) if index not in shown and _says(body, index)]
    if hidden:
        note(f"no room for: {', '.join(hidden)} (a pipe or --json has all)")


def _says(body: Sequence[Sequence[Cell]], index: int) -> bool:
    return any(row[index].text != UNKNOWN for row in body)


def _layout(head: Sequence[Column], body: Sequence[Sequence[Cell]], width: int) -> tuple[list[int], bool]:
    """Return the columns to show, and whether numbers must be short."""
    shown = list(range(len(head)))
    # A column in which nothing is known goes first, then long numbers, then columns by their rank.
    steps = [index for index in shown if head[index].drop and not _says(body, index)]
    ranked = sorted((i for i in shown if head[i].drop and i not in steps), key=lambda i: -head[i].drop)
    compact = False
    for index in [*steps, None, *ranked]:
        if _total(head, body, shown, compact=compact) <= width:
            break
        if index is None:
            compact = True
        else:
            shown.remove(index)
    return shown, compact


def _widths(head: Sequence[Column], body: Sequence[Sequence[Cell]], shown: list[int], *, compact: bool) -> list[int]:
    return [max(cell_len(head[i].title), *(cell_len(_text(row[i], compact=compact)) for row in body), 0) for i in shown]


def _total(head: Sequence[Column], body: Sequence[Sequence[Cell]], shown: list[int], *, compact: bool) -> int:
    """Return the width needed, flexible columns counted with what they cannot do without."""
    widths = _widths(head, body, shown, compact=compact)
    needed = [min(size, head[i].least or size) for i, size in zip(shown, widths, strict=True)]
    return sum(needed) + len(_GAP) * (len(shown) - 1)


def _text(cell: Cell, *, compact: bool) -> str:
    return cell.compact if compact and cell.compact is not None else cell.text


def _write(
    head: Sequence[Column],
    body: Sequence[Sequence[Cell]],
    shown: list[int],
    width: int | None,
    *,
    compact: bool,
    color: bool,
) -> None:
    widths = _widths(head, body, shown, compact=compact)
    if width is not None:
        spare = width - sum(widths) - len(_GAP) * (len(shown) - 1)
        for place, index in enumerate(shown):
            least = head[index].least
            if spare < 0 and least is not None:
                cut = min(-spare, max(widths[place] - least, 0))
                widths[place] -= cut
                spare += cut
    titles = [Cell(head[i].title, style="1") for i in shown]
    for row in (titles, *([row[i] for i in shown] for row in body)):
        parts = []
        for place, cell in enumerate(row):
            text = fit(_text(cell, compact=compact), widths[place])
            blank = " " * (widths[place] - cell_len(text))
            painted = f"\x1b[{cell.style}m{text}\x1b[0m" if color and cell.style and text else text
            parts.append(blank + painted if head[shown[place]].right else painted + blank)
        print(_GAP.join(parts).rstrip())
