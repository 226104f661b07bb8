"""Kinds of faults of importing Codex's rollouts, each through the command line to the sums that come out."""

from __future__ import annotations

import json
from typing import Any

import apsw
import pytest
import zstandard

from tests.harness.codex_rollouts import CHILD, PARENT, T0, Rollout, stamp, usage, uuid7
from tests.surfaces.import_history import PROBLEMS, History, kinds, problems

ONE, TWO = f"codex:{PARENT}", f"codex:{CHILD}"
OTHER = uuid7(T0 + 1, 3)
DAY = 86_400_000


def old(thread: str, *totals: int, copied: tuple[int, ...] = (), **meta: Any) -> Rollout:
    """A rollout without turn ids: totals that were copied from its parent, then its own."""
    made = Rollout(thread, cli_version="0.80.0", **meta)
    if copied:
        made.meta(PARENT)
    last = 0
    for total in copied:
        made.prompt("copied").context().count(total, total - last)
        last = total
    for total in totals:
        made.prompt("own").context().count(total, total - last)
        last = total
    return made


def turned(thread: str, *turns: tuple[str, int, int], **meta: Any) -> Rollout:
    """A rollout of turns: (id, running total, what the last response used)."""
    made = Rollout(thread, **meta)
    for turn, total, last in turns:
        made.started(turn).context(turn_id=turn).prompt("go").count(total, last).said("ok").ended(turn)
    return made


# --- running totals


def test_totals_told_again_are_no_calls(history: History) -> None:
    history.codex(Rollout(CHILD).started("t").context().count(1000).count(1000).wait(500).count(1000).count(2500))
    done = history.imported()
    assert (history.total(), history.calls()) == ((2500, 250, 0, None), 2)
    assert done["receipts"]["dropped"] == 2


@pytest.mark.parametrize("order", [(PARENT, CHILD), (CHILD, PARENT)])
def test_a_forks_copied_totals_are_its_baseline_in_any_order(history: History, order: tuple[str, str]) -> None:
    paths = {
        PARENT: history.codex(old(PARENT, 1000, 2500)),
        CHILD: history.codex(old(CHILD, 3550, copied=(1000, 2500), forked_from_id=PARENT)),
    }
    for name in order:
        history.imported(roots=[paths[name]])
        history.usage()
    assert history.rows() == {ONE: (2500, 250, 0, None), TWO: (1050, 105, 0, None)}
    history.sound()


@pytest.mark.parametrize("order", [(PARENT, CHILD), (CHILD, PARENT)])
def test_a_forks_copied_turns_add_nothing_in_any_order(history: History, order: tuple[str, str]) -> None:
    before, own = uuid7(T0 - 90_000, 7), uuid7(T0 + 10, 8)
    paths = {
        PARENT: history.codex(turned(PARENT, (before, 2500, 2500))),
        CHILD: history.codex(turned(CHILD, (before, 2500, 2500), (own, 3550, 1050), forked_from_id=PARENT)),
    }
    for name in order:
        history.imported(roots=[paths[name]])
    assert history.rows() == {ONE: (2500, 250, 0, None), TWO: (1050, 105, 0, None)}
    assert history.ends(TWO) == ["completed"]


@pytest.mark.parametrize("order", [(PARENT, CHILD), (CHILD, PARENT)])
def test_copied_turns_whose_names_tell_no_time_add_nothing_in_any_order(
    history: History, order: tuple[str, str]
) -> None:
    paths = {
        PARENT: history.codex(turned(PARENT, ("turn-a", 1000, 1000), ("turn-b", 2500, 1500))),
        CHILD: history.codex(
            turned(CHILD, ("turn-a", 1000, 1000), ("turn-b", 2500, 1500), ("turn-c", 3550, 1050), forked_from_id=PARENT)
        ),
    }
    for name in order:
        history.imported(roots=[paths[name]])
    assert history.rows() == {ONE: (2500, 250, 0, None), TWO: (1050, 105, 0, None)}


def test_two_forks_that_did_different_work_of_equal_size_are_two(history: History) -> None:
    history.codex(old(PARENT, 1000))
    for thread in (CHILD, OTHER):
        history.codex(old(thread, 1540, copied=(1000,), forked_from_id=PARENT))
    history.imported()
    assert (history.total(), history.calls()) == ((2080, 208, 0, None), 3)


def test_a_subagent_without_copied_totals_counts_from_its_first(history: History) -> None:
    history.codex(turned(PARENT, ("t1", 1000, 1000)))
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1}}}
    history.codex(turned(CHILD, ("t2", 700, 700), parent_thread_id=PARENT, source=spawn))
    history.imported()
    assert history.rows() == {ONE: (1000, 100, 0, None), TWO: (700, 70, 0, None)}
    assert history.sessions()[TWO]["interactive"] is False


