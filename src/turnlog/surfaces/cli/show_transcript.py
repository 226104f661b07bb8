"""What was said, as ``turnlog show`` prints it: as it is read, so that a long conversation begins at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.show_page import heading
from turnlog.surfaces.cli.words import local_time, note, one_line, safe

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.queries.transcript import Entry

_CALL: Final = 300
"""Characters of a tool's input that are shown."""

_LINES: Final = 12
_CHARACTERS: Final = 2_000
"""Lines, and characters, of a tool's output that are shown."""

_MARGIN: Final = 4_000
"""Characters behind a cut that are looked at, too: half a secret could not be told from a word."""

_WORDS: Final = {"user": "user", "assistant": "assistant", "reasoning": "reasoning", "note": "note"}
_STYLES: Final = {"user": "1;36", "assistant": "1;32", "reasoning": "2", "note": "2"}


def print_transcript(cli: Cli, ledger: Ledger, session_id: str, *, full: bool, redact: bool) -> list[str]:
    """Print what was said; return why passages could not be read. Memory does not grow with the conversation."""
    page = _Page(cli, full=full, redact=redact)
    problems: list[str] = []
    shortened = False
    for entry in ledger.transcript(session_id):
        if not page.begun:
            print()
            heading(cli, "transcript")
        for line in page.lines(entry):
            print(line)
        if entry.problem is not None:
            problems.append(entry.problem)
        if not page.begun:
            page.begun = True
            sys.stdout.flush()
        shortened = shortened or page.shortened
    if shortened:
        note("long tool input and output is shortened; --full shows all of it")
    kept = ledger.text_kept(session_id)
    if kept in {"none", "some"} and ledger.pruned(session_id).text_at is None:
        note(f"{'its files were' if kept == 'none' else 'some of its files were'} imported without their text")
    return problems


class _Page:
    """Turns entries into lines; a speaker is named once for all that is said in one go."""

    def __init__(self, cli: Cli, *, full: bool, redact: bool) -> None:
        self._color = cli.color
        self._full = full
        self._redact = redact
        self._speaker: tuple[str, str | None] | None = None
        self.begun = False
        self.shortened = False

    def lines(self, entry: Entry) -> Iterator[str]:
        """Yield the lines of one entry."""
        if entry.role in {"tool_input", "tool_output"}:
            yield from self._tool(entry)
            self._speaker = None
            return
        speaker = (entry.role, entry.turn)
        if speaker != self._speaker:
            self._speaker = speaker
            yield ""
            at = f" · {local_time(entry.at, seconds=True)}" if entry.at is not None else ""
            yield self._styled(f"{_WORDS[entry.role]}{at}", _STYLES[entry.role])
        yield from self._clean(entry).strip("\n").split("\n")

    def _tool(self, entry: Entry) -> Iterator[str]:
        name = one_line(entry.name) if entry.name else "tool"
        if entry.role == "tool_input":
            text = self._clean(entry, _CALL)
            if not self._full:
                text = " ".join(text.split())
                if len(text) > _CALL:
                    text, self.shortened = f"{text[: _CALL - 1]}…", True
            first, *rest = text.split("\n")
            yield f"  {self._styled(name, '33')} {first}"
            yield from (f"    {line}" for line in rest)
            return
        if entry.failed:
            yield f"  {self._styled(f'{name} failed', '31')}"
        whole = entry.text or ""
        lines = self._clean(entry, _CHARACTERS).rstrip("\n").split("\n")
        if not self._full and (len(whole) > _CHARACTERS or len(lines) > _LINES):
            lines = "\n".join(lines[:_LINES])[:_CHARACTERS].split("\n")
            self.shortened = True
            lines.append(f"… {whole.count(chr(10)) + 1:,} lines, {len(whole):,} characters in all")
        yield from (f"  | {line}" for line in lines)

    def _clean(self, entry: Entry, limit: int | None = None) -> str:
        """Return safe text: all of it, or more than ``limit`` so that it can be cut there, behind any secret."""
        if entry.text is None:
            return f"({one_line(entry.problem or 'not recorded')})"
        from turnlog.queries.hide import hide

        clean = safe(entry.text if self._full or limit is None else entry.text[: limit + _MARGIN])
        return hide(clean) if self._redact else clean

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._color else text
