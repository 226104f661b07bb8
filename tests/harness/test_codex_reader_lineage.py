"""Forks, subagents, continuations: what was copied counts nowhere, what was done counts once."""

from __future__ import annotations

import itertools

import pytest

from tests.harness.codex_rollouts import (
    CHILD,
    PARENT,
    T0,
    Rollout,
    ends,
    fact,
    gaps,
    inputs,
    kinds,
    of_kind,
    owned,
    payload,
    read,
    spent,
    usage,
    uuid7,
)
from turnlog.harness.reading import Reading

OLD = uuid7(T0 - 50_000, 1)
NEW = uuid7(T0 + 5000, 1)
SIBLING = uuid7(T0 + 1, 3)
GRAND = uuid7(T0 - 200_000, 0)


def without_ids(parent_totals: list[int], thread: str = PARENT, clock: int = -90_000) -> Rollout:
    rollout = Rollout(thread, clock=clock).context().prompt("first")
    for total in parent_totals:
        rollout.count(total)
    return rollout


def copied(thread: str, parent: Rollout, *, marked: bool = True) -> Rollout:
    """Begin a fork as versions without turn ids do: the parent's lines, all of the fork's moment."""
    fork = Rollout(thread, forked_from_id=parent.thread) if marked else Rollout(thread)
    fork.meta(parent.thread).context().prompt("first")
    return fork


def test_a_fork_without_turn_ids_counts_only_what_its_parent_has_not() -> None:
    parent = without_ids([1000, 2500])
    child = copied(CHILD, parent).count(1000).count(2500).wait(60_000).prompt("more").count(3550)
    readings = [read(parent), read(child, parent)]
    for order in itertools.permutations(readings):
        assert owned(order) == {PARENT: [1000, 1500], CHILD: [1050]}
    assert {each.rivals for each in of_kind(readings[1], "usage")} == {(PARENT,)}
    assert {each.rivals for each in of_kind(readings[0], "usage")} == {()}


def test_a_fork_that_is_marked_by_a_second_meta_alone_is_one() -> None:
    parent = without_ids([1000])
    child = copied(CHILD, parent, marked=False).count(1000).prompt("more").count(1700)
    reading = read(child, parent)
    assert owned([read(parent), reading]) == {PARENT: [1000], CHILD: [700]}
    assert (fact(reading, "parent")[-1], fact(reading, "relation")[-1]) == (PARENT, "fork")


def test_a_fork_of_a_fork_counts_what_neither_has() -> None:
    grand = without_ids([1000], GRAND, -190_000)
    parent = Rollout(PARENT, clock=-90_000).meta(GRAND).context().prompt("first").count(1000).prompt("b").count(1500)
    child = Rollout(CHILD).meta(PARENT).meta(GRAND).context().prompt("first").count(1000).count(1500).count(1900)
    files = (grand, parent, child)
    readings = [read(each, *files) for each in files]
    for order in itertools.permutations(readings):
        assert owned(order) == {GRAND: [1000], PARENT: [500], CHILD: [400]}


def test_a_fork_that_names_only_its_parent_finds_the_root_in_the_parents_file() -> None:
    grand = without_ids([1000], GRAND, -190_000)
    parent = Rollout(PARENT, clock=-90_000, forked_from_id=GRAND).count(1000).count(1500)
    child = Rollout(CHILD, forked_from_id=PARENT).count(1000).count(1500).count(1900)
    files = (grand, parent, child)
    assert owned([read(each, *files) for each in files]) == {GRAND: [1000], PARENT: [500], CHILD: [400]}


def test_siblings_that_did_work_of_equal_size_are_two_calls() -> None:
    parent = without_ids([1000])
    children = [copied(name, parent).count(1000).prompt("go").count(1540) for name in (CHILD, SIBLING)]
    readings = [read(parent), *(read(each, parent) for each in children)]
    assert owned(readings) == {PARENT: [1000], CHILD: [540], SIBLING: [540]}


