"""When two mentions of a call's id are one call."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnlog.usage.identity import apart, marked, unmarked

MENTIONS = st.lists(
    st.tuples(st.sampled_from([None, "r1", "r2", "r3"]), st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 9)),
    max_size=8,
)


def told_apart(*mentions: tuple[str | None, str, int]) -> list[list[int]]:
    return sorted(apart(mentions))


def test_two_requests_with_other_words_are_two_calls() -> None:
    assert told_apart(("r1", "a", 0), ("r2", "b", 0)) == [[0], [1]]


def test_two_requests_with_the_same_words_are_one_call() -> None:
    assert told_apart(("r1", "a", 0), ("r2", "a", 0)) == [[0, 1]]


def test_a_request_whose_words_grew_is_one_call() -> None:
    assert told_apart(("r1", "a", 0), ("r1", "b", 0)) == [[0, 1]]


def test_a_mention_without_a_request_is_the_same_call_whatever_it_tells() -> None:
    assert told_apart((None, "a", 0), ("r1", "b", 0)) == [[0, 1]]
    assert told_apart((None, "a", 0), (None, "b", 0)) == [[0, 1]]


def test_a_mention_without_a_request_is_the_call_of_its_words_else_the_best() -> None:
    assert told_apart((None, "b", 0), ("r1", "a", 1), ("r2", "b", 2)) == [[0, 2], [1]]
    assert told_apart((None, "c", 0), ("r1", "a", 2), ("r2", "b", 1)) == [[0, 2], [1]]


@given(MENTIONS, st.randoms(use_true_random=False))
def test_the_order_of_mentions_does_not_matter(mentions: list[tuple[str | None, str, int]], rng: object) -> None:
    ranked = [(request, told, (rank, request or "", told)) for request, told, rank in mentions]
    mixed = [*ranked]
    rng.shuffle(mixed)  # type: ignore[attr-defined]

    def groups(several: list[tuple[str | None, str, tuple[int, str, str]]]) -> list[list[str]]:
        return sorted(sorted(map(repr, (several[place] for place in places))) for places in apart(several))

    assert groups(ranked) == groups(mixed)


@given(st.text(min_size=1), st.none() | st.text(min_size=1), st.integers())
def test_marks_of_an_identity_can_be_taken_off(call: str, request: str | None, told: int) -> None:
    identity = marked(f"claude:{call}", request, told)
    name, mark, _ = unmarked(identity)
    assert (name, mark is None) == (f"claude:{call}", request is None)


def test_an_identity_that_only_looks_marked_is_whole() -> None:
    assert unmarked("claude:m~1") == ("claude:m~1", None, None)
    assert unmarked("codex:a:b:0123456789ab") == ("codex:a:b:0123456789ab", None, None)
