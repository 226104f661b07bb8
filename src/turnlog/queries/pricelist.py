"""The bundled price library as plain lists. Importing this module is slow: only ``pricing`` does, and rarely."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any, Final

from genai_prices.data import providers
from genai_prices.types import (
    ClauseAnd,
    ClauseContains,
    ClauseEndsWith,
    ClauseEquals,
    ClauseOr,
    ClauseRegex,
    ClauseStartsWith,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    TieredPrices,
    TimeOfDateConstraint,
)

from turnlog.queries.pricetable import AllOf, Begins, Ends, Entry, Fits, Holds, Is, OneOf, Rule, Service
from turnlog.usage.prices import STANDARD, Bracket, Period, Plan, make_rates

_TIER_KEYS: Final = frozenset({"processing", "service_tier", "speed"})
_PARTS: Final = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "output_reasoning_mtok": "reasoning",
}
_WHOLE: Final = frozenset({"requests_kcount"})
"""Prices on every request that a call's tokens do not tell of: such a model has no estimate."""

Prices = dict[str, Decimal | TieredPrices]


def services() -> Iterator[tuple[str, Service]]:
    """Yield every service of the library with its list: O(models)."""
    known = {each.id for each in providers}
    for service in providers:
        entries = tuple(
            Entry(rule, _plan(service, model)) for model in service.models if (rule := _rule(model.match)) is not None
        )
        then = tuple(each for each in service.fallback_model_providers or () if each in known)
        yield service.id, Service(entries, then)


def _rule(clause: Any) -> Rule | None:
    """Return a match rule; None for a kind that is not known here, which then means no model."""
    match clause:
        case ClauseEquals():
            return Is(clause.equals.lower())
        case ClauseRegex():
            return Fits(clause.regex)
        case ClauseStartsWith():
            return Begins(clause.starts_with.lower())
        case ClauseEndsWith():
            return Ends(clause.ends_with.lower())
        case ClauseContains():
            return Holds(clause.contains.lower())
        case ClauseOr():
            return OneOf(tuple(rule for each in clause.or_ if (rule := _rule(each)) is not None))
        case ClauseAnd():
            rules = [_rule(each) for each in clause.and_]
            return None if None in rules else AllOf(tuple(rule for rule in rules if rule is not None))
    return None


def _plan(provider: Provider, model: ModelInfo) -> Plan | None:
    title, claude = f"{provider.id}/{model.id}", "claude" in model.id
    dated = [ConditionalPrice(prices=model.prices)] if isinstance(model.prices, ModelPrice) else model.prices
    bases = [(each.constraint, _prices(each.prices)) for each in dated]
    tiers = {STANDARD: tuple(_periods(title, claude, ((limit, None, prices) for limit, prices in bases)))}
    words: dict[str, list[tuple[Any, Any, Prices]]] = {}
    # The first variant that holds counts, the last period does: so the other way round.
    for variant in reversed(model.price_variants or ()):
        key, word = next(iter(variant.when.items()))
        if len(variant.when) == 1 and key in _TIER_KEYS:
            over = _prices(variant.prices)
            words.setdefault(word.lower(), []).extend(
                (limit, variant.constraint, {**prices, **over}) for limit, prices in bases
            )
    for word, rows in words.items():
        tiers[word] = tuple(_periods(title, claude, rows))
    return Plan(tiers) if any(tiers.values()) else None


def _prices(prices: ModelPrice) -> Prices:
    return {key: value for key, value in prices.__dict__.items() if value is not None}


def _periods(title: str, claude: bool, rows: Iterable[tuple[Any, Any, Prices]]) -> Iterator[Period]:  # noqa: FBT001 - private
    for one, other, prices in rows:
        if not {"input_mtok", "output_mtok"} <= prices.keys() or _WHOLE & prices.keys():
            continue
        limits = [limit for limit in (one, other) if limit is not None]
        since = [_instant(limit) for limit in limits if isinstance(limit, StartDateConstraint)]
        hours = [_hours(limit) for limit in limits if isinstance(limit, TimeOfDateConstraint)]
        if len(hours) <= 1:
            yield Period(title, max(since, default=None), None, next(iter(hours), None), _brackets(prices, claude))


def _brackets(prices: Prices, claude: bool) -> tuple[Bracket, ...]:  # noqa: FBT001 - private
    steps = sorted({tier.start for each in prices.values() if isinstance(each, TieredPrices) for tier in each.tiers})
    return tuple(
        Bracket(
            above,
            make_rates(
                **{part: _at(prices[key], above) for key, part in _PARTS.items() if key in prices},
                claude=claude,
            ),
        )
        for above in [-1, *steps]
    )


def _at(price: Decimal | TieredPrices, above: int) -> float:
    if isinstance(price, TieredPrices):
        return float(next((tier.price for tier in reversed(price.tiers) if above >= tier.start), price.base))
    return float(price)


def _instant(limit: StartDateConstraint) -> int:
    return int(datetime.combine(limit.start_date, time(), UTC).timestamp()) * 1000


def _hours(limit: TimeOfDateConstraint) -> tuple[int, int]:
    return _time(limit.start_time), _time(limit.end_time)


def _time(value: time) -> int:
    """Return ms since midnight UTC; a time without zone is UTC."""
    moment = datetime.combine(datetime(1970, 1, 2, tzinfo=UTC).date(), value, value.tzinfo or UTC)
    return int(moment.timestamp() * 1000) % 86_400_000
