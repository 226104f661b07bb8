"""Price books: the price data that is installed with turnlog, or a person's own file.

The library that holds the bundled data takes longer to import than a report may take. turnlog brings the lists of the
release that it was built with; those of any other release are made once and kept in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from turnlog.config import own_folder
from turnlog.errors import UnavailableError
from turnlog.usage.models import listed
from turnlog.usage.prices import Book, Call, Estimate, Plan, estimate

if TYPE_CHECKING:
    from turnlog.queries.pricetable import Table

_LIBRARY: Final = "genai_prices"
_MAPPING: Final = 1
"""Raised when names or rates are mapped differently: estimates made before are then of another version."""

_DIGITS: Final = 12

Key = tuple[str, str | None, str | None]
"""Agent program, service called, model as written."""


def open_book(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Book:
    """Open price data: ``path`` (``--prices``), else the file that ``TURNLOG_PRICES`` names, else the bundled data.

    A file stands alone: models that it does not name have no price. Raises InvalidError for a file that is not valid,
    UnavailableError for one that cannot be read. Costs one hash of the data; nothing heavy is imported.
    """
    env = os.environ if environ is None else environ
    named = path or (Path(env["TURNLOG_PRICES"]).expanduser() if env.get("TURNLOG_PRICES") else None)
    if named is not None:
        return _FileBook(named)
    return _BundledBook(own_folder("cache"))


def find_book() -> Book | None:
    """Open the price data as ``open_book`` does without a path; None where there is none. Raises InvalidError."""
    with contextlib.suppress(UnavailableError):
        return open_book()
    return None


class _Plans:
    """Plans by model: resolved once, whichever thread asks first."""

    def __init__(self, resolve: Callable[[Key], Plan | None]) -> None:
        self._resolve = resolve
        self._lock = threading.Lock()
        self.known: dict[Key, Plan | None] = {}

    def of(self, key: Key) -> Plan | None:
        """Return the plan of a model; None when it has no price."""
        try:
            return self.known[key]
        except KeyError:
            pass
        with self._lock:
            if key not in self.known:
                self.known[key] = self._resolve(key)
            return self.known[key]


class _FileBook:
    """A person's own prices."""

    def __init__(self, path: Path) -> None:
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise UnavailableError(
                f"cannot read prices from {path}: {error.strerror}", hint="name a TOML or JSON file with --prices"
            ) from error
        self.source = str(path)
        self.version = f"{path.name} {hashlib.sha256(raw).hexdigest()[:_DIGITS]}"
        # Not for everybody: few people have such a file.
        from turnlog.queries.pricefile import parse

        file = parse(raw, path.name)
        self._plans = _Plans(lambda key: file.plan(*key))

    def estimate(self, call: Call) -> Estimate | None:
        plan = self._plans.of((call.provider, call.provider_id, call.model))
        return None if plan is None else estimate(plan, call, self.version)


class _BundledBook:
    """The data of the installed price library."""

    source = "genai-prices"

    def __init__(self, cache: Path) -> None:
        release, self._digest = installed()
        self.version = f"{self.source} {release} {self._digest} m{_MAPPING}"
        self._kept = cache / f"prices-{self._digest}-m{_MAPPING}.json"
        self._plans = _Plans(self._find)
        self._table: Table | None = None

    def estimate(self, call: Call) -> Estimate | None:
        plan = self._plans.of((call.provider, call.provider_id, call.model))
        return None if plan is None else estimate(plan, call, self.version)

    def _find(self, key: Key) -> Plan | None:
        name = listed(key[2], key[1])
        if name is None:
            return None
        if self._table is None:
            self._table = self._lists()
        try:
            return self._table.plan_of(name)
        except msgspec.DecodeError:  # a damaged list
            self._table = self._made()
            return self._table.plan_of(name)

    def _lists(self) -> Table:
        from turnlog.queries import pricetable

        return (
            pricetable.load(pricetable.PACKAGED, f"{self._digest} m{_MAPPING}")
            or pricetable.load(self._kept, f"{self._digest} m{_MAPPING}")
            or self._made()
        )

    def _made(self) -> Table:
        """Make the lists from the library, and keep them for other processes; whoever writes last wins."""
        from turnlog.queries import pricetable

        text = made()
        with contextlib.suppress(OSError):
            self._kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial = self._kept.with_name(f"{self._kept.name}.{os.getpid()}.{threading.get_ident()}")
            partial.write_bytes(text)
            partial.replace(self._kept)
        return pricetable.read(text)


def installed() -> tuple[str, str]:
    """Return the release of the installed price data and a digest of it. Raises UnavailableError where there is none.

    One hash of the data; the library is not imported.
    """
    spec = find_spec(_LIBRARY)
    if spec is None or spec.origin is None:
        raise UnavailableError("the price data is not installed", hint="install turnlog again, or use --prices FILE")
    folder = Path(spec.origin).parent
    # Not importlib.metadata: that import costs more than everything else here.
    release = next((each.stem.rpartition("-")[2] for each in folder.parent.glob(f"{_LIBRARY}-*.dist-info")), "?")
    return release, hashlib.sha256((folder / "data.py").read_bytes()).hexdigest()[:_DIGITS]


def made() -> bytes:
    """Return all lists of the installed price data, as they are kept. Slow: it imports the library."""
    from turnlog.queries.pricelist import services
    from turnlog.queries.pricetable import dump

    return dump(f"{installed()[1]} m{_MAPPING}", services())
