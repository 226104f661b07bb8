"""This process as an Exec of the ledger: begun once, ended once, however it ends (1.3, 2.1)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from turnlog import drive
from turnlog.errors import TurnlogError
from turnlog.surfaces.cli.words import note

if TYPE_CHECKING:
    from turnlog.api import Ledger

INTERRUPTED = 130
_LEDGER: Final = "--ledger"


def as_exec(ledger: Ledger, action: Callable[[str], int]) -> int:
    """Run ``action`` with the id of a new Exec and record how it ended; its errors come out as they are."""
    caller = drive.read_caller(os.environ)
    started = drive.start_exec(ledger, caller, command=_command_line(sys.argv), cwd=_text(_folder()))
    code, error = 1, None
    try:
        code = action(started.id)
    except TurnlogError as failure:
        code, error = failure.exit_code, failure.message
        raise
    except KeyboardInterrupt:
        code = INTERRUPTED
        raise
    except BaseException as failure:
        error = type(failure).__name__
        raise
    finally:
        _end(ledger, started.id, code, error)
    return code


def _end(ledger: Ledger, exec_id: str, code: int, error: str | None) -> None:
    from turnlog.redact import sanitise

    # 3 is "done with problems": the command did what it was asked.
    outcome = "succeeded" if code in {0, 3} else "interrupted" if code == INTERRUPTED else "failed"
    try:
        ledger.end_exec(exec_id, outcome, exit_code=code, error=None if error is None else sanitise(error))
    except TurnlogError as failure:
        note(f"turnlog: the end of this command could not be recorded: {failure.message}")


def _command_line(words: Sequence[str]) -> list[str]:
    """Return the words of a command as they are recorded: a ledger is named without its password."""
    from turnlog.ledger import shown

    said: list[str] = []
    for word in map(_text, words):
        flag, sign, url = word.partition("=")
        if said and said[-1] == _LEDGER:
            said.append(shown(word))
        elif flag == _LEDGER and sign:
            said.append(f"{flag}={shown(url)}")
        else:
            said.append(word)
    return said


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return "?"  # the folder was deleted under us


def _text(word: str) -> str:
    """Return a word of the operating system as storable text: bytes that are no UTF-8 become U+FFFD."""
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
