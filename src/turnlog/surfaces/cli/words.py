"""Words for people: errors in two lines, foreign text made safe, numbers that admit what they do not know."""

from __future__ import annotations

import os
import sys
from typing import Final

UNKNOWN: Final = "-"
AT_LEAST: Final = "≥"
SHORT_ID: Final = 12
"""Characters of an id in tables; unique prefixes are accepted wherever an id is."""

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_UNITS: Final = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))


def report_failure(what: str, hint: str, code: str, exit_code: int, *, as_json: bool) -> int:
    """Say on stderr what failed and what to do; return the exit code."""
    if as_json:
        import json

        text = json.dumps({"error": {"code": code, "message": what, "hint": hint}})
    else:
        strong, faint, off = ("\x1b[1;31m", "\x1b[2m", "\x1b[0m") if _color_err() else ("", "", "")
        text = f"{strong}turnlog:{off} {one_line(what)}\n{faint}hint:{off} {one_line(hint)}"
    note(text)
    return exit_code


def note(text: str) -> None:
    """Write a line to stderr; a reader that left does not matter."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        return


def _color_err() -> bool:
    unwanted = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or "--no-color" in sys.argv
    return sys.stderr.isatty() and not unwanted


def safe(text: str) -> str:
    """Return foreign text without terminal escapes; line breaks stay."""
    from turnlog.redact import strip_terminal

    return strip_terminal(text)


def one_line(text: object, limit: int | None = None) -> str:
    """Return foreign text as one safe line, cut with an ellipsis when it is longer than ``limit``."""
    line = " ".join(safe(str(text)).split())
    return line if limit is None or len(line) <= limit else line[: limit - 1] + "…"


def short_id(identifier: str) -> str:
    """Return what a person needs of an id to name it again: its first characters, behind the name of a provider."""
    provider, colon, native = one_line(identifier.removeprefix("session_")).partition(":")
    if not colon:
        return provider[:SHORT_ID]
    # OpenCode's ids begin alike for a while, and a subagent's with its parent's.
    parent, slash, agent = native.partition("/")
    length = SHORT_ID + 4 if parent.startswith("ses_") else 8
    return f"{provider}:{parent[:length]}{slash}{agent[:8]}"


def number(value: int | None, *, low: bool = False, compact: bool = False) -> str:
    """Format a count: ``-`` is unknown, 0 is a reported zero, ``≥`` a lower bound (so it is never rounded up)."""
    if value is None:
        return UNKNOWN
    text = f"{value:,}"
    if compact:
        for size, letter in _UNITS:
            if abs(value) >= size:
                text = _three_digits(value / size) + letter
                break
    return f"{AT_LEAST}{text}" if low else text


def _three_digits(value: float) -> str:
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0  # noqa: PLR2004
    return f"{_down(value, digits):,.{digits}f}".rstrip("0").rstrip(".") if digits else f"{_down(value, 0):,.0f}"


def dollars(value: float | None, *, low: bool = False) -> str:
    """Format a cost; small ones keep enough digits to be told from zero, a lower bound is never rounded up."""
    if value is None:
        return UNKNOWN
    digits = 2 if value == 0 or abs(value) >= 1 else 4 if abs(value) >= 0.001 else 6  # noqa: PLR2004
    return f"{AT_LEAST}${_down(value, digits):,.{digits}f}" if low else f"${value:,.{digits}f}"


def _down(value: float, digits: int) -> float:
    """Round towards zero, as the decimal digits of the number say."""
    from decimal import ROUND_DOWN, Decimal

    return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_DOWN))


def duration(milliseconds: float | None) -> str:
    """Format a length of time."""
    if milliseconds is None or milliseconds < 0:
        return UNKNOWN
    if milliseconds < 1000:  # noqa: PLR2004
        return f"{milliseconds:.0f} ms"
    if milliseconds < _MINUTE_MS:
        return f"{milliseconds / 1000:.1f} s"
    seconds = int(milliseconds // 1000)
    if milliseconds < _HOUR_MS:
        return f"{seconds // 60} m {seconds % 60:02} s"
    return f"{seconds // 3600} h {seconds // 60 % 60:02} m"


def local_time(instant: int | None, *, seconds: bool = False) -> str:
    """Format unix milliseconds in the local time zone."""
    if instant is None:
        return UNKNOWN
    from datetime import datetime

    try:
        moment = datetime.fromtimestamp(instant / 1000).astimezone()
    except (OverflowError, ValueError, OSError):
        return f"{instant} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def plural(count: int, word: str) -> str:
    """Return ``1 gap``, ``2 gaps``."""
    return f"{count} {word}{'' if count == 1 else 's'}"
