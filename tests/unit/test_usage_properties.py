"""Properties of the reducer that hold for any receipts (semantics appendix E, promises 2 and 5)."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.usage_cases import (
    Rows,
    attempt_started,
    claude_usage,
    claude_wire,
    codex,
    counters,
    file_call,
    observed_session,
    opencode,
    recorded,
    tokens,
)
from turnlog.model import Event, EventKind, Usage
from turnlog.usage import Stream, reduce_usage
from turnlog.usage.streams import SUMS

UNHURRIED = settings(deadline=None)  # a loaded machine is no failure
SMALL = st.integers(0, 60)
TURNS = st.sampled_from(["a", "b"])
THREADS = st.sampled_from(["one", "two"])

CODEX = st.builds(
    lambda total, last, write: {"total": counters(total[: 4 + write]), "last": counters(last[: 4 + write])},
    st.tuples(SMALL, SMALL, SMALL, SMALL, SMALL),
    st.tuples(SMALL, SMALL, SMALL, SMALL, SMALL),
    st.integers(0, 1),
)
CALL_OF_CODEX = st.builds(
    lambda call, fresh, output: file_call("codex", call, {"input_tokens": fresh, "output_tokens": output}),
    st.sampled_from(["x", "y"]),
    SMALL,
    SMALL,
)
MESSAGE = st.builds(
    lambda name, fresh, output, reasoning, version: opencode(name, tokens(fresh, output, reasoning=reasoning), version),
    st.sampled_from(["x", "y", ""]),
    SMALL,
    SMALL,
    st.integers(0, 3),
    st.sampled_from([None, "1.1.65", "1.18.33"]),
)
RESULT = st.builds(
    lambda usage, cost, stopped, name: claude_wire(claude_usage(*usage), cost, interrupted=stopped, result_id=name),
    st.tuples(SMALL, SMALL, SMALL, SMALL),
    st.none() | st.integers(0, 100).map(lambda cents: cents / 100),
    st.booleans(),
    st.sampled_from(["r", "s"]),
)
CALL_OF_CLAUDE = st.builds(
    lambda call, usage: file_call("claude", call, claude_usage(*usage)),
    st.sampled_from(["x", "y"]),
    st.tuples(SMALL, SMALL, SMALL, SMALL),
)
BROKEN = st.sampled_from([None, {}, {"total": 5}, {"provider": "opencode", "message": None}, {"provider": "claude"}])
PAYLOADS: dict[str, st.SearchStrategy[Any]] = {
    "codex": CODEX | CALL_OF_CODEX | BROKEN,
    "opencode": MESSAGE | BROKEN,
    "claude": RESULT | CALL_OF_CLAUDE | BROKEN,
}
RECORDED = st.builds(
    lambda stream, turn, attempt, provider, final, usage: recorded(
        stream, turn=turn, attempt=attempt, provider=provider, final=final, **usage
    ),
    st.sampled_from(["r1", "r2"]),
    TURNS,
    st.sampled_from(["attempt-1", "attempt-2"]),
    st.sampled_from(["codex", "opencode", "claude"]),
    st.booleans(),
    st.fixed_dictionaries({}, optional={"input_tokens": SMALL, "output_tokens": SMALL, "cost_usd": SMALL}),
)
OBSERVED = st.one_of(
    RECORDED,
    st.builds(observed_session, THREADS, st.sampled_from(["attempt-1", "attempt-2"])),
    st.just(attempt_started("attempt-1")),
    st.just({"type": "telepathy"}),
)


@st.composite
def inputs(draw: st.DrawFn) -> Rows:
    """The rows of some input: native turns of several kinds, with or without starts, and recorder evidence."""
    rows = Rows()
    steps = draw(st.lists(st.tuples(THREADS, TURNS, st.sampled_from(sorted(PAYLOADS))), max_size=5))
    for thread, turn, provider in dict.fromkeys(steps):
        if draw(st.booleans()):
            rows.start(turn, thread)
        for payload in draw(st.lists(PAYLOADS[provider], max_size=4)):
            rows.usage(payload, turn, thread)
        if draw(st.booleans()):
            rows.done(turn, thread)
    for event in draw(st.lists(OBSERVED, max_size=6)):
        rows.line(event)
    return rows


def without_rows(streams: tuple[Stream, ...]) -> list[Stream]:
    """Streams without the ledger's row numbers, which do depend on the order of recording."""
    return [
        msgspec.structs.replace(
            stream,
            seqs=(),
            gaps=tuple(msgspec.structs.replace(gap, seq=None) for gap in stream.gaps),
        )
        for stream in streams
    ]


