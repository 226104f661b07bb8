"""What a model call cost by list prices: an estimate, never mixed with a cost that a provider reported. Pure.

Rates are found once for each model (a ``Plan``), then applied here: a whole request is priced by the bracket that its
prompt falls in, by the day it was made, by the tier it ran in. What cannot be priced has no estimate; it is never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec

DAY_MS: Final = 86_400_000
_MTOK: Final = 1_000_000

STANDARD: Final = ""
"""The tier of a call that says nothing of one."""

WEB_SEARCH: Final = "web_search"
"""The word of a call that searched the web: each search has a price, which no list of tokens tells."""

_STANDARD_WORDS: Final = frozenset({"standard", "default", "not_available", "global"})
_CLAUDE_5M: Final = 1.25
_CLAUDE_1H: Final = 2.0


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One model request, or the sum of several, as far as its price depends on it.

    ``provider`` is the agent program (``claude codex opencode``), ``provider_id`` the service it called where known
    (OpenCode's ``providerID``, Codex' ``model_provider``). Counters are tokens, None = unknown: ``total_input`` =
    ``input`` + ``cache_read`` + ``cache_write`` (of which ``cache_write_1h``), ``output`` includes ``reasoning``.
    ``tier`` holds words for service tier and speed (``tier_of``). ``at`` is unix ms. ``summed`` says that the counters
    may be those of several requests; ``peak`` is then the largest prompt of one of them.
    """

    provider: str
    model: str | None
    at: int
    input: int | None = None
    output: int | None = None
    total_input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    reasoning: int | None = None
    tier: str | None = None
    provider_id: str | None = None
    summed: bool = False
    peak: int | None = None


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """USD by a price book. ``model`` is the price entry that was used, ``version`` the book's.

    ``lower_bound``: something that would have cost more is unknown (a counter, how long cache writes were to live,
    which of several requests were long), or is no token (a search of the web).
    """

    usd: float
    model: str
    version: str
    lower_bound: bool = False


class Book(Protocol):
    """Price data. Safe for several threads."""

    @property
    def version(self) -> str:
        """Names the data exactly: estimates of equal versions are equal."""
        ...

    @property
    def source(self) -> str:
        """Where the data comes from, for people."""
        ...

    def estimate(self, call: Call) -> Estimate | None:
        """Return what a call cost by this book; None where it has no price for it. O(1) once a model is known."""
        ...


class Rates(msgspec.Struct, frozen=True, array_like=True):
    """USD per million tokens, each part with a rate of its own."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    cache_write_1h: float
    reasoning: float


class Bracket(msgspec.Struct, frozen=True, array_like=True):
    """Rates for every token of a request whose prompt has more than ``above`` tokens."""

    above: int
    rates: Rates


class Period(msgspec.Struct, frozen=True, array_like=True):
    """Brackets, the smallest first, and when they hold: ``since`` ≤ at < ``until`` (unix ms; None = open).

    ``hours`` bounds the time of day in UTC, ms since midnight; it may run over midnight. ``model`` names the entry.
    """

    model: str
    since: int | None
    until: int | None
    hours: tuple[int, int] | None
    brackets: tuple[Bracket, ...]

    def holds(self, at: int) -> bool:
        """Tell whether an instant lies in the period."""
        if (self.since is not None and at < self.since) or (self.until is not None and at >= self.until):
            return False
        if self.hours is None:
            return True
        first, last = self.hours
        time = at % DAY_MS
        return first <= time < last if first <= last else time >= first or time < last


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """All prices of one model: periods by tier word; of those that hold, the last counts."""

    tiers: dict[str, tuple[Period, ...]]


def make_rates(
    *,
    input: float,
    output: float,
    cache_read: float | None = None,
    cache_write: float | None = None,
    cache_write_1h: float | None = None,
    reasoning: float | None = None,
    claude: bool = False,
) -> Rates:
    """Return rates with what a price list leaves out: parts without a price of their own cost what all input costs.

    Claude's cache writes are known multiples of its input rate: 1.25 for five minutes, 2 for an hour.
    """
    write = (input * _CLAUDE_5M if claude else input) if cache_write is None else cache_write
    hour = (input * _CLAUDE_1H if claude else write) if cache_write_1h is None else cache_write_1h
    return Rates(
        input=input,
        output=output,
        cache_read=input if cache_read is None else cache_read,
        cache_write=write,
        cache_write_1h=hour,
        reasoning=output if reasoning is None else reasoning,
    )


def tier_of(usage: Mapping[str, Any]) -> str | None:
    """Return the tier words of a provider's usage object (``service_tier``, ``speed``, ``inference_geo``).

    None = nothing that changes a price. A place that is paid for is ``geo:<place>``; ``WEB_SEARCH`` says that there
    were searches (``server_tool_use``).
    """
    words = [word for key in ("service_tier", "speed") if isinstance(word := usage.get(key), str)]
    place = usage.get("inference_geo")
    if isinstance(place, str) and place and place not in _STANDARD_WORDS:
        words.append(f"geo:{place}")
    if searches_of(usage.get("server_tool_use")):
        words.append(WEB_SEARCH)
    return _tier(tuple(words)) if words else None


@lru_cache(maxsize=256)  # every call of a history has one of a handful
def _tier(words: tuple[str, ...]) -> str | None:
    kept = [word.lower() for word in dict.fromkeys(words) if word and word.lower() not in _STANDARD_WORDS]
    return " ".join(kept) or None


def searches_of(tools: object) -> int:
    """Return the searches of the web that a usage object's ``server_tool_use`` tells."""
    told = tools.get("web_search_requests") if isinstance(tools, Mapping) else None
    return told if isinstance(told, int) and told > 0 else 0


