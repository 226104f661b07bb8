"""The plain command lines of ``turnlog usage``, read without a parser: loading one takes longer than the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from turnlog.surfaces.cli.context import Cli, Globals
from turnlog.surfaces.cli.usage_show import Asked

_FLAGS: Final = {"--breakdown": "breakdown", "--csv": "csv", "--no-import": "no_import"}
_GLOBAL_FLAGS: Final = {"--json": "json", "--no-color": "no_color"}
_VALUES: Final = ("since", "until", "timezone", "provider", "project", "task", "wave", "prices", "ledger")


def parse(args: Sequence[str], globals_: Globals) -> tuple[Cli, Asked] | None:
    """Return what was asked for; None for whatever is not plain, which is then read, or refused, by the parser."""
    asked: dict[str, Any] = {}
    options: dict[str, Any] = {"ledger": None, "json": False, "no_color": False}
    rest = list(args)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word in _FLAGS:
            asked[_FLAGS[word]] = True
        elif word in _GLOBAL_FLAGS:
            options[_GLOBAL_FLAGS[word]] = True
        elif name[:2] == "--" and name[2:] in _VALUES:
            if not equals:
                if not rest or rest[0].startswith("-"):
                    return None
                value = rest.pop(0)
            (options if name == "--ledger" else asked)[name[2:]] = value
        elif word.startswith("-") or not word or "kind" in asked:
            return None
        else:
            asked["kind"] = word
    if "prices" in asked:
        asked["prices"] = Path(asked["prices"])
    merged = globals_.merged(options["ledger"], options["json"], options["no_color"])
    return Cli(merged), Asked(**asked)
