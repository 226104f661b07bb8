"""Price books: the bundled data against its own library, files of a person's own, what is kept between runs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from turnlog.errors import InvalidError, UnavailableError
from turnlog.queries.pricelist import services
from turnlog.queries.pricetable import PACKAGED
from turnlog.queries.pricing import made, open_book
from turnlog.usage.prices import Book, Call, Estimate

AT = 1_790_000_000_000
DAY = 86_400_000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TURNLOG_PRICES", raising=False)
    return tmp_path / "cache"


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-12, abs=1e-12)


def call(model: str | None, provider: str = "claude", /, **counters: Any) -> Call:
    zeros: dict[str, Any] = {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0, "cache_write_1h": 0}
    return Call(provider=provider, model=model, **{"at": AT, **zeros, **counters})


def usd(book: Book, made: Call) -> float | None:
    found = book.estimate(made)
    return None if found is None else found.usd


# --- the bundled data

SAMPLES = [
    ("anthropic", "claude-opus-4-5-20251101"),
    ("anthropic", "claude-opus-4-1-20250805"),
    ("anthropic", "claude-sonnet-4-5-20250929"),
    ("anthropic", "claude-sonnet-4-20250514"),
    ("anthropic", "claude-haiku-4-5-20251001"),
    ("anthropic", "claude-3-7-sonnet-20250219"),
    ("anthropic", "claude-3-5-haiku-20241022"),
    ("anthropic", "claude-opus-4-6"),
    ("openai", "gpt-5"),
    ("openai", "gpt-5-codex"),
    ("openai", "gpt-5-mini"),
    ("openai", "gpt-5.1-codex-max"),
    ("openai", "gpt-5.2-codex"),
    ("openai", "gpt-5.4"),
    ("openai", "o4-mini"),
    ("openai", "codex-mini-latest"),
    ("google", "gemini-2.5-pro"),
    ("google", "gemini-2.5-flash"),
    ("x-ai", "grok-code-fast-1"),
    ("deepseek", "deepseek-chat"),
    ("moonshotai", "kimi-k2-thinking"),
    ("openrouter", "anthropic/claude-sonnet-4.5"),
]


@pytest.mark.parametrize(("service", "model"), SAMPLES)
@pytest.mark.parametrize("fresh", [1_234, 150_000, 250_000, 300_000])
@pytest.mark.parametrize("day", ["2024-11-05", "2025-10-01", "2026-08-18", "2026-11-20"])
def test_equal_to_the_library_that_the_data_is_from(service: str, model: str, fresh: int, day: str) -> None:
    from genai_prices import Usage, calc_price

    moment = datetime.fromisoformat(f"{day}T13:14:15+00:00").astimezone(UTC)
    # Hour-long writes apart: not every list names them, and there the library takes the other rate.
    parts = {"cache_read": 54_321, "cache_write": 7_777}
    total = fresh + sum(parts.values())
    made = call(model, provider_id=service, at=int(moment.timestamp() * 1000), input=fresh, output=4_321, **parts)
    ours = open_book().estimate(made)
    theirs = calc_price(
        Usage(input_tokens=total, output_tokens=4_321, cache_read_tokens=54_321, cache_write_tokens=7_777),
        model,
        provider_id=service,
        genai_request_timestamp=moment,
    )
    assert ours is not None
    if service == "anthropic" and "cache_write_mtok" not in theirs.model_price.__dict__:
        pytest.skip("the library has no rate for cache writes of this model")
    assert ours.usd == near(float(theirs.total_price))
    assert ours.model == f"{service}/{theirs.model.id}"


@pytest.mark.parametrize("model", ["claude-opus-4-5-20251101", "claude-sonnet-4-5-20250929", "claude-haiku-4-5"])
def test_hour_long_cache_writes_are_equal_to_the_library(model: str) -> None:
    from genai_prices import Usage, calc_price

    ours = open_book().estimate(call(model, input=10, output=20, cache_write=100_000, cache_write_1h=60_000))
    theirs = calc_price(
        Usage(input_tokens=100_010, output_tokens=20, cache_write_tokens=100_000, cache_write_1h_tokens=60_000),
        model,
        genai_request_timestamp=datetime.fromtimestamp(AT / 1000, UTC),
    )
    assert ours is not None
    assert ours.usd == near(float(theirs.total_price))


def test_long_requests_hour_long_writes_and_fast_tiers_of_the_bundled_data() -> None:
    book = open_book()
    assert usd(book, call("claude-sonnet-4-5", input=300_000)) == near(1.80)
    assert usd(book, call("claude-sonnet-4-5", cache_write=100_000, cache_write_1h=100_000)) == near(0.60)
    standard, priority = (
        usd(book, call("gpt-4.1", "codex", at=AT + 90 * DAY, input=1_000_000, tier=tier)) for tier in (None, "priority")
    )
    assert (standard, priority) == (near(2.0), near(3.5))
    assert usd(book, call("claude-sonnet-4-5", input=1_000, tier="priority")) is None
    assert usd(book, call("claude-opus-4-6", input=1_000, tier="geo:us")) is None


def test_a_tier_whose_prices_begin_later_is_unpriced_before() -> None:
    book = open_book()
    before = int(datetime(2026, 10, 13, 23, 59, tzinfo=UTC).timestamp() * 1000)
    made = {"input": 1_000_000, "tier": "batch"}
    assert usd(book, call("claude-opus-4-5", at=before, **made)) is None
    assert usd(book, call("claude-opus-4-5", at=before + DAY, **made)) == near(2.5)


def test_unknown_models_have_no_estimate() -> None:
    book = open_book()
    for model in (
        None,
        "made-up-model-9",
        "<synthetic>",
        "claude-opus-4-50",
        "claude-sonnet-4-5-mini",
        "gpt-5-codex-9",
    ):
        assert book.estimate(call(model, input=100_000)) is None
    assert book.estimate(call("claude-sonnet-4-5", "opencode", input=100, provider_id="a-proxy-of-ours")) is None


def test_an_estimate_names_the_entry_and_the_data() -> None:
    book = open_book()
    found = book.estimate(call("us.anthropic.claude-haiku-4-5-20251001-v1:0", input=1_000_000))
    assert found == Estimate(
        usd=near(1.1),
        model="aws/regional.anthropic.claude-haiku-4-5-20251001-v1:0",
        version=book.version,
    )
    kind, release, digest, mapping = book.version.split(" ")
    assert (kind, len(digest), mapping[0]) == ("genai-prices", 12, "m")
    assert release[0].isdigit()
    assert book.source == "genai-prices"


ASK = """
import sys
from pathlib import Path
from turnlog.queries import pricetable
from turnlog.queries.pricing import open_book
from turnlog.usage.prices import Call
pricetable.PACKAGED = Path(sys.argv[1])
book = open_book()
asked = [Call(provider="claude", model=m, at=1790000000000, input=10**6, output=0, cache_read=0, cache_write=0)
         for m in sys.argv[2:]]