def test_a_child_whose_parent_is_nowhere_counts_from_its_first_totals() -> None:
    child = Rollout(CHILD, forked_from_id=PARENT).count(3_000_000_000).count(3_000_748_000)
    reading = read(child)
    assert inputs(reading) == [748_000]
    assert gaps(reading) == ["start_unknown"]


def test_a_child_whose_parent_is_nowhere_counts_a_first_response_that_is_the_whole_total() -> None:
    child = Rollout(CHILD, forked_from_id=PARENT).wait(500).count(1000, 1000).count(2000, 1000)
    assert inputs(read(child)) == [1000, 1000]


def test_a_subagent_that_copied_nothing_counts_from_its_first_response() -> None:
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1}}}
    child = Rollout(CHILD, source=spawn).wait(500).context().prompt("go").count(1000, 1000)
    reading = read(child, without_ids([1000]))
    assert owned([read(without_ids([1000])), reading]) == {PARENT: [1000], CHILD: [1000]}
    assert (fact(reading, "parent"), fact(reading, "relation")) == ([PARENT], ["subagent"])


def with_ids() -> Rollout:
    """Make a fork as versions with turn ids do: the parent's turn, copied with all it counted."""
    child = Rollout(CHILD, forked_from_id=PARENT).meta(PARENT).started(OLD).context("gpt-old", turn_id=OLD)
    child.prompt("of the parent").said("parent's answer").count(1000, 1000).count(1000, 1000).count(2500, 1500)
    return child.ended(OLD, "parent's answer").wait(5000).started(NEW).context(turn_id=NEW).prompt("my own")


def test_turns_older_than_the_conversation_are_its_parents() -> None:
    child = with_ids().count(2500, 1500).said("mine").count(3550, 1050).ended(NEW, "mine")
    reading = read(child)
    assert (inputs(reading), reading.inherited, reading.dropped) == ([1050], 2, 2)
    assert {each.turn for each in reading.found} == {NEW}
    assert fact(reading, "title") == ["my own"]
    assert [passage.text for said in reading.spoken for passage in said.passages] == ["my own", "mine"]


def test_every_event_is_seen_counted_inherited_or_dropped() -> None:
    child = with_ids().count(2500, 1500).count(3550, 1050).count(3550, 1050)
    reading = read(child)
    events = sum(b'"token_count"' in line for line in child.lines)
    assert len(of_kind(reading, "usage")) + reading.inherited + reading.dropped == events


