"""A snippet shows what was found, and nothing that must not be shown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnlog.ledger.words import words
from turnlog.queries.search import parse
from turnlog.queries.snippet import LENGTH, Snippet, snippet


def marked(found: Snippet) -> list[str]:
    return [found.text[start:end] for start, end in found.marks]


def shown(text: str, query: str, *, redact: bool = True) -> Snippet:
    return snippet(text, parse(query), redact=redact)


def test_a_short_text_is_shown_whole_with_its_matches_marked() -> None:
    found = shown("The Login test\nfails in\tCI, login works", "login")
    assert found.text == "The Login test fails in CI, login works"
    assert marked(found) == ["Login", "login"]


def test_a_long_text_is_cut_around_the_place_where_most_terms_stand() -> None:
    text = "zone " + "filler " * 3_000 + "here the time zone is wrong " + "more " * 3_000
    found = shown(text, "time zone wrong")
    assert found.text.startswith("…")
    assert found.text.endswith("…")
    assert marked(found) == ["time", "zone", "wrong"]
    assert len(found.text) <= LENGTH + 2


def test_phrases_and_prefixes_are_marked_as_they_match() -> None:
    assert marked(shown("time of day, time zone, timeless zones", '"time zone"')) == ["time zone"]
    assert marked(shown("time zones, time zone", '"time zo"*')) == ["time zones", "time zone"]
    assert marked(shown("app/login_test.py", "login_test")) == ["login_test"]
    assert marked(shown("logging a login", "log*")) == ["logging", "login"]


def test_accents_and_wide_characters_are_found_and_marked_where_they_stand() -> None:
    assert marked(shown("die GRÖSSE und die größe", "große OR grosse")) == ["GRÖSSE", "größe"]
    assert marked(shown("🙂🙂 日本語 テスト", "テスト")) == ["テスト"]
    assert marked(shown("x " * 12_000 + "café au lait", "cafe")) == ["café"]  # only the words tell, not the letters


@pytest.mark.parametrize("padding", [0, 500, 40_000])
def test_secrets_beside_a_match_are_hidden_and_a_match_in_one_too(padding: int) -> None:
    text = f"{'pad ' * padding}deploy with api_key=sk-proj-1234567890abcdefghij now{' pad' * padding}"
    found = shown(text, "deploy")
    assert "1234567890" not in found.text
    assert "[redacted]" in found.text
    assert marked(found) == ["deploy"]
    hidden = shown(text, "1234567890abcdefghij")
    assert "1234567890" not in hidden.text
    assert hidden.marks == ()
    assert "1234567890abcdefghij" in shown(text, "1234567890abcdefghij", redact=False).text


def test_a_secret_is_known_by_the_beginning_of_its_line() -> None:
    text = "filler\n" * 4_000 + "Cookie: " + "a=b; " * 100 + "needle=1; more=2\n" + "filler\n" * 4_000
    found = shown(text, "needle")
    assert "needle" not in found.text


def test_terminal_escapes_are_not_shown() -> None:
    found = shown("\x1b[31mred\x1b[0m alert \x1b]0;title\x07 \u202eend", "alert")
    assert found.text == "red alert end"
    assert marked(shown("hay " * 9_000 + "\x1b[31mFAILED\x1b[0m", "failed")) == ["FAILED"]


WORDS = st.text(alphabet="abcdeéöß日1_-./\n\t ", min_size=1, max_size=400)


@given(WORDS, st.data())
def test_a_snippet_contains_a_match(text: str, data: st.DataObject) -> None:
    found = words(text)
    if not found:
        return
    word = data.draw(st.sampled_from(found))
    given_snippet = shown(text, f'"{text[word.start : word.end]}"', redact=False)
    assert word.folded in {each.folded for each in words(given_snippet.text)}
    assert given_snippet.marks
    for start, end in given_snippet.marks:
        assert [each.folded for each in words(given_snippet.text[start:end])] == [word.folded]


@settings(max_examples=40)
@given(st.integers(0, 3_000), st.integers(0, 3_000), st.sampled_from(["needle", "n\u00e9edle", "NEEDLE"]))
def test_a_snippet_of_a_long_text_contains_the_match(before: int, after: int, needle: str) -> None:
    text = "some hay. " * before + needle + " stack" * after
    assert [word.lower().replace("\u00e9", "e") for word in marked(shown(text, "needle"))] == ["needle"]
