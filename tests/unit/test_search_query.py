"""What a query means, however it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.errors import InvalidError
from turnlog.ledger.search import Group, Term
from turnlog.queries.search import MOST_WORDS, parse, role_numbers


def term(text: str, *, prefix: bool = False) -> Term:
    return Term(tuple(text.split()), prefix)


def every(*terms: Term, none: tuple[Term, ...] = ()) -> Group:
    return Group(terms, none)


CASES = {
    "login": [every(term("login"))],
    "Login  TEST": [every(term("login"), term("test"))],
    '"time zone" utc': [every(term("time zone"), term("utc"))],
    "log*": [every(term("log", prefix=True))],
    '"time zo"*': [every(term("time zo", prefix=True))],
    "login -test": [every(term("login"), none=(term("test"),))],
    'login -"time zone"': [every(term("login"), none=(term("time zone"),))],
    "login NOT test": [every(term("login"), none=(term("test"),))],
    "login AND test": [every(term("login"), term("test"))],
    "login OR test db": [every(term("login")), every(term("test"), term("db"))],
    "OR login OR": [every(term("login"))],
    "login login": [every(term("login"))],
    "src/app.py:12": [every(term("src app py 12"))],
    "C++": [every(term("c"))],
    "--verbose run": [every(term("verbose"), term("run"))],
    "foo ++ bar": [every(term("foo"), term("bar"))],
    "a+*": [every(term("a"))],
    '"unclosed phrase': [every(term("unclosed phrase"))],
    "text:word^2 NEAR(a b)": [every(term("text word 2"), term("near a"), term("b"))],
    "Größe": [every(term("große"))],
    "AND": [every(term("and"))],
    "or": [every(term("or"))],
    "OR NOT": [every(term("or"), term("not"))],
    "naïve\x00test": [every(term("naive test"))],
    "日本*": [every(term("日本", prefix=True))],
}


@pytest.mark.parametrize("query", CASES)
def test_query(query: str) -> None:
    assert list(parse(query)) == CASES[query]


@pytest.mark.parametrize("query", ["", "   ", "-login", "++ --", '""', "NOT login", '-"a b" -c', "*"])
def test_a_query_without_a_word_to_look_for_is_refused(query: str) -> None:
    with pytest.raises(InvalidError, match="nothing to search for"):
        parse(query)


def test_a_query_of_too_many_words_is_refused() -> None:
    assert len(parse(" ".join(f"w{number}" for number in range(MOST_WORDS)))[0].every) == MOST_WORDS
    with pytest.raises(InvalidError, match="too many"):
        parse(" ".join(f"w{number}" for number in range(MOST_WORDS + 1)))


@given(st.text(max_size=80))
def test_any_text_is_a_query_or_is_refused_in_words(query: str) -> None:
    try:
        groups = parse(query)
    except InvalidError as error:
        assert error.hint  # noqa: PT017 - either is right
        return
    for group in groups:
        assert group.every
        for each in (*group.every, *group.none):
            assert each.words
            assert not set("".join(each.words)) & set("\"'()*:^-+ \x00\n")


def test_roles() -> None:
    assert role_numbers(None) is None
    assert role_numbers("user") == (0,)
    assert role_numbers("tool") == (3, 4)
    assert role_numbers("tool_output") == (4,)
    with pytest.raises(InvalidError, match="no such role"):
        role_numbers("robot")