print([each and each.usd for each in map(book.estimate, asked)], "genai_prices" in sys.modules)
"""


def ask(packaged: Path, *models: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(packaged), *models], capture_output=True, check=True, text=True, timeout=60
    )
    return done.stdout.strip()


def test_the_lists_that_are_brought_are_those_of_the_library() -> None:
    text = made()
    assert PACKAGED.read_bytes() == text, "run tools/make_pricetable.py"
    lists = dict(services())
    assert sum(len(each.entries) for each in lists.values()) > 2_000
    assert lists["anthropic"].entries
    assert "anthropic" in lists["aws"].then or lists["aws"].entries


def test_the_library_is_never_imported_for_the_release_whose_lists_are_brought(cache: Path) -> None:
    assert ask(PACKAGED, "claude-opus-4-5", "claude-brand-new-9", "gpt-5") == "[5.0, None, 1.25] False"
    assert not (cache / "turnlog").exists()


def test_the_lists_of_another_release_are_made_once(cache: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_bytes(PACKAGED.read_bytes().replace(b'"digest":"', b'"digest":"0', 1))
    assert ask(other, "claude-opus-4-5", "claude-brand-new-9") == "[5.0, None] True"
    assert ask(other, "claude-haiku-4-5", "nobodys-model", "claude-opus-4-5") == "[1.0, None, 5.0] False"


@pytest.mark.parametrize("kept", [b"", b"{", b'{"digest":1,"services":{}}', b"\xff\xfe", None])
def test_what_was_kept_and_is_damaged_is_made_again(cache: Path, tmp_path: Path, kept: bytes | None) -> None:
    nowhere = tmp_path / "nowhere.json"
    assert ask(nowhere, "claude-opus-4-5") == "[5.0] True"
    (path,) = (cache / "turnlog").iterdir()
    good = path.read_bytes()
    # The last: whole, but for a list that is none.
    path.write_bytes(good.replace(b'"anthropic":{"then":[', b'"anthropic":{"then":[1,', 1) if kept is None else kept)
    assert path.read_bytes() != good
    assert ask(nowhere, "claude-opus-4-5") == "[5.0] True"
    assert path.read_bytes() == good


def test_a_cache_folder_that_cannot_be_written_changes_nothing(cache: Path) -> None:
    cache.write_text("a file where a folder should be")
    assert usd(open_book(), call("claude-opus-4-5", input=1_000_000)) == 5.0


def test_threads_that_ask_at_once_get_the_same() -> None:
    book, start = open_book(), threading.Barrier(8)
    found: list[float | None] = []

    def work() -> None:
        start.wait(30)
        found.extend(usd(book, call(model, input=1_000_000)) for model in ("claude-opus-4-5", "claude-haiku-4-5"))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, found)) == ["1.0"] * 8 + ["5.0"] * 8


# --- a person's own file

OWN = """
[[price]]
match = "claude-sonnet-4-5"
until = 2026-08-20
input = 5.0
output = 25

