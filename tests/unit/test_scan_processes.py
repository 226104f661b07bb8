"""Several processes look at one history: what each saw alone, what several saw, and processes that die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scan_files import answer, claude, gaps, totals, variables
from turnlog.harness.quick import Call
from turnlog.intake import readers, scan_jobs
from turnlog.intake.scan import Scan, discover, looking, scan_usage
from turnlog.intake.scan_sums import Sheaf, gathered
from turnlog.usage.buckets import Bucket

FILES = 12


@pytest.fixture(autouse=True)
def shared_however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_jobs, "PARALLEL", 0)
    # Another test may have left a thread, beside which a look does not fork.
    monkeypatch.setattr("turnlog.intake.scan_jobs.threading.active_count", lambda: 1)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Every conversation repeats the first call of the one before it, which each was resumed from, and says more."""
    for number in range(FILES):
        lines = [answer(f"m{number}", 10, session=f"s{number}", at=f"10:{number:02}:00")]
        if number:
            lines.insert(0, answer(f"m{number - 1}", 7, session=f"s{number}", at=f"10:{number:02}:30"))
        claude(tmp_path, f"s{number}.jsonl", lines)
    claude(tmp_path, "torn.jsonl", [answer("m-torn", 1, session="torn"), '{"type":"assistant","usage":{'])
    return tmp_path


def look(history: Path, between: Callable[[list[int]], None] | None = None) -> Scan:
    found = discover(readers(), variables(history))
    with looking(found, jobs=3) as scanning:
        pids = [child.pid for child in scanning._crew._children]
        assert len(pids) == 2
        if between is not None:
            between(pids)
        return scanning.result()


def plainly(found: Scan) -> object:
    sums = {
        session: sorted((each.start, str(each.kind), str(each.sums)) for each in buckets)
        for session, buckets in found.buckets.items()
    }
    return sums, found.conversations, found.troubles, found.files, found.bytes


def test_calls_that_several_processes_saw_count_once(history: Path) -> None:
    alone = scan_usage(readers(), variables(history), jobs=1)
    assert totals(alone)["calls"] == FILES + 1
    assert totals(alone)["output"] == FILES * 10 + 1
    assert plainly(look(history)) == plainly(alone)


def test_processes_that_die_cost_nothing_but_time(history: Path) -> None:
    alone = scan_usage(readers(), variables(history), jobs=1)

    def kill(pids: list[int]) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    assert plainly(look(history, kill)) == plainly(alone)
    assert plainly(look(history, lambda pids: kill(pids[:1]))) == plainly(alone)


def test_a_process_that_dies_while_it_adds_up_costs_nothing_but_time(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = scan_usage(readers(), variables(history), jobs=1)
    this = os.getpid()

    def prices() -> None:
        if os.getpid() != this:
            os._exit(9)

    found = discover(readers(), variables(history))
    with looking(found, jobs=3, prices=prices) as scanning:
        assert plainly(scanning.result()) == plainly(alone)


def test_a_look_that_is_given_up_leaves_no_process(history: Path) -> None:
    pids: list[int] = []
    found = discover(readers(), variables(history))

    def give_up() -> None:
        with looking(found, jobs=4) as scanning:
            pids.extend(child.pid for child in scanning._crew._children)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        give_up()
    assert len(pids) == 3
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_what_there_is_to_look_at_is_known_with_its_size(history: Path) -> None:
    found = discover(readers(), variables(history))
    assert len(found.sources) == FILES + 1
    assert found.bytes == sum(path.stat().st_size for path in (history / "claude").rglob("*.jsonl"))
    assert found.unlisted == []
    assert gaps(look(history)) == {}


CALLS = st.builds(
    Call,
    call=st.sampled_from(["claude:a", "claude:b", "claude:c"]),
    session=st.sampled_from(["s1", "s2"]),
    at=st.integers(0, 2).map(lambda n: n * 900_000),
    model=st.just("m"),
    input=st.none() | st.integers(0, 5),
    output=st.none() | st.integers(0, 5),
    cache_read=st.none() | st.integers(0, 5),
    cache_write=st.just(0),
    rivals=st.sampled_from([(), (), ("s1",)]),
)


@given(st.lists(st.tuples(CALLS, st.integers(0, 2)), max_size=10))
def test_who_saw_a_call_makes_no_difference(seen: list[tuple[Call, int]]) -> None:
    def sums(several: list[list[Call]]) -> object:
        sheaves = []
        for calls in several:
            sheaf = Sheaf()
            sheaf.take("claude", [_copy(call) for call in calls])
            sheaves.append(sheaf)
        marks = [set(sheaf.marks()) for sheaf in sheaves]
        shared = {mark for own in marks for mark in own if sum(mark in other for other in marks) > 1}
        return _plain(gathered([sheaf.part(shared, None) for sheaf in sheaves], (), None))

    assert sums([[call for call, _ in seen]]) == sums([[call for call, by in seen if by == who] for who in range(3)])


def _copy(call: Call) -> Call:
    rivals = tuple(rival for rival in call.rivals if rival != call.session)
    counters = {name: getattr(call, name) for name in ("input", "output", "cache_read", "cache_write")}
    return Call(call.call, call.session, call.at, call.model, rivals=rivals, **counters)


def _plain(found: dict[tuple[str, str], list[Bucket]]) -> object:
    return {name: sorted((each.start, str(each)) for each in buckets) for name, buckets in found.items()}
