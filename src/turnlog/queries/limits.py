"""The last known rate limits of each provider, as its program was told them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeGuard

import msgspec

from turnlog.ledger import Store
from turnlog.queries import readable

_SECONDS_BELOW: Final = 100_000_000_000
"""Instants below are seconds: as milliseconds they would be in 1973."""


class LimitWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One window: how much is used of it, in percent; its length in minutes; when it begins anew, unix ms."""

    used_percent: float
    window_minutes: int | None = None
    resets_at: int | None = None


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider said at an instant (unix ms), the shorter window first."""

    provider: str
    at: int
    windows: tuple[LimitWindow, ...]
    plan: str | None = None


def last_limits(store: Store) -> list[Limit]:
    """Return the newest observation of each provider, by name: O(providers). Evidence that says nothing is left out.

    A window whose ``resets_at`` lies behind has begun anew since: how much is used of it is unknown.
    """
    found: list[Limit] = []
    for provider, at, text in store.limits.last():
        payload = readable(text)
        evidence = payload.get("evidence") if isinstance(payload, dict) else None
        if isinstance(evidence, dict) and (windows := tuple(_windows(evidence, at))):
            plan = evidence.get("plan_type", evidence.get("plan"))
            found.append(Limit(provider=provider, at=at, windows=windows, plan=plan if isinstance(plan, str) else None))
    return found


def _windows(evidence: dict[str, Any], at: int) -> Iterator[LimitWindow]:
    for name in ("primary", "secondary"):
        told = evidence.get(name)
        if not isinstance(told, dict) or not _is_number(used := told.get("used_percent")):
            continue
        minutes = told.get("window_minutes")
        yield LimitWindow(
            used_percent=float(used),
            window_minutes=int(minutes) if _is_number(minutes) else None,
            resets_at=_reset(told, at),
        )


def _reset(told: dict[str, Any], at: int) -> int | None:
    reset, wait = told.get("resets_at"), told.get("resets_in_seconds")
    if _is_number(reset):
        return int(reset * 1000 if reset < _SECONDS_BELOW else reset)
    return at + int(wait * 1000) if _is_number(wait) else None


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
