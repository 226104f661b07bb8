"""What must never be stored or shown: secrets in error texts (6.2.5, D12), terminal escapes in foreign text.

``sanitise`` is for texts that become durable or visible as errors; it rather hides a harmless word beside a secret
than a secret beside a harmless word. It is a pure function, so reading the same error again gives the same receipt.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

__all__ = ["sanitise", "sanitise_value", "strip_terminal"]

HIDDEN: Final = "[redacted]"
MAX_ERROR_TEXT: Final = 16_384
"""Characters kept of one string inside a stored error: a provider may answer with a whole HTML page."""

_NAMES: Final = (
    r"(?:proxy[-_]?)?authorization|(?:set[-_]?)?cookie|x[-_](?:goog[-_])?api[-_]?key|"
    r"(?:[a-z0-9]+[-_])*(?:api[-_]?key|access[-_]?key(?:[-_]?id)?|access[-_]?token|auth[-_]?token|refresh[-_]?token|"
    r"id[-_]?token|session[-_]?token|security[-_]?token|bearer[-_]?token|private[-_]?key|client[-_]?secret|"
    r"secret(?:[-_]?access)?(?:[-_]?key)?|password|passwd|token)|"
    r"accesstoken|refreshtoken|authtoken|idtoken"
)
_START: Final = r"(?<![A-Za-z0-9_])(?<![A-Za-z0-9_]-)"


@cache
def _rules() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return the rules, compiled when the first text is looked at: every command would pay for it."""
    return tuple(
        (re.compile(pattern, re.IGNORECASE), replacement)
        for pattern, replacement in (
            # {"api_key": "…"}, also with single quotes, and inside a quoted JSON text where each quote has a backslash.
            (
                rf"""(?P<q>["'])(?P<n>{_NAMES}|key)(?P=q)(?P<c>\s*:\s*)(?P<v>["'])(?:\\.|(?!(?P=v)|\\).)*(?P=v)?""",
                rf"\g<q>\g<n>\g<q>\g<c>\g<v>{HIDDEN}\g<v>",
            ),
            (
                rf"""(?P<q>\\+["'])(?P<n>{_NAMES}|key)(?P=q)(?P<c>\s*:\s*)(?P=q)(?:(?!(?P=q)).)*(?P=q)?""",
                rf"\g<q>\g<n>\g<q>\g<c>\g<q>{HIDDEN}\g<q>",
            ),
            (
                rf"""(?P<q>\\*["'])(?P<n>{_NAMES})(?P=q)(?P<c>\s*:\s*)(?P<v>[^\s"'\\,\]}}\[{{]+)""",
                rf"\g<q>\g<n>\g<q>\g<c>{HIDDEN}",
            ),
            (r"\bbearer\s+(?!\[redacted\])[^\s,;\"'\\]+", f"bearer {HIDDEN}"),
            (r"\bauthorization:[^\r\n,]*", f"authorization: {HIDDEN}"),
            # Cookies hold commas and semicolons of their own: everything to the end of the line goes.
            (r"\b(?P<n>(?:set-)?cookie):[^\r\n]*", rf"\g<n>: {HIDDEN}"),
            (
                rf"{_START}(?P<n>x[-_]api[-_]?key|x-goog-api-key|api[-_]?key)(?P<c>\s*:\s*)[^\s,;\"'\\]+",
                rf"\g<n>\g<c>{HIDDEN}",
            ),
            (rf"{_START}(?P<n>{_NAMES}|key)=(?P<v>[\"'])(?:\\.|(?!(?P=v)|\\).)*(?P=v)", rf"\g<n>={HIDDEN}"),
            (rf"{_START}(?P<n>{_NAMES}|key)=[^\s&\"'<>]+", rf"\g<n>={HIDDEN}"),
            (r"(?P<s>\b[a-z][a-z0-9+.\-]*://)[^\s/\"'<>@]+(?:@[^\s/\"'<>@]+)*@", rf"\g<s>{HIDDEN}@"),
            # Shapes that providers give their keys, wherever they stand.
            (r"\b(?:sk|rk|pk)[-_](?=[a-z_\-]*\d)[A-Za-z0-9_\-]{16,}", HIDDEN),
            (r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|xox[abprs]-[A-Za-z0-9\-]{10,})", HIDDEN),
            (r"\b(?:AKIA[0-9A-Z]{16}|AIza[0-9A-Za-z_\-]{30,})", HIDDEN),
            (r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*", HIDDEN),
        )
    )


_SECRET_NAME: Final = re.compile(_NAMES, re.IGNORECASE)

_ESCAPES: Final = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    "|\x1b[\\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"  # OSC, DCS and kin: titles, clipboard
    "|\x9b[0-?]*[ -/]*[@-~]?"
    "|[\x9d\x90\x98\x9e\x9f][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]*[0-~]?"
)
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def sanitise(text: str) -> str:
    """Return ``text`` with everything that looks like a secret replaced (6.2.5, D12)."""
    for pattern, replacement in _rules():
        text = pattern.sub(replacement, text)
    return text


def sanitise_value(value: Any) -> Any:
    """Return a JSON value with its strings sanitised, members with secret names hidden and long strings cut."""
    if isinstance(value, str):
        clean = sanitise(value)
        return clean if len(clean) <= MAX_ERROR_TEXT else f"{clean[:MAX_ERROR_TEXT]}… [cut]"
    if isinstance(value, list):
        return [sanitise_value(item) for item in value]
    if isinstance(value, dict):
        return {
            key: HIDDEN if item is not None and _SECRET_NAME.fullmatch(key) else sanitise_value(item)
            for key, item in value.items()
        }
    return value


def strip_terminal(text: str) -> str:
    """Return foreign text without terminal escapes, control and direction characters; LF and TAB stay."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))