def test_what_was_seen_counted_inherited_and_dropped_is_told(history: History) -> None:
    history.codex(old(PARENT, 1000, 1000, 2500))
    history.codex(old(CHILD, 3550, copied=(1000, 2500), forked_from_id=PARENT))
    told = history.imported()["receipts"]
    assert (told["inherited"], told["dropped"]) == (2, 1)
    assert history.calls() == 3


def test_a_fork_without_its_parent_does_not_count_the_parents_work(history: History) -> None:
    whole = 3_000_000_000
    made = Rollout(CHILD, forked_from_id=PARENT).prompt("go").context()
    history.codex(made.count(whole).prompt("on").count(whole + 748_000))
    history.imported()
    assert history.total()[0] == 748_000
    assert history.gaps()["start_unknown"] == 1
    assert "≥748,000" in history.table().out


def test_a_resumed_conversation_is_booked_on_the_day_of_each_call(history: History) -> None:
    made = Rollout(CHILD).started("t1").context().count(1000).wait(2 * DAY).started("t2").count(2500, 1500)
    history.codex(made)
    history.imported()
    days = [stamp(T0)[:10], stamp(T0 + 2 * DAY)[:10]]
    assert history.rows("daily") == {days[0]: (1000, 100, 0, None), days[1]: (1500, 150, 0, None)}


# --- responses beside totals


def test_a_compactions_request_is_counted_where_only_its_record_tells_it(history: History) -> None:
    made = Rollout(CHILD, ordinal=0).started("t").context(turn_id="t")
    made.record("r1", 2500, turn_id="t").count(2500, 2500).record("resp_c", 4600, turn_id="t")
    history.codex(made.add("compacted", {"message": "s", "compaction_response_id": "resp_c"}))
    history.imported()
    assert (history.total(), history.calls()) == ((7100, 710, 0, None), 2)


def test_a_compaction_that_nothing_tells_is_a_gap(history: History) -> None:
    made = Rollout(CHILD).started("t").context().count(1000).said("done").ended("t").started("u")
    history.codex(made.add("compacted", {"message": "the sum of it"}).ended("u"))
    history.imported()
    assert history.total() == (1000, 100, 0, None)
    assert history.gaps()["compaction_unrecorded"] == 1


def test_records_and_totals_of_the_same_responses_count_once(history: History) -> None:
    made = Rollout(CHILD, ordinal=0).started("t").context(turn_id="t")
    made.record("r1", 1000, turn_id="t").count(1000, 1000).record("r2", 1500, turn_id="t").count(2500, 1500)
    history.codex(made)
    history.imported()
    assert (history.total(), history.calls()) == ((2500, 250, 0, None), 2)


def test_cached_and_written_input_are_parts_of_it_and_reasoning_is_part_of_the_output(history: History) -> None:
    history.codex(Rollout(CHILD).started("t").context().count(usage(100, 40, 10, 5, 30)))
    history.imported()
    told = history.usage()["totals"]["tokens"]
    assert (told["input"], told["cache_read"], told["cache_write"], told["output"]) == (30, 40, 30, 10)
    assert (told["total_input"], told["reasoning"]) == (100, 5)


def test_a_priority_call_has_its_own_price(history: History) -> None:
    made = Rollout(CHILD).started("t").context(model="gpt-5.2", service_tier="priority")
    history.codex(made.count(usage(1_000_000, 0, 0, 0)))
    history.imported()
    (stream,) = history.explained(TWO)["streams"]
    assert stream["tier"] == "priority"
    normal = 1.75
    assert stream["estimated_usd"] is None or stream["estimated_usd"] > normal


def test_a_phantom_total_of_an_exceeded_window_is_nothing_and_begins_anew(history: History) -> None:
    phantom = usage(0, 0, 0, 0, total=258_400)
    made = Rollout(CHILD).started("t").context().count(84_556).count(phantom, phantom).ended("t", None)
    history.codex(made.started("u").count(7_943, 7_943).said("ok").ended("u"))
    history.imported()
    assert history.total() == (84_556 + 7_943, 8_455 + 794, 0, None)
    assert history.ends(TWO) == ["failed", "completed"]


# --- files


