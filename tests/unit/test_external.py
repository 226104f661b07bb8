"""Links and keys of work elsewhere: every spelling of one thing is one external id."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.history.external import External, parse, pull_url

ISSUE = "https://github.com/o/r/issues/12"


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (ISSUE, External("github:o/r#12", "o/r#12", "github_issue", ISSUE)),
        (f" {ISSUE}/?q=1#issuecomment-5 ", External("github:o/r#12", "o/r#12", "github_issue", ISSUE)),
        ("http://www.github.com/o/r/issues/012", External("github:o/r#12", "o/r#12", "github_issue", ISSUE)),
        (
            "https://github.com/o/r/pull/7/files",
            External("github:o/r#7", "o/r#7", "github_pull", "https://github.com/o/r/pull/7"),
        ),
        ("o/r#12", External("github:o/r#12", "o/r#12", "github", ISSUE)),
        ("github:o/r#12", External("github:o/r#12", "o/r#12", "github", ISSUE)),
        (
            "Big-Org/My.Repo_1#3",
            External(
                "github:big-org/my.repo_1#3",
                "Big-Org/My.Repo_1#3",
                "github",
                "https://github.com/Big-Org/My.Repo_1/issues/3",
            ),
        ),
        ("ABC-123", External("linear:ABC-123", "ABC-123", "linear")),
        ("abc-0123", External("linear:ABC-123", "ABC-123", "linear")),
        (
            "https://linear.app/Acme/issue/ABC-123/fix-the-thing",
            External(
                "linear:acme/ABC-123",
                "ABC-123",
                "linear",
                "https://linear.app/acme/issue/ABC-123",
                ("linear:ABC-123",),
            ),
        ),
    ],
)
def test_spellings(word: str, expected: External) -> None:
    assert parse(word) == expected
    assert parse(expected.external_id).external_id == expected.external_id


@pytest.mark.parametrize(
    "word",
    [
        "https://github.com/o/r/issues/abc",
        "https://github.com/o/r/issues/",
        "https://github.com/o/r",
        "https://github.com.evil.example/o/r/issues/12",
        "https://git.example/o/r/issues/12",
        "https://linear.app/acme/issue/",
        "https://linear.app/acme/project/x",
        "https://",
        "o/r#",
        "o/r#1x",
        "a/b/c#1",
        "ABC-",
        "ABC-１２",  # digits of another script
        "ABC-12-3",
        "Fix the login",
    ],
)
def test_what_is_no_known_link_is_plain(word: str) -> None:
    assert parse(word) == External(word, word, "plain")


@given(st.text(max_size=60))
def test_any_text_is_taken_and_an_external_id_names_itself(word: str) -> None:
    found = parse(word)
    assert parse(found.external_id).external_id == found.external_id


def test_the_page_of_a_pull_request() -> None:
    assert pull_url("github:o/r#7") == "https://github.com/o/r/pull/7"
    assert pull_url("gerrit 12") is None
