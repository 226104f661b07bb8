"""Price books: the price data that is installed with turnlog, or a person's own file.

The library that holds the bundled data takes longer to import than a report may take. So it is asked once for each
model, and what it said is kept in the user's cache folder under the data's version; a report over models that were seen
before never imports it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec
import platformdirs

from turnlog.errors import UnavailableError
from turnlog.queries.pricefile import PriceFile, parse
from turnlog.usage.models import listed
from turnlog.usage.prices import Book, Call, Estimate, Plan, estimate

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
    return _BundledBook(Path(platformdirs.user_cache_dir("turnlog")))


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
        self._file: PriceFile = parse(raw, path.name)
        self._plans = _Plans(lambda key: self._file.plan(*key))

    def estimate(self, call: Call) -> Estimate | None:
        plan = self._plans.of((call.provider, call.provider_id, call.model))
        return None if plan is None else estimate(plan, call, self.version)


class _BundledBook:
    """The data of the installed price library."""

    source = "genai-prices"

    def __init__(self, cache: Path) -> None:
        spec = find_spec(_LIBRARY)
        if spec is None or spec.origin is None:
            raise UnavailableError(
                "the price data is not installed", hint="install turnlog again, or use --prices FILE"
            )
        folder = Path(spec.origin).parent
        # Not importlib.metadata: that import costs more than everything else here.
        release = next((each.stem.rpartition("-")[2] for each in folder.parent.glob(f"{_LIBRARY}-*.dist-info")), "?")
        digest = hashlib.sha256((folder / "data.py").read_bytes()).hexdigest()[:_DIGITS]
        self.version = f"{self.source} {release} {digest} m{_MAPPING}"
        self._kept = cache / f"prices-{digest}-m{_MAPPING}.json"
        self._plans = _Plans(self._find)
        self._plans.known.update(_load(self._kept))

    def estimate(self, call: Call) -> Estimate | None:
        plan = self._plans.of((call.provider, call.provider_id, call.model))
        return None if plan is None else estimate(plan, call, self.version)

    def _find(self, key: Key) -> Plan | None:
        name = listed(key[2], key[1])
        if name is None:
            return None  # nothing to look up, nothing to keep
        from turnlog.queries.pricelist import plan_of

        plan = plan_of(name)
        _keep(self._kept, {**self._plans.known, key: plan})
        return plan


def _load(path: Path) -> dict[Key, Plan | None]:
    """Return what was kept; nothing when there is nothing, or when it cannot be used."""
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=list[tuple[Key, Plan | None]])
    except (OSError, msgspec.DecodeError):
        return {}
    return dict(rows)


def _keep(path: Path, known: Mapping[Key, Plan | None]) -> None:
    """Keep plans for other processes; whoever writes last wins, what another one knew is then asked for again."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        partial.write_bytes(msgspec.json.encode(list(known.items())))
        partial.replace(path)