@UNHURRIED
@given(inputs(), st.randoms(use_true_random=False))
def test_order_of_rows_and_repetition_do_not_matter(rows: Rows, random: Any) -> None:
    expected = reduce_usage(rows)
    shuffled = [*rows, *rows]
    random.shuffle(shuffled)
    assert reduce_usage(shuffled) == expected


@UNHURRIED
@given(inputs(), st.randoms(use_true_random=False))
def test_order_of_recording_observations_does_not_matter(rows: Rows, random: Any) -> None:
    """E1: observations retained late or in another order give the same streams."""
    expected = reduce_usage(rows)
    observed = [row for row in rows if row.kind is EventKind.OBSERVED]
    random.shuffle(observed)
    moved: list[Event] = [row for row in rows if row.kind is not EventKind.OBSERVED]
    moved += [msgspec.structs.replace(row, seq=1000 + place) for place, row in enumerate(observed)]
    found = reduce_usage(moved)
    assert without_rows(found.streams) == without_rows(expected.streams)
    assert found.first_attempt_at == expected.first_attempt_at
    assert [gap.kind for gap in found.loose_gaps] == [gap.kind for gap in expected.loose_gaps]


@UNHURRIED
@given(inputs())
def test_usage_is_coherent(rows: Rows) -> None:
    """E8, D6, and no counter is ever negative."""
    found = reduce_usage(rows)
    usage = found.usage
    assert usage.gaps == len(usage.gap_list)
    assert usage.final_streams <= usage.streams == len(found.streams)
    for stream in found.streams:
        starts = [gap for gap in stream.gaps if gap.kind == "start_unknown"]
        assert len(starts) <= 1
        for name in (*SUMS, "peak", "window"):
            value = stream.counter(name)
            assert value is None or value >= 0
    assert len({stream.id for stream in found.streams}) == len(found.streams)


def told(usage: Usage, name: str) -> bool:
    """Whether a gap says that a better witness lowered this counter."""
    return any(gap.kind == "witness_mismatch" and gap.counter == name for gap in usage.gap_list)


FIELDS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "total_input": "total_input_tokens",
    "reasoning": "reasoning_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
}


def never_lower(before: Usage, after: Usage, *, in_silence: bool = False) -> None:
    """No total falls; with ``in_silence`` one may fall if a gap tells that another witness counts now."""
    for name, field in FIELDS.items():
        was, now = getattr(before, field), getattr(after, field)
        kept = was is None or (now is not None and now >= was)
        assert kept or (in_silence and told(after, name)), (name, was, now)


@UNHURRIED
@given(st.lists(CODEX, min_size=1, max_size=6), st.booleans(), st.booleans(), st.lists(SMALL, max_size=3))
def test_another_snapshot_of_a_codex_turn_never_lowers_a_total(
    receipts: list[Any], start: bool, partial: bool, before: list[int]
) -> None:
    rows = Rows()
    if before:
        rows.start("before", "one")
        for total in before:
            rows.usage(codex((total, 0, 0, 0), (total, 0, 0, 0)), "before", "one")
        rows.done("before", "one")
    if start:
        rows.start("a", "one")
    rows.line(observed_session("one"))
    if partial:
        rows.line(recorded(turn="a", input_tokens=5, output_tokens=1))
    usage = reduce_usage(rows).usage
    for receipt in receipts:
        rows.usage(receipt, "a", "one")
        more = reduce_usage(rows).usage
        never_lower(usage, more)
        usage = more


