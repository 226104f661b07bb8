"""Prices applied to calls: brackets, cache writes, tiers, dates, and what is unknown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.usage.models import Name, bare, listed, same_model
from turnlog.usage.prices import Bracket, Call, Period, Plan, Rates, estimate, make_rates, tier_of

AT = 1_790_000_000_000
DAY = 86_400_000
SONNET = make_rates(input=3, output=15, cache_read=0.3, claude=True)


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-12, abs=1e-12)


def call(**counters: Any) -> Call:
    zeros = {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0}
    return msgspec.structs.replace(Call(provider="claude", model="m", at=AT), **{**zeros, **counters})


def plan(*brackets: tuple[int, Rates], tier: str = "", **when: Any) -> Plan:
    period = {"since": None, "until": None, "hours": None, **when}
    return Plan({tier: (Period("m", brackets=tuple(Bracket(*each) for each in brackets), **period),)})


def usd(prices: Plan, made: Call) -> float | None:
    found = estimate(prices, made, "v")
    return None if found is None else found.usd


LONG = plan((-1, make_rates(input=3, output=15, cache_read=0.3)), (272_000, make_rates(input=6, output=22.5)))


def test_a_long_prompt_prices_the_whole_request_at_the_upper_rate() -> None:
    assert usd(LONG, call(input=300_000, total_input=300_000)) == near(1.80)
    assert usd(LONG, call(input=272_000, total_input=272_000)) == near(0.816)
    assert usd(LONG, call(input=272_001, total_input=272_001)) == near(272_001 * 6 / 1e6)


def test_cached_tokens_count_towards_the_long_prompt() -> None:
    made = call(input=270_540, cache_read=7_936, total_input=278_476, output=1_000)
    # Input and cache at $6, output at $22.5: this list has no upper rate for cache reads but its input rate.
    assert usd(LONG, made) == near((278_476 * 6 + 1_000 * 22.5) / 1e6)


def test_a_prompt_without_a_total_is_the_sum_of_its_parts() -> None:
    assert usd(LONG, call(input=270_540, cache_read=7_936)) == near(278_476 * 6 / 1e6)


def test_hour_long_cache_writes_cost_twice_the_input() -> None:
    hour = estimate(plan((-1, SONNET)), call(cache_write=100_000, cache_write_1h=100_000), "v")
    assert hour is not None
    assert (hour.usd, hour.lower_bound) == (near(0.60), False)
    assert usd(plan((-1, SONNET)), call(cache_write=100_000, cache_write_1h=0)) == near(0.375)
    assert usd(plan((-1, SONNET)), call(cache_write=100_000, cache_write_1h=40_000)) == near(0.465)


def test_cache_writes_of_unknown_life_are_a_lower_bound() -> None:
    found = estimate(plan((-1, SONNET)), call(cache_write=100_000), "v")
    assert found is not None
    assert (found.usd, found.lower_bound) == (near(0.375), True)
    none = estimate(plan((-1, SONNET)), call(input=10), "v")
    assert none is not None
    assert not none.lower_bound
    # Where both lives cost the same there is nothing to know.
    flat = estimate(plan((-1, make_rates(input=3, output=15))), call(cache_write=100_000), "v")
    assert flat is not None
    assert not flat.lower_bound


def test_a_split_above_the_sum_is_trusted() -> None:
    assert usd(plan((-1, SONNET)), call(cache_write=10, cache_write_1h=100_000)) == near(0.60)


def test_a_tier_without_a_price_has_no_estimate() -> None:
    prices = Plan({**plan((-1, SONNET)).tiers, **plan((-1, make_rates(input=6, output=30)), tier="fast").tiers})
    assert usd(prices, call(input=1_000_000)) == 3.0
    assert usd(prices, call(input=1_000_000, tier="standard")) == 3.0
    assert usd(prices, call(input=1_000_000, tier="standard FAST")) == 6.0
    assert usd(prices, call(input=1_000_000, tier="priority")) is None
    assert usd(prices, call(input=1_000_000, tier="fast geo:us")) is None


@pytest.mark.parametrize(
    ("usage", "tier"),
    [
        ({"service_tier": "standard", "speed": "standard", "inference_geo": "not_available"}, None),
        ({"service_tier": "standard", "speed": "fast"}, "fast"),
        ({"service_tier": "Priority"}, "priority"),
        ({"service_tier": "batch", "inference_geo": "us"}, "batch geo:us"),
        ({"service_tier": None, "speed": 3}, None),
        ({"speed": "fast", "server_tool_use": {"web_search_requests": 2}}, "fast web_search"),
        ({"server_tool_use": {"web_search_requests": 0}}, None),
        ({"server_tool_use": "none"}, None),
        ({"inference_geo": ""}, None),
    ],
)
def test_tier_words_of_a_usage_object(usage: dict[str, Any], tier: str | None) -> None:
    assert tier_of(usage) == tier


def test_the_price_of_the_day_of_the_call_counts() -> None:
    change = 1_787_184_000_000  # a midnight
    old = Period("m", None, change, None, (Bracket(-1, make_rates(input=5, output=0)),))
    new = Period("m", change, None, None, (Bracket(-1, make_rates(input=4, output=0)),))
    for periods in ((old, new), (new, old)):
        prices = Plan({"": periods})
        assert usd(prices, call(input=1_000_000, at=change - 1)) == 5.0
        assert usd(prices, call(input=1_000_000, at=change)) == 4.0
    only = Plan({"": (new,)})
    assert usd(only, call(input=1_000_000, at=change - 1)) is None


def test_hours_of_the_day_may_run_over_midnight() -> None:
    night = plan((-1, make_rates(input=1, output=0)), hours=(16 * 3_600_000, 1_800_000))
    midnight = AT - AT % DAY
    assert usd(night, call(input=1_000_000, at=midnight + 1_799_999)) == 1.0
    assert usd(night, call(input=1_000_000, at=midnight + 1_800_000)) is None
    assert usd(night, call(input=1_000_000, at=midnight + 17 * 3_600_000)) == 1.0


def test_a_sum_of_requests_is_not_taken_for_a_long_one() -> None:
    short = estimate(LONG, call(input=400_000, total_input=400_000, summed=True, peak=100_000), "v")
    assert short is not None
    assert (short.usd, short.lower_bound) == (near(1.2), False)
    mixed = estimate(LONG, call(input=400_000, total_input=400_000, summed=True, peak=300_000), "v")
    assert mixed is not None
    assert (mixed.usd, mixed.lower_bound) == (near(1.2), True)
    unknown = estimate(LONG, call(input=400_000, total_input=400_000, summed=True), "v")
    assert unknown is not None
    assert (unknown.usd, unknown.lower_bound) == (near(1.2), True)
    alone = estimate(LONG, call(input=400_000, total_input=400_000, peak=400_000), "v")
    assert alone is not None
    assert (alone.usd, alone.lower_bound) == (near(2.4), False)


def test_unknown_counters_make_a_lower_bound_and_none_at_all_no_estimate() -> None:
    prices = plan((-1, SONNET))
    nothing = Call(provider="claude", model="m", at=AT)
    assert estimate(prices, nothing, "v") is None
    found = estimate(prices, msgspec.structs.replace(nothing, input=1_000_000, total_input=1_000_000), "v")
    assert found is not None
    assert (found.usd, found.lower_bound) == (3.0, True)  # the output is unknown
    # Input of which nobody says whether it was cached: at the least it was.
    rest = estimate(prices, msgspec.structs.replace(nothing, total_input=1_000_000, output=0), "v")
    assert rest is not None
    assert (rest.usd, rest.lower_bound) == (near(0.3), True)


def test_the_one_unknown_part_is_what_the_total_leaves() -> None:
    prices = plan((-1, SONNET))
    made = call(input=100, cache_read=None, cache_write=0, total_input=1_000_100)
    found = estimate(prices, made, "v")
    assert found is not None
    assert (found.usd, found.lower_bound) == (near(0.3003), False)
    # Cache writes that a provider never reports are none, where the total says so.
    exact = estimate(prices, call(input=100, cache_write=None, total_input=100), "v")
    assert exact is not None
    assert not exact.lower_bound


def test_reasoning_with_a_rate_of_its_own() -> None:
    prices = plan((-1, make_rates(input=1, output=10, reasoning=4)))
    assert usd(prices, call(output=1_000_000, reasoning=500_000)) == 7.0
    found = estimate(prices, call(output=1_000_000), "v")
    assert found is not None
    assert (found.usd, found.lower_bound) == (4.0, True)


@given(st.lists(st.tuples(*[st.integers(0, 10**7)] * 4), min_size=1, max_size=8), st.permutations(range(8)))
def test_flat_prices_of_parts_add_up_in_any_order(rows: list[tuple[int, int, int, int]], order: list[int]) -> None:
    prices = plan((-1, SONNET))
    calls = [call(input=a, output=b, cache_read=c, cache_write=d, cache_write_1h=0) for a, b, c, d in rows]
    whole = call(
        input=sum(row[0] for row in rows),
        output=sum(row[1] for row in rows),
        cache_read=sum(row[2] for row in rows),
        cache_write=sum(row[3] for row in rows),
        cache_write_1h=0,
    )
    parts = [usd(prices, calls[i]) or 0.0 for i in order if i < len(calls)]
    assert sum(parts) == near(usd(prices, whole) or 0.0)


# --- names


@pytest.mark.parametrize(
    ("model", "provider_id", "service", "spelling"),
    [
        ("claude-opus-4-5-20251101", None, "anthropic", "claude-opus-4-5-20251101"),
        ("claude-sonnet-4-5[1m]", None, "anthropic", "claude-sonnet-4-5"),
        ("anthropic/claude-opus-4-5", None, "anthropic", "claude-opus-4-5"),
        ("us.anthropic.claude-haiku-4-5-v1:0", None, "aws", "us.anthropic.claude-haiku-4-5-v1:0"),
        ("arn:aws:bedrock:eu:1:inference-profile/eu.anthropic.claude-x", None, "aws", "eu.anthropic.claude-x"),
        ("claude-sonnet-4-5@20250929", None, "google", "claude-sonnet-4-5@20250929"),
        ("GPT-5.1-Codex", None, "openai", "gpt-5.1-codex"),
        ("gpt-5", "openai", "openai", "gpt-5"),
        ("anthropic/claude-sonnet-4.5", "openrouter", "openrouter", "anthropic/claude-sonnet-4.5"),
        ("openrouter/anthropic/claude-sonnet-4.5", None, "openrouter", "anthropic/claude-sonnet-4.5"),
        ("openai/gpt-oss-120b", "groq", "groq", "openai/gpt-oss-120b"),
    ],
)
def test_names_say_whose_list_they_are_in(model: str, provider_id: str | None, service: str, spelling: str) -> None:
    found = listed(model, provider_id)
    assert found is not None
    assert (found.service, found.spellings[0]) == (service, spelling)


@pytest.mark.parametrize(
    ("model", "provider_id"),
    [(None, None), ("", None), ("<synthetic>", None), ("made-up-model-9", None), ("claude-opus-4-5", "my-proxy")],
)
def test_names_without_a_list(model: str | None, provider_id: str | None) -> None:
    assert listed(model, provider_id) is None


def test_a_compact_date_is_also_tried_with_dashes() -> None:
    assert listed("gpt-5.2-20251211", None) == Name("openai", ("gpt-5.2-20251211", "gpt-5.2-2025-12-11"))


def test_a_name_that_only_begins_like_a_known_one_is_another_model() -> None:
    assert same_model("claude-opus-4-5-20251101", "claude-opus-4-5")
    assert same_model("claude-opus-4-5@latest", "claude-opus-4-5")
    assert same_model("us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5", before=True)
    assert same_model("claude-sonnet-4-20250514", "claude-sonnet-4-2025")
    assert not same_model("claude-sonnet-4-2025-mini", "claude-sonnet-4-2025")
    for other in ("claude-opus-4-50", "claude-opus-4-5-mini", "claude-opus-4-5.1", "my-claude-opus-4-5"):
        assert not same_model(other, "claude-opus-4-5")
        assert not same_model(other, "claude-opus-4-5", before=True)
    assert bare(" Claude-Opus-4-6[1M] ") == "claude-opus-4-6"


def test_searches_of_the_web_make_an_estimate_by_tokens_a_lower_bound() -> None:
    prices = plan((-1, SONNET))
    found = estimate(prices, call(input=1_000_000, output=0, cache_read=0, cache_write=0, tier="web_search"), "v")
    assert found is not None
    assert (found.usd, found.lower_bound) == (3.0, True)
