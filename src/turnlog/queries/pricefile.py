"""A person's own price file, TOML or JSON: a list of ``price`` entries.

    [[price]]
    match = "claude-sonnet-4-5"   # or a list; * stands for anything; dates and region marks behind it do not matter
    provider = "claude"           # optional: claude, codex, opencode, or the service called (like openrouter)
    tier = "fast"                 # optional: a service tier or speed; left out: the standard one
    from = 2025-09-29             # optional: first day, UTC
    until = 2026-08-20            # optional: last day, UTC
    input = 3.0                   # USD per million tokens, as the others
    output = 15.0
    cache_read = 0.30             # optional: else as input
    cache_write_5m = 3.75         # optional: else as input; of Claude models 1.25 × input
    cache_write_1h = 6.0          # optional: else as five minutes; of Claude models 2 × input
    reasoning = 15.0              # optional: else as output

    [[price.tiers]]               # optional: other prices for a whole request with a longer prompt
    above = 200_000               # tokens of the prompt, cached ones included
    input = 6.0
    output = 22.5

Of several entries that fit, the first one counts. What a tier leaves out is as in its entry.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

import msgspec

from turnlog.errors import InvalidError
from turnlog.usage.models import bare, listed, same_model
from turnlog.usage.prices import DAY_MS, STANDARD, Bracket, Period, Plan, Rates, make_rates

Dollars = Annotated[float, msgspec.Meta(ge=0)]

_HINT: Final = "an entry is [[price]] with match, input and output in USD per million tokens"


class _Parts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    input: Dollars | None = None
    output: Dollars | None = None
    cache_read: Dollars | None = None
    cache_write_5m: Dollars | None = None
    cache_write_1h: Dollars | None = None
    reasoning: Dollars | None = None


class _Tier(_Parts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    above: Annotated[int, msgspec.Meta(ge=1)]


class _Entry(_Parts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    match: str | list[str]
    input: Dollars
    output: Dollars
    provider: str | None = None
    tier: str = STANDARD
    since: date | None = msgspec.field(default=None, name="from")
    until: date | None = None
    tiers: list[_Tier] = []


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    price: Annotated[list[_Entry], msgspec.Meta(min_length=1)]


class PriceFile:
    """The entries of a file."""

    def __init__(self, entries: list[_Entry]) -> None:
        self._entries = entries

    def plan(self, provider: str, provider_id: str | None, model: str | None) -> Plan | None:
        """Return the prices of a model by this file: O(entries). None where no entry fits."""
        if not model:
            return None
        names = {model.strip().lower(), bare(model)}
        found = listed(model, provider_id)
        services = {provider, provider_id} | ({found.service} if found else set())
        if found:
            names.update(found.spellings)
        claude = any("claude" in name for name in names)
        tiers: dict[str, list[Period]] = {}
        for entry in reversed(self._entries):  # of the periods that hold, the last counts
            fitting = next((pattern for pattern in _patterns(entry) if any(_fits(pattern, n) for n in names)), None)
            if fitting is not None and entry.provider in {None, *services}:
                tiers.setdefault(_word(entry), []).append(_period(entry, fitting, claude=claude))
        return Plan({word: tuple(periods) for word, periods in tiers.items()}) if tiers else None


def parse(raw: bytes, name: str) -> PriceFile:
    """Read a price file; ``name`` ends in ``.json`` for JSON, anything else is TOML. Raises InvalidError."""
    try:
        text = raw.decode()
        value: Any = json.loads(text) if name.endswith(".json") else tomllib.loads(text)
        entries = msgspec.convert(value, _File, strict=True).price
    except msgspec.ValidationError as error:
        raise InvalidError(f"prices in {name}: {error}", hint=_HINT) from error
    except ValueError as error:
        kind = "JSON" if name.endswith(".json") else "TOML"
        raise InvalidError(f"prices in {name}: not {kind}: {error}", hint=_HINT) from error
    for number, entry in enumerate(entries, 1):
        for problem in _problems(entry):
            raise InvalidError(f"prices in {name}: price {number} ({_title(entry)}): {problem}", hint=_HINT)
    return PriceFile(entries)


def _problems(entry: _Entry) -> Iterator[str]:
    if not _patterns(entry) or not all(pattern.strip() for pattern in _patterns(entry)):
        yield "match names no model"
    if entry.since and entry.until and entry.since > entry.until:
        yield f"from {entry.since} is after until {entry.until}"
    steps = [tier.above for tier in entry.tiers]
    if len(set(steps)) < len(steps):
        yield "two tiers begin at the same number of tokens"


def _patterns(entry: _Entry) -> list[str]:
    return [entry.match] if isinstance(entry.match, str) else entry.match


def _title(entry: _Entry) -> str:
    return ", ".join(_patterns(entry))


def _word(entry: _Entry) -> str:
    word = entry.tier.strip().lower()
    return STANDARD if word == "standard" else word


def _fits(pattern: str, name: str) -> bool:
    known = pattern.strip().lower()
    return fnmatchcase(name, known) if "*" in known else same_model(name, known, before=True)


def _period(entry: _Entry, pattern: str, *, claude: bool) -> Period:
    steps = sorted(entry.tiers, key=lambda tier: tier.above)
    brackets = [Bracket(-1, _rates(entry, entry, claude=claude))]
    brackets += [Bracket(tier.above, _rates(tier, entry, claude=claude)) for tier in steps]
    since = None if entry.since is None else _midnight(entry.since)
    until = None if entry.until is None else _midnight(entry.until) + DAY_MS
    return Period(pattern.strip(), since, until, None, tuple(brackets))


def _rates(parts: _Parts, entry: _Entry, *, claude: bool) -> Rates:
    def first(one: float | None, other: float | None) -> float | None:
        return other if one is None else one

    return make_rates(
        input=entry.input if parts.input is None else parts.input,
        output=entry.output if parts.output is None else parts.output,
        cache_read=first(parts.cache_read, entry.cache_read),
        cache_write=first(parts.cache_write_5m, entry.cache_write_5m),
        cache_write_1h=first(parts.cache_write_1h, entry.cache_write_1h),
        reasoning=first(parts.reasoning, entry.reasoning),
        claude=claude,
    )


def _midnight(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp()) * 1000