def test_a_turn_that_began_before_the_conversation_is_its_parents_whatever_its_name() -> None:
    child = Rollout(CHILD, forked_from_id="p").meta("p").started("old", started_at=(T0 - 5000) // 1000).count(9000)
    reading = read(child.started("new", started_at=T0 // 1000 + 60).count(9500, 500))
    assert (inputs(reading), reading.inherited) == ([500], 1)


def test_a_turn_of_the_same_second_is_decided_by_the_parents_file() -> None:
    parent = Rollout("p", clock=-100).started("old", started_at=T0 // 1000).count(9000, 9000)
    child = Rollout("c", forked_from_id="p").started("old", started_at=T0 // 1000).count(9000, 9000)
    child.started("new", started_at=T0 // 1000).count(9500, 500)
    assert owned([read(parent), read(child, parent)]) == {"p": [9000], "c": [500]}
    assert inputs(read(child)) == [9000, 500]


def test_a_local_turn_of_the_moment_of_the_fork_counts() -> None:
    child = Rollout("c", forked_from_id="p").started("fresh", started_at=T0 // 1000)
    child.count(1000, 1000).wait(600).count(2000, 1000).wait(66_000).count(3000, 1000)
    assert inputs(read(child)) == [1000, 1000, 1000]


def test_a_subagent_with_its_parents_items_does_not_end_its_parents_turn() -> None:
    child = Rollout(
        CHILD, forked_from_id=PARENT, parent_thread_id=PARENT, thread_source="subagent", source={"subagent": "x"}
    )
    child.meta(PARENT).started(OLD).context(turn_id=OLD).event("turn_aborted", turn_id=OLD, reason="interrupted")
    child.event("task_started", turn_id=NEW, turn_attribution={"parent_turn_id": OLD}).context(turn_id=NEW)
    reading = read(child.record("r3", 12_622, 12_622, turn_id=NEW).count(12_622, 12_622).ended(NEW))
    assert (ends(reading), inputs(reading)) == ([(NEW, "completed")], [12_622])
    assert fact(reading, "parent_turn") == [OLD]
    assert fact(reading, "relation") == ["subagent"]


def paginated() -> Rollout:
    base = {"thread_id": PARENT, "end_ordinal_exclusive": 3}
    return Rollout(CHILD, ordinal=3, forked_from_id=PARENT, history_base=base).started(NEW).context(turn_id=NEW)


def test_a_fork_without_a_copy_goes_on_from_its_parents_totals() -> None:
    parent = Rollout(PARENT, clock=-90_000, ordinal=0).started(OLD).count(60_883, 10_000).count(70_000, 9117)
    fork = paginated().count(83_288, 22_405)
    assert inputs(read(fork, parent)) == [22_405]
    assert counted(read(paginated().count(83_288, 5000), parent)) == [22_405]
    assert gaps(read(paginated().count(83_288, 5000), parent)) == ["witness_mismatch", "witness_mismatch"]


def test_a_fork_without_a_copy_and_without_its_parent_counts_at_least_its_first_response() -> None:
    reading = read(paginated().count(83_288, 5000).count(84_288, 1000))
    assert (inputs(reading), gaps(reading)) == ([5000, 1000], ["start_unknown"])
    reading = read(paginated().count(83_288, 5000).record("r1", 5000, 83_288, turn_id=NEW).count(84_288, 1000))
    assert inputs(reading) == [5000, 1000]


def counted(reading: Reading) -> list[int]:
    """The input of each call, as the ledger counts it: the largest that was told."""
    known: dict[str | None, int] = {}
    for each in of_kind(reading, "usage"):
        known[each.call] = max(known.get(each.call, 0), payload(each)["usage"]["input_tokens"])
    return list(known.values())


def test_what_a_file_alone_does_not_tell_is_noted_whoever_tells_it() -> None:
    parent = Rollout(PARENT, clock=-90_000, ordinal=0).started(OLD).count(60_883, 10_000)
    alone, told = (read(paginated().count(83_288, 5000), *others) for others in ((), (parent,)))
    words = [[each.source.partition(":")[0] for each in reading.noted] for reading in (alone, told)]
    assert words == [["gap", "unknown"], ["gap", "start_told", "unknown"]]
    assert (alone.wanted, told.wanted) == (PARENT, None)
    known = {(each.source, each.evidence) for each in told.noted}
    assert {(each.source, each.evidence) for each in alone.noted} < known
    assert {each.payload for each in alone.found} < {each.payload for each in told.found}


def test_a_copied_history_begins_where_its_roots_did_whether_the_parents_file_is_there_or_not() -> None:
    parent = without_ids([1000, 2500])
    child = copied(CHILD, parent).count(1000).count(2500).prompt("more").count(3550)
    readings = [read(child, *others) for others in ((), (parent,))]
    receipts = [{(each.payload, each.rivals) for each in of_kind(reading, "usage")} for reading in readings]
    assert receipts[0] == receipts[1]
    assert inputs(read(child)) == [1000, 1500, 1050]


def test_a_fork_without_a_copy_counts_its_responses() -> None:
    fork = paginated().record("r9", 22_405, 83_288, turn_id=NEW).count(83_288, 22_405)
    assert inputs(read(fork)) == [22_405]


def test_services_that_number_their_responses_anew_lose_none() -> None:
    files = [Rollout(name).started(NEW).record("resp_1", 1000, 1000, turn_id=NEW) for name in (CHILD, SIBLING)]
    calls = [each.call for file in files for each in of_kind(read(file), "usage")]
    assert len(set(calls)) == 2


def test_the_totals_of_a_base_are_those_of_its_own_base_where_it_has_none() -> None:
    grand = Rollout(GRAND, clock=-190_000, ordinal=0).started(OLD).count(60_000, 60_000)
    base = {"thread_id": GRAND, "end_ordinal_exclusive": 3}
    parent = Rollout(PARENT, clock=-90_000, ordinal=2, history_base=base)
    assert counted(read(paginated().count(61_000, 500), parent, grand)) == [1000]


def test_parents_in_a_circle_end() -> None:
    one = Rollout("a", forked_from_id="b").count(1000)
    other = Rollout("b", forked_from_id="a").count(1000)
    assert inputs(read(one, one, other)) == [1000]


def test_a_continuation_belongs_to_its_thread_and_repeated_numbers_are_told_once() -> None:
    stub = Rollout(CHILD, ordinal=0).started(OLD).record("r1", 1000, 1000, turn_id=OLD).ended(OLD)
    more = Rollout(CHILD, ordinal=1, headed=False)
    base = {"thread_id": CHILD, "end_ordinal_exclusive": 2}
    more.meta(CHILD, history_base=base).started(NEW).record("r2", 500, 1500, turn_id=NEW).ended(NEW)
    name = f"/codex/sessions/rollout-2026-09-21T15-00-00-{CHILD}_{uuid7(T0 + 9)}.jsonl"
    reading = read(more, stub, path=name)
    assert {each.session for each in reading.found} == {CHILD}
    assert (inputs(reading), kinds(reading)) == ([500], ["duplicate_ordinal"])
    assert not reading.troubles[0].usage
    assert fact(reading, "relation") == []
    assert owned([read(stub), reading]) == {CHILD: [1000, 500]}


def test_a_conversation_that_is_resumed_introduces_itself_again() -> None:
    rollout = Rollout().started(NEW).count(1000, 1000).wait(86_400_000).meta(CHILD, cli_version="0.141.0")
    reading = read(rollout.started("later").count(1700, 700))
    assert (inputs(reading), of_kind(reading, "usage")[0].rivals) == ([1000, 700], ())
    assert of_kind(reading, "usage")[1].at == T0 + 86_400_050
    assert fact(reading, "parent") == []


def test_the_same_steps_have_the_same_names_in_every_copy_of_a_file() -> None:
    rollout = with_ids().count(3550, 1050)
    assert [each.call for each in of_kind(read(rollout), "usage")] == [
        each.call for each in of_kind(read(rollout, path=f"/x/{CHILD}.jsonl.zst"), "usage")
    ]


@pytest.mark.parametrize("missing", ["thread_id", None])
def test_a_file_without_its_first_line_is_its_names(missing: str | None) -> None:
    rollout = Rollout(CHILD, headed=False).started(NEW).context(turn_id=NEW)
    rollout.record("r1", 1000, 1000, turn_id=NEW, **({"thread_id": None} if missing else {})).count(1000, 1000)
    reading = read(rollout)
    assert (inputs(reading), {each.session for each in reading.found}) == ([1000], {CHILD})
    assert reading.facts[0].session == CHILD


def test_the_id_inside_beats_the_name() -> None:
    reading = read(Rollout("inner").started(NEW).count(10, 10), path="/x/rollout-2026-09-21T14-13-20-outer.jsonl")
    assert {each.session for each in reading.found} == {each.session for each in reading.facts} == {"inner"}
    assert reading.facts[0].aliases == ("rollout-2026-09-21T14-13-20-outer",)


def test_counters_of_a_fork_that_begin_again_are_no_gap() -> None:
    child = with_ids().count(700, 700)
    reading = read(child)
    assert (spent(reading), gaps(reading)) == ([(700, 0, 70, 0)], [])
    assert payload(of_kind(reading, "usage")[0])["usage"] == {
        name: value for name, value in usage(700, 0, 70, 0).items() if name != "total_tokens"
    }
