"""What every command is given: the global options, and ways to the ledger and to the person."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from turnlog.api import Ledger


class Globals(NamedTuple):
    """The options that stand before or after the command."""

    ledger: str | None = None
    json: bool = False
    no_color: bool = False

    def merged(self, ledger: str | None, as_json: bool, no_color: bool) -> Globals:
        """Return these with what stood after the command's name."""
        return Globals(self.ledger if ledger is None else ledger, self.json or as_json, self.no_color or no_color)


class Cli:
    """One invocation: what was asked for globally, and what kind of outputs there are."""

    def __init__(self, options: Globals) -> None:
        self.options = options
        self.json = options.json

    @property
    def color(self) -> bool:
        """Whether stdout may be coloured."""
        return sys.stdout.isatty() and self._may_color()

    @property
    def color_err(self) -> bool:
        """Whether stderr may be coloured."""
        return sys.stderr.isatty() and self._may_color()

    def _may_color(self) -> bool:
        return not (self.options.no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb")

    def ledger(self, *, write: bool = False) -> Ledger:
        """Open the ledger. Reading commands do not create or write it; one of an older turnlog is upgraded."""
        from turnlog.api import open_ledger
        from turnlog.errors import NoLedgerError, OldLedgerError, UnavailableError

        try:
            return open_ledger(self.url, read_only=not write)
        except NoLedgerError as error:
            raise NoLedgerError(
                error.message, hint="`turnlog import` or `run` makes one; --ledger or TURNLOG_LEDGER names another"
            ) from error
        except OldLedgerError as old:
            try:
                return open_ledger(self.url)
            except UnavailableError as error:
                raise UnavailableError(f"{old.message}; {error.message}", hint=error.hint) from error

    @property
    def url(self) -> str:
        """The URL of the ledger (contract §2: flag, environment, file, default)."""
        from turnlog import config

        return config.load(self.options.ledger).ledger