@UNHURRIED
@given(st.lists(MESSAGE, min_size=1, max_size=6), st.booleans())
def test_another_snapshot_of_a_message_never_lowers_a_total(receipts: list[Any], final: bool) -> None:
    rows = Rows()
    rows.start()
    rows.seen(observed_session(), recorded(provider="opencode", final=final, input_tokens=9))
    usage = reduce_usage(rows).usage
    for receipt in receipts:
        rows.usage(receipt)
        more = reduce_usage(rows).usage
        never_lower(usage, more, in_silence=True)
        usage = more


@UNHURRIED
@given(st.lists(RESULT | CALL_OF_CLAUDE, min_size=1, max_size=6))
def test_another_claude_receipt_never_lowers_a_total_in_silence(receipts: list[Any]) -> None:
    rows = Rows()
    rows.start()
    usage = reduce_usage(rows).usage
    for receipt in receipts:
        rows.usage(receipt)
        more = reduce_usage(rows).usage
        never_lower(usage, more, in_silence=True)
        usage = more


@UNHURRIED
@given(st.lists(CODEX, max_size=3), st.lists(CODEX, min_size=1, max_size=3), st.lists(MESSAGE, max_size=3))
def test_other_turns_do_not_change_a_turn(first: list[Any], second: list[Any], elsewhere: list[Any]) -> None:
    """E4: but for a predecessor's baseline, a turn's numbers are its own."""
    rows = Rows()
    rows.start("a")
    for receipt in first:
        rows.usage(receipt, "a")
    rows.start("other", "elsewhere")
    for receipt in elsewhere:
        rows.usage(receipt, "other", "elsewhere")
    rows.start("b")  # its predecessor never completed, so it gives no baseline
    for receipt in second:
        rows.usage(receipt, "b")
    alone = [row for row in rows if row.turn == "b"]
    (mine,) = reduce_usage(alone).streams
    found = next(stream for stream in reduce_usage(rows).streams if stream.turn == "b")
    kept = tuple(gap for gap in found.gaps if gap.kind != "missing_counter")
    plain = tuple(gap for gap in mine.gaps if gap.kind != "missing_counter")
    assert msgspec.structs.replace(found, gaps=kept) == msgspec.structs.replace(mine, gaps=plain)


STEP = st.tuples(SMALL, SMALL, SMALL, SMALL)


@UNHURRIED
@given(st.lists(st.lists(STEP, min_size=1, max_size=4), min_size=1, max_size=5), st.integers(0, 4))
def test_codex_turns_telescope_to_the_last_lifetime_total(turns: list[list[tuple[int, ...]]], split: int) -> None:
    """E7, and D5: it holds as well when the turns belong to two inputs."""
    rows = Rows()
    total = (0, 0, 0, 0)
    for number, steps in enumerate(turns):
        turn = f"turn-{number}"
        rows.start(turn)
        for fresh, output, cached, reasoning in steps:
            step = (fresh + cached, output + reasoning, cached, reasoning)
            total = tuple(held + more for held, more in zip(total, step, strict=True))  # type: ignore[assignment]
            rows.usage(codex(total, step), turn)
        rows.done(turn)
    whole = reduce_usage(rows).usage
    assert (whole.total_input_tokens, whole.output_tokens) == (total[0], total[1])
    assert (whole.cache_read_tokens, whole.reasoning_tokens, whole.gaps) == (total[2], total[3], 0)
    assert (whole.input_tokens or 0) + (whole.cache_read_tokens or 0) == whole.total_input_tokens

    at = min(split, len(turns) - 1)
    border = f"turn-{at}"
    early = [row for row in rows if row.turn is not None and int(row.turn.removeprefix("turn-")) < at]
    late = [row for row in rows if row not in early]
    before = [row for row in early if row.turn == f"turn-{at - 1}"]
    first, second = reduce_usage(early).usage, reduce_usage(late, predecessors={("thread", border): before}).usage
    assert (first.total_input_tokens or 0) + (second.total_input_tokens or 0) == total[0]
    assert second.gap_list == ()