[[price]]
match = "claude-sonnet-4-5"
from = 2026-08-21
input = 4.0
output = 20.0

[[price]]
match = ["house-model*", "other"]
provider = "opencode"
input = 3
output = 15
cache_read = 0.3
cache_write_5m = 1
cache_write_1h = 2
[[price.tiers]]
above = 200_000
input = 6
output = 22.5

[[price]]
match = "claude-sonnet-4-5"
tier = "fast"
input = 30
output = 150
"""


def own(tmp_path: Path, text: str = OWN, name: str = "prices.toml") -> Book:
    (tmp_path / name).write_text(text)
    return open_book(tmp_path / name)


def at(day: str) -> int:
    return int(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp() * 1000)


def test_a_price_that_changes_on_a_day_counts_by_the_day_of_the_call(tmp_path: Path) -> None:
    book = own(tmp_path)
    made = {"input": 1_000_000}
    assert usd(book, call("claude-sonnet-4-5", at=at("2026-08-21") - 1, **made)) == 5.0
    assert usd(book, call("claude-sonnet-4-5", at=at("2026-08-21"), **made)) == 4.0


def test_a_file_has_tiers_and_speeds_of_its_own(tmp_path: Path) -> None:
    book = own(tmp_path)
    assert usd(book, call("house-model-2", "opencode", input=300_000)) == near(1.80)
    assert usd(book, call("house-model-2", "opencode", input=200_000)) == near(0.60)
    long = call("other", "opencode", input=190_000, cache_read=20_000, cache_write=10_000, cache_write_1h=4_000)
    assert usd(book, long) == near((190_000 * 6 + 20_000 * 0.3 + 6_000 + 4_000 * 2) / 1e6)
    assert usd(book, call("claude-sonnet-4-5", input=1_000_000, tier="fast")) == 30.0
    assert usd(book, call("claude-sonnet-4-5", input=1_000_000, tier="batch")) is None


def test_a_file_stands_alone_and_names_itself(tmp_path: Path) -> None:
    book = own(tmp_path)
    assert book.estimate(call("claude-opus-4-5", input=1_000_000)) is None
    assert usd(book, call("house-model-2", "claude", input=1_000)) is None  # of another program
    assert book.source == str(tmp_path / "prices.toml")
    name, digest = book.version.split(" ")
    assert (name, len(digest)) == ("prices.toml", 12)
    assert own(tmp_path, OWN + "\n").version != book.version


def test_claudes_cache_writes_follow_from_the_input_rate_where_a_file_leaves_them_out(tmp_path: Path) -> None:
    book = own(tmp_path, '[[price]]\nmatch = "*"\ninput = 3\noutput = 15\n')
    assert usd(book, call("claude-x", cache_write=100_000, cache_write_1h=100_000)) == near(0.60)
    assert usd(book, call("claude-x", cache_write=100_000)) == near(0.375)
    assert usd(book, call("gpt-x", "codex", cache_write=100_000)) == near(0.30)


def test_spellings_of_a_model_find_its_entry(tmp_path: Path) -> None:
    book = own(tmp_path)
    for spelled in (
        "claude-sonnet-4-5-20250929",
        "Claude-Sonnet-4-5[1m]",
        "anthropic/claude-sonnet-4-5",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "claude-sonnet-4-5@20250929",
    ):
        found = book.estimate(call(spelled, input=1_000_000))
        assert found is not None, spelled
        assert (found.usd, found.model) == (4.0, "claude-sonnet-4-5")
    assert book.estimate(call("claude-sonnet-4-5-mini", input=1_000_000)) is None


def test_of_entries_that_fit_the_first_counts(tmp_path: Path) -> None:
    text = (
        '[[price]]\nmatch = "gpt-5"\ninput = 1\noutput = 2\n[[price]]\nmatch = "gpt-*"\ninput = 9\noutput = 9\n'
        '[[price]]\nmatch = "gpt-5"\ninput = 7\noutput = 7\n'
    )
    book = own(tmp_path, text)
    assert usd(book, call("gpt-5", "codex", input=1_000_000)) == 1.0
    assert usd(book, call("gpt-6", "codex", input=1_000_000)) == 9.0


def test_a_file_may_be_json(tmp_path: Path) -> None:
    entry = {"match": "m", "input": 2, "output": 3, "from": "2026-01-01", "tiers": [{"above": 10, "output": 4}]}
    book = own(tmp_path, json.dumps({"price": [entry]}), "p.json")
    assert usd(book, call("m", input=20, output=1_000_000)) == near(4.00004)
    assert usd(book, call("m", input=20, at=at("2025-12-31"))) is None


def test_the_environment_may_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own(tmp_path)
    monkeypatch.setenv("TURNLOG_PRICES", str(tmp_path / "prices.toml"))
    assert open_book().source == str(tmp_path / "prices.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "missing required field `price`"),
        ("price = []", "length >= 1"),
        ("[[price]]\nmatch = 'm'\ninput = 1\n", "missing required field `output` - at `$.price[0]`"),
        ("[[price]]\nmatch = 'm'\ninput = -1\noutput = 1\n", "`float` >= 0"),
        ("[[price]]\nmatch = 'm'\ninput = 'x'\noutput = 1\n", "$.price[0].input"),
        ("[[price]]\nmatch = 'm'\ninput = 1\noutput = 1\ncache_raed = 1\n", "unknown field `cache_raed`"),
        ("[[price]]\nmatch = 'm'\ninput = nan\noutput = 1\n", "`float` >= 0"),
        ("[[price]]\nmatch = ''\ninput = 1\noutput = 1\n", "price 1 (): match names no model"),
        ("[[price]]\nmatch = 'm'\ninput = 1\noutput = 1\nfrom = 2026-02-01\nuntil = 2026-01-01", "is after until"),
        ("[[price]\n", "not TOML"),
        ("[[price]]\nmatch = 'm'\ninput = 1\noutput = 1\n" + "[[price.tiers]]\nabove = 5\n" * 2, "two tiers begin"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidError) as caught:
        own(tmp_path, text)
    assert said in caught.value.message
    assert caught.value.message.startswith("prices in prices.toml: ")
    assert caught.value.hint == "an entry is [[price]] with match, input and output in USD per million tokens"


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="No such file"):
        open_book(tmp_path / "none.toml")
    (tmp_path / "p.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidError, match="not JSON"):
        open_book(tmp_path / "p.json")