def test_a_compressed_rollout_is_read_and_one_that_lies_plain_too_counts_once(history: History) -> None:
    made = turned(CHILD, ("t", 1000, 1000))
    place = history.codex(made)
    packed = history.write(f"{place}.zst", zstandard.compress(made.bytes))
    (history.root / place).unlink()
    history.imported()
    assert (history.total(), history.calls()) == ((1000, 100, 0, None), 1)
    history.codex(made)
    history.imported()
    assert (history.total(), history.calls()) == ((1000, 100, 0, None), 1)
    packed.unlink()
    history.codex(turned(OTHER, ("u", 10, 10)))
    history.imported()
    assert history.calls() == 2


def test_a_file_that_is_compressed_later_goes_on_where_it_was_read(history: History) -> None:
    made = turned(CHILD, ("t", 1000, 1000))
    place = history.codex(made)
    history.imported()
    made.started("u").count(1500, 500).said("ok").ended("u")
    history.write(f"{place}.zst", zstandard.compress(made.bytes))
    (history.root / place).unlink()
    done = history.imported()
    assert done["receipts"] == {"new": 4, "known": 0, "inherited": 0, "dropped": 0}
    assert history.total() == (1500, 150, 0, None)


def test_a_compressed_file_cut_short_gives_what_it_has(history: History) -> None:
    made = turned(CHILD, *((f"t{n}", (n + 1) * 100, 100) for n in range(300)))
    packer = zstandard.ZstdCompressor().compressobj()
    whole = b"".join(
        packer.compress(line + b"\n") + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for line in made.lines
    )
    place = history.codex(made)
    (history.root / place).unlink()
    history.write(f"{place}.zst", whole[: len(whole) * 2 // 3])
    done = history.imported(code=PROBLEMS)
    assert "zst_cut_short" in kinds(done)
    assert 100 < history.calls() < 300
    assert history.gaps()["unreadable"] >= 1


def test_a_continued_conversation_is_one_and_numbers_given_twice_are_told(history: History) -> None:
    first = Rollout(CHILD, ordinal=0).started("t1").context(turn_id="t1").record("r1", 1000, turn_id="t1").ended("t1")
    again = Rollout(CHILD, ordinal=0).started("t2").context(turn_id="t2").record("r2", 500, turn_id="t2").ended("t2")
    history.codex(first)
    history.codex(again, f"{CHILD}_{uuid7(T0 + 5, 9)}")
    done = history.imported(code=PROBLEMS)
    assert history.rows() == {TWO: (1500, 150, 0, None)}
    assert kinds(done) == ["duplicate_ordinal"]
    assert history.gaps().get("unreadable") is None


def test_files_count_though_the_programs_database_does_not_know_them(history: History) -> None:
    for thread in (PARENT, CHILD):
        history.codex(turned(thread, (f"t-{thread}", 1000, 1000)))
    state = apsw.Connection(str(history.root / "codex" / "state_5.sqlite"))
    state.execute("CREATE TABLE threads (id TEXT, tokens_used INTEGER)")
    state.execute("INSERT INTO threads VALUES (?, 258400)", (PARENT,))
    state.close()
    history.imported()
    assert history.total() == (2000, 200, 0, None)


def test_an_end_that_comes_later_ends_the_turn(history: History, turnlog_: Any) -> None:
    made = Rollout(CHILD).started("t").context().count(1000)
    place = history.codex(made)
    history.imported()
    assert history.ends(TWO) == []
    assert "running" not in turnlog_("sessions", "--all").out.lower()
    more = Rollout(CHILD, headed=False, clock=60_000).ended("t").bytes
    history.append(place, more)
    assert history.imported()["bytes"] == len(more)
    assert history.ends(TWO) == ["completed"]


def test_an_interrupted_turn_has_a_gap_for_what_it_used(history: History) -> None:
    made = (
        turned(CHILD, ("t", 1000, 1000)).started("u").context().event("turn_aborted", turn_id="u", reason="interrupted")
    )
    history.codex(made)
    history.imported()
    assert history.ends(TWO) == ["completed", "interrupted"]
    assert history.gaps() == {"interrupted": 1}


def test_a_turn_that_failed_is_failed(history: History) -> None:
    made = Rollout(CHILD).started("t").context().count(1000)
    history.codex(made.ended("t", None, error={"message": "boom", "codex_error_info": "other"}))
    history.imported()
    assert history.ends(TWO) == ["failed"]


def test_the_oldest_rollouts_have_turns_without_usage_and_that_is_unknown(history: History) -> None:
    lines: list[dict[str, Any]] = [
        {"id": CHILD, "timestamp": stamp(T0), "instructions": None, "git": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello obelisk"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
    ]
    history.codex(b"".join(json.dumps(line).encode() + b"\n" for line in lines), CHILD)
    history.imported()
    totals = history.usage()["totals"]
    assert (totals["tokens"]["input"], totals["calls"]) == (None, None)
    assert history.gaps() != {}
    assert len(history.hits("obelisk")) == 1


def test_lines_are_read_whatever_their_ends(history: History) -> None:
    made = turned(CHILD, ("t", 1000, 1000))
    history.codex(b"\xef\xbb\xbf" + made.bytes.replace(b"\n", b"\r\n"), CHILD)
    done = history.imported(code=PROBLEMS)
    assert problems(done) == [("byte_order_mark", 0)]
    assert history.total() == (1000, 100, 0, None)
    assert history.ends(TWO) == ["completed"]
    assert history.gaps() == {}


def test_a_torn_and_resumed_rollout_loses_the_torn_line_alone(history: History) -> None:
    made = turned(CHILD, ("t", 1000, 1000))
    torn = made.lines[-1][:40]
    history.codex(b"\n".join(made.lines[:-1]) + b"\n" + torn + made.lines[-1] + b"\n", CHILD)
    done = history.imported(code=PROBLEMS)
    assert problems(done) == [("torn", sum(len(line) + 1 for line in made.lines[:-1]))]
    assert history.ends(TWO) == ["completed"]
    assert history.gaps() == {"unreadable": 1}


def test_a_model_switch_splits_the_sums(history: History) -> None:
    made = Rollout(CHILD).started("t").context(model="m-a").count(1000).said("a").ended("t")
    history.codex(made.started("u").context(model="m-b").count(1500, 500).said("b").ended("u"))
    history.imported()
    assert history.rows("model") == {"m-a": (1000, 100, 0, None), "m-b": (500, 50, 0, None)}


@pytest.mark.parametrize("bad", [-5, 1.5, "12", True])
def test_a_counter_that_is_no_count_is_told_and_the_rest_counts(history: History, bad: Any) -> None:
    wrong: Any = usage(1500, 0, 150, 0) | {"cached_input_tokens": bad}
    made = Rollout(CHILD).started("t").context().count(1000).count(wrong, 500)
    history.codex(made.said("ok").ended("t"))
    done = history.imported(code=PROBLEMS)
    assert kinds(done) == ["bad_counter"]
    totals = history.usage()["totals"]["tokens"]
    assert (totals["total_input"], totals["output"]) == (1500, 150)
    assert history.gaps()["unreadable"] == 1


def test_a_counter_named_twice_is_told(history: History) -> None:
    made = Rollout(CHILD).started("t").context().count(1000, 1000).said("ok").ended("t")
    data = made.bytes.replace(b'"total_token_usage":{', b'"total_token_usage":{"input_tokens":7,')
    history.codex(data, CHILD)
    assert kinds(history.imported(code=PROBLEMS)) == ["duplicate_key"]
    assert history.total() == (1000, 100, 0, None)
    assert history.gaps() == {"unreadable": 1}


def test_limits_without_counts_are_a_limit_and_no_call(history: History, turnlog_: Any) -> None:
    limits = {"primary": {"used_percent": 53.0, "window_minutes": 300, "resets_at": T0 // 1000 + 3600}}
    history.codex(Rollout(CHILD).started("t").context().event("token_count", info=None, rate_limits=limits))
    history.imported()
    assert history.usage()["totals"]["calls"] is None
    assert "limits" in history.notes(TWO)


def test_turns_that_were_rolled_back_stay_spent(history: History) -> None:
    made = turned(CHILD, ("t", 1000, 1000), ("u", 2500, 1500)).event("thread_rolled_back", num_turns=1)
    history.codex(made)
    history.imported()
    assert history.total() == (2500, 250, 0, None)
    assert "rolled_back" in history.notes(TWO)


def test_a_conversation_without_model_has_calls_of_an_unknown_one(history: History) -> None:
    history.codex(Rollout(CHILD).started("t").count(1000).said("ok").ended("t"))
    history.imported()
    assert history.rows("model") == {"unknown": (1000, 100, 0, None)}
    assert history.usage()["totals"]["cost"]["unpriced_calls"] == 1


def test_a_parent_that_was_imported_from_elsewhere_tells_what_its_fork_copied(history: History) -> None:
    base = {"thread_id": PARENT, "end_ordinal_exclusive": 4}
    parent = Rollout(PARENT, ordinal=0).started("t").context(turn_id="t").record("r1", 2500, 2500, turn_id="t")
    child = Rollout(CHILD, ordinal=4, history_base=base).started("u").context(turn_id="u").count(3550)
    history.imported(roots=[history.codex(parent)])
    history.imported(roots=[history.codex(child)])
    assert history.rows() == {ONE: (2500, 250, 0, None), TWO: (1050, 105, 0, None)}
    assert "start_unknown" not in history.gaps()