def estimate(plan: Plan, call: Call, version: str) -> Estimate | None:
    """Apply a model's prices to a call: O(periods). None where the tier, the day or every counter is unknown."""
    words = frozenset() if call.tier is None else frozenset(call.tier.lower().split())
    tier = _word(words - {WEB_SEARCH})
    if tier is None:
        return None
    period = next((each for each in reversed(plan.tiers.get(tier, ())) if each.holds(call.at)), None)
    if period is None:
        return None
    parts = _parts(call)
    if parts is None:
        return None
    rates, mixed = _bracket(period, call, parts)
    usd, low = _cost(rates, parts)
    return Estimate(usd=usd, model=period.model, version=version, lower_bound=low or mixed or WEB_SEARCH in words)


def _word(words: frozenset[str]) -> str | None:
    """Return the one word that differs from the standard; None for a combination, which nobody lists a price for."""
    words -= _STANDARD_WORDS
    return None if len(words) > 1 else next(iter(words), STANDARD)


class _Parts(msgspec.Struct):
    """A call's tokens by what they cost; ``rest`` is input of which it is not known whether it was cached."""

    fresh: int
    read: int
    write: int
    hour: int | None
    output: int
    reasoning: int | None
    rest: int
    low: bool


def _parts(call: Call) -> _Parts | None:
    fresh, read, write, total = call.input, call.cache_read, call.cache_write, call.total_input
    hour = call.cache_write_1h
    if write is None and hour is not None:
        write = hour
    elif write is not None and hour is not None and hour > write:
        write = hour  # the split is right where it disagrees with the sum
    if fresh is None and read is None and write is None and total is None and call.output is None:
        return None
    low = call.output is None
    rest = 0
    if fresh is None or read is None or write is None:
        if total is None:
            low = True
        else:
            rest = max(total - (fresh or 0) - (read or 0) - (write or 0), 0)
            if fresh is None and read is not None and write is not None:
                fresh, rest = rest, 0
            elif fresh is not None and read is None and write is not None:
                read, rest = rest, 0
            elif fresh is not None and write is None and read is not None:
                write, rest = rest, 0
            low = low or rest > 0
    return _Parts(fresh or 0, read or 0, write or 0, hour, call.output or 0, call.reasoning, rest, low)


def _bracket(period: Period, call: Call, parts: _Parts) -> tuple[Rates, bool]:
    """Return the rates of a call, and whether some of its requests may have cost more than these."""
    brackets = period.brackets
    if len(brackets) == 1:
        return brackets[0].rates, False
    prompt = call.total_input
    if prompt is None:
        prompt = parts.fresh + parts.read + parts.write + parts.rest
    if call.peak is not None and call.peak < prompt:
        longest, several = call.peak, True
    else:
        longest, several = prompt, call.summed and call.peak is None
    found = next((each for each in reversed(brackets) if longest > each.above), brackets[0])
    if several and found is not brackets[0]:
        return brackets[0].rates, True
    return found.rates, False


def _cost(rates: Rates, parts: _Parts) -> tuple[float, bool]:
    low = parts.low
    hour = parts.hour
    if hour is None:
        hour = 0
        low = low or (parts.write > 0 and rates.cache_write_1h > rates.cache_write)
    usd = (
        parts.fresh * rates.input
        + parts.read * rates.cache_read
        + (parts.write - hour) * rates.cache_write
        + hour * rates.cache_write_1h
        + parts.output * rates.output
    )
    if parts.rest:
        usd += parts.rest * min(rates.input, rates.cache_read, rates.cache_write)
    if rates.reasoning != rates.output:
        thought = parts.reasoning
        if thought is None:
            low = low or parts.output > 0
            usd += parts.output * min(rates.reasoning - rates.output, 0.0)
        else:
            usd += min(thought, parts.output) * (rates.reasoning - rates.output)
    return usd / _MTOK, low
